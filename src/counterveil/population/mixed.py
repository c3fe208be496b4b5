"""P~ of a mixed table: from noisy counts to a distribution that can be sampled.

Noisy counts are negative here and there and do not add up. They are shrunk towards what simpler
counts say by as much as their known noise asks for, and then given the right total; where that is
done on the simplex it also cuts the many small counts that are nothing but noise. Records are drawn
class by class along a tree of feature pairs, or feature by feature where there is no tree; a number
falls first into a coarse bin and then into a fine one.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from counterveil.encoding import Array
from counterveil.errors import RequestError, VeilError
from counterveil.population.base import Population, positive_totals, to_simplex
from counterveil.population.contrasts import class_tables
from counterveil.population.grid import Grid
from counterveil.population.ladder import Ladders
from counterveil.population.numbers import ChosenCells, pooled_counts, shaped
from counterveil.population.spikes import Spikes
from counterveil.privacy.record import NoisyRecord
from counterveil.schema import Schema
from counterveil.schema.cells import NumberCells

__all__ = ["Grid", "TreePopulation", "chosen_grid"]


@dataclass(frozen=True)
class Potentials:
    """log P~(row | class) as a sum: what each cell, and each pair of cells, adds to it.

    `alone`: of each feature, (classes, cells). `pairs`: two features and (classes, cells of one,
    cells of the other).
    """

    alone: tuple[Array, ...]
    pairs: tuple[tuple[int, int, Array], ...] = ()

    def log_density(self, codes: Array) -> Array:
        """(rows, classes), of the cell of each feature, (rows, features)."""
        found = np.zeros((len(codes), len(self.alone[0])))
        for number, table in enumerate(self.alone):
            found += table[:, codes[:, number]].T
        for one, two, table in self.pairs:
            found += table[:, codes[:, one], codes[:, two]].T
        return found


class TreePopulation(Population):
    """P~ of a mixed table. A `VeilError` if the record is not that of this schema.

    `tables`: for each feature the counts (classes, cells) that are believed; `wide`: the same for
    coarse cells; `totals`: of each class; `variance`: of the noise on a count of (class, cell).
    """

    def __init__(self, schema: Schema, record: NoisyRecord) -> None:
        self.record = record
        grid = chosen_grid(schema, record)
        self._coarse = grid.merged(record.coarse)
        noisy, variance = record.read("singles", (len(schema.label.classes), grid.width))
        self.variance = variance
        singles = np.split(noisy, grid.starts[1:], axis=1)  # per feature: (classes, fine cells)
        rows = record.records(float(singles[0].sum()))
        self.totals = totals = class_totals(singles, rows)
        self.class_share = totals / totals.sum()
        spikes = Spikes(schema, record, grid)
        tables, shapes = [], {}
        for number, (counts, cells) in enumerate(zip(singles, grid.cells, strict=True)):
            pooled = None
            if isinstance(cells, NumberCells):
                pooled = pooled_counts(counts.sum(axis=0), len(totals) * variance, rows, cells)
                shapes[number] = spikes.put_into(shaped(cells, pooled), number, pooled)
            tables.append(class_tables(counts, totals, variance, grid.in_order[number], pooled))
        self.tables = tuple(tables)
        self.grid = Grid(schema, record.fine, shapes)
        self.wide = tuple(map(merge, self.tables, self._coarse))
        self._edges = self._read_edges() if record.find("tree") else ()

    def _points(self, classes: Array, rng: np.random.Generator) -> Array:
        codes = np.empty((len(classes), len(self.wide)), dtype=np.int64)
        drawn = {child for _, child, _ in self._edges}
        for feature, table in enumerate(self.wide):
            if feature not in drawn:
                codes[:, feature] = _draw(table[classes], rng)
        for parent, child, table in self._edges:
            codes[:, child] = _draw(table[classes, codes[:, parent]], rng)
        for feature, (fine, coarse) in enumerate(zip(self.tables, self._coarse, strict=True)):
            inside = coarse[None, :] == np.arange(coarse.max() + 1)[:, None]
            codes[:, feature] = _draw((fine[classes] + 1e-9) * inside[codes[:, feature]], rng)
        return self.grid.points(codes, rng)

    def log_density(self, points: Array) -> Array:
        """log P~(cells of the row | class), (rows, classes), of encoded rows (rows, width).

        Exact: the product of the tables along the tree. A number counts by the bin it lies in.
        """
        return self.potentials.log_density(self.grid.codes(points))

    @cached_property
    def potentials(self) -> Potentials:
        """log P~(cells | class) as a sum over the features and the edges of the tree."""
        drawn = {child for _, child, _ in self._edges}
        alone = []
        for number, (fine, table) in enumerate(zip(self.tables, self.wide, strict=True)):
            coarse = self._coarse[number]
            inside = _logs(fine / np.maximum(table[:, coarse], 1e-12))
            alone.append(inside if number in drawn else inside + _logs(_rows(table))[:, coarse])
        pairs = tuple(
            (one, two, _logs(table)[:, self._coarse[one]][:, :, self._coarse[two]])
            for one, two, table in self._edges
        )
        return Potentials(tuple(alone), pairs)

    def percentiles(self, feature: int, of_class: int | None = None) -> tuple[Array, Array]:
        """Places in the unit cube and the share of people up to them, of all or of a class.

        For numbers alone.

        Both rise; between two places the share rises evenly. A value that many people share stands
        twice in a row, with the share of people below it and with that up to it.
        """
        cells, table = self.grid.cells[feature], self.tables[feature]
        people = table.sum(axis=0) if of_class is None else table[of_class]
        if not isinstance(cells, ChosenCells):
            raise RequestError("percentiles are of numbers")
        inside = np.bincount(cells.into, cells.weights)[cells.into]
        share = people[cells.into] * cells.weights / np.maximum(inside, 1e-12)
        ends = np.cumsum(share / share.sum())
        starts = np.concatenate([[0.0], ends[:-1]])
        places = np.stack([cells.pieces.low, cells.pieces.high], axis=1).ravel()
        return np.maximum.accumulate(places), np.stack([starts, ends], axis=1).ravel()

    def expected_pair(self, first: int, second: int) -> Array:
        """Counts of (first, second) if the two were independent inside each class."""
        one, two = self.wide[first], self.wide[second]
        return np.einsum("ca,cb->ab", one, _rows(two))

    def _read_edges(self) -> tuple[tuple[int, int, Array], ...]:
        """Parent, child and P(child | class, parent) of each edge of the tree."""
        tree = self.record.read("tree", (len(self.wide) - 1, 2))[0].astype(int).tolist()
        inside = {0}
        for parent, child in tree:
            if parent not in inside or child in inside or not 0 <= child < len(self.wide):
                raise VeilError("its noisy record holds no tree of its features")
            inside.add(child)
        expected = [self.expected_pair(parent, child) for parent, child in tree]
        ends = np.cumsum([table.size for table in expected])
        flat, variance = self.record.read("pairs", (int(ends[-1]),))
        noisy = np.split(flat, ends[:-1])
        return tuple(
            (parent, child, self._conditional(parent, child, counts, prior, variance))
            for (parent, child), counts, prior in zip(tree, noisy, expected, strict=True)
        )

    def _conditional(
        self, parent: int, child: int, noisy: Array, expected: Array, variance: float
    ) -> Array:
        """P(child | class, parent), (classes, parent cells, child cells).

        The noisy pair is pooled over the classes. How the two depend on each other is taken to be
        the same in all classes, and how often each is met inside a class comes from its own table.
        """
        pooled = believable(noisy.reshape(1, *expected.shape), expected[None], variance)[0]
        joint = to_simplex(pooled.ravel(), self.totals.sum()).reshape(expected.shape)
        # Where the pair is nearly never met, fall back on independence.
        joint = joint + 1e-3 * expected + 1e-9
        raked = rake(joint / np.maximum(expected, 1e-9), self.wide[parent], self.wide[child])
        return raked / raked.sum(axis=2, keepdims=True)


def rake(dependence: Array, one: Array, two: Array, rounds: int = 12) -> Array:
    """Joint counts (classes, a, b) with the margins `one` (classes, a) and `two` (classes, b).

    They start from independence times `dependence` (a, b), and are scaled to one margin and to the
    other in turn (iterative proportional fitting): odds ratios stay those of `dependence`.
    """
    one, two = one + 1e-9, two + 1e-9
    joint = one[:, :, None] * _rows(two)[:, None, :] * dependence
    for _ in range(rounds):
        joint = joint * (two / joint.sum(axis=1))[:, None, :]
        joint = joint * (one / joint.sum(axis=2))[:, :, None]
    return joint


def chosen_grid(schema: Schema, record: NoisyRecord) -> Grid:
    """The grid that `singles` are counted on; with `ranges`, its bins lie where people are."""
    if not record.find("ranges"):
        return Grid(schema, record.fine)
    ladders = Ladders(schema, record.fine)
    if len(ladders.places) != record.ranges:
        raise VeilError("its noisy record does not fit its schema")
    noisy, variance = record.read("ranges", (ladders.width,))
    rows = record.records(float(np.split(noisy, ladders.starts[1:])[0].sum()))
    return Grid(schema, record.fine, ladders.chosen(noisy, variance, rows, record.fine))


def class_totals(singles: list[Array], rows: int) -> Array:
    """How many of `rows` rows each class has, from the counts (classes, cells) of each feature.

    Every feature's counts add up to it; those of few cells carry the least noise.
    """
    weights = np.array([1 / counts.shape[1] for counts in singles])
    sums = np.stack([counts.sum(axis=1) for counts in singles])
    return positive_totals((weights[:, None] * sums).sum(axis=0) / weights.sum(), rows)


def believable(noisy: Array, expected: Array, variance: float) -> Array:
    """`noisy` counts, believed as far as they say more than `expected` and noise would.

    Empirical Bayes: the counts of a class (first axis) deviate from what is expected by some share
    τ of it. τ² is what the squared deviations hold beyond the known variance of the noise; each
    cell is then believed by signal / (signal + noise). Every class has its own τ: a small class
    deviates more from what all have in common than a large one.
    """
    residual = noisy - expected
    cells = tuple(range(1, noisy.ndim))
    beyond_noise = (residual**2 - variance).sum(axis=cells, keepdims=True)
    size = (expected**2).sum(cells, keepdims=True)
    signal = np.maximum(0.0, beyond_noise) / np.maximum(size, 1e-9) * expected**2
    return expected + residual * signal / (signal + variance)


def merge(counts: Array, coarse: Array) -> Array:
    """Counts of fine cells added up to coarse ones, along the last axis."""
    merged = np.zeros((*counts.shape[:-1], int(coarse.max()) + 1))
    for cell, into in enumerate(coarse):
        merged[..., into] += counts[..., cell]
    return merged


def _rows(counts: Array) -> Array:
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-12)


def _draw(weights: Array, rng: np.random.Generator) -> Array:
    """One cell for each row of `weights`, by inversion."""
    ladder = np.cumsum(weights, axis=1)
    dice = rng.random(len(weights))[:, None] * ladder[:, -1:]
    return np.minimum((ladder <= dice).sum(axis=1), weights.shape[1] - 1)


def _logs(values: Array) -> Array:
    """Logarithms that stay finite where a value is 0."""
    found: Array = np.log(np.maximum(values, 1e-12))
    return found
