"""The ways that tied features may go, as changes of wanted rows and of their boxes.

A group that moves together stays, moves up or moves down. Of a group of which only one may change,
one is free. A number outside of what is allowed stays there, or comes inside.
"""

from __future__ import annotations

import numpy as np

from counterveil.encoding import Array
from counterveil.search.constraints.coupled_numbers import SAME, Sides, Tied

LEAST_MOVE = 1e-4  # of its range: how far a number moves at least that goes with its group
FOLLOWS = 0.05  # of its range: how far it moves along with a category
STAYS, UP, DOWN = 0.0, 1.0, -1.0  # the ways of a group


class Going:
    """Rows on certain ways: where they want to be, and what their boxes leave then."""

    def __init__(
        self, tied: Tied, arrays: dict[str, Array], rows: Array, sides: Sides, pinned: Array | None
    ) -> None:
        self._tied, self._arrays, self._rows, self._sides = tied, arrays, rows, sides
        self._pins = np.zeros(rows.shape, dtype=bool) if pinned is None else pinned
        wide = (rows, sides.lower, sides.upper)
        self._now, self._lower, self._upper = (each.astype(np.float64) for each in wide)
        self._fixed = np.zeros(rows.shape, dtype=bool)  # columns that are the query's
        self._distances = tied.distances(rows, sides.queries)
        self.possible = np.ones(len(rows), dtype=bool)

    def by(self, turns: Array) -> tuple[Array, Sides]:
        """The rows that are wanted, and their boxes, if each tie goes the way of its turn."""
        groups = [self._arrays[name].swapaxes(0, 1) for name in ("together", "only_one")]
        ends = np.cumsum([len(groups[0]), len(self._tied.columns)])
        together, outside, only_one = np.split(turns, ends, axis=1)
        for members, turn in zip(groups[0], together.T, strict=True):
            self._move_together(members, turn)
        self._stay_outside(outside)
        for members, turn in zip(groups[1], only_one.T, strict=True):
            self._free_one(members, turn)
        for side in (self._now, self._lower, self._upper):
            np.copyto(side, self._sides.queries, where=self._fixed)
        return self._now, self._sides._replace(lower=self._lower, upper=self._upper)

    def _move_together(self, members: Array, turn: Array) -> None:
        """A group, (rows, features), goes one of its three ways: it stays, moves up or moves down.

        First the way of the number that has moved farthest, of pinned ones first. If only
        categories have moved, its numbers go up, or down. Otherwise it stays, if it can.
        """
        columns, count = self._tied.columns, len(self._tied.columns)
        own, mine = self._sides.queries[:, columns], members[:, :count]
        moved = np.where(mine & (self._distances[:, :count] > 0), self._rows[:, columns] - own, 0.0)
        strength = np.abs(moved) * np.where(self._pins[:, columns], 1.0, 1e-3)
        lead = np.zeros(len(moved))
        if count:
            lead = np.sign(moved[np.arange(len(moved)), strength.argmax(axis=1)])
        moves = (lead != 0) | (members & (self._distances > 0))[:, count:].any(axis=1)
        ways = (
            np.where(moves, np.where(lead != 0, lead, UP), STAYS),
            np.where(lead != 0, STAYS, np.where(moves, DOWN, UP)),
            np.where(lead != 0, -lead, np.where(moves, STAYS, DOWN)),
        )
        way = np.choose(turn, ways)[:, None]
        self._fixed |= (members & (way == STAYS)) @ self._tied.reach
        # As far as the one that leads, and at least to the next multiple, or a share of the range.
        share = np.abs(moved).max(axis=1, keepdims=True, initial=0.0)
        along = own + way * np.where(share > 0, share, FOLLOWS)
        now = self._now[:, columns]
        self._now[:, columns] = np.where(mine & (np.sign(moved) != way), along, now)
        grid = self._arrays["grid"] / self._tied.span
        least = np.where(grid > 0, np.maximum(1e-3 * grid, 2 * SAME), LEAST_MOVE)
        low, high = self._lower[:, columns], self._upper[:, columns]
        up, down = mine & (way == UP), mine & (way == DOWN)
        self._lower[:, columns] = np.where(up, np.maximum(low, own + least), low)
        self._upper[:, columns] = np.where(down, np.minimum(high, own - least), high)
        goes = members & (way != STAYS) & (self._distances == 0)
        for place, (at, categories) in enumerate(self._tied.choices, count):
            self._move_choice(at, categories, goes[:, place])

    def _move_choice(self, at: slice, categories: int, goes: Array) -> None:
        """Where it `goes`, a choice is the open value next to the query's, as the schema lists."""
        lower, upper, own = (side[:, at] for side in self._sides[:3])
        if categories:
            is_open = (upper > 0.5) & (own < 0.5)
            is_open[:, categories:] = False
            away = np.abs(np.arange(own.shape[1]) - own.argmax(axis=1)[:, None])
            next_one = np.where(is_open, away, own.shape[1] + 1).argmin(axis=1)
            other = np.eye(own.shape[1])[next_one]
        else:
            is_open, other = (1 - own >= lower) & (1 - own <= upper), 1 - own
        self.possible &= ~goes | is_open.any(axis=1)
        self._now[:, at] = np.where(goes[:, None], other, self._now[:, at])

    def _stay_outside(self, turns: Array) -> None:
        """Numbers outside of what is allowed stay there, or come inside; by turns, the other."""
        columns, may_stay = self._tied.columns, self._sides.stays[:, self._tied.columns]
        is_own = self._distances[:, : len(columns)] == 0
        stays = may_stay & (is_own != (turns & ~self._pins[:, columns]))
        self._fixed[:, columns] |= stays
        inside = np.clip(self._now, self._lower, self._upper)[:, columns]
        self._now[:, columns] = np.where(may_stay & ~stays, inside, self._now[:, columns])

    def _free_one(self, members: Array, turn: Array) -> None:
        """Of a group one is free: first what is pinned, then what has moved farthest."""
        pinned = (self._pins @ self._tied.reach.T) > 0
        order = np.where(members, -self._distances - 10.0 * pinned, 1.0)
        order = order.argsort(axis=1, kind="stable")
        others = members.copy()
        np.put_along_axis(others, np.take_along_axis(order, turn[:, None], 1), False, axis=1)
        self._fixed |= others @ self._tied.reach

    def loses_pinned(self, found: Array) -> Array:
        """Where a pinned category has changed, or a pinned number is the query's again, (rows,)."""
        moved = np.abs(self._rows - self._sides.queries) > SAME
        chosen = self._tied.reach[len(self._tied.columns) :].any(axis=0)
        lost = (self._fixed & moved) | (chosen & (found != self._rows))
        return (lost & self._pins).any(axis=1)
