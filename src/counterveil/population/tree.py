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
from counterveil.grid import Cells, Grid
from counterveil.population.base import believable, draw_classes, positive_totals, to_simplex

FAR = (
    4.0  # no class has a cell so many times more or less often than all have: never 0 against some
)
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
    """All that was measured of a mixed table: what crosses from the private side to the public."""

    rows: int
    singles: tuple[Array, ...]  # per feature: (class, fine cell)
    variance: float
    coarse: tuple[Array, ...]  # per feature: the coarse cell of each fine cell
    edges: tuple[Edge, ...]


class TreePopulation:
    """P~ of a mixed table."""

    def __init__(self, grid: Grid, noisy: NoisyCounts) -> None:
        self.grid, self._noisy = grid, noisy
        self._coarse = noisy.coarse
        totals = class_totals(noisy)
        self.class_share = totals / totals.sum()
        self._fine = tuple(
            denoise_single(counts, totals, noisy.variance, bins=_bins(cells))
            for counts, cells in zip(noisy.singles, grid.cells, strict=True)
        )
        self._wide = tuple(
            merge(fine, coarse) for fine, coarse in zip(self._fine, noisy.coarse, strict=True)
        )
        self._edges = tuple(
            (edge.parent, edge.child, self._conditional(edge, totals)) for edge in noisy.edges
        )

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

    def expected_pair(self, first: int, second: int, totals: Array) -> Array:
        """Counts of (class, first, second) if the two were independent inside each class."""
        one, two = _rows(self._wide[first]), _rows(self._wide[second])
        return totals[:, None, None] * one[:, :, None] * two[:, None, :]

    def _conditional(self, edge: Edge, totals: Array) -> Array:
        """P(child | class, parent) from a noisy pair table."""
        expected = self.expected_pair(edge.parent, edge.child, totals)
        classes = len(totals)
        mixed = believable(edge.noisy_counts, expected, edge.variance)
        joint = np.stack(
            [
                to_simplex(mixed[c].ravel(), totals[c]).reshape(mixed[c].shape)
                for c in range(classes)
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
