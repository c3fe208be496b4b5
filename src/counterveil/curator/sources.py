"""Where private rows come from: frames, files, folders and streams, read in batches.

A table of any size streams through constant memory, and the number of its rows, which is public, is
known before one is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from counterveil.curator.cells import columns_of, frame_of
from counterveil.errors import DataError
from counterveil.excel import EXCEL
from counterveil.schema import Schema
from counterveil.schema.columns import arrays_of
from counterveil.tables import (
    ARROW,
    PARQUET,
    as_arrow,
    as_frame,
    check_table_file,
    csv_batches,
    csv_columns,
)

BATCH = 50_000  # rows


@dataclass(frozen=True)
class Source:
    """Where private rows come from. Its repr shows none.

    `batches`: frames, one after the other. `read`: the same as columns by name, of the names given
    alone, where there is a shorter way than by frames.
    """

    columns: tuple[str, ...]
    rows: int
    batches: Callable[[], Iterator[pd.DataFrame]]
    read: Callable[[Sequence[str]], Iterator[dict[str, Any]]] | None = None

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

    The function opens a stream of Arrow batches, the same rows each time: a query of a database.
    `extra` names columns needed besides those of the schema, such as the one with the person.
    """
    wanted = (*schema.columns, schema.label.name, *extra)
    if isinstance(data, (str, Path)):
        return _file(Path(data), wanted)
    if callable(data):
        return _stream(data, wanted)
    if isinstance(data, pa.Table):
        return _arrow(ds.dataset(data), wanted)
    if not isinstance(data, (pd.DataFrame, np.ndarray, list, dict)):
        return _arrow(ds.dataset(as_arrow(data)), wanted)
    frame = as_frame(data, schema)
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    return Source(
        tuple(frame.columns),
        len(frame),
        lambda: (frame.iloc[start : start + BATCH] for start in range(0, len(frame), BATCH)),
    )


def _file(path: Path, wanted: tuple[str, ...]) -> Source:
    folder, ending = os.path.isdir(path), path.suffix.lower()
    if not folder:
        check_table_file(path)
    if folder or ending in PARQUET or ending in ARROW:
        arrow = ending in ARROW and not folder
        # A text that many rows have is decoded, and looked up, once for all of them.
        in_short = ds.ParquetFileFormat(dictionary_columns=set(wanted))
        try:
            return _arrow(ds.dataset(path, format="ipc" if arrow else in_short), wanted)
        except (pa.ArrowException, OSError, ValueError):
            kind = "is no Arrow file" if arrow else "holds no Parquet file"
            raise DataError(f"{path} is damaged, or {kind}") from None
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


def _arrow(dataset: ds.Dataset, wanted: tuple[str, ...]) -> Source:
    """Every file is read with the types that it has: cells are compared one by one, not columns."""
    names = tuple(dataset.schema.names)
    present = [name for name in dict.fromkeys(wanted) if name in names]
    fragments = tuple(dataset.get_fragments())
    for number, fragment in enumerate(fragments, 1):
        lacking = set(present) - set(fragment.physical_schema.names)
        if lacking:
            raise DataError(f"column {min(lacking)!r} is missing from file number {number}")

    def read(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        # File by file, batch by batch: reading ahead holds more of a large table than it helps.
        how = {"columns": list(names), "batch_size": BATCH, "batch_readahead": 1}
        for number, fragment in enumerate(fragments, 1):
            schema = fragment.physical_schema
            try:
                for batch in fragment.to_batches(schema=schema, use_threads=False, **how):
                    if batch.num_rows:
                        yield batch
            except (pa.ArrowException, OSError):
                raise DataError(f"file number {number} of the table is damaged") from None

    return Source(
        names,
        dataset.count_rows(),
        lambda: map(frame_of, read(present)),
        lambda chosen: map(columns_of, read(chosen)),
    )
