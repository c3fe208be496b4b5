"""The data-dependent numbers of the training objective: integer sums that state their sensitivity.

Every class below is a running sum over records, filled batch by batch in constant memory; sums over
parts of the records, wherever they were made, add up to the same integers. A record adds the same
integer vector whatever the other records are, so a bound on that vector bounds what replacing one
unit (one record, or one person's at most `records` records) can do:

| sum | what one record adds | L1 when a unit is replaced | L2 |
|---|---|---|---|
| `CellCounts` of R ladders | 1 in one cell of each of R ladders | 2·R·records | √(2R)·records |
| `CellCounts` of R slicings | 1 in one slice of each of R numbers | 2·R·records | √(2R)·records |
| `GridCounts.singles` | 1 in one cell of each of F features | 2·F·records | √(2F)·records |
| `PairCounts` of E pairs | 1 in one cell of each of E pairs | 2·E·records | √(2E)·records |
| `GroupCounts` in T tables | 1 in one cell of each of T tables | 2·T·records | √(2T)·records |
| `MomentSums` | x·xᵀ of a row x of norm ≤ U | 2·U²·records, see there | 2·U²·records |
| `BoundedSums` | a vector of norms ≤ l1, l2 in its class | 2·l1·records | 2·l2·records |
| `EmbeddingSums` | the same; its count weighs w ≤ l2 | 2·(l1 + w)·records | 2·l2·records |

The last one counts for nothing: a record replaced by one of its own class leaves the count as it
is, so that the sums move by at most 2·l2; one replaced by a record of another class moves two
classes by at most √(l2² + w²) each, √2·√(l2² + w²) ≤ 2·l2 together. A record that is taken away for
none moves less. Replacing a unit is at most `records` such steps, and their lengths add up.

Relation: replace-one, N public. `tests/privacy/test_sensitivity.py` holds each of them against
random and extreme neighbours, and attains them.

`fill` adds rows to sums: in this process, or in parts on the workers of a cluster. What comes back
for a part is added once (`Cluster.each`). So the total is that of one pass in one process, to the
last integer; no noise is drawn, and nothing is rounded, before it is there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array
from counterveil.errors import InternalError
from counterveil.parts import Fragments
from counterveil.population.grid import Grid, Line
from counterveil.population.groups import Groups, coarse_cells, count_width
from counterveil.population.moments import WholeScores
from counterveil.privacy.record import Sensitivity, root_above
from counterveil.schema import Schema

ROWS_A_PART = 2_000_000  # of a table that workers count, at most
ROWS_AT_A_TIME = 1024  # whose vectors are held together
ROWS_OF_SCORES = 1 << 12  # whose scores are held together


class Sums(ABC):
    """A running sum over records: batches are added, and so are sums over other records.

    `places`: of the features that it looks at; all of them if None. A batch is columns in compact
    form (`Encoding.compact`), or where there is a `grid` the cell in it of each row, a column for
    each feature; with `by_points` it is encoded rows (rows, width). `exact`: the int64 arrays that
    it fills; private.
    """

    exact: list[Array]
    places: Collection[int] | None = None
    grid: Grid | None = None
    by_points = False

    @abstractmethod
    def add(self, private_rows: Any, private_classes: Array) -> None:
        """Add a batch of rows, of the classes (rows,)."""

    def merge(self, others: Sequence[Array]) -> None:
        """Add the `exact` arrays of the same sum over other records."""
        for mine, theirs in zip(self.exact, others, strict=True):
            np.add(mine, theirs, out=mine)


class CellCounts(Sums):
    """How many records sit in each cell of public ladders or slices, all classes together."""

    def __init__(self, cells: Line) -> None:
        self.cells = cells
        self.places = cells.places
        self.counts = np.zeros(cells.width, dtype=np.int64)
        self.exact = [self.counts]

    def add(self, private_columns: Sequence[Array], private_classes: Array) -> None:
        self.counts += self.cells.counts(private_columns)


class GridCounts(Sums):
    """How many records of each class sit in each cell of each feature."""

    def __init__(self, grid: Grid, classes: int) -> None:
        self.grid: Grid = grid
        # (class, cell) over all features side by side
        self.singles = np.zeros((classes, grid.width), dtype=np.int64)
        self.exact = [self.singles]

    def add(self, private_codes: Sequence[Array], private_classes: Array) -> None:
        places = zip(self.grid.starts, self.grid.counts, private_codes, strict=True)
        for start, count, code in places:
            _count(self.singles[:, start : start + count], private_classes, code)


class PairCounts(Sums):
    """How many records of all classes sit in each pair of `coarse` cells of chosen features."""

    def __init__(
        self, grid: Grid, coarse: Sequence[Array], pairs: Sequence[tuple[int, int]]
    ) -> None:
        self.grid, self.pairs, self._coarse = grid, pairs, coarse
        self.places: Collection[int] = sorted({*chain.from_iterable(pairs)})
        wide = [int(merge.max()) + 1 for merge in coarse]
        self.tables = [np.zeros((wide[one], wide[two]), dtype=np.int64) for one, two in self.pairs]
        self.exact = self.tables

    def add(self, private_codes: Sequence[Array], private_classes: Array) -> None:
        codes = {each: self._coarse[each][private_codes[each]] for each in self.places}
        for (one, two), mine in zip(self.pairs, self.tables, strict=True):
            _count(mine, codes[one], codes[two])


class GroupCounts(Sums):
    """How many records of each group and class there are, and in each coarse cell of each feature.

    `counts`: (groups · classes, 1 + coarse cells side by side of the features that make no groups),
    the number of records in column 0. A record adds 1 to that, and to one cell of each of F − G
    features, all of it in one row: 1 to one cell of each of F − G + 1 histograms.
    """

    def __init__(self, grid: Grid, groups: Groups, classes: int) -> None:
        self.grid, self.groups, self._classes = grid, groups, classes
        self._coarse = coarse_cells(grid, groups)
        self.counts = np.zeros((groups.count * classes, count_width(grid, groups)), dtype=np.int64)
        self.exact = [self.counts]

    def add(self, private_codes: Sequence[Array], private_classes: Array) -> None:
        rows = self.groups.numbers(private_codes) * self._classes + private_classes
        self.counts[:, 0] += np.bincount(rows, minlength=len(self.counts))
        start = 1
        for place, coarse in self._coarse.items():
            cells = int(coarse.max()) + 1
            _count(self.counts[:, start : start + cells], rows, coarse[private_codes[place]])
            start += cells


def _count(table: Array, rows: Array, columns: Array) -> None:
    """Add 1 to the cell of `table` in each of these rows and columns."""
    flat = rows * table.shape[1] + columns
    table += np.bincount(flat, minlength=table.size).reshape(table.shape)


class MomentSums(Sums):
    """Second moments of whole-number scores: of all pairs of features, and of (class, feature).

    A record is x ∈ Z^(F+1): the scores q of its cells, which depend on these cells alone and are
    cut by a rule that looks at this record alone, and the number g ≥ 0 in the place of its class.
    It adds 2·q_i·q_j for i < j, q_i², and 2·g·q_i in the row of its class; g² is left out.

    Sensitivity: with x of one record and y of the one in its place, a(x) what x adds,

    - L1: |a(x)|₁ = (Σ|q_i|)² + 2·g·Σ|q_i| ≤ (g + Σ|q_i|)² ≤ U² where the L1 norm of x is at most
      U = UNIT, and twice that for two records: Δ₁ = 2U². Where it is the L2 norm, Σ|x_i| is at
      most √(F+1)·U: Δ₁ = 2(F+1)·U².
    - L2: let A(x) = x·xᵀ, with a place for every class. a(x) − a(y) has the entries of
      A(x) − A(y) that it holds, those off the diagonal twice but in one place instead of two, so
      |a(x) − a(y)|² ≤ 2·‖A(x) − A(y)‖² = 2·(|x|⁴ + |y|⁴ − 2·(x·y)²) ≤ 4U⁴: Δ₂ = 2U².

    An L1 norm of at most U is an L2 norm of at most U. Δ₁ is attained by scores of one feature for
    L1, and Δ₂ by x = (U, U)/√2 and y = (U, −U)/√2.
    """

    def __init__(self, grid: Grid, whole: WholeScores, classes: int) -> None:
        self.grid, self.whole, features = grid, whole, len(whole.values)
        self._upper, self._norms = np.triu_indices(features), (whole.l1, whole.l2_squared)
        self._values = [values.astype(np.float64) for values in whole.values]
        self._products = np.zeros((features, features), dtype=np.int64)
        self._sums = np.zeros((classes, features), dtype=np.int64)
        self.exact = [self._products, self._sums]

    def add(self, private_codes: Sequence[Array], private_classes: Array) -> None:
        for start in range(0, len(private_classes), ROWS_OF_SCORES):
            some = slice(start, start + ROWS_OF_SCORES)
            scores = zip(self._values, private_codes, strict=True)
            rows = cut(np.stack([values[code[some]] for values, code in scores]).T, *self._norms)
            # Whole numbers in floats: sums of so few rows stay far below 2⁵³.
            self._products += (rows.T @ rows).astype(np.int64)
            for label in range(len(self._sums)):
                of_class = (private_classes[some] == label) @ rows
                self._sums[label] += of_class.astype(np.int64)

    @property
    def moments(self) -> Array:
        """What the sums of a record come to: flat, features i ≤ j row by row, then classes."""
        twice = 2 * self._products - np.diag(np.diag(self._products))
        return np.concatenate([twice[self._upper], (2 * self.whole.label * self._sums).ravel()])


class VectorSums(Sums):
    """Class sums of the vectors that `vectors_of` makes of encoded rows, each of its row alone."""

    by_points = True

    def __init__(self, vectors_of: Callable[[Array], Array], into: BoundedSums) -> None:
        self.into, self._vectors_of = into, vectors_of
        self.exact = [into.sums]

    def add(self, private_points: Array, private_classes: Array) -> None:
        for start in range(0, len(private_points), ROWS_AT_A_TIME):
            some = slice(start, start + ROWS_AT_A_TIME)
            self.into.add(self._vectors_of(private_points[some]), private_classes[some])


class BoundedSums:
    """Class sums of integer vectors with bounded norms, and the class counts beside them.

    `sums` is (class, 1 + width). Column 0 holds `count_weight` for each record of the class: the
    count, in the same vector, so that one noise covers all. The bound on the norms includes it.
    """

    def __init__(
        self, width: int, classes: int, l1: int, l2_squared: int, count_weight: int
    ) -> None:
        self.l1, self.l2_squared = l1 + count_weight, l2_squared + count_weight**2
        self._clip, self.count_weight = (l1, l2_squared), count_weight
        self.sums = np.zeros((classes, width + 1), dtype=np.int64)

    def add(self, vectors: Array, private_classes: Array) -> None:
        """Add a batch of integer vectors, each cut to the bounds."""
        bounded = cut(vectors, *self._clip)
        weights = np.full((len(bounded), 1), self.count_weight, dtype=np.int64)
        full = np.concatenate([weights, bounded], axis=1)
        for label in range(len(self.sums)):
            self.sums[label] += full[private_classes == label].sum(axis=0)

    def sensitivity(self, records: int) -> Sensitivity:
        """Of `sums`, for units of at most `records` records."""
        return Sensitivity.of_sums(self.l1, self.l2_squared, records)


class EmbeddingSums(BoundedSums):
    """Class sums of embeddings φ(x) of norms l1 and l2, with a count that weighs at most l2."""

    def __init__(
        self, width: int, classes: int, l1: int, l2_squared: int, count_weight: int
    ) -> None:
        super().__init__(width, classes, l1, l2_squared, count_weight)
        if count_weight**2 > l2_squared:
            raise InternalError(
                "a count that weighs more than the embedding needs noise of its own"
            )

    def sensitivity(self, records: int) -> Sensitivity:
        """Of `sums`, for units of at most `records` records."""
        _, l2_squared = self._clip
        return Sensitivity(2 * self.l1 * records, root_above(4 * l2_squared * records**2))


def cut(vectors: Array, l1: int, l2_squared: int) -> Array:
    """Whole numbers (rows, width) scaled down, towards zero, to L1 norms ≤ l1, and L2 likewise.

    Each vector by itself. Floats may hold them as long as all sums stay below 2⁵³.
    """
    size_l1, size_l2 = np.abs(vectors).sum(axis=1), np.square(vectors).sum(axis=1)
    shrink = np.minimum(l1 / np.maximum(size_l1, 1), np.sqrt(l2_squared / np.maximum(size_l2, 1)))
    kept = np.trunc(vectors * np.minimum(shrink, 1.0)[:, None]).astype(vectors.dtype, copy=False)
    # A float may round up past the bound by a hair: take steps off the largest entry then.
    too_long = (np.abs(kept).sum(axis=1) > l1) | (np.square(kept).sum(axis=1) > l2_squared)
    for row in np.flatnonzero(too_long):
        while np.abs(kept[row]).sum() > l1 or np.square(kept[row]).sum() > l2_squared:
            top = int(np.abs(kept[row]).argmax())
            kept[row, top] -= np.sign(kept[row, top])
    return kept


def fill(table: PrivateTable, *private_sums: Sums) -> None:
    """Add every row of the table to each of the sums, in one reading."""
    if table.cluster is None:
        for private_rows, private_codes, private_classes in _batches(table, private_sums):
            for each in private_sums:
                each.add(private_rows if each.grid is None else private_codes, private_classes)
        table.tell_all_read()
        return
    parts = table.private_parts(ROWS_A_PART)
    count = Counting(table.schema, deepcopy(private_sums))  # which stay empty
    for number, found in table.cluster.each(count, parts):
        for mine, theirs in zip(private_sums, found, strict=True):
            mine.merge(theirs)
        table.tell(parts[number][0].rows)
    table.tell_all_read()


def _batches(table: PrivateTable, sums: Sequence[Sums]) -> Iterator[tuple[Any, Any, Array]]:
    """Batches: rows as sums without a grid take them, their cells in the grid, and classes."""
    grids = [each.grid for each in sums if each.grid is not None]
    if any(each is not grids[0] for each in grids):
        raise InternalError("the sums of one reading are counted on one grid")
    every = any(each.places is None for each in sums)
    places = None if every else {place for each in sums for place in each.places or ()}
    if grids:
        return table.private_cells(grids[0], places, alone=len(grids) == len(sums))
    if any(each.by_points for each in sums):
        return ((points, None, classes) for points, classes in table.private_batches())
    return ((columns, None, classes) for columns, classes in table.private_columns(places))


@dataclass(frozen=True)
class Counting:
    """What a worker is sent once; only the filled sums come back, to the curator alone."""

    schema: Schema
    empty: tuple[Sums, ...]

    def __call__(self) -> Callable[[tuple[Fragments, Array | None]], list[list[Array]]]:
        return self.count

    def count(self, part: tuple[Fragments, Array | None]) -> list[list[Array]]:
        """For each of the sums its exact arrays over the rows of a part."""
        files, used = part
        private_sums = deepcopy(self.empty)
        fill(PrivateTable(files, self.schema, private_used=used), *private_sums)
        return [each.exact for each in private_sums]
