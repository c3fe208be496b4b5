"""The cells that the values of one feature fall into on the public grid.

Categories and binary values are cells as they are, and so is a missing value. A number falls into
one of a few bins whose edges come from the schema alone: one a value where there are few; a cell
for 0 and then bins that grow by a constant factor for amounts that start at 0 and reach far; bins
of equal width otherwise. Nothing here looks at a row, so the cells cost no privacy.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np

from counterveil.schema.columns import MISSING_VALUE, Array

MOST_VALUES = 1 << 20  # of a whole number whose bins are looked up one by one
FAR_REACHING = 1000  # upper/step from which an amount that starts at 0 gets growing bins


@dataclass(frozen=True)
class Cells:
    """The cells of one feature: of a categorical one, unless a subclass says otherwise.

    `low`, `high`: the lowest and the highest number of each bin, in the unit cube; empty where the
    cells are no bins. `ordered`: so many categories, the first cells, run from low to high.
    """

    count: int
    low: Array = field(default_factory=lambda: np.empty(0))
    high: Array = field(default_factory=lambda: np.empty(0))
    ordered: int = field(default=0, kw_only=True)

    @property
    def in_order(self) -> int:
        """How many cells, the first ones, lie side by side: bins, or ordered categories."""
        return len(self.low) or self.ordered

    def codes(self, unit: Array) -> Array:
        """The cell of each row of encoded numbers, from (rows, width) to (rows,)."""
        return np.asarray(unit.argmax(axis=1))

    def codes_of(self, compact: Array) -> Array:
        """The same of a feature in compact form, (rows,): see `Encoding.compact`."""
        return compact

    def points(self, codes: Array, rng: np.random.Generator) -> Array:
        """Legal encoded numbers (rows, width) in the cells `codes`; numbers are spread evenly."""
        return np.eye(self.count)[codes]

    def merged(self, max_bins: int) -> Array:
        """The coarse cell of each cell, where neighbouring bins are merged into `max_bins`."""
        return np.arange(self.count)


class BitCells(Cells):
    """The two cells of a binary feature."""

    def codes(self, unit: Array) -> Array:
        return (unit[:, 0] >= 0.5).astype(np.int64)

    def points(self, codes: Array, rng: np.random.Generator) -> Array:
        return codes[:, None]


@dataclass(frozen=True)
class NumberCells(Cells):
    """Bins of a number, and where it may be `missing` a last cell for that.

    `step`: between whole numbers in the unit cube; 0 for a continuum.
    """

    step: float = 0.0
    missing: bool = False

    @classmethod
    def between(cls, ends: tuple[float, float], bins: int, integer: bool, missing: bool) -> Self:
        """About `bins` bins of the numbers from one end to the other, in original units."""
        low, high = bin_edges(*ends, bins, integer)
        span = ends[1] - ends[0]
        low, high = (low - ends[0]) / span, (high - ends[0]) / span
        return cls(len(low) + missing, low, high, 1 / span if integer else 0.0, missing)

    def codes(self, unit: Array) -> Array:
        codes = self._search(unit[:, 0])
        return np.where(unit[:, 1] >= 0.5, self.count - 1, codes) if self.missing else codes

    def codes_of(self, compact: Array) -> Array:
        values = self._values
        if self.missing:
            empty = np.isnan(compact)
            compact = np.where(empty, 0.0, compact)
        if values is None:
            codes = self._search(compact)
        else:
            codes = values[np.rint(compact / self.step).astype(np.intp)]
        return np.where(empty, self.count - 1, codes) if self.missing else codes

    def _search(self, numbers: Array) -> Array:
        slack = self.step / 2 if self.step else 1e-12
        codes = np.searchsorted(self.high + slack, numbers, side="left")
        return np.minimum(codes, len(self.high) - 1)

    @cached_property
    def _values(self) -> Array | None:
        """The bin of each whole number, from the lower bound to the upper; None: too many."""
        if not self.step or 1 / self.step > MOST_VALUES:
            return None
        return self._search(np.arange(round(1 / self.step) + 1) * self.step)

    def points(self, codes: Array, rng: np.random.Generator) -> Array:
        empty = self.missing & (codes == self.count - 1)
        bin_of = np.where(empty, 0, codes)
        low, high = self.low[bin_of], self.high[bin_of]
        place = low + rng.random(len(codes)) * (high - low + self.step)
        if self.step:
            place = low + np.floor((place - low) / self.step + 1e-9) * self.step
        place = np.where(empty, MISSING_VALUE, np.minimum(place, high))
        return np.stack([place, empty], axis=1)[:, : 1 + self.missing]

    def merged(self, max_bins: int) -> Array:
        """Merged evenly; a bin of the single number 0 and the missing value stay alone."""
        bins = len(self.low)
        alone = int(bins > max_bins and self.low[0] == self.high[0])
        rest = bins - alone
        coarse = alone + np.arange(rest) * min(max_bins - alone, rest) // rest
        coarse = np.concatenate([np.zeros(alone, dtype=np.int64), coarse])
        return np.append(coarse, coarse[-1] + 1) if self.missing else coarse


def bin_edges(lower: float, upper: float, bins: int, integer: bool) -> tuple[Array, Array]:
    """The lowest and the highest number of each bin, in original units."""
    if integer and upper - lower < bins:
        values = np.arange(lower, upper + 1)
        return values, values
    unit = 1.0 if integer else upper / (FAR_REACHING * 10)
    if lower == 0 and upper / unit >= FAR_REACHING:
        edges = np.geomspace(unit, upper, bins)
        edges = np.unique(np.round(edges) if integer else edges)
        low = np.concatenate([[0.0], edges[:-1]])
        high = np.concatenate([[0.0], edges[1:] - integer])
        low[1], high[-1] = unit if integer else 0.0, upper
        return low, np.maximum(low, high)
    edges = np.linspace(lower, upper + integer, bins + 1)
    edges = np.unique(np.round(edges)) if integer else edges
    return edges[:-1], edges[1:] - integer
