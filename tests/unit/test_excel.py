"""The first sheet of an Excel file as a table."""

import datetime
import sys
import zipfile

import openpyxl
import pytest

from counterveil import excel
from counterveil.curator import Curator
from counterveil.curator.infer_schema import draft_schema, read_for_draft
from counterveil.encoding import Encoding
from counterveil.errors import DataError
from counterveil.schema import Categorical, Label, Numeric, Schema
from counterveil.tables import read_table

CODES = Schema(
    label=Label(name="y", classes=(0, 1)),
    features=(
        Numeric(name="age", lower=0, upper=120, integer=True),
        Numeric(name="income", lower=0, upper=1e5, missing=True),
        Categorical(name="branch", categories=(1, 2)),
        Categorical(name="ward", categories=("007", "7"), missing=True),
    ),
)


@pytest.fixture
def sheet(tmp_path):
    """Writes rows to t.xlsx; `change` may alter the sheet before it is saved."""

    def write(rows, change=lambda sheet: None):
        book = openpyxl.Workbook()
        for row in rows:
            book.active.append(row)
        change(book.active)
        book.save(tmp_path / "t.xlsx")
        return tmp_path / "t.xlsx"

    return write


EMPTY_ZIP = b"PK\x05\x06" + bytes(18)
HEADER = ["age", "income", "branch", "ward", "y"]


def test_cells_keep_their_types(sheet):
    path = sheet([HEADER, [39.0, 2500.5, 2.0, "007", 1], [40, None, 1, 7, 0], [41, "NA", 1, "", 0]])
    frame = read_table(path, CODES)
    assert frame.ward.tolist()[:2] == ["007", 7]
    assert frame.isna().sum().tolist() == [0, 2, 0, 1, 0]
    encoding = Encoding(CODES)
    decoded = encoding.decode(encoding.encode(frame))
    assert decoded.age.tolist() == [39, 40, 41]
    assert decoded.branch.tolist() == [2, 1, 1]
    assert decoded.ward.tolist()[:2] == ["007", "7"]
    assert encoding.labels(frame).tolist() == [1, 0, 0]


def test_a_sheet_is_drafted_like_a_csv(rows, tmp_path):
    few = rows.head(80).round(3)
    few.to_excel(tmp_path / "t.xlsx", index=False)
    few.to_csv(tmp_path / "t.csv", index=False)
    drafts = [
        draft_schema(read_for_draft(tmp_path / f"t.{kind}"), "loan") for kind in ("xlsx", "csv")
    ]
    assert drafts[0] == drafts[1]


def test_dates_and_formulas_are_read(sheet):
    frame = read_table(sheet([["day"], [datetime.datetime(2026, 1, 31)]]))
    assert frame.day[0] == datetime.datetime(2026, 1, 31)
    path = sheet([["a", "b"], [1, "=A2+1"]])
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = "xl/worksheets/sheet1.xml"
    parts[name] = parts[name].replace(b"<f>A2+1</f><v />", b"<f>A2+1</f><v>2</v>")
    parts[name] = parts[name].replace(b"<f>A2+1</f><v></v>", b"<f>A2+1</f><v>2</v>")
    with zipfile.ZipFile(path, "w") as archive:
        for part, content in parts.items():
            archive.writestr(part, content)
    assert read_table(path).b.tolist() == [2]


def test_other_sheets_empty_rows_below_and_empty_columns_are_left_aside(sheet):
    def change(first):
        first["A9"].number_format = "0.00"
        first.parent.create_sheet("notes").append(["anything"])

    frame = read_table(sheet([["a", None, 2020.0], [1, None, 2]], change))
    assert list(frame.columns) == ["a", "2020"]
    assert frame.to_numpy().tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("rows", "change", "words"),
    [
        ([], None, "the first sheet is empty"),
        ([["a"], ["#DIV/0!"]], None, "cell A2: an error in place of a value"),
        ([["a", "b"], [1, "=A2+1"]], None, "cell B2: the formula was never computed"),
        ([["a", "b"], [1, 2]], lambda sheet: sheet.merge_cells("A2:B2"), "cells A2:B2: merged"),
        ([["a"], [1], [None], [2]], None, "row 3 of the sheet is empty"),
        ([["a"], [1, 2]], None, "column B has no name in the first row"),
        ([[None, "title"], ["a", "b"]], None, "column A has no name in the first row"),
        ([["a", "a"], [1, 2]], None, "columns 1 and 2 of the table have the same name"),
    ],
)
def test_sheets_that_are_no_table(sheet, rows, change, words):
    path = sheet(rows, change or (lambda sheet: None))
    with pytest.raises(DataError, match=words):
        read_table(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no", b"\xd0\xcf\x11\xe0 pw", EMPTY_ZIP])
def test_files_that_are_no_sheet(tmp_path, content):
    (tmp_path / "t.xlsx").write_bytes(content)
    with pytest.raises(DataError, match=r"damaged, has a password, or is no .xlsx file"):
        read_table(tmp_path / "t.xlsx")


def test_a_sheet_that_cannot_be_read_says_why(sheet, monkeypatch):
    monkeypatch.setattr(excel, "LARGEST_SHEETS", 100)
    with pytest.raises(DataError, match=r"too large for an .xlsx file; save it as .csv"):
        read_table(sheet([["a"], [1]]))
    monkeypatch.undo()
    path = sheet([["a"], [1]])
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(DataError, match=r"pip install 'counterveil\[excel\]'; or save the sheet"):
        read_table(path)


def test_private_rows_are_not_read_from_a_sheet(schema, rows, tmp_path):
    rows.to_excel(tmp_path / "t.xlsx", index=False)
    curator = Curator(schema)
    for read in (curator.check, lambda path: curator.plan(path, 1.0)):
        with pytest.raises(DataError, match=r"may be computed .* save the sheet as .csv"):
            read(tmp_path / "t.xlsx")
