"""What every entry of the menu does to every query of a batch, taken alone and beside another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from counterveil.encoding import Array
from counterveil.search.actions.cost import Asked
from counterveil.search.constraints.bounds import SAME

HELPS = 0.02  # units of f that a change must gain by itself


@dataclass(frozen=True)
class Moves:
    """The entries that help a query of the batch; `entry`: their places on the menu, (moves,).

    `start`: `unsafe` of the queries themselves, (queries,). `effort`: of each move, with the price
    of a change; infinite where it is closed to a query, changes nothing or does not bring f towards
    the target class: no answer asks for what does not help. `unsafe`: by how much each move changes
    it. Both (queries, moves).
    """

    asked: Asked
    entry: Array
    start: Array
    effort: Array
    unsafe: Array

    @classmethod
    def of(cls, asked: Asked) -> Moves:
        """Every open move of every query, as the model sees it."""
        ground, count = asked.ground, len(asked.queries)
        query, entry = np.nonzero(open_entries(asked))
        rows = np.concatenate([asked.queries, asked.rows_after(query, entry[:, None])])
        unsafe = asked.unsafe(rows, np.concatenate([np.arange(count), query]))
        start, change = unsafe[:count], unsafe[count:] - unsafe[query]
        helps = change < -HELPS * math.sqrt(ground.prices.refused)
        query, entry, change = query[helps], entry[helps], change[helps]
        kept = np.zeros(len(ground.menu), dtype=bool)
        kept[entry] = True
        place = (np.cumsum(kept) - 1)[entry]
        shape = (count, np.count_nonzero(kept))
        effort, changes = np.full(shape, np.inf, np.float32), np.zeros(shape, np.float32)
        effort[query, place] = _efforts(asked, query, entry)
        changes[query, place] = change
        return cls(asked, np.flatnonzero(kept), start, effort, changes)

    @cached_property
    def feature(self) -> Array:
        return self.asked.ground.menu.feature[self.entry]

    @cached_property
    def keys(self) -> Array:
        """A number for each move; sums of them tell sets of moves apart."""
        return self.asked.ground.keys[self.entry]

    @cached_property
    def least(self) -> Array:
        """The effort of the cheapest move of each query, (queries,)."""
        return self.effort.min(axis=1)

    @cached_property
    def unusual(self) -> Array:
        """By how much each move alone changes `unusual`, (queries, moves)."""
        asked = self.asked
        own = asked.alone
        new = asked.ground.alone[asked.targets[:, None], asked.ground.cell[self.entry]]
        if self._beside_own is not None:
            own = own + self._own_pairs.sum(axis=2)
            new = new + self._beside_own.sum(axis=1)
        return new - own[:, self.feature]

    def beside(self, query: Array, move: Array) -> Array:
        """By how much more each move changes `unusual` once another is taken.

        `query`, `move`: whose, and which was taken, (rows,). Returns (rows, moves); ∞ for the moves
        of the same feature.
        """
        found = self._beside_moves[self.asked.targets[query], move]
        if self._beside_own is not None:
            feature = self.feature[move]
            found -= self._beside_own[query, feature]
            back = self._beside_own[query, :, move] - self._own_pairs[query, feature]
            found -= back.take(self.feature, axis=1)
        return found

    @cached_property
    def _beside_moves(self) -> Array:
        beside = self.asked.ground.beside_entries
        return beside.take(self.entry, axis=1).take(self.entry, axis=2)

    @cached_property
    def _beside_own(self) -> Array | None:
        """What each move costs by the log-density beside the query's own cell of each feature.

        (queries, features, moves); None where no features depend on each other.
        """
        if not self.asked.ground.beliefs.pairs:
            return None
        beside = self.asked.ground.beside_cells[self.asked.targets[:, None], self.asked.cells]
        return beside.take(self.entry, axis=2)

    @cached_property
    def _own_pairs(self) -> Array:
        """What own cells of two features cost together, (queries, features, features)."""
        asked, beliefs = self.asked, self.asked.ground.beliefs
        one, two = beliefs.first_of_pair, beliefs.second_of_pair
        found = np.zeros((len(asked.queries), beliefs.features, beliefs.features), np.float32)
        found[:, one, two] = found[:, two, one] = asked.pairs
        return found


def open_entries(asked: Asked) -> Array:
    """Which entries of the menu a query may take and does not have already: (queries, entries)."""
    menu, queries, lower = asked.ground.menu, asked.queries, asked.lower
    value, column, blank = menu.value, menu.column, menu.blank.T
    low, high, now = (each.take(column, axis=1) for each in (lower, asked.upper, queries))
    inside = (value >= low - SAME) & (value <= high + SAME)
    inside &= (lower > SAME).astype(np.float32) @ blank == 0  # nothing else is held
    other = (queries > SAME).astype(np.float32) @ blank > 0
    other |= np.abs(value - now) > SAME
    return inside & other


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
