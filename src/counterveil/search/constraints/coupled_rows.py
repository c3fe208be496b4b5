"""Encoded rows with ties between their features, and rows nearby that keep them.

See `coupled.py` for what ties are. Numbers are in original units, in doubles; arrays of them are
(rows, numbers).
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from counterveil.encoding import Array

CHANGE_TOLERANCE = 1e-6  # in the unit cube: smaller differences are no change
EXACT_TOLERANCE = 1e-9  # of a range: what doubles may be off by
FLOAT_TOLERANCE = 3e-7  # of a range: what the floats of the search may be off by
MULTIPLE_TOLERANCE = 1e-6  # of a step
LEAST_MOVE = 1e-4  # of its range: how far a number moves at least that goes with its group
FOLLOWS = 0.05  # of its range: how far it moves along with a category
STAYS, UP, DOWN = 0.0, 1.0, -1.0  # the ways of a group


class Number(NamedTuple):
    """A tied number: its encoded column, that of its missing flag, and its range."""

    column: int
    flag: int | None
    low: float
    span: float
    is_derived: bool  # it follows a source, and never moves by itself


class Choice(NamedTuple):
    """A tied category or binary value: its encoded columns, and how many categories; 0 for bits."""

    at: slice
    categories: int


class Sides(NamedTuple):
    """The box of each query, its own encoded row, and what may stay outside: (queries, width)."""

    lower: Array
    upper: Array
    queries: Array
    stays: Array

    def select(self, part: Array) -> Sides:
        """Those of some of the queries."""
        return Sides(*(side[part] for side in self))


class Tied(NamedTuple):
    """The tied features, numbers first.

    `columns`: the encoded columns of each and of what follows it, (features, width).
    """

    numbers: tuple[Number, ...]
    choices: tuple[Choice, ...]
    columns: Array

    def distances(self, rows: Array, queries: Array) -> Array:
        """How far each feature is from the query's in the unit cube; 0 if not at all.

        (rows, features), of `rows` and `queries`, (rows, width).
        """
        square = np.square(np.abs(rows - queries).astype(np.float32))
        square[square <= CHANGE_TOLERANCE**2] = 0
        return np.asarray(np.sqrt(square @ self.columns.T.astype(np.float32)))


class CoupledRows:
    """Encoded rows, (rows, width), with their ties by the arrays of `Ties`.

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
        self._tied, self._rows, self._sides = tied, rows, sides
        self._arrays, self._places = arrays, np.arange(len(rows))
        self._own, self._grid = arrays["own"], arrays["grid"]
        self._columns = [number.column for number in tied.numbers]
        self._low = np.array([number.low for number in tied.numbers])
        self._span = np.array([number.span for number in tied.numbers])
        self._known = np.ones(self._own.shape, dtype=bool)
        for place, number in enumerate(tied.numbers):
            if number.flag is not None:
                self._known[:, place] = rows[:, number.flag] < 0.5
        self._pinned = np.zeros(self._own.shape, dtype=bool)
        if pinned is not None:
            self._pinned |= pinned[:, self._columns]
        now, own = self._values(rows), self._own
        legal = self._multiples(now, np.rint)
        is_own = (np.abs(now - own) < np.abs(now - legal)) & ~self._pinned
        self._wanted = np.where(is_own | (now == own), own, legal)
        self._pinned |= np.array([number.is_derived for number in tied.numbers], dtype=bool)
        is_near = np.abs(now - self._wanted) <= FLOAT_TOLERANCE * self._span
        self._has_legal_numbers = (is_near | ~self._known).all(axis=1)

    def _values(self, encoded: Array) -> Array:
        """Encoded numbers in original units; exactly the own value where it is the query's."""
        unit = encoded[:, self._columns]
        is_own = np.abs(unit - self._sides.queries[:, self._columns]) < CHANGE_TOLERANCE
        is_own &= ~np.isnan(self._own)
        return np.where(is_own, self._own, self._low + unit.astype(np.float64) * self._span)

    # --- Whether rows keep their ties ---

    @cached_property
    def _distances(self) -> Array:
        return self._tied.distances(self._rows, self._sides.queries)

    @cached_property
    def _ways(self) -> Array:
        """How far each number has gone up, or down below 0; 0 where the query has none."""
        way = (self._rows - self._sides.queries)[:, self._columns]
        return np.where((np.abs(way) > CHANGE_TOLERANCE) & ~np.isnan(self._own), way, 0.0)

    def held(self) -> Array:
        """Which rows keep the ties, (rows,)."""
        held = self._related(self._wanted) & self._has_legal_numbers
        numbers, changed = self._ways.shape[1], self._distances > 0
        for members in self._arrays["together"].swapaxes(0, 1):
            up, down = ((members[:, :numbers] & (s * self._ways > 0)).any(axis=1) for s in (1, -1))
            moves, stays = ((members & each).any(axis=1) for each in (changed, ~changed))
            held &= ~moves | ~(stays | (up & down))
        for members in self._arrays["only_one"].swapaxes(0, 1):
            held &= (members & changed).sum(axis=1) <= 1
        return held

    # --- Legal numbers, and what relations leave of them ---

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
        kept, rows = np.ones(len(values), dtype=bool), self._places
        exact = (values == self._own) | (self._grid > 0)
        for one, two, offset, counts in self._relations:
            both = exact[rows, one] & exact[rows, two]
            off = np.where(both, EXACT_TOLERANCE, FLOAT_TOLERANCE)
            most = values[rows, two] + offset + off * (self._span[one] + self._span[two])
            kept &= ~counts | (values[rows, one] <= most)
        return kept

    def _multiples(self, values: Array, rounded: np.ufunc) -> Array:
        """Multiples of the steps next to `values`; the values themselves on a continuum."""
        step, phase = np.where(self._grid > 0, self._grid, 1.0), self._arrays["phase"]
        on_grid = phase + rounded((values - phase) / step) * step
        return np.where(self._grid > 0, on_grid, values)

    def _legal(self, values: Array, sign: float) -> Array:
        """The highest legal values up to `values` where `sign` is 1; the lowest from there if -1.

        The own value is legal where it may stay, though it be no multiple.
        """
        hair = sign * MULTIPLE_TOLERANCE * np.where(self._grid > 0, self._grid, 0.0)
        found = self._multiples(values + hair, np.floor if sign > 0 else np.ceil)
        own, most = sign * self._own, sign * values + EXACT_TOLERANCE * self._span
        reached = self._keeps_own & (own <= most) & (own > sign * found)
        return np.where(reached, self._own, found)

    @cached_property
    def _box(self) -> tuple[Array, Array]:
        """The lowest and the highest numbers that the boxes leave."""
        return self._values(self._sides.lower), self._values(self._sides.upper)

    @cached_property
    def _keeps_own(self) -> Array:
        """Where the own value may stay."""
        (low, high), hair = self._box, EXACT_TOLERANCE * self._span
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

    def _has_values(self, low: Array, high: Array) -> Array:
        """Where every number that a row has may have a value, (rows,)."""
        fine = low <= high + EXACT_TOLERANCE * self._span
        return np.asarray((fine | ~self._known).all(axis=1))

    def _nearest(self, wanted: Array, low: Array, high: Array) -> Array:
        """The legal values of intervals that are nearest to the `wanted` ones."""
        wanted = np.minimum(np.maximum(wanted, low), high)
        above, below = self._legal(wanted, -1.0), self._legal(wanted, 1.0)
        return np.where((above - wanted <= wanted - below) & (above <= high), above, below)

    def _assigned(self, wanted: Array, low: Array, high: Array) -> tuple[Array, Array]:
        """Values of narrowed intervals near the wanted ones, and which rows have any, (rows,).

        All numbers take the nearest value at once; where that breaks a relation, one by one.
        """
        values = self._nearest(wanted, low, high)
        at_once = self._related(values)[:, None]
        if not at_once.all():
            least, most = low, high
            for place in range(values.shape[1]):
                least, most = least.copy(), most.copy()
                found = self._nearest(wanted, least, most)[:, place]
                least[:, place] = np.maximum(least[:, place], found)
                most[:, place] = np.minimum(most[:, place], found)
                least, most = self._narrowed(least, most)
            values = np.where(at_once, values, least)
            low, high = np.where(at_once, low, least), np.where(at_once, high, most)
        return values, self._has_values(low, high)

    # --- Rows nearby that keep the ties ---

    def settled(self, turns: Array) -> tuple[Array, Array]:
        """Rows that keep the ties, and where there are any, (rows,).

        `turns`: which of its three ways each group goes, (rows, groups); 0 for the wanted.
        """
        (low, high), wanted, numbers = self._box, self._wanted, len(self._columns)
        low = np.where(self._pinned, np.maximum(low, wanted), low)
        high = np.where(self._pinned, np.minimum(high, wanted), high)
        # The least move: to the next multiple, or a share of the range.
        least = np.where(self._grid > 0, 1e-3 * self._grid, LEAST_MOVE * self._span)
        rows, possible = self._rows.copy(), np.ones(len(self._rows), dtype=bool)
        for members, turn in zip(self._arrays["together"].swapaxes(0, 1), turns.T, strict=True):
            mine, way = members[:, :numbers], np.choose(turn, self._ways_of(members))[:, None]
            start = np.where(way == UP, self._own + least, np.where(way == DOWN, low, self._own))
            end = np.where(way == DOWN, self._own - least, np.where(way == UP, high, self._own))
            low = np.where(mine, np.maximum(low, start), low)
            high = np.where(mine, np.minimum(high, end), high)
            wanted = self._gone_along(mine, way, wanted)
            possible &= self._move_choices(members[:, numbers:], way[:, 0] != STAYS, rows)
        low, high = self._narrowed(low, high)
        possible &= self._has_values(low, high)
        if possible.any():
            wanted, fine = self._assigned(wanted, low, high)
            possible &= fine
        for place, number in enumerate(self._tied.numbers):
            value, at = wanted[:, place], number.column
            unit = ((value - number.low) / number.span).astype(rows.dtype)
            is_own = value == self._own[:, place]
            unit = np.where(is_own, self._sides.queries[:, at], unit)
            rows[:, at] = np.where(self._known[:, place], unit, rows[:, at])
        return rows, possible

    def _ways_of(self, members: Array) -> tuple[Array, Array, Array]:
        """The three ways of a group in the order in which they are tried, (rows,) each.

        A group goes the way of the number that has moved farthest, of pinned ones first. If only
        categories have moved, its numbers go up, or down. Otherwise it stays, if it can.
        """
        numbers = self._ways.shape[1]
        moved = members[:, :numbers] * self._ways * np.where(self._pinned, 1.0, 1e-3)
        lead = np.zeros(len(moved))
        if numbers:
            lead = np.sign(moved[self._places, np.abs(moved).argmax(axis=1)])
        moves = (lead != 0) | (members & (self._distances > 0))[:, numbers:].any(axis=1)
        return (
            np.where(moves, np.where(lead != 0, lead, UP), STAYS),
            np.where(lead != 0, STAYS, np.where(moves, DOWN, UP)),
            np.where(lead != 0, -lead, np.where(moves, STAYS, DOWN)),
        )

    def _gone_along(self, members: Array, way: Array, wanted: Array) -> Array:
        """Wanted values where the numbers of a group go `way`: as far as the one that leads."""
        moved = members * self._ways
        share = np.abs(moved).max(axis=1, keepdims=True, initial=0.0)
        along = self._own + way * np.where(share > 0, share, FOLLOWS) * self._span
        return np.where(members & (np.sign(moved) != way), along, wanted)

    def _move_choices(self, members: Array, moves: Array, rows: Array) -> Array:
        """Put choices of a group where the group moves or stays, in `rows`; where that is possible.

        One that must move goes to the open value next to the query's, as the schema lists them.
        """
        possible = np.ones(len(rows), dtype=bool)
        changed = self._distances[:, self._ways.shape[1] :] > 0
        for place, (at, categories) in enumerate(self._tied.choices):
            lower, upper, own = (side[:, at] for side in self._sides[:3])
            if categories:
                is_open = (upper > 0.5) & (own < 0.5)
                is_open[:, categories:] = False
                away = np.abs(np.arange(own.shape[1]) - own.argmax(axis=1)[:, None])
                next_one = np.where(is_open, away, own.shape[1] + 1).argmin(axis=1)
                other = np.eye(own.shape[1], dtype=own.dtype)[next_one]
            else:
                is_open, other = (1 - own >= lower) & (1 - own <= upper), 1 - own
            goes = members[:, place] & moves & ~changed[:, place]
            stays = members[:, place] & ~moves
            possible &= ~goes | is_open.any(axis=1)
            rows[:, at] = np.where(goes[:, None], other, rows[:, at])
            rows[:, at] = np.where(stays[:, None], own, rows[:, at])
        return possible
