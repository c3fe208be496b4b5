"""Private rows in batches: frames in memory, Arrow tables, CSV and Parquet files and folders.

A source of any size streams through constant memory. N is public and known before rows are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from counterveil.errors import DataError
from counterveil.schema import Schema
from counterveil.tables import as_frame, csv_batches, csv_columns

BATCH = 50_000


@dataclass(frozen=True)
class Source:
    """Where private rows come from. Its repr shows none."""

    columns: tuple[str, ...]
    rows: int
    batches: Callable[[], Iterator[pd.DataFrame]]

    def __repr__(self) -> str:
        return f"Source({self.rows} rows)"


def open_source(data: Any, schema: Schema, extra: tuple[str, ...] = ()) -> Source:
    """A source over `data`: a frame, an Arrow table, or the path of a file or folder.

    `extra` names columns needed besides those of the schema, such as the one with the person.
    """
    wanted = (*schema.columns, schema.label.name, *extra)
    if isinstance(data, (str, Path)):
        return _open_path(Path(data), schema, wanted, extra)
    if isinstance(data, pa.Table):
        return _arrow(ds.dataset(data), wanted, extra)
    frame = as_frame(data, schema)
    return Source(
        tuple(str(name) for name in frame.columns),
        len(frame),
        lambda: (frame.iloc[start : start + BATCH] for start in range(0, len(frame), BATCH)),
    )


def _open_path(
    path: Path, schema: Schema, wanted: tuple[str, ...], extra: tuple[str, ...]
) -> Source:
    if not path.exists():
        raise DataError(f"no table at {path}; check the path")
    if path.is_dir() or path.suffix.lower() in {".parquet", ".pq"}:
        try:
            return _arrow(ds.dataset(path, format="parquet"), wanted, extra)
        except (pa.ArrowException, OSError):
            raise DataError(f"{path} is damaged, or holds no Parquet file") from None
    columns = csv_columns(path)
    rows = sum(len(batch) for batch in csv_batches(path, columns[:1], 10 * BATCH))
    # A person is the same person in every batch only if the column is read as text in all of them.
    text = {*schema.text_columns, *extra}
    return Source(columns, rows, lambda: csv_batches(path, columns, BATCH, text))


def _arrow(dataset: ds.Dataset, wanted: tuple[str, ...], extra: tuple[str, ...]) -> Source:
    names = tuple(dataset.schema.names)
    for name in extra:  # person 7 and person "7" would count as two people
        kinds = {
            str(fragment.physical_schema.field(name).type)
            for fragment in dataset.get_fragments()
            if name in fragment.physical_schema.names
        }
        if len(kinds) > 1:
            raise DataError(
                f"column {name!r} has another type in another file ({', '.join(sorted(kinds))}); "
                "write it with one type in all of them"
            )
    present = [name for name in dict.fromkeys(wanted) if name in names]

    def batches() -> Iterator[pd.DataFrame]:
        # File by file, batch by batch: reading ahead holds more of a large table than it helps.
        for fragment in dataset.get_fragments():
            for batch in fragment.to_batches(
                columns=present, batch_size=BATCH, batch_readahead=1, use_threads=False
            ):
                if batch.num_rows:
                    yield batch.to_pandas()

    return Source(names, dataset.count_rows(), batches)
