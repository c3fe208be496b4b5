"""What leaves a release depends on the rows through its noise alone: not its exit nor its words."""

import json
import tempfile
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from counterveil import files
from counterveil.audit import neighbours
from counterveil.cli import main
from counterveil.curator import Curator, sources
from counterveil.curator.table import PrivateTable, people_of, person_of
from counterveil.errors import DataError, RequestError
from counterveil.privacy import Budget
from counterveil.privacy.ledger import Ledger
from counterveil.schema import Categorical, Label, Numeric, Schema
from counterveil.terminal import PROGRESS
from counterveil.veil import Veil

SCHEMA = Schema(
    name="loans",
    features=(
        Numeric(name="income", lower=0, upper=100),
        Categorical(name="region", categories=("north", "south")),
    ),
    label=Label(name="granted", classes=("no", "yes")),
)
ROWS = pd.DataFrame(
    {
        "income": [10, 20, 30, 40, 50, 60],
        "region": ["north", "south"] * 3,
        "granted": ["no", "no", "yes", "yes", "no", "yes"],
    }
)


def command(*words):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


def release(folder, rows, schema=SCHEMA, *more):
    rows.to_csv(folder / "rows.csv", index=False)
    schema.save(folder / "schema.json")
    return command(
        "release", "--data", folder / "rows.csv", "--schema", folder / "schema.json", "--epsilon",
        0.01, "--epochs", 1, "--out", folder / "x.veil", "--overwrite", *more,
    )  # fmt: skip


@pytest.mark.parametrize("pair", [neighbours.last_of_its_class(), neighbours.last_of_its_kind()])
def test_neighbours_end_alike(pair, tmp_path, capsys):
    """The last row of a class, or of a value, made one of two neighbours an error."""
    seen = []
    for frame in (pair.one, pair.two):
        code = release(tmp_path, frame, pair.schema)
        spoken = capsys.readouterr()
        seen.append((code, spoken.out.split("(")[0], spoken.err))
    assert seen[0] == seen[1]
    assert seen[0][0] == 0


def _people(sizes, **cells):
    """People with so many records each, in the order of their ids, and cells of the first one."""
    who = [f"p{number}" for number, size in enumerate(sizes) for _ in range(size)]
    frame = pd.concat([ROWS] * 9, ignore_index=True).head(len(who)).astype(object)
    frame["person"] = who
    for name, value in cells.items():
        frame.loc[frame.person == "p0", name] = value
    return frame


@pytest.mark.parametrize(
    ("one", "two", "more"),
    [
        (_people([1] * 30), _people([1] * 30, granted="maybe", income="much", region=""), ()),
        (_people([1], granted="maybe"), _people([1]), ()),
        (_people([9] + [1] * 19), _people([1] * 20), ("--unit-column", "person")),
        (
            _people([2] * 10, granted=None),
            _people([26] + [2] * 9, income=-1e300),
            ("--unit-column", "person", "--max-records", 3),
        ),
    ],
    ids=["a record", "the only label", "records of a person", "a person"],
)
def test_nothing_that_is_said_kept_or_shown_tells_neighbours_apart(
    one, two, more, tmp_path, capsys, monkeypatch
):
    """Progress told how many rows have a label and, of people, how many records there are."""
    monkeypatch.setenv(PROGRESS, "lines")
    seen = []
    for name, frame in (("one", one), ("two", two)):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        codes = [release(folder, frame, SCHEMA, "--order", 2, *more)]
        scored = ("model", "score", "--veil", folder / "x.veil", "--data", folder / "rows.csv")
        codes += [command(*scored, "--epsilon", 0.5, "--out", folder / "score.json", *more)]
        spoken = capsys.readouterr()
        sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
        files_made = sorted(set(sizes) - {"rows.csv"})
        said = spoken.out.replace(str(folder), "").split("(")[0], spoken.err
        assert "counting rows" in spoken.err
        seen.append((codes, files_made, sizes["x.veil"], said))
    assert seen[0] == seen[1]
    assert seen[0][0] == [0, 0]


ODD = [
    {"income": 1e9}, {"income": -5}, {"income": "much"}, {"income": ""}, {"region": "Atlantis"},
    {"region": ""}, {"granted": "maybe"}, {"granted": ""},
]  # fmt: skip


@pytest.mark.parametrize("dry", [False, True])
def test_no_value_stops_a_release_or_shows(dry, tmp_path, capsys):
    """32 calls with other bounds found a column's exact maximum, and no ledger knew of it."""
    spoken = []
    for odd_rows in ([{}] * len(ODD), ODD):
        rows = pd.concat([ROWS.astype(object), *(_row(odd) for odd in odd_rows)])
        more = ("--dry-run",) if dry else ()
        assert release(tmp_path, rows, SCHEMA, *more) == 0
        said = capsys.readouterr()
        spoken.append((said.out.split("(")[0], said.err))
    assert spoken[0] == spoken[1]


def _row(changes):
    return pd.DataFrame([ROWS.iloc[-1].to_dict() | changes], dtype=object)


def test_one_odd_cell_does_not_change_how_the_others_count(tmp_path):
    """In a CSV file pandas reads a column as text where one cell is no number."""
    schema = Schema(
        features=(
            Numeric(name="x", lower=0, upper=9),
            Categorical(name="c", categories=(1, 2, 3)),
            Categorical(name="code", categories=("07", "7")),  # numbers, if all cells look like one
        ),
        label=Label(name="y", classes=(0, 1)),
    )
    columns = {"x": [1.5, 2.25, 0.1], "c": [1, 2, 3], "code": ["07", "7", "7"], "y": [0, 1, 1]}
    frame = pd.DataFrame(columns, dtype=object)
    other = frame.copy()
    other.loc[2] = "?"
    tables = []
    for number, rows in enumerate((frame, other)):
        path = tmp_path / f"{number}.csv"
        rows.to_csv(path, index=False)
        for source in (path, rows):
            tables.append(PrivateTable(source, schema).private_rows())
    for points, classes in tables:
        np.testing.assert_array_equal(points[:2], tables[0][0][:2])
        np.testing.assert_array_equal(classes[:2], [0, 1])
    assert len(tables[2][0]) == 2  # the row whose label is in no list counts for nothing


LARGE = 900000000000207008, 900000000000441003  # beyond what floats tell apart


@pytest.mark.parametrize("way", ["arrow", "parquet", "list"])
def test_one_missing_cell_leaves_large_whole_numbers_as_they_are(way, tmp_path):
    schema = Schema(
        features=(Categorical(name="c", categories=LARGE, missing=True),),
        label=Label(name="y", classes=LARGE),
    )
    kept = []
    for last in (LARGE[1], None):
        codes = [*LARGE, *LARGE, last]
        table = pa.table({"c": codes, "y": [*codes[:-1], LARGE[0]], "who": codes})
        pq.write_table(table, tmp_path / "rows.parquet")
        sources = {"arrow": table, "list": table.to_pylist(), "parquet": tmp_path / "rows.parquet"}
        private = PrivateTable(sources[way], schema, unit_column="who", max_records=5)
        assert private.size == 2
        kept.append(private.private_rows())
    for one, two in zip(*kept, strict=True):
        np.testing.assert_array_equal(one[:4], two[:4])


def _bytes_as_text(*cells):
    return pa.array(cells, pa.binary()).view(pa.string())


ODD_COLUMNS = [
    _bytes_as_text(b"north", b"Jane \xe9"), pa.array([1, 2**31 - 1], pa.int32()).view(pa.date32()),
    pa.array([1, 2**62], pa.int64()).view(pa.date64()),
    pa.array([1, 2**31 - 1], pa.int32()).view(pa.time32("s")),
    pa.array([1, 2**62], pa.int64()).view(pa.timestamp("s")),
    pa.array([1, 2**62], pa.int64()).view(pa.duration("ns")),
    pa.DictionaryArray.from_arrays([0, 1], ["north", None]),
    pa.DictionaryArray.from_arrays([0, 1], ["north", "north"]), pa.array([[1], None]),
    pa.array([{"a": 1}, None]), pa.array([Decimal("1.5"), Decimal("9" * 30)]),
    pa.array([None, None]), pa.array([True, None]), pa.array([0.5, float("nan")], pa.float16()),
]  # fmt: skip


@pytest.mark.parametrize("column", ODD_COLUMNS, ids=lambda column: str(column.type))
def test_no_cell_of_arrow_stops_a_release_or_changes_another(column):
    schema = Schema(
        features=(
            Numeric(name="a", lower=0, upper=1),
            Categorical(name="b", categories=("north", "south")),
        ),
        label=Label(name="y", classes=("north", "1")),
    )

    def read(cells):
        table = pa.table({"a": cells, "b": cells, "y": ["north"] * len(cells)})
        return PrivateTable(table, schema).private_rows()[0]

    np.testing.assert_array_equal(read(column)[0], read(column[:1])[0])
    table = pa.table({"a": [0.5] * 2, "b": ["north"] * 2, "y": column, "who": column})
    PrivateTable(table, schema).private_rows()
    people_of(next(iter(PrivateTable(table, schema, unit_column="who")._source.batches()))["who"])


def test_decimals_that_cannot_be_compared_count_as_no_number():
    frame = ROWS.astype(object)
    frame.loc[0] = [Decimal("sNaN"), np.timedelta64(5), "no"]
    points = PrivateTable(frame, SCHEMA).private_rows()[0]
    np.testing.assert_array_equal(points[1:], PrivateTable(ROWS, SCHEMA).private_rows()[0][1:])
    assert people_of(frame["income"])[0] is None


def test_the_exact_check_is_loud_and_written_down(tmp_path, capsys):
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    SCHEMA.save(tmp_path / "schema.json")
    book = Ledger(tmp_path / "ledger.db")
    book.open_account("loans", Budget(1))
    words = ("check", "--data", tmp_path / "rows.csv", "--schema", tmp_path / "schema.json")
    assert command(*words, "--ledger", book.path) == 0
    said = capsys.readouterr()
    assert "PRIVATE" in said.err
    (look,) = book.entries("loans")
    assert "exact check" in look.what
    assert book.accounts()[0].spent.epsilon == 0
    pd.concat([ROWS, _row({"income": 1e9})]).to_csv(tmp_path / "rows.csv", index=False)
    assert command(*words, "--ledger", book.path) == 2
    assert "row 7, column 'income'" in capsys.readouterr().err
    assert len(book.entries("loans")) == 2
    assert command(*words, "--ledger", book.path, "--dataset", "unknown") == 2


SAME = [7, "07", " 7", 7.0, "7", "7.0", np.int64(7), "+7"]


def test_people_are_told_apart_by_a_public_rule():
    assert {person_of(cell) for cell in SAME} == {"7"}
    assert len({person_of(cell) for cell in ["7a", "7A", 8, "-7", "7.5", "7a b"]}) == 6
    assert person_of("Zoe\u0308 ") == person_of("Zo\u00eb")
    empty = pd.Series(["", " ", None, float("nan"), pd.NA, 10**5000], dtype=object)
    assert people_of(empty) == [None] * 6


def test_records_of_one_person_count_once_however_the_id_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "BATCH", 2)  # no part of a file is read in a way of its own
    frame = pd.concat([ROWS.iloc[[0]]] * len(SAME), ignore_index=True)
    frame["person"] = pd.Series(SAME, dtype=object)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    parts = tmp_path / "parts"
    parts.mkdir()
    for number, who in enumerate((7, "7")):  # a column of numbers, and one of texts
        frame.assign(person=who).to_parquet(parts / f"{number}.parquet")
    for source in (frame, tmp_path / "rows.csv", parts):
        table = PrivateTable(source, SCHEMA, unit_column="person", max_records=2)
        assert table.size == 1
        assert len(table.private_rows()[0]) == 2


def test_rows_without_a_person_count_for_nothing_and_only_the_check_says_so():
    frame = ROWS.assign(person=[1, 2, None, "", 3, 4])
    table = PrivateTable(frame, SCHEMA, unit_column="person")
    assert table.size == 4
    assert len(table.private_rows()[0]) == 4
    with pytest.raises(DataError, match="row 3, column 'person': no person given"):
        table.check()


def test_max_records_needs_a_unit_column(tmp_path, capsys):
    with pytest.raises(RequestError, match="needs a unit column"):
        Curator(SCHEMA, max_records=2).plan(ROWS, 1)
    assert release(tmp_path, ROWS, SCHEMA, "--max-records", 2) == 2
    assert "needs a unit column" in capsys.readouterr().err
    for many in (10**30, 0, True, 2.5):
        with pytest.raises(RequestError, match="max_records must be a whole number"):
            Curator(SCHEMA, unit_column="region", max_records=many).plan(ROWS, 1)


@pytest.mark.parametrize("text", ["secret,secret\nsecret,other\n", "52,13\n53,14\n"])
def test_names_of_a_file_without_a_header_are_never_printed(text, tmp_path, capsys):
    (tmp_path / "rows.csv").write_text(text)
    SCHEMA.save(tmp_path / "schema.json")
    for words in (
        ("schema", "draft", tmp_path / "rows.csv", "--label", "granted"),
        ("check", "--data", tmp_path / "rows.csv", "--schema", tmp_path / "schema.json"),
        ("release", "--data", tmp_path / "rows.csv", "--schema", tmp_path / "schema.json",
         "--epsilon", 1, "--out", tmp_path / "x.veil"),
    ):  # fmt: skip
        assert command(*words) == 2
        said = capsys.readouterr()
        for value in ("secret", "52", "13"):
            assert value not in said.err.replace("13,14", "") + said.out


def test_a_paid_veil_is_never_overwritten_by_accident(tmp_path, capsys):
    assert release(tmp_path, ROWS) == 0
    before = (tmp_path / "x.veil").read_bytes()
    with pytest.raises(RequestError, match="is there already"):
        Curator(SCHEMA).release(ROWS, 1, epochs=1, progress=False, save_to=tmp_path / "x.veil")
    assert (tmp_path / "x.veil").read_bytes() == before
    (tmp_path / "x.veil.1f.part").write_bytes(before)
    assert release(tmp_path, ROWS) == 2
    assert "cut off" in capsys.readouterr().err
    assert (tmp_path / "x.veil.1f.part").read_bytes() == before


def test_two_releases_to_one_file_keep_both_veils(tmp_path):
    files.check_new(tmp_path / "x.veil")
    parts = [files.write_part(tmp_path / "x.veil", content) for content in (b"one", b"two")]
    files.put_in_place(parts[0], tmp_path / "x.veil")
    with pytest.raises(RequestError, match="this file is whole at"):
        files.put_in_place(parts[1], tmp_path / "x.veil")
    assert (tmp_path / "x.veil").read_bytes() == b"one"
    assert parts[1].read_bytes() == b"two"
    files.put_in_place(parts[1], tmp_path / "x.veil", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["x.veil"]


@pytest.mark.parametrize(
    "wrong",
    [{"seed": "a"}, {"seed": -1}, {"epochs": 1.5}, {"epochs": 10**10}, {"sign": "key"},
     {"order": -1}],
)  # fmt: skip
def test_wrong_choices_are_refused_before_the_charge(wrong, tmp_path):
    book = Ledger(tmp_path / "ledger.db")
    book.open_account("loans", Budget(1))
    with pytest.raises(RequestError):
        Curator(SCHEMA, ledger=book.path).release(ROWS, 1, progress=False, **wrong)
    assert book.entries() == ()


def test_a_release_without_a_ledger_says_so(tmp_path, capsys):
    assert release(tmp_path, ROWS) == 0
    assert "no --ledger" in capsys.readouterr().err
    Ledger(tmp_path / "ledger.db").open_account("loans", Budget(1))
    assert release(tmp_path, ROWS) == 0
    assert "has one for 'loans'" in capsys.readouterr().err.replace("\n", " ")


def test_a_full_disk_after_the_charge_does_not_lose_the_veil(tmp_path, monkeypatch):
    book = Ledger(tmp_path / "ledger.db")
    book.open_account("loans", Budget(1))

    def full(*_, **__):
        raise RequestError("cannot write: no space left on device")

    monkeypatch.setattr(files, "put_in_place", full)
    with pytest.raises(RequestError, match="no space"):
        Curator(SCHEMA, ledger=book.path).release(
            ROWS, 0.5, epochs=1, progress=False, save_to=tmp_path / "x.veil"
        )
    (part,) = tmp_path.glob("x.veil.*.part")
    kept = Veil.load(part)
    assert kept.digest == book.entries("loans")[0].digest


def test_what_cannot_be_opened_is_refused_before_it_is_paid_for():
    for text in ("a\r\nb", "a\x07b", "a\ud800b"):
        with pytest.raises(Exception, match="schema"):
            Schema.from_json(json.dumps(json.loads(SCHEMA.to_json()) | {"note": text}))
        with pytest.raises(Exception, match="schema"):
            Categorical(name="x", categories=("a", text))


@pytest.mark.parametrize("epsilon", [1e308, 5e-324, 1e-7, float("inf"), float("nan")])
def test_budgets_beyond_arithmetic_are_refused(epsilon, tmp_path, capsys):
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    SCHEMA.save(tmp_path / "schema.json")
    words = ("release", "--data", tmp_path / "rows.csv", "--schema", tmp_path / "schema.json")
    for mechanism in ("functional", "dpsgd"):
        more = ("--mechanism", mechanism, "--delta", 1e-6, "--out", tmp_path / "x.veil")
        assert command(*words, "--epsilon", epsilon, *more) == 2
        assert "epsilon must be" in capsys.readouterr().err
