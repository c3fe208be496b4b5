"""P~ of a mixed table: from noisy counts to a distribution that can be sampled.

Noisy counts are negative here and there and do not add up. They are shrunk towards what simpler
counts say by as much as their known noise asks for, and then given the right total; where that is
done on the simplex it also cuts the many small counts that are nothing but noise. Records are drawn
class by class along a tree of feature pairs, or feature by feature where there is no tree; a number
falls first into a coarse bin and then into a fine one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from counterveil.encoding import Array
from counterveil.errors import VeilError
from counterveil.grid import Cells, Grid
from counterveil.population.base import believable, draw_classes, positive_totals, to_simplex
from counterveil.privacy.record import NoisyRecord
from counterveil.schema import Schema

FAR = 4.0  # no class has a cell more than so many times more or less often than all classes have
SMOOTH = 3  # coefficients of the curve along which a class may deviate over the bins of a number


@dataclass(frozen=True)
class Edge:
    """A branch of the tree: `child` is drawn given `parent`, from noisy (class, parent, child)."""

    parent: int
    child: int
    noisy_counts: Array
    variance: float


@dataclass(frozen=True)
class NoisyCounts:
    """The measurements of a mixed table, feature by feature and edge by edge."""

    rows: int
    singles: tuple[Array, ...]  # per feature: (class, fine cell)
    variance: float
    coarse: tuple[Array, ...]  # per feature: the coarse cell of each fine cell
    edges: tuple[Edge, ...]

    @classmethod
    def of_record(cls, grid: Grid, record: NoisyRecord) -> NoisyCounts:
        """The counts in a record; a `VeilError` if they are not those of this grid."""
        classes, features = len(grid.schema.label.classes), len(grid.cells)
        flat, variance = record.read("singles", (classes, grid.width))
        singles = tuple(np.split(flat, grid.starts[1:], axis=1))
        coarse = grid.merged(record.coarse)
        edges: tuple[Edge, ...] = ()
        if record.find("tree") is not None:
            tree = record.read("tree", (features - 1, 2))[0].astype(np.int64)
            _check_tree(tree, features)
            wide = [int(merge.max()) + 1 for merge in coarse]
            shapes = [(classes, wide[parent], wide[child]) for parent, child in tree]
            ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
            pairs, noise = record.read("pairs", (int(ends[-1]),))
            edges = tuple(
                Edge(int(parent), int(child), counts.reshape(shape), noise)
                for (parent, child), counts, shape in zip(
                    tree, np.split(pairs, ends[:-1]), shapes, strict=True
                )
            )
        rows = record.records(float(singles[0].sum()))
        return cls(rows, singles, variance, coarse, edges)


def _check_tree(tree: Array, features: int) -> None:
    """Every edge must lead from a feature that is already in the tree to one that is not."""
    inside = {0}
    for parent, child in tree.tolist():
        if parent not in inside or child in inside or not 0 <= child < features:
            raise VeilError("its noisy record holds no tree of its features")
        inside.add(child)


class TreePopulation:
    """P~ of a mixed table."""

    def __init__(self, grid: Grid, noisy: NoisyCounts) -> None:
        self.grid, self._noisy = grid, noisy
        self._coarse = noisy.coarse
        self._totals = totals = class_totals(noisy)
        self.class_share = totals / totals.sum()
        self._fine = tuple(
            denoise_single(counts, totals, noisy.variance, bins=_bins(cells))
            for counts, cells in zip(noisy.singles, grid.cells, strict=True)
        )
        self._wide = tuple(
            merge(fine, coarse) for fine, coarse in zip(self._fine, noisy.coarse, strict=True)
        )
        self._edges = tuple(
            (edge.parent, edge.child, self._conditional(edge)) for edge in noisy.edges
        )

    @classmethod
    def of_record(cls, schema: Schema, record: NoisyRecord) -> TreePopulation:
        """P~ of the record of a mixed table."""
        grid = Grid(schema, record.fine)
        return cls(grid, NoisyCounts.of_record(grid, record))

    @property
    def without_tree(self) -> TreePopulation:
        """The same with features independent inside each class."""
        return TreePopulation(self.grid, replace(self._noisy, edges=()))

    def sample(
        self, count: int, rng: np.random.Generator, class_share: Array | None = None
    ) -> tuple[Array, Array]:
        """`count` encoded rows and their classes; by default in the classes' own proportions."""
        classes = draw_classes(self.class_share, class_share, count, rng)
        codes = np.empty((count, len(self._wide)), dtype=np.int64)
        drawn = {child for _, child, _ in self._edges}
        for feature, table in enumerate(self._wide):
            if feature not in drawn:
                codes[:, feature] = _draw(table[classes], rng)
        for parent, child, table in self._edges:
            codes[:, child] = _draw(table[classes, codes[:, parent]], rng)
        for feature, (fine, coarse) in enumerate(zip(self._fine, self._coarse, strict=True)):
            inside = coarse[None, :] == np.arange(coarse.max() + 1)[:, None]
            codes[:, feature] = _draw((fine[classes] + 1e-9) * inside[codes[:, feature]], rng)
        return self.grid.points(codes, rng), classes

    def expected_pair(self, first: int, second: int) -> Array:
        """Counts of (class, first, second) if the two were independent inside each class."""
        one, two = _rows(self._wide[first]), _rows(self._wide[second])
        return self._totals[:, None, None] * one[:, :, None] * two[:, None, :]

    def _conditional(self, edge: Edge) -> Array:
        """P(child | class, parent) from a noisy pair table, shaped like it."""
        expected = self.expected_pair(edge.parent, edge.child)
        mixed = believable(edge.noisy_counts, expected, edge.variance)
        joint = np.stack(
            [
                to_simplex(table.ravel(), total).reshape(table.shape)
                for table, total in zip(mixed, self._totals, strict=True)
            ]
        )
        # Where a parent cell is nearly empty, fall back on independence.
        trust = np.sqrt(edge.variance)
        joint = joint + trust * 1e-3 * _rows(self._wide[edge.child])[:, None, :]
        return joint / joint.sum(axis=2, keepdims=True)


def class_totals(noisy: NoisyCounts) -> Array:
    """How many rows each class has: every feature's counts add up to it, the narrow ones best."""
    weights = np.array([1 / counts.shape[1] for counts in noisy.singles])
    sums = np.stack([counts.sum(axis=1) for counts in noisy.singles])
    estimate = (weights[:, None] * sums).sum(axis=0) / weights.sum()
    return positive_totals(estimate, noisy.rows)


def denoise_single(noisy: Array, totals: Array, variance: float, bins: int = 0) -> Array:
    """Counts of (class, cell): class tables shrunk to the pooled one, on the simplex.

    The first `bins` cells are bins of a number, side by side: what changes smoothly over them is
    told from the noise far better than single bins are, and is looked for first.
    """
    pooled = to_simplex(noisy.sum(axis=0), totals.sum())
    expected = common = totals[:, None] * pooled / pooled.sum()
    if bins > SMOOTH:
        smooth = np.stack(
            [
                row + smooth_part(noisy_row - row, row, variance, bins)
                for noisy_row, row in zip(noisy, expected, strict=True)
            ]
        )
        expected = np.maximum(smooth, 0.0)
    mixed = believable(noisy, expected, variance)
    mixed = np.clip(mixed, common / FAR, common * FAR)
    return mixed * (totals / mixed.sum(axis=1))[:, None]


def smooth_part(residual: Array, expected: Array, variance: float, bins: int) -> Array:
    """The part of `residual` that is `expected` times a parabola over the bins, as far as believed.

    Its coefficients are taken in a basis in which the noise of each is independent and of the same
    variance, and each is shrunk by the share of it that noise explains.
    """
    place = np.linspace(-1.0, 1.0, bins)
    curves = np.zeros((len(residual), SMOOTH))
    curves[:bins] = expected[:bins, None] * np.stack([place**power for power in range(SMOOTH)], 1)
    basis, _ = np.linalg.qr(curves)
    size = basis.T @ residual
    kept = size * np.maximum(0.0, 1 - variance / np.maximum(size**2, 1e-9))
    return basis @ kept


def _bins(cells: Cells) -> int:
    return len(cells.low)


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
