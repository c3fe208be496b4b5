"""P~ of a mixed table: from noisy counts to a distribution that can be sampled.

Noisy counts are negative here and there and do not add up. They are shrunk towards what simpler
counts say by as much as their known noise asks for, and then given the right total; where that is
done on the simplex it also cuts the many small counts that are nothing but noise. Records are drawn
class by class along a tree of feature pairs, or feature by feature where there is no tree; a number
falls first into a coarse bin and then into a fine one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from counterveil.encoding import Array
from counterveil.errors import VeilError
from counterveil.population.base import Population, positive_totals, to_simplex
from counterveil.population.grid import Grid
from counterveil.privacy.record import NoisyRecord
from counterveil.schema import Schema

__all__ = ["Grid", "TreePopulation"]

FAR = 4.0  # no class has a cell more than so many times more or less often than all classes have
SMOOTH = 3  # coefficients of the curve along which a class may deviate over the bins of a number


class TreePopulation(Population):
    """P~ of a mixed table. A `VeilError` if the record is not that of this schema."""

    def __init__(self, schema: Schema, record: NoisyRecord) -> None:
        self._schema, self._record = schema, record
        self.grid = grid = Grid(schema, record.fine)
        self._coarse = grid.merged(record.coarse)
        noisy, variance = record.read("singles", (len(schema.label.classes), grid.width))
        singles = np.split(noisy, grid.starts[1:], axis=1)  # per feature: (classes, fine cells)
        rows = record.records(float(singles[0].sum()))
        self._totals = totals = class_totals(singles, rows)
        self.class_share = totals / totals.sum()
        self._fine = tuple(
            denoise_single(counts, totals, variance, bins=len(cells.low))
            for counts, cells in zip(singles, grid.cells, strict=True)
        )
        self._wide = tuple(map(merge, self._fine, self._coarse))
        self._edges = self._read_edges() if record.find("tree") else ()

    @property
    def without_tree(self) -> TreePopulation:
        singles = self._record.measurements[:1]
        return TreePopulation(self._schema, replace(self._record, measurements=singles))

    def _points(self, classes: Array, rng: np.random.Generator) -> Array:
        codes = np.empty((len(classes), len(self._wide)), dtype=np.int64)
        drawn = {child for _, child, _ in self._edges}
        for feature, table in enumerate(self._wide):
            if feature not in drawn:
                codes[:, feature] = _draw(table[classes], rng)
        for parent, child, table in self._edges:
            codes[:, child] = _draw(table[classes, codes[:, parent]], rng)
        for feature, (fine, coarse) in enumerate(zip(self._fine, self._coarse, strict=True)):
            inside = coarse[None, :] == np.arange(coarse.max() + 1)[:, None]
            codes[:, feature] = _draw((fine[classes] + 1e-9) * inside[codes[:, feature]], rng)
        return self.grid.points(codes, rng)

    def expected_pair(self, first: int, second: int) -> Array:
        """Counts of (class, first, second) if the two were independent inside each class."""
        one, two = _rows(self._wide[first]), _rows(self._wide[second])
        return self._totals[:, None, None] * one[:, :, None] * two[:, None, :]

    def _read_edges(self) -> tuple[tuple[int, int, Array], ...]:
        """Parent, child and P(child | class, parent) of each edge of the tree."""
        tree = self._record.read("tree", (len(self._wide) - 1, 2))[0].astype(int).tolist()
        inside = {0}
        for parent, child in tree:
            if parent not in inside or child in inside or not 0 <= child < len(self._wide):
                raise VeilError("its noisy record holds no tree of its features")
            inside.add(child)
        expected = [self.expected_pair(parent, child) for parent, child in tree]
        ends = np.cumsum([table.size for table in expected])
        flat, variance = self._record.read("pairs", (int(ends[-1]),))
        noisy = np.split(flat, ends[:-1])
        return tuple(
            (parent, child, self._conditional(child, counts, prior, variance))
            for (parent, child), counts, prior in zip(tree, noisy, expected, strict=True)
        )

    def _conditional(self, child: int, noisy: Array, expected: Array, variance: float) -> Array:
        """P(child | class, parent), shaped like `expected`: (classes, parent, child)."""
        mixed = believable(noisy.reshape(expected.shape), expected, variance)
        tables = map(to_simplex, mixed.reshape(len(mixed), -1), self._totals)
        joint = np.stack(list(tables)).reshape(mixed.shape)
        # Where a parent cell is nearly empty, fall back on independence.
        joint = joint + np.sqrt(variance) * 1e-3 * _rows(self._wide[child])[:, None, :]
        return joint / joint.sum(axis=2, keepdims=True)


def class_totals(singles: list[Array], rows: int) -> Array:
    """How many of `rows` rows each class has, from the counts (classes, cells) of each feature.

    Every feature's counts add up to it; those of few cells carry the least noise.
    """
    weights = np.array([1 / counts.shape[1] for counts in singles])
    sums = np.stack([counts.sum(axis=1) for counts in singles])
    return positive_totals((weights[:, None] * sums).sum(axis=0) / weights.sum(), rows)


def denoise_single(noisy: Array, totals: Array, variance: float, bins: int = 0) -> Array:
    """Counts of (class, cell): class tables shrunk to the pooled one, on the simplex.

    The first `bins` cells are bins of a number, side by side: what changes smoothly over them is
    told from the noise far better than single bins are, and is looked for first.
    """
    pooled = to_simplex(noisy.sum(axis=0), totals.sum())
    expected = common = totals[:, None] * pooled / pooled.sum()
    if bins > SMOOTH:
        rows = zip(noisy - expected, expected, strict=True)
        smooth = [row + smooth_part(residual, row, variance, bins) for residual, row in rows]
        expected = np.maximum(smooth, 0.0)
    mixed = np.clip(believable(noisy, expected, variance), common / FAR, common * FAR)
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
    return basis @ (size * np.maximum(0.0, 1 - variance / np.maximum(size**2, 1e-9)))


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
