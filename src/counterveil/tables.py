"""Tables in and out: CSV, Parquet, Arrow and Excel files, and every frame that narwhals reads."""

import json
import os
import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa

from counterveil.errors import DataError, RequestError
from counterveil.excel import EXCEL, read_sheet, sheet_of
from counterveil.files import check_table_file
from counterveil.hints import did_you_mean, named
from counterveil.schema import Schema

PARQUET, ARROW = (".parquet", ".pq"), (".arrow", ".feather", ".ipc")  # endings of their files
COLUMN = (list, tuple, np.ndarray, pd.Series)  # what a mapping of columns may hold
SEPARATORS = {".csv": ",", ".tsv": "\t", ".txt": ","}
CALLED = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
MOST_COLUMNS = 20_000  # of a CSV file: more take minutes
LONGEST_HEADER = 1 << 24  # bytes
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")  # texts that stand for an empty cell
RAGGED = (
    "a row has more fields than the header; put cells with a separator in them into quotes, "
    "or name every column"
)


def read_table(path: str | os.PathLike[str], schema: Schema | None = None) -> pd.DataFrame:
    """Read a CSV, Parquet or Arrow file, or the first sheet of an Excel file.

    With a schema, text categories of a CSV file stay text ("007" is not 7), and so do columns that
    the schema does not have, such as a key.
    """
    source = Path(path)
    ending = source.suffix.lower()
    check_table_file(source)
    if ending in PARQUET or ending in ARROW:
        try:
            return pd.read_parquet(source) if ending in PARQUET else pd.read_feather(source)
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            raise DataError(f"{source} is damaged or not of the kind its name says") from None
    if ending in EXCEL:
        frame = read_sheet(source, MISSING)
        _refuse_repeats(list(frame.columns))
        return frame
    if ending not in SEPARATORS:
        raise DataError(f"{source}: give a .csv, .parquet, .arrow or .xlsx file")
    columns = csv_columns(source)
    text: Collection[str] = ()
    if schema is not None:
        own, texts = {*schema.columns, schema.label.name}, schema.text_columns
        called = {name: schema.column_called(name) for name in columns}
        text = [name for name in columns if called[name] not in own or called[name] in texts]
    batches = csv_batches(source, columns, 1_000_000, text)
    return pd.concat(list(batches), ignore_index=True)


def csv_columns(path: Path) -> tuple[str, ...]:
    """The header of a CSV file, checked."""
    check_table_file(path)
    if path.suffix.lower() not in SEPARATORS:
        raise DataError(f"{path}: give a .csv, .parquet or .arrow file")
    sep = SEPARATORS[path.suffix.lower()]
    with _one_line_errors(path):
        with path.open("rb") as stream:  # before pandas takes its time over it
            most = stream.readline(LONGEST_HEADER).count(sep.encode()) + 1
        if most > MOST_COLUMNS:
            raise DataError(
                f"{path} has about {most} columns; a .csv may have {MOST_COLUMNS}: leave out those "
                "that the schema does not name, or give a .parquet file"
            )
        # pandas renames repeated columns silently (a, a.1): read the header as a plain row first.
        row = pd.read_csv(path, sep=sep, header=None, nrows=1, dtype=str, keep_default_na=False)
        names = tuple(str(name) for name in row.iloc[0])
    _refuse_repeats(names)
    for other, words in CALLED.items():
        if len(names) == 1 and other in names[0]:
            raise DataError(
                f"{path} has {words} between its columns; save it with {CALLED[sep]} there, and "
                "points in numbers"
            )
    return names


def csv_batches(
    path: Path, columns: Sequence[str], size: int, text: Collection[str] = ()
) -> Iterator[pd.DataFrame]:
    """The named columns of a CSV file, `size` rows at a time; an empty table is one empty batch.

    `text`: the columns that are read as text, in every batch.
    """
    header = csv_columns(path)
    with _one_line_errors(path):
        reader = pd.read_csv(
            path,
            sep=SEPARATORS[path.suffix.lower()],
            header=0,
            names=list(header),
            index_col=False,
            # Asked for some columns, pandas does not look at the length of the lines.
            usecols=None if tuple(columns) == header else list(columns),
            dtype={name: str for name in columns if name in text},
            keep_default_na=False,
            na_values=list(MISSING),
            low_memory=False,
            chunksize=size,
        )
    with reader:
        while True:
            with _one_line_errors(path):
                batch = next(reader, None)
            if batch is None:
                return
            yield batch


@contextmanager
def _one_line_errors(path: Path) -> Iterator[None]:
    try:
        with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
            yield
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text; save it as UTF-8 CSV or Parquet") from None
    except pd.errors.EmptyDataError:
        raise DataError(f"{path} is empty; it needs a header line and rows") from None
    except pd.errors.ParserWarning:
        raise DataError(f"{path}: {RAGGED}") from None
    except (pd.errors.ParserError, OSError, ValueError) as error:
        line = re.search(r"Expected \d+ fields in line (\d+), saw \d+", str(error))
        if line:
            raise DataError(f"{path}, line {line[1]}: {RAGGED}") from None
        raise DataError(f"{path} is damaged or not of the kind its name says") from None


def as_frame(table: Any, schema: Schema | None = None) -> pd.DataFrame:
    """Any table as pandas with unique columns.

    `table`: a frame, the path of a file, a list of records, one record as a mapping or a Series, a
    mapping of columns, or with a schema a plain array in the order of its columns.
    """
    if isinstance(table, pd.DataFrame):
        frame = table
    elif isinstance(table, pd.Series):
        frame = table.astype(object).to_frame().T
    elif isinstance(table, (str, os.PathLike)):
        frame = read_table(table, schema)
    elif isinstance(table, np.ndarray) and schema is not None:
        flat = table.reshape(len(table), -1) if table.ndim > 2 else np.atleast_2d(table)
        wanted, got = len(schema.columns), flat.shape[1]
        if got != wanted:
            raise DataError(f"an array needs {wanted} columns in the schema's order, got {got}")
        frame = pd.DataFrame(flat, columns=list(schema.columns))
    elif isinstance(table, (list, dict)):
        frame = _frame_of_records(table, schema)
    else:
        try:
            read = nw.from_native(table)
            frame = (read.collect() if isinstance(read, nw.LazyFrame) else read).to_pandas()
        except TypeError:
            expected = "expected a table (pandas, Arrow, polars, an array or a path)"
            raise DataError(f"{expected}, got {type(table).__name__}") from None
    _refuse_repeats([str(name) for name in frame.columns])
    return frame


def _frame_of_records(table: list[Any] | dict[Any, Any], schema: Schema | None) -> pd.DataFrame:
    """A frame of a list of records, of one record, or of columns by name.

    With a schema, one record may have a column's own name, and another one what people call it.
    """
    if isinstance(table, list):
        if not table:
            raise DataError("the table is empty; it needs at least one row")
        if schema is not None and schema.names and all(isinstance(each, dict) for each in table):
            called = schema.column_called
            table = [{called(name): each[name] for name in each} | each for each in table]
        return pd.DataFrame(table, dtype=object)
    columns = [each for each in table.values() if isinstance(each, COLUMN)]
    if len({len(each) for each in columns}) > 1:
        raise DataError("the columns of the table are not of one length")
    return pd.DataFrame(table if columns else [table], dtype=object)


def as_arrow(table: Any) -> pa.Table:
    """Any frame that narwhals reads, as a table of Arrow, whose cells are exact."""
    try:
        found = nw.from_native(table, eager_only=True).to_arrow()
    except TypeError:
        expected = "expected a table (pandas, Arrow, polars or an array)"
        raise DataError(f"{expected}, got {type(table).__name__}") from None
    _refuse_repeats(found.schema.names)
    return found


def _refuse_repeats(names: Sequence[str]) -> None:
    """Refuse a table with two columns of one name, which is not told: without a header line, the
    names are the values of the first row.
    """
    places: dict[str, int] = {}
    for place, name in enumerate(names, 1):
        first = places.setdefault(name, place)
        if first != place:
            raise DataError(
                f"columns {first} and {place} of the table have the same name; rename or drop one, "
                "or add the header line if there is none"
            )


def plain_values(column: "pd.Series[Any]", whole: bool = False) -> list[Any]:
    """The cells of a column as values of Python: None if missing, an int if `whole`."""

    def plain(value: Any) -> Any:
        single = value.item() if isinstance(value, np.generic) else value
        if isinstance(single, Decimal):
            single = float(single)
        return int(single) if whole and isinstance(single, float) else single

    cells = zip(column.tolist(), column.isna().tolist(), strict=True)
    return [None if missing else plain(value) for value, missing in cells]


def plain_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as values of Python by column, None for what is missing."""
    columns = [plain_values(table[name]) for name in table.columns]
    return [dict(zip(table.columns, row, strict=True)) for row in zip(*columns, strict=True)]


def carried(
    table: pd.DataFrame, schema: Schema, chosen: Collection[str] | None = None
) -> pd.DataFrame | None:
    """The columns of queries that go with their answers; None where there are none.

    `chosen`: their names; by default all that the schema does not have, such as a key. One that the
    schema has is called `copied_…`, for the answer has it, too. Rows are numbered from 0.
    """
    own = {*schema.columns, schema.label.name}
    if chosen is None:
        names = [str(name) for name in table.columns]
        chosen = [name for name in names if schema.column_called(name) not in own]
    for name in chosen:
        if name not in table.columns:
            there = f"the queries have: {named(table.columns)}{did_you_mean(name, table.columns)}"
            raise RequestError(f"no column {name!r} to carry along; {there}")
    if not chosen:
        return None
    found = {}
    for name in dict.fromkeys(chosen):
        column = table[name]
        if pd.api.types.infer_dtype(column, skipna=True).startswith("mixed"):
            column = column.map(str, na_action="ignore")  # as every kind of file can hold it
        found[f"copied_{name}" if name in own else name] = column.to_numpy()
    return pd.DataFrame(found)


def without_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """`table` with an apostrophe before texts, names of columns too, that a spreadsheet would run.

    These begin with = + - @, a tab or a line break. Numbers stay as they are.
    """

    def safe(value: Any) -> Any:
        return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value

    texts = table.select_dtypes(exclude=["number", "bool"])
    changed = {name: [safe(value) for value in table[name]] for name in texts.columns}
    return table.assign(**changed).rename(columns=safe)


def file_content(table: pd.DataFrame, path: str | os.PathLike[str], *, escape: bool) -> bytes:
    """`table` as CSV, Parquet, JSON or Excel, by the ending of `path`; `escape` formulas in a CSV.

    In Excel no text is a formula.
    """
    kind = Path(path).suffix.lower()
    if kind == ".csv":
        text = (without_formulas(table) if escape else table).to_csv(index=False)
        return text.encode("utf-8", "surrogatepass")
    if kind == ".parquet":
        try:
            return table.to_parquet(index=False)
        except pa.ArrowException:
            raise RequestError(
                "a column mixes texts and numbers, which Parquet cannot hold; "
                "write .csv or .json instead"
            ) from None
    if kind == ".json":
        rows = plain_rows(table)
        return json.dumps(rows, ensure_ascii=False, indent=2, default=str).encode()
    if kind in EXCEL:
        return sheet_of([str(name) for name in table.columns], plain_rows(table))
    raise RequestError(f"{path}: name the file .csv, .parquet, .json, .xlsx or .html")
