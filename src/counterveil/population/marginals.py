"""Noisy counts of single features -> a grid, and believable tables of each feature.

Noisy counts are negative here and there and do not add up. They are shrunk towards what simpler
counts say by as much as their known noise asks for, and then given the right total.
"""

from __future__ import annotations

import numpy as np

from counterveil.encoding import Array
from counterveil.errors import VeilError
from counterveil.population.base import positive_totals
from counterveil.population.contrasts import ScoreSums, class_tables
from counterveil.population.grid import Grid
from counterveil.population.moments import Moments, scores_of
from counterveil.population.numbers import Ladders, pooled_counts, shaped
from counterveil.population.spikes import Spikes
from counterveil.privacy.record import NoisyRecord
from counterveil.schema import Schema
from counterveil.schema.cells import NumberCells


class Marginals:
    """What the counts of a record say about each feature by itself.

    `counted`: the grid that rows are counted on; `coarse`: the coarse cell of each cell, for
    pairs. `totals`: of each class. `tables`: for each feature the counts (classes, cells) that are
    believed. `scores`: (cells,) of each feature, see `moments`. `rows`: how many there are.
    `noisy`: for each feature the noisy counts, of `variance`.
    """

    def __init__(self, schema: Schema, record: NoisyRecord) -> None:
        self.record, self._schema, self.counted = record, schema, chosen_grid(schema, record)
        self.coarse = self.counted.merged(record.coarse)
        shape = len(schema.label.classes), self.counted.width
        noisy, self.variance = record.read("singles", shape)
        self.noisy = np.split(noisy, self.counted.starts[1:], axis=1)
        self.rows = record.records(float(self.noisy[0].sum()))
        self.totals = class_totals(self.noisy, self.rows)
        variance = len(self.totals) * self.variance
        self._pooled = {
            number: pooled_counts(counts.sum(axis=0), variance, self.rows, cells)
            for number, (counts, cells) in enumerate(
                zip(self.noisy, self.counted.cells, strict=True)
            )
            if isinstance(cells, NumberCells)
        }
        self.tables = self._tables()
        self.scores = scores_of(self.tables, self.counted.in_order)

    def with_sums(self, moments: Moments) -> tuple[Array, ...]:
        """The tables, where the noisy sums of the classes' scores are known besides the counts."""
        return self._tables(moments)

    def shaped_grid(self) -> Grid:
        """The same grid; its bins know how people are spread inside them."""
        spikes = Spikes(self._schema, self.record, self.counted)
        shapes = {
            number: spikes.put_into(
                shaped(cells, self._pooled[number]), number, self._pooled[number]
            )
            for number, cells in enumerate(self.counted.cells)
            if isinstance(cells, NumberCells)
        }
        return Grid(self._schema, self.record.fine, shapes)

    def _tables(self, moments: Moments | None = None) -> tuple[Array, ...]:
        found = []
        for number, counts in enumerate(self.noisy):
            known = None
            if moments is not None:
                sums, variance = moments.sums[:, number], moments.sums_variance
                known = ScoreSums(self.scores[number], sums, variance)
            ordered, pooled = self.counted.in_order[number], self._pooled.get(number)
            noise = self.variance
            found.append(class_tables(counts, self.totals, noise, ordered, pooled, known))
        return tuple(found)


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
    """How many of `rows` rows each class has, by all features; few cells carry the least noise."""
    weights = np.array([1 / counts.shape[1] for counts in singles])
    sums = np.stack([counts.sum(axis=1) for counts in singles])
    return positive_totals((weights[:, None] * sums).sum(axis=0) / weights.sum(), rows)
