"""PrivateTable: private rows behind glass.

It cannot be printed, iterated, indexed or pickled, so that rows do not slip into logs, notebooks
or files by accident. The mechanisms of this package ask it for encoded batches by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from counterveil.curator.source import open_source
from counterveil.encoding import Array, Encoding
from counterveil.errors import DataError, RequestError
from counterveil.schema import Schema


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
        self.schema = schema
        self.encoding = Encoding(schema)
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
        """Encoded rows and class numbers; every caller must account for what it does with them."""
        used: Counter[Any] = Counter()
        first_row = 0
        for private_frame in self._source.batches():
            mine = self._within_limit(private_frame, used, first_row)
            numbers = first_row + np.flatnonzero(mine)
            first_row += len(private_frame)
            if not len(numbers):
                continue
            kept = private_frame[mine]
            private_points = self.encoding.encode(kept, numbers)
            private_classes = self.encoding.labels(kept, numbers)
            yield private_points, private_classes

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
        self._check_whole(lowest == highest, classes_seen)

    def private_rows(self) -> tuple[Array, Array]:
        """All encoded rows and class numbers at once, for mechanisms that train on them."""
        points, classes = zip(*self.private_batches(), strict=True)
        return np.concatenate(points), np.concatenate(classes)

    def _within_limit(
        self, private_frame: pd.DataFrame, used: Counter[Any], first_row: int
    ) -> Array:
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

    def _check_whole(self, constant: Array, classes_seen: set[int]) -> None:
        label = self.schema.label
        if len(classes_seen) < 2:
            raise DataError(
                f"label {label.name!r} has one class only in this table; "
                "counterfactuals need rows of at least two classes"
            )
        # Images have blank corners and sets of bits rare bits; in a mixed table it is a mistake.
        for block in self.encoding.blocks if self.schema.family == "mixed" else ():
            if bool(constant[block.at].all()):
                raise DataError(
                    f"column {block.feature.name!r} is constant in this table; "
                    "leave it out of the schema: it cannot explain anything"
                )

    def __repr__(self) -> str:
        return "PrivateTable(…)"

    def __iter__(self) -> NoReturn:
        raise TypeError("a PrivateTable is not iterable")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a PrivateTable cannot be pickled or copied")
