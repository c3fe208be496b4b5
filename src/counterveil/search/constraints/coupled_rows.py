"""Rows with ties, and rows nearby that keep them. See `ties.py` for how."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from counterveil.encoding import Array
from counterveil.search.constraints.coupled_numbers import (
    HAIR,
    ROUNDING,
    SAME,
    Interval,
    TiedNumbers,
)

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
    """A category or binary value that is in a group: its encoded columns, start to stop."""

    start: int
    stop: int
    last: int  # where the columns of categories end, without that of a missing value
    one_hot: bool

    @property
    def at(self) -> slice:
        return slice(self.start, self.stop)


class Sides(NamedTuple):
    """The box of each query and its own encoded row: all (queries, width)."""

    lower: Array
    upper: Array
    queries: Array

    def select(self, part: Array) -> Sides:
        """Those of some of the queries."""
        return Sides(*(side[part] for side in self))


@dataclass(frozen=True)
class TiedRows:
    """Encoded rows, (rows, width), with their ties.

    `members`: which numbers are in each group, (rows, groups, numbers); `chosen`: which choices,
    (rows, groups, choices). What is missing in the query is in no group. `at_multiples`: which rows
    have all numbers at multiples of their steps, (rows,).
    """

    numbers: tuple[Number, ...]
    choices: tuple[Choice, ...]
    rows: Array
    sides: Sides
    values: TiedNumbers
    members: Array
    chosen: Array
    at_multiples: Array

    @classmethod
    def of(
        cls,
        tied: tuple[tuple[Number, ...], tuple[Choice, ...]],
        rows: Array,
        sides: Sides,
        arrays: dict[str, Array],
        pinned: Array | None = None,
    ) -> TiedRows:
        """The ties of `rows` by the arrays of `Ties`.

        A number between multiples is meant to be the next one or the query's own value, whatever is
        nearer; in a column that is `pinned`, (rows, width), the next multiple.
        """
        numbers, choices = tied
        columns = [number.column for number in numbers]
        low = np.array([number.low for number in numbers])
        span = np.array([number.span for number in numbers])
        own, grid = arrays["own"], arrays["grid"]
        mine, has_own = sides.queries[:, columns], ~np.isnan(own)

        def values(encoded: Array) -> Array:
            """Original units; exactly the own value where it is the query's."""
            unit = encoded[:, columns]
            is_own = has_own & (np.abs(unit - mine) < SAME)
            return np.where(is_own, own, low + unit.astype(np.float64) * span)

        inside = own >= values(sides.lower) - HAIR * span
        inside &= own <= values(sides.upper) + HAIR * span
        known = np.ones(own.shape, dtype=bool)
        for place, number in enumerate(numbers):
            if number.flag is not None:
                known[:, place] = rows[:, number.flag] < 0.5
        now, step = values(rows), np.where(grid > 0, grid, 1.0)
        on_grid = np.where(grid > 0, np.rint(now / step) * step, now)
        is_own = np.abs(now - own) < np.abs(now - on_grid)
        is_own &= True if pinned is None else ~pinned[:, columns]
        wanted = np.where(is_own | (now == own), own, on_grid)
        is_near = np.abs(now - wanted) <= ROUNDING * span
        keeps_own = inside & arrays["own_fits"]
        relations = arrays["lower"], arrays["upper"]
        found = TiedNumbers(span, own, grid, keeps_own, known, wanted, *relations)
        groups = arrays["members"], arrays["chosen"]
        return cls(numbers, choices, rows, sides, found, *groups, (is_near | ~known).all(axis=1))

    # --- Whether rows keep their ties ---

    @cached_property
    def _ways(self) -> Array:
        """How far each number is from the query's, in the unit cube, (rows, numbers)."""
        columns = [number.column for number in self.numbers]
        way = (self.rows - self.sides.queries)[:, columns]
        return np.where((np.abs(way) > SAME) & ~np.isnan(self.values.own), way, 0.0)

    @cached_property
    def _changed(self) -> Array:
        """Which choices differ from the query's, (rows, choices)."""
        way = np.abs(self.rows - self.sides.queries) > 0.5
        found = [way[:, choice.at].any(axis=1) for choice in self.choices]
        return np.array(found, dtype=bool).reshape(len(self.choices), len(self.rows)).T

    def held(self) -> Array:
        """Which rows keep the ties, (rows,)."""
        held, ways = self.values.related() & self.at_multiples, self._ways
        for members, chosen in zip(*self._groups, strict=True):
            up, down = ((members & (sign * ways > 0)).any(axis=1) for sign in (1, -1))
            moves = up | down | (chosen & self._changed).any(axis=1)
            all_move = (~members | (ways != 0)).all(axis=1) & (~chosen | self._changed).all(axis=1)
            held &= ~moves | (all_move & ~(up & down))
        return held

    @property
    def _groups(self) -> tuple[Array, Array]:
        """Members and choices, the groups first: (groups, rows, numbers or choices)."""
        return self.members.swapaxes(0, 1), self.chosen.swapaxes(0, 1)

    # --- Rows nearby that keep them ---

    def settled(self, pinned: Array | None, turns: Array) -> tuple[Array, Array]:
        """Rows that keep the ties, and where there are any, (rows,).

        `pinned`: columns that stay as they are. `turns`: which of its three ways each group goes,
        (rows, groups); 0 is the one that the row wants.
        """
        values = self.values
        is_pinned = np.zeros(values.known.shape, dtype=bool)
        for place, number in enumerate(self.numbers):
            if number.is_derived:
                is_pinned[:, place] = True
            elif pinned is not None:
                is_pinned[:, place] = pinned[:, number.column]
        interval = values.narrowed(self._box, is_pinned, values.wanted, values.wanted)
        interval = values.propagated(interval)
        wanted, ways = values.wanted, []
        possible = np.ones(len(self.rows), dtype=bool)
        for members, chosen, turn in zip(*self._groups, turns.T, strict=True):
            way = np.choose(turn, self._wanted_ways(members, chosen, is_pinned))
            interval = self._with_way(members, way, interval)
            wanted = self._gone_along(members, way, wanted)
            possible &= ~(chosen & ~self._can_move).any(axis=1) | (way == STAYS)
            ways.append(way)
        possible &= self._has_values(interval)
        if possible.any():
            interval = values.assigned(wanted, interval)
        return self._written(interval[0], ways), possible & self._has_values(interval)

    def _has_values(self, interval: Interval) -> Array:
        """Where every number that a row has may have a value, (rows,)."""
        return np.asarray(((interval[0] <= interval[1]) | ~self.values.known).all(axis=1))

    @cached_property
    def _box(self) -> Interval:
        """What the boxes leave of each number."""
        columns = [number.column for number in self.numbers]
        low = np.array([number.low for number in self.numbers])
        everywhere = np.ones(self.values.known.shape, dtype=bool)
        ends = []
        for side in self.sides[:2]:
            unit = side[:, columns]
            is_own = np.abs(unit - self.sides.queries[:, columns]) < SAME
            is_own &= ~np.isnan(self.values.own)
            ends.append(np.where(is_own, self.values.own, low + unit * self.values.span))
        return self.values.narrowed((ends[0], ends[1]), everywhere, *ends)

    @cached_property
    def _others(self) -> tuple[list[Array], Array]:
        """Of each choice the open value next to the query's, encoded; and where there is one.

        Next is meant by the order in which the schema lists the categories. (rows, choices)
        """
        encoded, found = [], np.zeros(self._changed.shape, dtype=bool)
        for place, choice in enumerate(self.choices):
            lower, upper, mine = (side[:, choice.at] for side in self.sides)
            if not choice.one_hot:
                encoded.append(1 - mine)
                found[:, place] = ((1 - mine >= lower) & (1 - mine <= upper))[:, 0]
                continue
            is_open = (upper > 0.5) & (mine < 0.5)
            is_open[:, choice.last - choice.start :] = False
            away = np.abs(np.arange(mine.shape[1]) - mine.argmax(axis=1)[:, None])
            next_one = np.where(is_open, away, mine.shape[1] + 1).argmin(axis=1)
            encoded.append(np.eye(mine.shape[1], dtype=mine.dtype)[next_one])
            found[:, place] = is_open.any(axis=1)
        return encoded, found

    @property
    def _can_move(self) -> Array:
        """Which choices have moved already, or have another value, (rows, choices)."""
        return self._changed | self._others[1]

    def _wanted_ways(
        self, members: Array, chosen: Array, pinned: Array
    ) -> tuple[Array, Array, Array]:
        """The three ways of a group in the order in which they are tried, (rows,) each.

        A group goes the way of the number that has moved farthest, of pinned ones first. If only
        categories have moved, its numbers go up, or down. Otherwise it stays, if it can.
        """
        moved = members * self._ways * np.where(pinned, 1.0, 1e-3)
        lead = np.zeros(len(moved))
        if moved.shape[1]:
            lead = np.sign(moved[np.arange(len(moved)), np.abs(moved).argmax(axis=1)])
        moves = (lead != 0) | (chosen & self._changed).any(axis=1)
        return (
            np.where(moves, np.where(lead != 0, lead, UP), STAYS),
            np.where(lead != 0, STAYS, np.where(moves, DOWN, UP)),
            np.where(lead != 0, -lead, np.where(moves, STAYS, DOWN)),
        )

    def _with_way(self, members: Array, way: Array, interval: Interval) -> Interval:
        """The intervals where a group goes a way, (rows,)."""
        values, up, down = self.values, (way == UP)[:, None], (way == DOWN)[:, None]
        # The least move: to the next multiple, or a share of the range.
        least = np.where(values.grid > 0, 1e-3 * values.grid, LEAST_MOVE * values.span)
        low = np.where(up, values.own + least, np.where(down, -np.inf, values.own))
        high = np.where(down, values.own - least, np.where(up, np.inf, values.own))
        return values.propagated(values.narrowed(interval, members, low, high))

    def _gone_along(self, members: Array, way: Array, wanted: Array) -> Array:
        """Wanted values where the numbers of a group go `way`: as far as the one that leads."""
        moved = members * self._ways
        share = np.abs(moved).max(axis=1, keepdims=True, initial=0.0)
        share = np.where(share > 0, share, FOLLOWS)
        along = self.values.own + way[:, None] * share * self.values.span
        return np.where(members & (np.sign(moved) != way[:, None]), along, wanted)

    def _written(self, found: Array, ways: list[Array]) -> Array:
        """The rows with the values that were found, and with the choices of groups."""
        rows, values, queries = self.rows.copy(), self.values, self.sides.queries
        for place, number in enumerate(self.numbers):
            value, at = found[:, place], number.column
            unit = ((value - number.low) / number.span).astype(rows.dtype)
            unit = np.where(value == values.own[:, place], queries[:, at], unit)
            rows[:, at] = np.where(values.known[:, place], unit, rows[:, at])
        for chosen, way in zip(self._groups[1], ways, strict=True):
            for place, choice in enumerate(self.choices):
                stays = (chosen[:, place] & (way == STAYS))[:, None]
                goes = (chosen & ~self._changed)[:, place] & (way != STAYS)
                now = np.where(goes[:, None], self._others[0][place], rows[:, choice.at])
                rows[:, choice.at] = np.where(stays, queries[:, choice.at], now)
        return rows
