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
| `GridCounts.pair`, E of them | 1 in one cell of each of E pairs | 2·E·records | √(2E)·records |
| `GridCounts.products` of m | q_i·q_j for i < j, Σ q² ≤ U² | (m−1)·U²·records | U²·records |
| `BoundedSums` | a vector of norms ≤ l1, l2 in its class | 2·l1·records | 2·l2·records |
| `EmbeddingSums` | the same; its count weighs w ≤ l2 | 2·(l1 + w)·records | 2·l2·records |

The last one counts for nothing: a record replaced by one of its own class leaves the count as it
is, so that the sums move by at most 2·l2; one replaced by a record of another class moves two
classes by at most √(l2² + w²) each, √2·√(l2² + w²) ≤ 2·l2 together. A record that is taken away for
none moves less. Replacing a unit is at most `records` such steps, and their lengths add up.

Relation: replace-one, N public. `tests/privacy/test_sensitivity.py` holds each of them against
random and extreme neighbours, and attains them.

`fill` adds rows to sums: in this process, or in parts on the workers of a cluster. A sum over a
part is the same integers wherever it is made, and what comes back for a part is added once
(`Cluster.each`). So the total is that of one pass in one process, to the last integer; no noise is
drawn, and nothing is rounded, before it is there.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array
from counterveil.errors import InternalError
from counterveil.parts import Fragments
from counterveil.population.grid import Grid, Line
from counterveil.population.scorecard import WholePoints
from counterveil.privacy.record import Sensitivity, root_above
from counterveil.schema import Schema

ROWS_A_PART = 2_000_000  # of a table that workers count, at most
ROWS_AT_A_TIME = 1024  # whose vectors are held together
MOST_JOINT = 1 << 15  # cells of a joint table of several features: it fits the processor's cache


class Sums(ABC):
    """A running sum over records: batches are added, and so are sums over other records.

    `places`: of the features that it looks at; all of them if None. `by_points`: it takes encoded
    rows (rows, width), not columns in compact form (`Encoding.compact`).
    """

    places: Collection[int] | None = None
    by_points = False

    @abstractmethod
    def add(self, private_rows: Any, private_classes: Array) -> None:
        """Add a batch of rows, of the classes (rows,)."""

    @property
    @abstractmethod
    def exact(self) -> Sequence[Array]:
        """The int64 arrays that it fills. Private."""

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

    def add(self, private_columns: Sequence[Array], private_classes: Array) -> None:
        """Count a batch in compact form."""
        self.counts += self.cells.counts(private_columns)

    @property
    def exact(self) -> Sequence[Array]:
        """The counts."""
        return [self.counts]


class GridCounts(Sums):
    """How many records of each class sit in each cell of each feature, and of each pair.

    Pairs are counted in groups of features, as many to a group as its joint table has room for: one
    pass over the rows then counts all pairs of the group.
    """

    def __init__(self, grid: Grid, classes: int, coarse: tuple[Array, ...], *, pairs: bool) -> None:
        self.grid, self.coarse, self.features = grid, coarse, len(grid.cells)
        # (class, cell) over all features side by side
        self.singles = np.zeros((classes, grid.width), dtype=np.int64)
        wide = [int(merge.max()) + 1 for merge in coarse]
        # Of all classes together: for each group of features, their joint counts.
        self._joint = {
            group: np.zeros([wide[each] for each in group], dtype=np.int64)
            for group in (groups_of(wide) if pairs else ())
        }

    def add(self, private_columns: Sequence[Array], private_classes: Array) -> None:
        """Count a batch in compact form (`Encoding.compact`)."""
        codes = self.grid.codes_of(private_columns)
        for start, count, code in zip(self.grid.starts, self.grid.counts, codes, strict=True):
            mine = self.singles[:, start : start + count]
            flat = private_classes * count + code
            mine += np.bincount(flat, minlength=mine.size).reshape(mine.shape)
        wide = [merge[code] for merge, code in zip(self.coarse, codes, strict=True)]
        for group, joint in self._joint.items():
            flat = wide[group[0]]
            for each, size in zip(group[1:], joint.shape[1:], strict=True):
                flat = flat * size + wide[each]
            counted = np.bincount(flat, minlength=joint.size)
            self._joint[group] += counted.reshape(joint.shape)

    @property
    def exact(self) -> Sequence[Array]:
        """The counts of single features, and those of each group."""
        return [self.singles, *self._joint.values()]

    def pair(self, first: int, second: int) -> Array:
        """(coarse cell of first, coarse cell of second)."""
        group = next(each for each in self._joint if first in each and second in each)
        others = tuple(axis for axis, each in enumerate(group) if each not in (first, second))
        table = self._joint[group].sum(axis=others)
        return table if group.index(first) < group.index(second) else table.T

    def products(self, whole: WholePoints) -> Array:
        """Σ_rows q_i·q_j for the features i < j of `whole`, (m·(m−1)/2,).

        A row's q are whole numbers that depend on its own coarse cells alone, and their squares add
        up to at most U² = UNIT², whatever the row is. Sensitivity: with u, v ∈ Zᵐ the q of a row
        and of the one in its place, |u|, |v| ≤ U,

        - L2²: Σ_{i<j} (u_i·u_j − v_i·v_j)² ≤ ½·‖uuᵀ − vvᵀ‖² ≤ ½·(|u|⁴ + |v|⁴) ≤ U⁴;
        - L1: Σ_{i<j} |u_i·u_j| = ½·((Σ|u_i|)² − |u|²) ≤ ½·(m − 1)·U², once for each of the two.

        Both are attained by u = (U, U)/√2 and v = (U, −U)/√2.
        """
        sums = [
            one @ self.pair(*whole.features[[i, j]]) @ two
            for (i, one), (j, two) in combinations(enumerate(whole.values), 2)
        ]
        return np.array(sums, dtype=np.int64)


def groups_of(wide: Sequence[int]) -> list[tuple[int, ...]]:
    """Groups of features such that every pair is in one; `wide`: the cells of each feature.

    A joint table has at most `MOST_JOINT` cells where its group has more than two features.
    """
    left = set(combinations(range(len(wide)), 2))
    groups = []
    while left:
        group = list(min(left))
        while True:
            room = MOST_JOINT // math.prod(wide[each] for each in group)
            gains = [
                (sum((min(one, two), max(one, two)) in left for one in group), -wide[two], two)
                for two in range(len(wide))
                if two not in group and wide[two] <= room
            ]
            if not gains or max(gains)[0] == 0:
                break
            group.append(max(gains)[2])
        group.sort()
        left -= set(combinations(group, 2))
        groups.append(tuple(group))
    return groups


class VectorSums(Sums):
    """Class sums of the vectors that `vectors_of` makes of encoded rows, each of its row alone."""

    by_points = True

    def __init__(self, vectors_of: Callable[[Array], Array], into: BoundedSums) -> None:
        self.into, self._vectors_of = into, vectors_of

    def add(self, private_points: Array, private_classes: Array) -> None:
        """Add a batch of encoded rows (rows, width), some at a time."""
        for start in range(0, len(private_points), ROWS_AT_A_TIME):
            some = slice(start, start + ROWS_AT_A_TIME)
            self.into.add(self._vectors_of(private_points[some]), private_classes[some])

    @property
    def exact(self) -> Sequence[Array]:
        """The class sums."""
        return [self.into.sums]


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
    """Class sums of embeddings φ(x), with a count that costs no noise: it weighs at most l2.

    The norms l1 and l2 are without the count.
    """

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
    """Integer vectors scaled down, towards zero, to an L1 norm of at most l1, and L2 likewise.

    What becomes of a vector depends on that vector alone.
    """
    size_l1, size_l2 = np.abs(vectors).sum(axis=1), (vectors**2).sum(axis=1)
    shrink = np.minimum(l1 / np.maximum(size_l1, 1), np.sqrt(l2_squared / np.maximum(size_l2, 1)))
    shorter = np.trunc(vectors * shrink[:, None]).astype(np.int64)
    kept = np.where((shrink < 1)[:, None], shorter, vectors)
    # A float may round up past the bound by a hair: take steps off the largest entry then.
    too_long = (np.abs(kept).sum(axis=1) > l1) | ((kept**2).sum(axis=1) > l2_squared)
    for row in np.flatnonzero(too_long):
        while np.abs(kept[row]).sum() > l1 or (kept[row] ** 2).sum() > l2_squared:
            top = int(np.abs(kept[row]).argmax())
            kept[row, top] -= np.sign(kept[row, top])
    return kept


def fill(table: PrivateTable, *private_sums: Sums) -> None:
    """Add every row of the table to each of the sums, in one reading.

    Every caller must account for what it does with them. No value of a row can make it fail.
    """
    if table.cluster is None:
        for private_rows, private_classes in _batches(table, private_sums):
            for each in private_sums:
                each.add(private_rows, private_classes)
            table.tell(len(private_classes))
        return
    parts = table.private_parts(ROWS_A_PART)
    count = Counting(table.schema, deepcopy(private_sums))  # which stay empty
    for number, found in table.cluster.each(count, parts):
        for mine, theirs in zip(private_sums, found, strict=True):
            mine.merge(theirs)
        table.tell(parts[number][0].rows)


def _batches(table: PrivateTable, sums: Sequence[Sums]) -> Iterator[tuple[Any, Array]]:
    if any(each.by_points for each in sums):
        return table.private_batches()
    if any(each.places is None for each in sums):
        return table.private_columns()
    return table.private_columns({place for each in sums for place in each.places or ()})


@dataclass(frozen=True)
class Counting:
    """What a worker is sent once: the schema and the empty sums. It then fills them part by part.

    Of the rows only the filled sums leave a worker; they are exact, and go to the curator alone.
    """

    schema: Schema
    empty: tuple[Sums, ...]

    def __call__(self) -> Callable[[tuple[Fragments, Array | None]], list[list[Array]]]:
        return self.count

    def count(self, part: tuple[Fragments, Array | None]) -> list[list[Array]]:
        """For each of the sums its exact arrays over the rows of a part."""
        files, used = part
        private_sums = deepcopy(self.empty)
        fill(PrivateTable(files, self.schema, private_used=used), *private_sums)
        return [list(each.exact) for each in private_sums]
