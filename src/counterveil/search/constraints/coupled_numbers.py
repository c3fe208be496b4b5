"""Numbers that relations and groups tie to others: their legal values, and intervals of them.

All is in original units, in doubles. Arrays are (rows, numbers) unless they say otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from counterveil.encoding import Array

SAME = 1e-6  # differences up to this in the unit cube are no change
HAIR = 1e-9  # of a range: what doubles may be off by
ROUNDING = 3e-7  # of a range: what the floats of the search may be off by

Interval = tuple[Array, Array]  # the lowest and the highest value of each number


@dataclass(frozen=True)
class TiedNumbers:
    """The numbers of some rows, and what they may be.

    `span`: of the ranges, (numbers,). `own`: of the query; NaN where missing. `grid`: what values
    are multiples of; 0 for a continuum. `keeps_own`: whether the own value may stay, though it is
    no multiple. `known`: whether the row has the number. `wanted`: its value in the row, or what is
    next to it of multiples and the own value. `lower`, `upper`: relations, (rows, relations):
    number `lower` is at most number `upper`; the same number twice means no relation.
    """

    span: Array
    own: Array
    grid: Array
    keeps_own: Array
    known: Array
    wanted: Array
    lower: Array
    upper: Array

    def select(self, part: Array) -> TiedNumbers:
        """Those of some of the rows."""
        arrays = (self.own, self.grid, self.keeps_own, self.known, self.wanted)
        picked = (each[part] for each in (*arrays, self.lower, self.upper))
        return TiedNumbers(self.span, *picked)

    @cached_property
    def _rows(self) -> Array:
        return np.arange(len(self.own))

    @cached_property
    def _multiple_of(self) -> Array:
        return np.where(self.grid > 0, self.grid, 1.0)

    def at_most(self, values: Array, at: Array | None = None, sign: float = 1.0) -> Array:
        """The greatest legal values up to `values`: of all numbers, or of one a row, `at`."""
        every = self.own, self.grid, self._multiple_of, self.keeps_own
        if at is None:
            own, grid, step, keeps_own = every
            hair = HAIR * self.span
        else:
            own, grid, step, keeps_own = (each[self._rows, at] for each in every)
            hair = HAIR * self.span[at]
        multiple = sign * np.floor(sign * values / step + 1e-6) * step
        found = np.where(grid > 0, multiple, values)
        reached = (sign * own <= sign * values + hair) & (sign * own > sign * found)
        return np.where(keeps_own & reached, own, found)

    def at_least(self, values: Array, at: Array | None = None) -> Array:
        """The least legal values from `values` on: of all numbers, or of one a row, `at`."""
        return self.at_most(values, at, -1.0)

    def narrowed(self, interval: Interval, where: Array, low: Array, high: Array) -> Interval:
        """The interval where `low` and `high` bound it as well, at the marked places."""
        lowest = self.at_least(np.maximum(interval[0], low))
        highest = self.at_most(np.minimum(interval[1], high))
        return np.where(where, lowest, interval[0]), np.where(where, highest, interval[1])

    def propagated(self, interval: Interval) -> Interval:
        """The intervals as narrow as the relations make them."""
        lowest, highest, rows = interval[0].copy(), interval[1].copy(), self._rows
        for _ in range(self.lower.shape[1] + 1):
            changes = False
            for one, two in zip(self.lower.T, self.upper.T, strict=True):
                both = (one != two) & self.known[rows, one] & self.known[rows, two]
                low, high = lowest[rows, two], highest[rows, one]
                least = self.at_least(np.maximum(lowest[rows, one], low), two)
                most = self.at_most(np.minimum(high, highest[rows, two]), one)
                changes |= bool((both & ((least != low) | (most != high))).any())
                lowest[rows, two] = np.where(both, least, low)
                highest[rows, one] = np.where(both, most, high)
            if not changes:
                break
        return lowest, highest

    def nearest(self, wanted: Array, interval: Interval) -> Array:
        """The legal values of an interval that are nearest to the `wanted` ones."""
        low, high = interval
        wanted = np.minimum(np.maximum(wanted, low), high)
        above, below = self.at_least(wanted), self.at_most(wanted)
        return np.where((above - wanted <= wanted - below) & (above <= high), above, below)

    def assigned(self, wanted: Array, interval: Interval) -> Interval:
        """The interval of each row narrowed to one value of each number, near the wanted one.

        All numbers take the nearest value of their interval at once. In rows where that breaks a
        relation, they do so one after the other.
        """
        value = self.nearest(wanted, interval)
        lowest, highest = self.narrowed(interval, self.known, value, value)
        apart = np.flatnonzero(~replace(self, wanted=value).related())
        if len(apart):
            part, mine = self.select(apart), (interval[0][apart], interval[1][apart])
            for place in range(self.own.shape[1]):
                here = np.zeros_like(part.known)
                here[:, place] = part.known[:, place]
                value = part.nearest(wanted[apart], mine)
                mine = part.propagated(part.narrowed(mine, here, value, value))
            lowest[apart], highest[apart] = mine
        return lowest, highest

    def related(self) -> Array:
        """Which rows keep their relations, but for rounding, (rows,)."""
        kept, rows = np.ones(len(self.own), dtype=bool), self._rows
        exact = (self.wanted == self.own) | (self.grid > 0)
        for one, two in zip(self.lower.T, self.upper.T, strict=True):
            both = (one != two) & self.known[rows, one] & self.known[rows, two]
            off = np.where(exact[rows, one] & exact[rows, two], HAIR, ROUNDING)
            most = self.wanted[rows, two] + off * (self.span[one] + self.span[two])
            kept &= ~both | (self.wanted[rows, one] <= most)
        return kept
