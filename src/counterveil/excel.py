"""Excel files: the first sheet of an .xlsx file as a frame, and a table as such a file.

The first row of the sheet names the columns; every further row is a row of the table. What a frame
cannot hold faithfully is refused, with the address of the cell: merged cells, formulas that ended
in an error or were never computed, rows or columns that are empty between others. A cell keeps its
type: a text "007" stays a text, a number is a number, a date is a date. Of a formula the value is
read that was stored with it.
"""

import io
import math
import re
import warnings
import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from counterveil.errors import DataError

EXCEL = (".xlsx",)
LARGEST_SHEETS = 128 << 20  # bytes of all sheets when unpacked: some four million cells
_FORMULA = re.compile(rb"<(\w+:)?f[ />]")


def read_sheet(path: Path, missing: Collection[str] = ()) -> pd.DataFrame:
    """The first sheet of the .xlsx file at `path`; a DataError says what is wrong with it.

    `missing`: texts that stand for an empty cell.
    """
    openpyxl = _openpyxl(f"{path}: reading an .xlsx file", "save the sheet as .csv")
    try:
        has_formulas = _check_size(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # parts of a workbook that are no cells
            sheet = _first_sheet(openpyxl.load_workbook(path, data_only=True), path)
            if has_formulas:
                _refuse_uncomputed(sheet, _first_sheet(openpyxl.load_workbook(path), path), path)
        return _frame(sheet, path, missing)
    except DataError:
        raise
    except Exception:  # openpyxl has no error of its own for a file that is not as it should be
        raise DataError(
            f"{path} is damaged, has a password, or is no .xlsx file; save it as one without a "
            "password, or as .csv"
        ) from None


def sheet_of(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> bytes:
    """An .xlsx file of one sheet; texts are texts, whatever they begin with.

    `rows`: values of Python by column, None for what is missing.
    """
    openpyxl = _openpyxl("writing an .xlsx file", "write .csv")
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("answers")

    def cell(value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            value = None
        if value is None or isinstance(value, (bool, int, float)):
            return value
        text = str(value).encode("utf-8", "replace").decode()
        made = WriteOnlyCell(sheet, ILLEGAL_CHARACTERS_RE.sub("\ufffd", text))
        made.data_type = "s"
        return made

    for values in (columns, *(row.values() for row in rows)):
        sheet.append([cell(value) for value in values])
    content = io.BytesIO()
    book.save(content)
    return content.getvalue()


def _openpyxl(what: str, instead: str) -> Any:
    try:
        import openpyxl
    except ModuleNotFoundError:
        install = "pip install 'counterveil[excel]'"
        raise DataError(f"{what} needs openpyxl: {install}; or {instead}") from None
    return openpyxl


def _check_size(path: Path) -> bool:
    """Refuse a file with sheets that are too large; otherwise whether any cell has a formula."""
    with zipfile.ZipFile(path) as archive:
        parts = [
            part
            for part in archive.infolist()
            if part.filename.startswith("xl/worksheets/") or "sharedStrings" in part.filename
        ]
        if sum(part.file_size for part in parts) > LARGEST_SHEETS:
            raise DataError(f"{path} is too large for an .xlsx file; save it as .csv or .parquet")
        return any(_FORMULA.search(archive.read(part)) for part in parts)


def _first_sheet(book: Any, path: Path) -> Any:
    if not book.worksheets:
        raise DataError(f"{path} has no sheet with cells")
    return book.worksheets[0]


def _refuse_uncomputed(values: Any, formulas: Any, path: Path) -> None:
    """Refuse formulas without a stored value: programs that compute nothing write such files."""
    for row in formulas.iter_rows():
        for cell in row:
            if cell.data_type == "f" and values[cell.coordinate].value is None:
                raise DataError(
                    f"{path}, cell {cell.coordinate}: the formula was never computed; open the "
                    "file in a spreadsheet and save it, or save it as .csv"
                )


def _frame(sheet: Any, path: Path, missing: Collection[str]) -> pd.DataFrame:
    from openpyxl.utils import get_column_letter

    merged = next(iter(sheet.merged_cells.ranges), None)
    if merged is not None:
        raise DataError(
            f"{path}, cells {merged}: merged cells; unmerge them. The first row names the columns, "
            "and every further row is one row of the table"
        )
    rows = [[_value(cell, path, missing) for cell in row] for row in sheet.iter_rows()]
    table = pd.DataFrame(rows, dtype=object)
    filled = table.notna()
    used = [*filled.any(axis=1)]
    if not any(used):
        raise DataError(f"{path}: the first sheet is empty; it needs column names and rows")
    last = max(number for number, is_used in enumerate(used, 1) if is_used)
    if not all(used[:last]):
        raise DataError(f"{path}: row {used.index(False) + 1} of the sheet is empty; delete it")
    for place in range(table.shape[1]):
        if filled[place].any() and not filled.at[0, place]:
            raise DataError(
                f"{path}: column {get_column_letter(place + 1)} has no name in the first row of "
                "the sheet; that row names the columns, with nothing above it"
            )
    kept = table.loc[:, filled.loc[0]]
    frame = kept[1:last].reset_index(drop=True).infer_objects()
    frame.columns = pd.Index([_name(value) for value in kept.loc[0]], dtype=object)
    return frame


def _value(cell: Any, path: Path, missing: Collection[str]) -> Any:
    """The value of a cell; None if it is empty."""
    if cell.data_type == "e":
        raise DataError(
            f"{path}, cell {cell.coordinate}: an error in place of a value; mend it, or empty the "
            "cell"
        )
    return None if isinstance(cell.value, str) and cell.value in missing else cell.value


def _name(value: Any) -> str:
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if whole else value)
