"""What every entry of the menu does to every query of a batch, taken alone and beside another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from counterveil.encoding import Array
from counterveil.search.constraints import SAME
from counterveil.search.cost import Asked

HELPS = 0.02  # units of f that a change must gain by itself


@dataclass(frozen=True)
class Moves:
    """The entries that help a query of the batch; `entry`: their places on the menu, (moves,).

    `margin`: of the queries themselves, (queries,). `effort`: of each move, with the price of a
    change; infinite where it is closed to a query, changes nothing or does not bring f towards the
    target class: no answer asks for what does not help. `gain`: what f gains by it, in log-odds.
    Both (queries, moves).
    """

    asked: Asked
    entry: Array
    margin: Array
    effort: Array
    gain: Array

    @classmethod
    def of(cls, asked: Asked) -> Moves:
        """Every open move of every query, as the model sees it."""
        ground = asked.ground
        query, entry = np.nonzero(_open_entries(asked))
        rows = asked.rows_after(query, entry[:, None])
        count = len(asked.queries)
        goals = np.concatenate([asked.targets, asked.targets[query]])
        margin = asked.margin(np.concatenate([asked.queries, rows]), goals)
        margin, gained = margin[:count], margin[count:] - margin[query]
        helps = gained > HELPS * ground.unit
        query, entry, gained = query[helps], entry[helps], gained[helps]
        kept = np.zeros(len(ground.menu), dtype=bool)
        kept[entry] = True
        place = np.cumsum(kept) - 1
        shape = (count, int(kept.sum()))
        effort, gain = np.full(shape, np.inf, np.float32), np.zeros(shape, np.float32)
        effort[query, place[entry]] = _efforts(asked, query, entry)
        gain[query, place[entry]] = gained
        return cls(asked, np.flatnonzero(kept), margin, effort, gain)

    @cached_property
    def feature(self) -> Array:
        return self.asked.ground.menu.feature[self.entry]

    @cached_property
    def keys(self) -> Array:
        """A number for each move; sums of them tell sets of moves apart."""
        return self.asked.ground.keys[self.entry]

    @cached_property
    def density(self) -> Array:
        """By how much each move changes the log-density, (queries, moves)."""
        asked, alone = self.asked, self.asked.ground.beliefs.alone
        goals = asked.targets[:, None]
        own = alone[goals, asked.cells]
        new = alone[goals, asked.ground.cell[self.entry]]
        if self._beside_own is not None:
            own = own + self._own_pairs.sum(axis=2)
            new = new + self._beside_own.sum(axis=1)
        return new - own[:, self.feature]

    def beside(self, query: Array, move: Array) -> Array:
        """By how much more each move changes the log-density once another is taken.

        `query`, `move`: whose, and which was taken, (rows,). Returns (rows, moves); -∞ for the
        moves of the same feature.
        """
        found = self._beside_moves[self.asked.targets[query], move]
        if self._beside_own is not None:
            feature = self.feature[move]
            found = found - self._beside_own[query, feature]
            back = self._beside_own[query, :, move] - self._own_pairs[query, feature]
            found -= back[:, self.feature]
        return found

    @cached_property
    def _beside_moves(self) -> Array:
        return self.asked.ground.beside_entries[:, self.entry][:, :, self.entry]

    @cached_property
    def _beside_own(self) -> Array | None:
        """What each move adds to the log-density beside the query's own cell of each feature.

        (queries, features, moves); None where no features depend on each other.
        """
        if not self.asked.ground.beliefs.pairs:
            return None
        beside = self.asked.ground.beside_cells[self.asked.targets[:, None], self.asked.cells]
        return beside[:, :, self.entry]

    @cached_property
    def _own_pairs(self) -> Array:
        """What own cells of two features add together, (queries, features, features)."""
        asked, beliefs = self.asked, self.asked.ground.beliefs
        one, two = beliefs.first_of_pair, beliefs.second_of_pair
        found = np.zeros((len(asked.queries), beliefs.features, beliefs.features), np.float32)
        found[:, one, two] = found[:, two, one] = asked.pair_values
        return found


def _open_entries(asked: Asked) -> Array:
    """Which entries of the menu a query may take and does not have already: (queries, entries)."""
    menu, queries, lower = asked.ground.menu, asked.queries, asked.lower
    value, column = menu.value, menu.column
    inside = (value >= lower[:, column] - SAME) & (value <= asked.upper[:, column] + SAME)
    held = (lower > SAME).astype(np.float32) @ menu.blank.T > 0
    there = (queries > SAME).astype(np.float32) @ menu.blank.T > 0
    return inside & ~held & (there | (np.abs(value - queries[:, column]) > SAME))


def _efforts(asked: Asked, query: Array, entry: Array) -> Array:
    """The effort of moves with the price of a change, (moves,)."""
    ground = asked.ground
    feature = ground.menu.feature[entry]
    way = np.abs(ground.heights[entry] - asked.heights[query, feature])
    counted = ground.beliefs.is_number[feature] & asked.known[query, feature]
    effort = np.where(counted, way, np.float32(ground.prices.category))
    if asked.costs is not None:
        effort = effort * asked.costs[query, ground.beliefs.first_column[feature]]
    return effort + np.float32(ground.prices.change)
