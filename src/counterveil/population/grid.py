"""The cells that rows are counted in: a grid of all features, or a line of some numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from counterveil.encoding import Array, Encoding
from counterveil.errors import RequestError
from counterveil.schema import Schema
from counterveil.schema.cells import Cells, NumberCells


class Grid:
    """The public grid: every legal row of a mixed table falls into one cell of every feature.

    The cells come from the schema alone, or from noisy counts (`cells`, by the feature's number):
    no row is looked at. `bins`: about how many bins any other number gets. `counts`: the number of
    cells of each feature; `starts`: the place of each feature's first cell when all cells stand in
    one line of `width`; `in_order`: how many cells of each, the first ones, lie side by side.
    """

    def __init__(self, schema: Schema, bins: int, cells: Mapping[int, Cells] | None = None) -> None:
        if schema.family != "mixed":
            raise RequestError("a grid is for mixed tables")
        self.schema, self.encoding = schema, Encoding(schema)
        chosen = cells or {}
        features = enumerate(schema.features)
        self.cells = tuple(chosen.get(place) or feature.cells(bins) for place, feature in features)
        self.counts = np.array([cells.count for cells in self.cells])
        self.starts = np.concatenate([[0], np.cumsum(self.counts)[:-1]])
        self.width = int(self.counts.sum())
        self.in_order = tuple(cells.in_order for cells in self.cells)

    def merged(self, max_bins: int) -> tuple[Array, ...]:
        """For each feature the coarse cell of each of its cells: at most `max_bins` of numbers."""
        return tuple(cells.merged(max_bins) for cells in self.cells)

    def codes(self, points: Array) -> Array:
        """The cell of each feature of each encoded row: (rows, width) to (rows, features)."""
        blocks = zip(self.encoding.blocks, self.cells, strict=True)
        return np.stack([cells.codes(points[:, block.at]) for block, cells in blocks], axis=1)

    def points(self, codes: Array, rng: np.random.Generator) -> Array:
        points = np.zeros((len(codes), self.encoding.width))
        for number, (block, cells) in enumerate(zip(self.encoding.blocks, self.cells, strict=True)):
            points[:, block.at] = cells.points(codes[:, number], rng)
        return points


class Line:
    """Cells of numbers, given by the place of each feature, in one line of `width`.

    `places`: which features have cells, in order; `starts`: the first cell of each. A row adds 1 to
    one cell of each of them, whatever the other rows are.
    """

    def __init__(self, cells: Mapping[int, NumberCells]) -> None:
        self.places, self.cells = tuple(cells), tuple(cells.values())
        counts = [each.count for each in self.cells]
        self.starts = np.cumsum([0, *counts])[:-1]
        self.width = sum(counts)

    def counts(self, columns: Sequence[Any]) -> Array:
        """How many rows sit in each cell, (width,), by the compact columns of `places`."""
        total = np.zeros(self.width, dtype=np.int64)
        for place, start, cells in zip(self.places, self.starts, self.cells, strict=True):
            mine = np.bincount(cells.codes_of(columns[place]), minlength=cells.count)
            total[start : start + cells.count] = mine
        return total

    def parts(self, values: Array) -> dict[int, Array]:
        """What stands in the cells of each place, of values (width,)."""
        return dict(zip(self.places, np.split(values, self.starts[1:]), strict=True))
