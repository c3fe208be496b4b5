"""Columns of Arrow as cells of which none depends on another one.

What pandas makes of an Arrow column depends on all of its cells: one missing value turns whole
numbers into floats, which tell them apart up to 2⁵³ only, and one impossible date or text that is
not UTF-8 is an error. On the private side a cell must count as what it is whatever the others are.
"""

from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from counterveil.schema.columns import Coded

NESTED = "(several values)"  # what a cell that holds more than one value counts as: no value at all


def frame_of(batch: pa.RecordBatch) -> pd.DataFrame:
    """The rows of `batch`, each cell by itself; metadata of other programs is not read."""
    columns = [cells_of(column) for column in batch.columns]
    frame = pd.DataFrame(dict(enumerate(columns)))
    frame.columns = pd.Index(batch.schema.names)
    return frame


def columns_of(batch: pa.RecordBatch) -> dict[str, Any]:
    """The columns of `batch` by name, each cell by itself; texts in short form, `Coded`."""
    return {
        name: _short(column) for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }


def _short(column: pa.Array) -> Any:
    if _is_text(column.type):
        column = column.dictionary_encode()
    if not kinds.is_dictionary(column.type):
        return cells_of(column)
    codes = pc.fill_null(column.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    return Coded(codes, cells_of(column.dictionary))


def _is_text(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def cells_of(column: pa.Array) -> Any:
    """The cells of a column as pandas holds them.

    Whole numbers stay whole beside missing ones. Bytes of a text that are not UTF-8 become the
    replacement character. A date or time becomes a text: it is no number, and no two are the same.
    """
    while isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if kinds.is_run_end_encoded(column.type):
        return cells_of(pc.run_end_decode(column))
    if kinds.is_dictionary(column.type):
        return cells_of(column.dictionary_decode())
    kind = column.type
    if kinds.is_temporal(kind):
        small = kinds.is_date32(kind) or kinds.is_time32(kind)
        numbers = column.view(pa.int32() if small else pa.int64()).to_pylist()
        return _objects([None if number is None else f"time {number}" for number in numbers])
    if kinds.is_nested(kind):
        return _objects([NESTED if there else None for there in column.is_valid().to_pylist()])
    if _is_text(kind):
        return _texts(column)
    return column.to_pandas(integer_object_nulls=True).array


def _texts(column: pa.Array) -> Any:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        coded = column.cast(pa.binary()).to_pylist()
        column = pa.array(
            [None if cell is None else cell.decode(errors="replace") for cell in coded]
        )
    return column.to_pandas().array


def _objects(cells: list[Any]) -> Any:
    return pd.Series(cells, dtype=object).array
