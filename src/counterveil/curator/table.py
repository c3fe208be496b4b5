"""PrivateTable: private rows that cannot leave by accident, read in batches.

It cannot be printed, iterated, indexed or pickled, so that rows do not slip into logs, notebooks or
files. The mechanisms of this package ask it for encoded batches by name. Rows come from a frame in
memory, an Arrow table, a CSV file, a Parquet file or a folder of those; a table of any size streams
through constant memory, and the number of its rows, which is public, is known before one is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from counterveil.encoding import Array, Encoding
from counterveil.errors import DataError, RequestError
from counterveil.schema import Schema
from counterveil.tables import as_frame, csv_batches, csv_columns

BATCH = 50_000  # rows


class PrivateTable:
    """Rows and labels that fit a schema, read in batches.

    `unit_column` names the column with the person a record belongs to; of each person's records the
    first `max_records` in the order of the table are used and the others are dropped.
    """

    def __init__(
        self,
        private_data: Any,
        schema: Schema,
        *,
        unit_column: str | None = None,
        max_records: int = 1,
    ) -> None:
        if type(max_records) is not int or max_records < 1:
            raise RequestError("max_records must be a whole number of at least 1")
        extra = () if unit_column is None else (unit_column,)
        self._source = open_source(private_data, schema, extra)
        self.schema, self.encoding = schema, Encoding(schema)
        self.unit_column = unit_column
        self.records = 1 if unit_column is None else max_records
        if self._source.rows == 0:
            raise DataError("the table is empty; it needs at least one row")
        self.encoding.check_columns(self._source.columns, label=True)
        if unit_column is not None and unit_column not in self._source.columns:
            raise DataError(f"unit column {unit_column!r} is missing from the table")

    @cached_property
    def size(self) -> int:
        """The number of units, which is public: of records, or of people.

        How many records a person has is private, so that with a unit column the number of records
        is not public; replacing a person leaves the number of people as it is.
        """
        if self.unit_column is None:
            return self._source.rows
        people: set[Any] = set()
        for private_frame in self._source.batches():
            people.update(private_frame[self.unit_column].map(str).tolist())
        return len(people)

    def private_batches(self) -> Iterator[tuple[Array, Array]]:
        """Encoded rows (rows, width) and class numbers (rows,), batch by batch.

        Every caller must account for what it does with them.
        """
        used: Counter[Any] = Counter()
        first_row = 0
        for private_frame in self._source.batches():
            mine = self._allowed(private_frame, used, first_row)
            numbers, kept = first_row + np.flatnonzero(mine), private_frame[mine]
            first_row += len(private_frame)
            if len(numbers):
                yield self.encoding.encode(kept, numbers), self.encoding.labels(kept, numbers)

    def check(self) -> None:
        """Read every row and refuse a table that cannot be explained.

        For the curator's eyes, before anything is charged or released: whether it passes depends on
        the rows exactly, so that no private mechanism may call it.
        """
        lowest = np.full(self.encoding.width, np.inf)
        highest = -lowest
        classes_seen: set[int] = set()
        for private_points, private_classes in self.private_batches():
            lowest = np.minimum(lowest, private_points.min(axis=0))
            highest = np.maximum(highest, private_points.max(axis=0))
            classes_seen.update(np.unique(private_classes).tolist())
        if len(classes_seen) < 2:
            raise DataError(
                f"label {self.schema.label.name!r} has one class only in this table; "
                "counterfactuals need rows of at least two classes"
            )
        # Images have blank corners and sets of bits rare bits; in a mixed table it is a mistake.
        for block in self.encoding.blocks if self.schema.family == "mixed" else ():
            if bool((lowest == highest)[block.at].all()):
                raise DataError(
                    f"column {block.feature.name!r} is constant in this table; "
                    "leave it out of the schema: it cannot explain anything"
                )

    def private_rows(self) -> tuple[Array, Array]:
        """All encoded rows and class numbers at once, for mechanisms that train on them."""
        points, classes = zip(*self.private_batches(), strict=True)
        return np.concatenate(points), np.concatenate(classes)

    def _allowed(self, private_frame: pd.DataFrame, used: Counter[Any], first_row: int) -> Array:
        """Which rows of a batch are among the first `records` of their person."""
        if self.unit_column is None:
            return np.ones(len(private_frame), dtype=bool)
        units = private_frame[self.unit_column]
        if units.isna().any():
            row = first_row + int(units.isna().to_numpy().argmax()) + 1
            raise DataError(f"row {row}, column {self.unit_column!r}: no person given")
        units = units.map(str)  # 7 and "7" are one person
        before = np.array([used[unit] for unit in units])
        rank = units.groupby(units.to_numpy()).cumcount().to_numpy() + before
        used.update(units.tolist())
        return np.asarray(rank < self.records)

    def __repr__(self) -> str:
        return "PrivateTable(…)"

    def __iter__(self) -> NoReturn:
        raise TypeError("a PrivateTable is not iterable")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a PrivateTable cannot be pickled or copied")


@dataclass(frozen=True)
class Source:
    """Where private rows come from. Its repr shows none."""

    columns: tuple[str, ...]
    rows: int
    batches: Callable[[], Iterator[pd.DataFrame]]


def open_source(data: Any, schema: Schema, extra: tuple[str, ...] = ()) -> Source:
    """A source over `data`: a frame, an Arrow table, or the path of a file or folder.

    `extra` names columns needed besides those of the schema, such as the one with the person.
    """
    wanted = (*schema.columns, schema.label.name, *extra)
    if isinstance(data, pa.Table):
        return _arrow(ds.dataset(data), wanted, extra)
    if not isinstance(data, (str, Path)):
        frame = as_frame(data, schema)
        return Source(
            tuple(str(name) for name in frame.columns),
            len(frame),
            lambda: (frame.iloc[start : start + BATCH] for start in range(0, len(frame), BATCH)),
        )
    path = Path(data)
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
