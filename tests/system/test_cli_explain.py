"""`counterveil explain` as a person meets it."""

import json
import re

import pandas as pd
import pytest
from commands import EXPLAIN, assert_refused
from sklearn.linear_model import LogisticRegression
from skops import io as skops_io
from torch import nn

from counterveil.cli.where import asked_rows
from counterveil.encoding import Encoding
from counterveil.errors import RequestError
from counterveil.models import Rows, save_exported
from counterveil.schema import Schema
from counterveil.tables import read_table


@pytest.mark.long
def test_surrogate_guidance_loads_no_model(run, does, world):
    (world / "model.pt2").unlink()
    command = ("explain", "--veil", "loans.veil", "--queries", "queries.csv")
    out, _ = does(*command, "--guidance", "surrogate", "--target", "granted", "--json")
    assert json.loads(out)["statement"]["level"] == "end-to-end"
    assert json.loads(out)["decided_by"] == "stand-in"
    surely = ("--guidance", "surrogate", "--model-epsilon", 1)
    assert_refused(run(*command, *surely), "leave --model-epsilon out")


def test_without_a_model_the_private_one_is_explained(run, does, world, veil):
    command = ("explain", "--veil", "loans.veil", "--queries", "queries.csv")
    out, _ = does(*command, "--target", "granted", "--out", "cf.csv", "--report", "cf.html")
    assert "guarantee end-to-end" in out
    assert "private model is the one that decides: it was asked about every answer" in out
    assert "private model is the one that decides" in (world / "cf.html").read_text()
    found = pd.read_csv(world / "cf.csv").query("status == 'found'")
    assert len(found)
    assert set(veil.model().predict(found)) == {"granted"}
    assert_refused(run(*command, "--model-epsilon", 1), "leave --model-epsilon out")


def test_rules_of_a_file_are_kept(does, world):
    rules = {"immutable": None, "may_change": ["income", "housing"], "steps": {"income": 2.5}}
    (world / "rules.json").write_text(json.dumps(rules))
    does(*EXPLAIN, "--rules", "rules.json", "--target", "granted", "--out", "cf.csv")
    before, after = (pd.read_csv(world / name) for name in ("queries.csv", "cf.csv"))
    assert (after["status"] == "found").any()
    for name in ("age", "degree", "region", "member"):
        assert (before[name] == after[name]).all()
    assert ((after["income"] == before["income"]) | (after["income"] % 2.5 == 0)).all()


def test_the_declared_budget_of_the_model_is_added(run, world):
    budget = ("--model-epsilon", 3, "--model-delta", 1e-5)
    kind = ("--model-unit", "record", "--model-relation", "replace-one")
    code, out, _ = run(*EXPLAIN, *budget, *kind, "--json")
    statement = json.loads(out)["statement"]
    assert code == 0
    assert (statement["level"], statement["epsilon"]) == ("composed", 103)
    code, out, _ = run(*EXPLAIN, *budget, *kind[:3], "add-remove", "--json")
    statement = json.loads(out)["statement"]
    assert (statement["epsilon"], code) == (106, 0)
    assert "replace-one is two of its steps" in statement["accesses"][-1]["sensitivity"]
    assert_refused(run(*EXPLAIN, "--model-delta", 1e-5), "needs --model-epsilon")
    assert_refused(run(*EXPLAIN, *kind), "needs --model-epsilon")
    unit, relation = kind[:2], kind[2:]
    for wrong, words in (
        ((), "needs --model-unit"),
        (unit, "needs --model-unit"),
        (relation, "needs --model-unit"),
        (("--model-unit", "row", *relation), "--model-unit must be one of: record, person"),
        ((*unit, "--model-relation", "x"), "must be one of: replace-one, add-remove"),
    ):
        assert_refused(run(*EXPLAIN, "--model-epsilon", 3, *wrong), words)


@pytest.mark.long
def test_options_that_say_what_the_model_is(run, does, world, schema, rows):
    numbers = (rows.loan == "granted").astype(int)
    fitted = LogisticRegression().fit(Encoding(schema).encode(rows), numbers)
    skops_io.dump(fitted, world / "m.skops")
    command = (*EXPLAIN, "--model", "m.skops", "--iterations", "5", "--json")
    assert_refused(run(*command), "--model-classes")
    says = {}
    for classes in ("refused,granted", "granted,refused"):
        out, _ = does(*command, "--model-classes", classes, "--model-input", "encoding")
        says[classes] = [answer["predicted"] for answer in json.loads(out)["explanations"]]
    assert all(a != b for a, b in zip(*says.values(), strict=True))
    failed = run(*command, "--model-classes", "refused,granted", "--model-input", "rows")
    assert_refused(failed, "the model failed on rows in original units with ")
    assert_refused(run(*EXPLAIN, "--model-input", "x"), "--model-input must be one of")
    assert_refused(run(*EXPLAIN, "--model-outputs", "x"), "--model-outputs must be one of")


def three_outputs(folder):
    schema = Schema.load(folder / "schema.json")
    save_exported(nn.Linear(schema.width, 3), schema, folder / "model.pt2")


EXPLAINS = {
    "missing column": (lambda f: (f / "queries.csv").write_text("age\n30\n"), (), "are missing"),
    "wrong output width": (three_outputs, (), "answers 3 classes, the schema's label has 2"),
    "damaged veil": (lambda f: (f / "loans.veil").write_bytes(b"PK"), (), "not a veil file"),
    "damaged model": (lambda f: (f / "model.pt2").write_bytes(b"?"), (), "cannot be read"),
    "pickle": (lambda f: (f / "m.pkl").write_bytes(b"?"), ("--model", "m.pkl"), "--trust-pickle"),
    "unknown class": (lambda f: None, ("--target", "maybe"), "no class 'maybe'"),
    "unknown feature": (lambda f: None, ("--immutable", "sex"), "no feature 'sex'"),
    "odd output": (lambda f: None, ("--out", "cf.doc"), "name the file .csv"),
    "empty queries": (lambda f: (f / "queries.csv").write_text(""), (), "empty"),
    "seed below 0": (lambda f: None, ("--seed", "-1"), "--seed"),
    "seed too large": (lambda f: None, ("--seed", str(2**31)), "--seed"),
    "answers shown": (lambda f: None, ("--show", "-1"), "--show"),
    "iterations": (lambda f: None, ("--iterations", "-1"), "--iterations"),
}


@pytest.mark.parametrize("case", EXPLAINS)
def test_bad_input_to_explain(run, world, case):
    spoil, options, words = EXPLAINS[case]
    spoil(world)
    out = () if "--out" in options else ("--out", "cf.csv")
    assert_refused(run(*EXPLAIN, *out, *options), words)
    assert not list(world.glob("cf.*"))


ONE_ROW = ("explain", "--veil", "loans.veil", "--model", "model.pt2")
VALUES = {
    "age": 39, "income": 2.5, "debt": "", "children": "2", "housing": "rent", "degree": "school",
    "region": 1, "member": "no",
}  # fmt: skip


def where(**values):
    return [word for name, value in values.items() for word in ("--where", f"{name}={value}")]


def test_one_row_on_the_command_line(does, world):
    out, _ = does(*ONE_ROW, *where(**VALUES), "--target", "granted", "--out", "cf.json")
    assert "1 query: 1 found" in out
    (row,) = json.loads((world / "cf.json").read_text())
    assert row["age"] >= 39
    assert row["debt"] is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "give --queries FILE, or one row: --where NAME=VALUE for each feature"),
        (where(age=39), "no value for income (0 to 10); debt (-5 to 5, or missing); children"),
        (where(**{**VALUES, "agee": 3}), "--where agee: no such feature; the veil has: age"),
        (where(**{**VALUES, "age": 17}), "column 'age': outside the bounds 18 to 100"),
        (where(**{**VALUES, "age": ""}), "column 'age': missing value"),
        (where(**{**VALUES, "housing": "tent"}), "column 'housing': category not in the schema"),
        (["--where", "age"], "--where age: write it as NAME=VALUE, such as age=39"),
        (["--where", "age=39, income=2"], "give income a --where of its own"),
        (where(age=1) + where(age=2), "--where age is given twice"),
    ],
)
def test_a_row_on_the_command_line_that_is_none(run, world, given, words):
    assert_refused(run(*ONE_ROW, *given), words)


def test_rows_of_a_file_are_chosen_by_their_values(run, does, world, veil):
    frame = pd.read_csv(world / "queries.csv").assign(id=range(11, 19), who="ann")
    frame.loc[5:, "who"] = "bob, the builder"
    frame.to_csv(world / "queries.csv", index=False)
    for given, rows in (
        (["id=17.0"], [7]),
        (["id=017"], [7]),
        (["who=bob, the builder"], [6, 7, 8]),
        (["who=ann", "id=12"], [2]),
        (["debt="], [i + 1 for i in frame.index[frame.debt.isna()]]),
    ):
        assert asked_rows(world / "queries.csv", given, veil.schema).index.tolist() == rows
    does(*EXPLAIN, *where(id=17), "--out", "cf.csv")
    table = pd.read_csv(world / "cf.csv")
    assert table["row"].tolist() == [7]
    assert table["query"].tolist() == [1]
    assert_refused(run(*EXPLAIN, *where(id=99)), "no row of queries.csv has id=99")
    assert_refused(run(*EXPLAIN, *where(iid=17)), "no such column; queries.csv has: age, income")


def test_names_for_people_are_understood(veil):
    region = veil.schema.feature("region")
    named = region.model_copy(update={"label": "part", "value_names": ((1, "north"),)})
    features = tuple(named if each is region else each for each in veil.schema.features)
    schema = Schema(label=veil.schema.label, features=features)
    values = {name: value for name, value in VALUES.items() if name != "region"}
    row = asked_rows(None, where(**values, part="north")[1::2], schema)
    assert Rows.of_frame(row, Encoding(schema)).frame.region.tolist() == [1]
    with pytest.raises(RequestError, match=r"--where part: category not in the schema"):
        asked_rows(None, where(**values, part="nowhere")[1::2], schema)


@pytest.mark.long
def test_a_key_goes_with_the_answers_to_every_file(run, does, world):
    table = pd.read_csv(world / "queries.csv").assign(customer=[f"00{at}" for at in range(8)])
    table = table.assign(note=["=1+1", None, *"abcdef"], mixed=[1, "b", *range(6)])
    table.to_csv(world / "queries.csv", index=False)
    table.replace({"note": {"=1+1": "a"}}).to_excel(world / "queries.xlsx", index=False)
    excel = ("--queries", "queries.xlsx")
    does(*EXPLAIN, *excel, "--target", "granted", "--out", "cf.html")
    page = (world / "cf.html").read_text()
    assert re.search(r"\(customer 00\d, note [a-f], mixed \d\)", page)
    for ending in ("csv", "xlsx", "json", "parquet"):
        name = f"cf.{ending}"
        does(*EXPLAIN, "--target", "granted", "--out", name)
        found = pd.read_json(world / name) if ending == "json" else read_table(world / name)
        assert [*found.columns[:4]] == ["customer", "note", "mixed", "query"]
        if ending in ("xlsx", "parquet"):  # which pandas reads as numbers
            assert found["customer"].tolist() == [f"00{at}" for at in range(8)]
    assert read_table(world / "cf.xlsx")["note"][0] == "=1+1"  # and no formula
    _, out, _ = run(*EXPLAIN, "--target", "granted", "--json", "--id", "note")
    assert json.loads(out)["explanations"][3]["carried"] == {"note": "b"}
    code, out, _ = run(*EXPLAIN, "--copy", "income", "--copy", "customer", "--out", "cf.csv")
    assert (code, "(copied_income" in out) == (0, True)
    found = pd.read_csv(world / "cf.csv")
    assert found["copied_income"].tolist() == table["income"].tolist()
    assert_refused(run(*EXPLAIN, "--id", "custmer"), "did you mean 'customer'")


def test_a_bad_row_is_reported_and_the_others_are_answered(run, world):
    table = pd.read_csv(world / "queries.csv", dtype=object)
    table.loc[2, "income"], table.loc[5, "housing"] = "much", "tent"
    table.loc[5, "income"] = "a lot"
    table.to_csv(world / "queries.csv", index=False)
    code, out, err = run(*EXPLAIN, "--target", "granted", "--out", "cf.csv")
    assert code == 1
    assert "6 queries" in out
    told = [line for line in err.splitlines() if line.startswith("warning: ")]
    for row, line in zip((3, 6), told, strict=False):
        assert line.startswith(f"warning: row {row}, column 'income': not a number")
    assert told[2].startswith("warning: 2 rows were left out")
    assert pd.read_csv(world / "cf.csv")["row"].tolist() == [1, 2, 4, 5, 7, 8]
    code, out, _ = run(*EXPLAIN, "--json")
    assert (code, len(json.loads(out)["refused"])) == (1, 2)
    assert json.loads(out)["explanations"][2]["carried"] == {"row": 4}
    table.assign(age="old").to_csv(world / "queries.csv", index=False)
    assert_refused(run(*EXPLAIN), "row 1, column 'age': not a number; write")


def test_letters_and_a_mail_merge(run, does, world):
    queries = pd.read_csv(world / "queries.csv").assign(customer=lambda rows: 7000 + rows.index)
    queries.to_csv(world / "queries.csv", index=False)
    letters = ("--letters", "letters", "--mail-merge", "merge.csv", "--language", "de")
    out, _ = does(*EXPLAIN, "--target", "granted", *letters, "--copy", "customer")
    assert "merge.csv" in out
    merged = pd.read_csv(world / "merge.csv", keep_default_na=False)
    assert merged["customer"].tolist() == queries["customer"].tolist()
    texts = [path.read_text() for path in sorted((world / "letters").glob("*.txt"))]
    assert texts == merged["letter"].tolist()
    assert all(text.startswith("Entscheidung (loan): ") for text in texts)
    assert len(list((world / "letters").glob("*.html"))) == len(texts)
    (world / "own.txt").write_text("{{ decision }}\n{% for %}")
    own = ("--letter-template", "own.txt")
    assert_refused(run(*EXPLAIN, *letters, *own), "own.txt, line 2")
    assert_refused(run(*EXPLAIN, *letters, "--copy", "custmer"), "did you mean 'customer'")
    assert_refused(run(*EXPLAIN, "--mail-merge", "merge.txt"), "name the file .csv")
