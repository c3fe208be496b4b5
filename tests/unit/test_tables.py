import pandas as pd
import pytest

from counterveil.errors import DataError
from counterveil.schema import Categorical, Label, Schema
from counterveil.tables import as_frame, csv_batches, csv_columns, read_table

CODES = Schema(
    features=(Categorical(name="code", categories=("007", "7")),),
    label=Label(name="y", classes=(0, 1)),
)


def test_cells_of_a_csv(tmp_path):
    (tmp_path / "t.csv").write_text("code,y\n007,1\n7,0\n")
    assert read_table(tmp_path / "t.csv", CODES).code.tolist() == ["007", "7"]
    (tmp_path / "t.csv").write_text("a,b\nNone,1\n,2\n")
    column = read_table(tmp_path / "t.csv").a
    assert column[0] == "None"
    assert column.isna().tolist() == [False, True]
    (tmp_path / "t.csv").write_text(",b,c\n1,2\n")
    frame = read_table(tmp_path / "t.csv")
    assert list(frame.columns) == ["", "b", "c"]
    assert frame.c.isna().all()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"x,x\n1,2\n", "columns 1 and 2 of the table have the same name"),
        ("a.csv", b"", "empty"),
        ("a.csv", b"\xff\xfe\x00", "not UTF-8"),
        ("a.csv", b'x\n"1\n', "damaged"),
        ("a.csv", b"x;y\n1,5;2\n", "semicolons between its columns; save it with commas there"),
        ("a.csv", b"x\ty\n1\t2\n", "has tabs between its columns"),
        ("a.tsv", b"x,y\n1,2\n", "has commas between its columns; save it with tabs there"),
        ("a.csv", b"x,y\n1,2,3\n4,5,6\n", "more fields than the header; put cells"),
        ("a.csv", b"x,y\n1,2\n4,5,6\n", "line 3: a row has more fields"),
        ("a.parquet", b"PAR1 no", "damaged"),
        ("a.xls", b"", "give a .csv, .parquet, .arrow or .xlsx file"),
    ],
)
def test_bad_and_absent_files(tmp_path, name, content, words):
    with pytest.raises(DataError, match="no table at"):
        read_table(tmp_path / name)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_table(tmp_path / name)


def test_records_become_a_frame():
    assert as_frame({"a": 1}).a.tolist() == [1]
    assert as_frame([{"a": 1}, {"a": 2}]).a.tolist() == [1, 2]
    frame = pd.DataFrame({"a": [1]})
    assert as_frame(frame) is frame


def test_streaming_a_csv_finds_ragged_rows(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "1,2\n" * 10 + "1,2,3\n")
    names = csv_columns(path)
    assert sum(map(len, csv_batches(path, names[:1], 4))) == 11  # counting looks at one
    with pytest.raises(DataError, match="line 12"):
        list(csv_batches(path, names, 4))
