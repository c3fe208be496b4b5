"""The public grid: every legal row falls into one cell of every feature.

Categories and binary values are cells as they are, and so is a missing value. A number falls into
one of a few bins whose edges come from the schema alone: one a value where there are few; a cell
for 0 and then bins that grow by a constant factor for amounts that start at 0 and reach far; bins
of equal width otherwise. Nothing here looks at a row, so the grid costs no privacy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterveil.encoding import MISSING_VALUE, Array, Encoding
from counterveil.errors import RequestError
from counterveil.schema import Binary, Categorical, Numeric, Schema

FAR_REACHING = 1000  # upper/step from which an amount that starts at 0 gets growing bins


@dataclass(frozen=True)
class Cells:
    """The cells of one feature: `low` and `high` bound the numbers in a bin, in the unit cube."""

    start: int  # first encoded column
    kind: str
    count: int
    low: Array
    high: Array
    step: float  # of whole numbers in the unit cube; 0 for a continuum
    missing: bool


class Grid:
    """The cells of every feature of a mixed table."""

    def __init__(self, schema: Schema, bins: int) -> None:
        if schema.family != "mixed":
            raise RequestError("a grid is for mixed tables")
        self.schema = schema
        self.encoding = Encoding(schema)
        self.cells = tuple(
            _cells_of(block.feature, block.start, bins) for block in self.encoding.blocks
        )
        self.counts = np.array([cells.count for cells in self.cells])
        self.starts = np.concatenate([[0], np.cumsum(self.counts)[:-1]])
        self.width = int(self.counts.sum())

    def merged(self, most: int) -> tuple[Array, ...]:
        """For each feature, the coarse cell of each of its cells: at most `most` bins of numbers.

        Neighbouring bins are merged evenly; a bin of the single number 0, categories, binary values
        and missing values stay by themselves.
        """
        return tuple(_merge(cells, most) for cells in self.cells)

    def codes(self, points: Array) -> Array:
        """The cell of each feature of each encoded row, shape (rows, features)."""
        codes = np.empty((len(points), len(self.cells)), dtype=np.int64)
        for number, cells in enumerate(self.cells):
            codes[:, number] = _codes(cells, points)
        return codes

    def points(self, codes: Array, rng: np.random.Generator) -> Array:
        """A legal row in each cell: numbers are spread evenly over their bin."""
        points = np.zeros((len(codes), self.encoding.width))
        for number, cells in enumerate(self.cells):
            _fill(cells, codes[:, number], points, rng)
        return points


def _merge(cells: Cells, most: int) -> Array:
    if cells.kind != "numeric":
        return np.arange(cells.count)
    bins = len(cells.low)
    alone = int(bins > most and cells.low[0] == cells.high[0])
    coarse = alone + np.arange(bins - alone) * min(most - alone, bins - alone) // (bins - alone)
    coarse = np.concatenate([np.zeros(alone, dtype=np.int64), coarse])
    return np.append(coarse, coarse[-1] + 1) if cells.missing else coarse


def _cells_of(feature: object, start: int, bins: int) -> Cells:
    nothing = np.empty(0)
    if isinstance(feature, Categorical):
        return Cells(start, "categorical", feature.width, nothing, nothing, 0, feature.missing)
    if isinstance(feature, Binary):
        return Cells(start, "binary", 2, nothing, nothing, 0, False)
    if not isinstance(feature, Numeric):
        raise RequestError("images inside mixed tables have no grid; release them by themselves")
    span = feature.upper - feature.lower
    low, high = _bin_edges(feature, bins)
    step = 1 / span if feature.integer else 0.0
    unit_low, unit_high = (low - feature.lower) / span, (high - feature.lower) / span
    count = len(low) + feature.missing
    return Cells(start, "numeric", count, unit_low, unit_high, step, feature.missing)


def _bin_edges(feature: Numeric, bins: int) -> tuple[Array, Array]:
    """Lowest and highest number of each bin, in original units."""
    lower, upper = feature.lower, feature.upper
    if feature.integer and upper - lower < bins:
        values = np.arange(lower, upper + 1)
        return values, values
    unit = 1.0 if feature.integer else upper / (FAR_REACHING * 10)
    if lower == 0 and upper / unit >= FAR_REACHING:
        edges = np.geomspace(unit, upper, bins)
        edges = np.unique(np.round(edges) if feature.integer else edges)
        low = np.concatenate([[0.0], edges[:-1]])
        high = np.concatenate([[0.0], edges[1:] - (1 if feature.integer else 0)])
        low[1], high[-1] = unit if feature.integer else 0.0, upper
        return low, np.maximum(low, high)
    edges = np.linspace(lower, upper + feature.integer, bins + 1)
    if feature.integer:
        edges = np.unique(np.round(edges))
        return edges[:-1], edges[1:] - 1
    return edges[:-1], edges[1:]


def _codes(cells: Cells, points: Array) -> Array:
    here = points[:, cells.start]
    if cells.kind == "binary":
        return (here >= 0.5).astype(np.int64)
    if cells.kind == "categorical":
        return np.asarray(points[:, cells.start : cells.start + cells.count].argmax(axis=1))
    slack = cells.step / 2 if cells.step else 1e-12
    codes = np.searchsorted(cells.high + slack, here, side="left")
    codes = np.minimum(codes, len(cells.high) - 1)
    if cells.missing:
        codes = np.where(points[:, cells.start + 1] >= 0.5, cells.count - 1, codes)
    return codes


def _fill(cells: Cells, codes: Array, points: Array, rng: np.random.Generator) -> None:
    if cells.kind == "binary":
        points[:, cells.start] = codes
        return
    if cells.kind == "categorical":
        points[np.arange(len(codes)), cells.start + codes] = 1
        return
    is_missing = cells.missing & (codes == cells.count - 1)
    bin_of = np.where(is_missing, 0, codes)
    low, high = cells.low[bin_of], cells.high[bin_of]
    place = low + rng.random(len(codes)) * (high - low + cells.step)
    if cells.step:
        place = low + np.floor((place - low) / cells.step + 1e-9) * cells.step
    points[:, cells.start] = np.where(is_missing, MISSING_VALUE, np.minimum(place, high))
    if cells.missing:
        points[:, cells.start + 1] = is_missing
