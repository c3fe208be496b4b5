"""Parquet and Arrow files as rows that are read in batches, or in parts on several machines.

A part can be sent to another machine that sees the same files: it holds paths and row groups, never
a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs

from counterveil.errors import DataError, RequestError


@dataclass(frozen=True)
class Fragments:
    """The rows of some files, or of some row groups of them, in order.

    `skip`: rows of the first row group that are not among them; `rows`: how many are. `number`: of
    the first file among those of the table, for messages.
    """

    files: tuple[Any, ...]
    columns: tuple[str, ...]
    rows: int
    skip: int = 0
    number: int = 1

    def batches(self, names: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
        """The columns of these names, at most `size` rows at a time.

        Every file is read with the types that it has: cells are compared one by one, not columns.
        File by file, batch by batch: reading ahead holds more of a large table than it helps.
        """
        how = {"columns": list(names), "batch_size": size, "batch_readahead": 1}
        skip, left = self.skip, self.rows
        for number, file in enumerate(self.files, self.number):
            try:
                for batch in file.to_batches(schema=file.physical_schema, use_threads=False, **how):
                    if skip < batch.num_rows and left:
                        mine = batch.slice(skip, left)
                        left -= mine.num_rows
                        yield mine
                    skip = max(0, skip - batch.num_rows)
            except (pa.ArrowException, OSError):
                raise DataError(f"file number {number} of the table is damaged") from None
            if not left:
                return

    def parts(self, most: int) -> list[Fragments]:
        """The same rows in parts of at most `most` rows, in order.

        Row groups are put together, and cut where one has more rows than that.
        """
        parts: list[Fragments] = []
        for number, file in enumerate(self.files, self.number):
            if not hasattr(file, "split_by_row_group"):
                raise RequestError("only Parquet files can be read in parts: give some")
            for group in file.split_by_row_group():
                rows = group.row_groups[0].num_rows
                last = parts[-1] if parts else None
                if last and not last.skip and last.rows + rows <= most:
                    parts[-1] = replace(last, files=(*last.files, group), rows=last.rows + rows)
                    continue
                parts += [
                    Fragments((group,), self.columns, min(most, rows - start), start, number)
                    for start in range(0, rows, most)
                ]
        return parts


def is_address(place: object) -> bool:
    """Whether a text is the address of a store, and not a path."""
    return isinstance(place, str) and "://" in place


def parquet_files(place: str, short: Sequence[str] = ()) -> Fragments:
    """The Parquet files at a path or address: a file, a folder, or an object store such as s3://….

    `short`: columns that are read in dictionary form; a text that many rows have is decoded once.
    """
    files = ds.ParquetFileFormat(dictionary_columns=set(short))
    try:
        system, path = None, place
        if is_address(place):
            system, path = pyarrow.fs.FileSystem.from_uri(place)
        return fragments_of(ds.dataset(path, format=files, filesystem=system))
    except (pa.ArrowException, OSError, ValueError):
        raise DataError(f"{place} is damaged, or holds no Parquet file") from None


def fragments_of(dataset: ds.Dataset) -> Fragments:
    """All rows of a dataset of Arrow; their number is read off the files."""
    files = tuple(dataset.get_fragments())
    return Fragments(files, tuple(dataset.schema.names), dataset.count_rows())
