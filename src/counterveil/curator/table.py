"""PrivateTable: private rows that cannot leave by accident, read in batches.

It cannot be printed, iterated, indexed or pickled, so that rows do not slip into logs, notebooks or
files. The mechanisms of this package ask it for encoded batches by name (`private_…`): every caller
must account for what it does with them.

No value of a row can stop a release: whether it stopped would be an exact answer about the rows.
What a row counts as depends on that row and the schema alone (`encoding`), in any file and whatever
the other rows are; a row whose label is not in the schema, or that has no person, counts for
nothing. `check` finds such rows, for the curator's eyes.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator
from decimal import Decimal
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal, NoReturn

import numpy as np
import pandas as pd

from counterveil.cluster import Cluster
from counterveil.curator.sources import open_source
from counterveil.encoding import Array, Encoding
from counterveil.errors import DataError, RequestError
from counterveil.parts import Fragments
from counterveil.population.grid import Grid
from counterveil.schema import Schema
from counterveil.schema.columns import empty_cells
from counterveil.terminal import Tick, silent

MOST_RECORDS = 10_000  # of a person that may count
MOST_KEPT = 1 << 26  # bytes of cells that are kept in memory between readings
WHOLE = re.compile(r"(?P<sign>[+-]?)(?P<digits>[0-9]+)(\.0*)?")


class PrivateTable:
    """Rows and labels that fit a schema, read in batches.

    `unit_column` names the column with the person a record belongs to (`person_of` says who is the
    same); of each person's records the first `max_records` in the order of the table are used, 1 if
    nothing is said. `cluster`: where the rows are counted, in parts. `private_used`: which rows
    (rows,) count, where that is known already.
    """

    def __init__(
        self,
        private_data: Any,
        schema: Schema,
        *,
        unit_column: str | None = None,
        max_records: int | None = None,
        cluster: Cluster | None = None,
        private_used: Array | None = None,
    ) -> None:
        if max_records is not None and unit_column is None:
            raise RequestError("max_records needs a unit column: the one that tells people apart")
        records = 1 if max_records is None else max_records
        if type(records) is not int or not 1 <= records <= MOST_RECORDS:
            raise RequestError(f"max_records must be a whole number from 1 to {MOST_RECORDS}")
        extra = () if unit_column is None else (unit_column,)
        self._source = open_source(private_data, schema, extra)
        self.schema, self.encoding = schema, Encoding(schema, private=True)
        self.unit_column, self.records, self.cluster = unit_column, records, cluster
        # Whom the privacy of this table protects.
        self.unit: Literal["record", "person"] = "record" if unit_column is None else "person"
        if self._source.rows == 0:
            raise DataError("the table is empty; it needs at least one row")
        self.encoding.check_columns(self._source.columns, label=True)
        if unit_column is not None and unit_column not in self._source.columns:
            raise DataError(f"unit column {unit_column!r} is missing from the table")
        if cluster is not None:
            self.private_parts(self._source.rows)
        if private_used is not None:
            self._private_used = private_used
        self._tick: Tick = silent
        self._readings, self._done, self._rows_read = 1, 0, 0
        self._private_kept: tuple[Grid, list[list[Array]]] | None = None

    @cached_property
    def size(self) -> int:
        """The number of units, which is public: of records, or of people.

        With a unit column the number of records is not: how many a person has is private.
        """
        return self.rows if self.unit_column is None else len(self._private_people[0])

    @property
    def rows(self) -> int:
        """The number of records; with a unit column it is private."""
        return self._source.rows

    @cached_property
    def _private_used(self) -> Array | None:
        """Which rows (rows,) count; None where all do."""
        return None if self.unit_column is None else self._private_people[1]

    @cached_property
    def _private_people(self) -> tuple[Counter[str], Array]:
        """Who has how many records, and which rows (rows,) are among the first of their person."""
        used: Counter[str] = Counter()
        mine = np.zeros(self._source.rows, dtype=bool)
        row = 0
        for private_frame in self._source.batches():
            for person in people_of(private_frame[self.unit_column]):
                if person is not None:
                    mine[row] = used[person] < self.records
                    used[person] += 1
                row += 1
        if not used:
            raise DataError(f"unit column {self.unit_column!r} names nobody")
        return used, mine

    def watch(self, tick: Tick, readings: int) -> None:
        """From now on tell `tick` what share of so many readings is done, in whole percent.

        Nothing that is told depends on what the rows hold; with a unit column, not on how many.
        """
        self._tick, self._readings, self._done = tick, readings, 0

    def tell(self, rows: int) -> None:
        """Tell whoever watches that so many more rows were read."""
        if self.unit_column is None:
            self._rows_read += rows
            part = self._done + min(self._rows_read / self.rows, 1.0)
            self._tick(int(100 * part / self._readings), "%")

    def tell_all_read(self) -> None:
        self._done, self._rows_read = self._done + 1, 0
        self._tick(100 * self._done // self._readings, "%")

    def private_parts(self, most: int) -> list[tuple[Fragments, Array | None]]:
        """Where parts of at most `most` rows are, and which of them (rows,) count, if not all."""
        if self._source.parts is None:
            raise RequestError("workers read Parquet files: give one, or a folder of them")
        parts, used = self._source.parts(most), self._private_used
        starts = [0, *accumulate(part.rows for part in parts)]
        return [
            (part, None if used is None else used[start : start + part.rows])
            for part, start in zip(parts, starts, strict=False)
        ]

    def private_frames(self) -> Iterator[pd.DataFrame]:
        """The rows that count, as they are in the table, whatever their label."""
        for private_frame, _ in self._used():
            yield private_frame
            self.tell(len(private_frame))

    def private_batches(self) -> Iterator[tuple[Array, Array]]:
        """Encoded rows (rows, width) and class numbers (rows,), batch by batch."""
        for private_frame, _ in self._used():
            classes = self.encoding.labels(private_frame, strict=False)
            labelled = classes >= 0
            if labelled.any():
                points = self.encoding.encode(private_frame[labelled], strict=False)
                yield points, classes[labelled]
            self.tell(len(private_frame))

    def private_columns(
        self, features: Collection[int] | None = None
    ) -> Iterator[tuple[list[Any], Array]]:
        """The same rows in compact form (`Encoding.compact_arrays`): a column for each feature.

        `features`: the places of those that are wanted, all if None; others have None.
        """
        wanted = range(len(self.encoding.blocks)) if features is None else features
        names = {name for place in wanted for name in self.schema.features[place].columns}
        label, first_row = self.schema.label.name, 0
        for private_arrays in self._source.columns_of((*names, label)):
            classes = self.encoding.labels_of(private_arrays[label], strict=False)
            in_order = [private_arrays.get(name) for name in self.schema.columns]
            columns = self.encoding.compact_arrays(in_order, wanted)
            counts = classes >= 0
            if self._private_used is not None:
                counts &= self._private_used[first_row : first_row + len(counts)]
            first_row += len(counts)
            if counts.all():
                yield columns, classes
            elif counts.any():
                kept = [None if each is None else each[counts] for each in columns]
                yield kept, classes[counts]
            self.tell(len(counts))

    def private_cells(
        self, grid: Grid, features: Collection[int] | None = None, *, alone: bool = False
    ) -> Iterator[tuple[list[Any], list[Any], Array]]:
        """The columns of `private_columns`, the cells of `grid` that they fall in, and classes.

        Cells that take little memory are kept for when they are wanted `alone`, without columns.
        """
        codes: list[Any]
        kept = self.private_kept(grid) if alone else None
        if kept is not None:
            for small in kept:
                *codes, classes = (each.astype(np.intp) for each in small)
                yield [], codes, classes
            return
        counts = [*grid.counts, len(self.schema.label.classes)]
        kinds = [np.min_scalar_type(count - 1) for count in counts]
        keep = features is None and self.rows * sum(each.itemsize for each in kinds) <= MOST_KEPT
        new: list[list[Array]] = []
        for columns, classes in self.private_columns(features):
            codes = [
                None if column is None else cells.codes_of(column)
                for cells, column in zip(grid.cells, columns, strict=True)
            ]
            if keep:
                with_class = zip((*codes, classes), kinds, strict=True)
                new.append([each.astype(kind) for each, kind in with_class])
            yield columns, codes, classes
        if keep:  # also where no row has a label: whether one has would show in the progress
            self._private_kept = grid, new

    def private_kept(self, grid: Grid) -> list[list[Array]] | None:
        """The cells of `grid` of all rows, the class last, where they are kept in memory."""
        kept_on, kept = self._private_kept or (None, None)
        return kept if kept_on is grid else None

    def check(self) -> None:
        """Read every row and refuse a table that does not fit the schema or cannot be explained.

        For the curator's eyes: no private mechanism may call it, and no release does.
        """
        lowest, classes_seen = np.full(self.encoding.width, np.inf), set[int]()
        highest = -lowest
        for private_frame, numbers in self._used(strict=True):
            private_points = self.encoding.encode(private_frame, numbers)
            private_classes = self.encoding.labels(private_frame, numbers)
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
        none = np.empty((0, self.encoding.width)), np.empty(0, dtype=np.intp)
        points, classes = zip(none, *self.private_batches(), strict=True)
        return np.concatenate(points), np.concatenate(classes)

    def _used(self, *, strict: bool = False) -> Iterator[tuple[pd.DataFrame, Array]]:
        """The rows that are among the first `records` of their person, and where they are.

        A row without a person is left out; with `strict` it is an error.
        """
        first_row = 0
        for private_frame in self._source.batches():
            numbers = first_row + np.arange(len(private_frame))
            first_row += len(private_frame)
            if strict and self.unit_column is not None:
                people = people_of(private_frame[self.unit_column])
                if None in people:
                    where = f"row {numbers[people.index(None)] + 1}, column {self.unit_column!r}"
                    raise DataError(f"{where}: no person given")
            if self._private_used is None:
                yield private_frame, numbers
                continue
            mine = self._private_used[numbers]
            if mine.any():
                yield private_frame[mine], numbers[mine]

    def __repr__(self) -> str:
        return "PrivateTable(…)"

    def __iter__(self) -> NoReturn:
        raise TypeError("a PrivateTable is not iterable")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a PrivateTable cannot be pickled or copied")


def person_of(cell: Any) -> str | None:
    """Who a cell of the unit column means, by a public rule; None if it names nobody.

    A whole number is the same person however it is written: 7, 7.0, "7", "07", " 7" and "7.0" are
    one. Any other text is compared letter by letter, without the spaces around it and in Unicode's
    composed form (NFC); capitals matter. An empty cell or an empty text names nobody.
    """
    cell = cell.item() if isinstance(cell, np.generic) else cell
    try:
        if isinstance(cell, (float, Decimal)) and cell % 1 == 0:
            cell = int(cell)
        text = unicodedata.normalize("NFC", str(cell)).strip()
    except (ArithmeticError, ValueError):  # numbers beyond all digits
        return None
    whole = WHOLE.fullmatch(text)
    if whole:
        digits = whole["digits"].lstrip("0") or "0"
        return f"-{digits}" if whole["sign"] == "-" and digits != "0" else digits
    return text or None


def people_of(column: pd.Series[Any]) -> list[str | None]:
    empty = empty_cells(column)
    cells = column.astype(object).to_numpy()
    return [None if none else person_of(cell) for cell, none in zip(cells, empty, strict=True)]
