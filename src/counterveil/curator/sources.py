"""Where private rows come from: frames, files, folders and streams, read in batches.

A table of any size streams through constant memory; how many rows it has is known before.

What pandas makes of a column of Arrow depends on all of its cells: one missing value turns whole
numbers into floats, which tell them apart up to 2⁵³ only, and one impossible date or text that is
not UTF-8 is an error. On the private side a cell must count as what it is whatever the others are:
columns of Arrow are read as cells of which none depends on another one.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.types as kinds

from counterveil.errors import DataError
from counterveil.excel import EXCEL
from counterveil.files import check_table_file
from counterveil.parts import Fragments, fragments_of, is_address, parquet_files
from counterveil.schema import Schema
from counterveil.schema.columns import Coded, arrays_of
from counterveil.tables import (
    ARROW,
    PARQUET,
    as_arrow,
    as_frame,
    csv_batches,
    csv_columns,
)

BATCH = 50_000  # rows
NESTED = "(several values)"  # what a cell that holds more than one value counts as: no value at all


@dataclass(frozen=True)
class Source:
    """Where private rows come from. Its repr shows none.

    `batches`: frames, in order. `read`: the columns of these names, where that is shorter than by
    frames. `parts`: the same rows in parts, of at most so many rows, that other machines can read.
    """

    columns: tuple[str, ...]
    rows: int
    batches: Callable[[], Iterator[pd.DataFrame]]
    read: Callable[[Sequence[str]], Iterator[dict[str, Any]]] | None = None
    parts: Callable[[int], list[Fragments]] | None = None

    def columns_of(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """The columns of these names as plain arrays, batch by batch."""
        if self.read is not None:
            yield from self.read(names)
            return
        for private_frame in self.batches():
            chosen = private_frame[list(names)]
            yield dict(zip(names, arrays_of(chosen), strict=True))


def open_source(data: Any, schema: Schema, extra: tuple[str, ...] = ()) -> Source:
    """A source over `data`: a frame, an Arrow table, the path of a file or folder, or a function.

    An address (s3://…) is the path of Parquet files. The function opens a stream of Arrow batches,
    the same rows each time. `extra`: columns besides those of the schema.
    """
    wanted = (*schema.columns, schema.label.name, *extra)
    if isinstance(data, Fragments):
        return _arrow(data, wanted)
    if isinstance(data, (str, Path)):
        return _file(data, wanted)
    if callable(data):
        return _stream(data, wanted)
    if not isinstance(data, (pd.DataFrame, np.ndarray, list, dict)):
        table = data if isinstance(data, pa.Table) else as_arrow(data)
        return _arrow(fragments_of(ds.dataset(table)), wanted)
    frame = as_frame(data, schema)
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    return Source(
        tuple(frame.columns),
        len(frame),
        lambda: (frame.iloc[start : start + BATCH] for start in range(0, len(frame), BATCH)),
    )


def _file(place: str | Path, wanted: tuple[str, ...]) -> Source:
    if is_address(place):
        return _arrow(parquet_files(str(place), wanted), wanted)
    path = Path(place)
    folder, ending = os.path.isdir(path), path.suffix.lower()
    if not folder:
        check_table_file(path)
    if folder or ending in PARQUET:
        return _arrow(parquet_files(str(path), wanted), wanted)
    if ending in ARROW:
        try:
            return _arrow(fragments_of(ds.dataset(path, format="ipc")), wanted)
        except (pa.ArrowException, OSError, ValueError):
            raise DataError(f"{path} is damaged, or is no Arrow file") from None
    if ending in EXCEL:
        # A formula can make one row depend on others, and a promise for each row would be void.
        raise DataError(
            f"{path}: private rows are not read from an .xlsx file, where a cell may be computed "
            "from other rows; save the sheet as .csv (UTF-8) or .parquet"
        )
    columns = csv_columns(path)
    rows = sum(len(batch) for batch in csv_batches(path, columns[:1], 10 * BATCH))
    # All as text: what pandas makes of a column otherwise depends on every cell of it.
    return Source(columns, rows, lambda: csv_batches(path, columns, BATCH, columns))


def _stream(open_stream: Callable[[], Any], wanted: tuple[str, ...]) -> Source:
    """Batches that somebody else reads: DuckDB, ADBC, anything that speaks Arrow's C stream."""

    def opened() -> pa.RecordBatchReader:
        try:
            return pa.RecordBatchReader.from_stream(open_stream())
        except TypeError:
            raise DataError("the function gives no stream of Arrow batches") from None

    def read(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for large in opened():
            for start in range(0, large.num_rows, BATCH):
                yield large.slice(start, BATCH).select(list(names))

    columns = tuple(opened().schema.names)
    present = [name for name in dict.fromkeys(wanted) if name in columns]
    return Source(
        columns,
        sum(batch.num_rows for batch in opened()),
        lambda: map(frame_of, read(present)),
        lambda chosen: map(columns_of, read(chosen)),
    )


def _arrow(files: Fragments, wanted: tuple[str, ...]) -> Source:
    present = [name for name in dict.fromkeys(wanted) if name in files.columns]
    for number, file in enumerate(files.files, files.number):
        lacking = set(present) - set(file.physical_schema.names)
        if lacking:
            raise DataError(f"column {min(lacking)!r} is missing from file number {number}")
    return Source(
        files.columns,
        files.rows,
        lambda: map(frame_of, files.batches(present, BATCH)),
        lambda chosen: map(columns_of, files.batches(chosen, BATCH)),
        files.parts,
    )


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
    codes = column.indices.cast(pa.int64())
    codes = codes.fill_null(-1) if codes.null_count else codes
    return Coded(codes.to_numpy(), cells_of(column.dictionary))


def _is_text(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def cells_of(column: pa.Array) -> Any:
    """The cells of a column as pandas holds them.

    Whole numbers stay whole beside missing ones. Bytes of a text that are not UTF-8 become the
    replacement character. A date or time becomes a text.
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
    plain = not column.null_count and (kinds.is_integer(kind) or kinds.is_floating(kind))
    return column.to_numpy() if plain else column.to_pandas(integer_object_nulls=True).array


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
