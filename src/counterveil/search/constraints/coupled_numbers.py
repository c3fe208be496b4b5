"""Numbers that steps and relations tie: which values they may have, and the nearest ones.

Values are in original units, in doubles; arrays of them are (rows, numbers).
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from counterveil.encoding import Array

SAME = 1e-6  # in the unit cube: smaller differences are no change
EXACT_TOLERANCE = 1e-9  # of a range: what doubles may be off by
FLOAT_TOLERANCE = 3e-7  # of a range: what the floats of the search may be off by
MULTIPLE_TOLERANCE = 1e-6  # of a step


class Sides(NamedTuple):
    """The box of each query, its own encoded row, and what may stay outside: (queries, width)."""

    lower: Array
    upper: Array
    queries: Array
    stays: Array


class Tied(NamedTuple):
    """The tied features: numbers first, then categories and binary values.

    Of each number its encoded column, that of its missing flag, the lowest value, the range, and
    whether it only follows a source. Of each choice its encoded columns, and how many of them are
    categories; 0 for a bit. `reach`: the columns of each feature and of what follows it,
    (features, width).
    """

    columns: list[int]
    flags: list[int | None]
    low: Array
    span: Array
    follows: Array
    choices: list[tuple[slice, int]]
    reach: Array

    def distances(self, rows: Array, queries: Array) -> Array:
        """How far each feature is from the query's in the unit cube, (rows, features)."""
        square = np.square(rows - queries, dtype=np.float32)
        square[square <= SAME**2] = 0
        with np.errstate(invalid="ignore"):  # some BLAS raise this flag for few finite floats
            return np.asarray(np.sqrt(square @ self.reach.T.astype(np.float32)))


class CoupledNumbers:
    """The tied numbers of encoded rows, (rows, width), by the arrays of `Ties`.

    A number between legal values is meant to be the next one or the query's own value, whatever is
    nearer; in a column that is `pinned`, (rows, width), the next one.
    """

    def __init__(
        self,
        tied: Tied,
        arrays: dict[str, Array],
        rows: Array,
        sides: Sides,
        pinned: Array | None = None,
    ) -> None:
        self._tied, self._arrays, self._rows, self._sides = tied, arrays, rows, sides
        self._own, self._grid, self._places = arrays["own"], arrays["grid"], np.arange(len(rows))
        self._known = np.ones(self._own.shape, dtype=bool)
        for place, flag in enumerate(tied.flags):
            if flag is not None:
                self._known[:, place] = rows[:, flag] < 0.5
        pins = np.zeros(self._own.shape, dtype=bool) if pinned is None else pinned[:, tied.columns]
        now, own = self._values(rows), self._own
        legal = self._multiples(now, np.rint)
        is_own = (np.abs(now - own) < np.abs(now - legal)) & ~pins
        self._wanted = np.where(is_own | (now == own), own, legal)
        self._pinned = pins | tied.follows
        near = np.abs(now - self._wanted) <= FLOAT_TOLERANCE * tied.span
        self._are_legal = np.all(near | ~self._known, axis=1)

    def _values(self, encoded: Array) -> Array:
        """Encoded numbers in original units; exactly the own value where it is the query's."""
        unit, mine = encoded[:, self._tied.columns], self._sides.queries[:, self._tied.columns]
        is_own = (np.abs(unit - mine) < SAME) & ~np.isnan(self._own)
        value = self._tied.low + unit.astype(np.float64) * self._tied.span
        return np.where(is_own, self._own, value)

    def held(self) -> Array:
        """Which rows have legal numbers that keep their relations, (rows,)."""
        return self._related(self._wanted) & self._are_legal

    @cached_property
    def _relations(self) -> list[tuple[Array, Array, Array, Array]]:
        """Of each the places of the lower and the upper number, the offset, and where it counts."""
        parts = (self._arrays[name].T for name in ("lower", "upper", "offset"))
        known, rows = self._known, self._places
        return [
            (one, two, offset, (one != two) & known[rows, one] & known[rows, two])
            for one, two, offset in zip(*parts, strict=True)
        ]

    def _related(self, values: Array) -> Array:
        """Which rows keep their relations with these values, but for rounding, (rows,)."""
        kept, rows, span = np.ones(len(values), dtype=bool), self._places, self._tied.span
        exact = (values == self._own) | (self._grid > 0)
        for one, two, offset, counts in self._relations:
            both = exact[rows, one] & exact[rows, two]
            off = np.where(both, EXACT_TOLERANCE, FLOAT_TOLERANCE) * (span[one] + span[two])
            kept &= ~counts | (values[rows, one] <= values[rows, two] + offset + off)
        return kept

    # --- Legal values, and intervals of them ---

    def _multiples(self, values: Array, rounded: np.ufunc) -> Array:
        """Multiples of the steps next to `values`; the values themselves on a continuum."""
        step, phase = np.where(self._grid > 0, self._grid, 1.0), self._arrays["phase"]
        on_grid = phase + rounded((values - phase) / step) * step
        return np.where(self._grid > 0, on_grid, values)

    def _legal(self, values: Array, sign: float) -> Array:
        """The highest legal values up to `values` where `sign` is 1; the lowest from there if -1.

        The own value is legal where it may stay, though it be no multiple.
        """
        hair = sign * MULTIPLE_TOLERANCE * self._grid
        found = self._multiples(values + hair, np.floor if sign > 0 else np.ceil)
        own, most = sign * self._own, sign * values + EXACT_TOLERANCE * self._tied.span
        reached = self._keeps_own & (own <= most) & (own > sign * found)
        return np.where(reached, self._own, found)

    @cached_property
    def _box(self) -> tuple[Array, Array]:
        return self._values(self._sides.lower), self._values(self._sides.upper)

    @cached_property
    def _keeps_own(self) -> Array:
        (low, high), hair = self._box, EXACT_TOLERANCE * self._tied.span
        inside = (self._own >= low - hair) & (self._own <= high + hair)
        return inside & self._arrays["own_fits"]

    def _narrowed(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Intervals of legal values as narrow as the relations make them."""
        rows, low, high = self._places, self._legal(low, -1.0), self._legal(high, 1.0)
        for _ in range(2 * len(self._relations)):
            before = low, high
            low, high = low.copy(), high.copy()
            for one, two, offset, counts in self._relations:
                least = np.maximum(low[rows, two], low[rows, one] - offset)
                most = np.minimum(high[rows, one], high[rows, two] + offset)
                low[rows, two] = np.where(counts, least, low[rows, two])
                high[rows, one] = np.where(counts, most, high[rows, one])
            low, high = self._legal(low, -1.0), self._legal(high, 1.0)
            if np.array_equal(before, (low, high), equal_nan=True):
                break
        return low, high

    def _nearest(self, low: Array, high: Array) -> Array:
        """The legal values of intervals that are nearest to the wanted ones."""
        wanted = np.minimum(np.maximum(self._wanted, low), high)
        above, below = self._legal(wanted, -1.0), self._legal(wanted, 1.0)
        return np.where((above - wanted <= wanted - below) & (above <= high), above, below)

    def settled(self) -> tuple[Array, Array]:
        """Rows nearby that keep the ties of numbers, and where there are any, (rows,).

        All numbers take the nearest value at once; where that breaks a relation, one by one.
        """
        (low, high), wanted, span = self._box, self._wanted, self._tied.span
        low = np.where(self._pinned, np.maximum(low, wanted), low)
        high = np.where(self._pinned, np.minimum(high, wanted), high)
        low, high = self._narrowed(low, high)
        values = self._nearest(low, high)
        at_once = self._related(values)[:, None]
        if not at_once.all():
            least, most = low, high
            for place in range(values.shape[1]):
                found = self._nearest(least, most)[:, place]
                least, most = least.copy(), most.copy()
                least[:, place] = np.maximum(least[:, place], found)
                most[:, place] = np.minimum(most[:, place], found)
                least, most = self._narrowed(least, most)
            values = np.where(at_once, values, least)
            low, high = np.where(at_once, low, least), np.where(at_once, high, most)
        rows, columns = self._rows.copy(), self._tied.columns
        own, unit = self._sides.queries[:, columns], (values - self._tied.low) / span
        unit = np.where(values == self._own, own, unit)
        rows[:, columns] = np.where(self._known, unit, rows[:, columns])
        fine = low <= high + EXACT_TOLERANCE * span
        return rows, np.all(fine | ~self._known, axis=1)
