"""The rows that a believable search keeps of each query, and the choice among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from counterveil.encoding import Array

_BEFORE = np.tri(64, k=-1, dtype=bool)


@dataclass(frozen=True)
class Beam:
    """Rows of each query as the moves that lead to them; all arrays are (queries, beam, …).

    `moves`: numbers of moves, (queries, beam, moves each). `key`: the same number for the same
    moves in any order. `effort`: with the price of the changes; infinite where there is no row.
    `density`: log P~(row | target). `margin`: of f, in log-odds; guessed where f was not asked.
    `cost`: J; infinite where f refuses, or was not asked. Where a row comes from: `origin`, its
    place in the beam before, and `before`, by how much each further move would have changed the
    density there, (queries, beam before, moves).
    """

    moves: Array
    key: Array
    effort: Array
    density: Array
    margin: Array
    cost: Array
    origin: Array
    before: Array

    def select(self, part: Array) -> Self:
        """The beams of some of the queries."""
        return type(self)(*(getattr(self, each.name)[part] for each in fields(self)))


@dataclass(frozen=True)
class Candidates:
    """Rows that may be answers, (queries, rows each); the cost is infinite where there is none.

    `moves`: (queries, rows each, most moves), filled up with -1. The rest as in `Beam`.
    """

    moves: Array
    effort: Array
    density: Array
    cost: Array

    @classmethod
    def of(cls, beam: Beam, active: Array, count: int, most: int, *, one: bool) -> Self:
        """Those of a beam of the queries `active` among `count`; with `one`, the cheapest each."""
        parts = beam.moves, beam.effort, beam.density, beam.cost
        if one:
            there = np.arange(len(active)), beam.cost.argmin(axis=1)
            parts = tuple(each[there][:, None] for each in parts)
        moves, effort, density, cost = parts
        shape = count, cost.shape[1]
        found = cls(
            np.full((*shape, most), -1),
            *(np.full(shape, value, np.float32) for value in (0, 0, np.inf)),
        )
        found.moves[active, :, : moves.shape[2]] = moves
        found.effort[active], found.density[active] = effort, density
        found.cost[active] = cost
        return found

    @classmethod
    def joined(cls, several: Sequence[Self]) -> Self:
        """Candidates of the same queries side by side."""
        names = [each.name for each in fields(cls)]
        return cls(*(np.concatenate([getattr(c, n) for c in several], axis=1) for n in names))

    def different_ways(self, k: int, feature: Array) -> Self:
        """For each query the k cheapest, none of which changes all that a cheaper one does.

        `feature`: that each move changes, (moves,).
        """
        cost, everyone, places, least = self.cost.copy(), np.arange(len(self.cost)), [], []
        changed = None if k == 1 else self._changed(feature)
        for _ in range(k):
            places.append(cost.argmin(axis=1))
            least.append(cost[everyone, places[-1]])
            if changed is not None:
                mine = changed[everyone, places[-1]][:, None]
                both = (changed & mine).sum(axis=2)
                cost[(both == mine.sum(axis=2)) | (both == changed.sum(axis=2))] = np.inf
        where = everyone[:, None], np.stack(places, axis=1)
        moves, effort, density = (each[where] for each in (self.moves, self.effort, self.density))
        return type(self)(moves, effort, density, np.stack(least, axis=1))

    def _changed(self, feature: Array) -> Array:
        """Which features the candidates change, (queries, rows each, features)."""
        changed = np.zeros((*self.cost.shape, int(feature.max()) + 1), dtype=bool)
        for moves in np.moveaxis(self.moves, 2, 0):
            query, row = np.nonzero(moves >= 0)
            changed[query, row, feature[moves[query, row]]] = True
        return changed


def cheapest(guess: Array, many: int) -> Array:
    """The places of the `many` cheapest, in ascending order, of (queries, any number)."""
    everyone = np.arange(len(guess))[:, None]
    if many < guess.shape[1]:
        place = np.argpartition(guess, many - 1, axis=1)[:, :many]
        return place[everyone, guess[everyone, place].argsort(axis=1, kind="stable")]
    return guess.argsort(axis=1, kind="stable")


def first_of_each(keys: Array) -> Array:
    """Which of (queries, any number) have no equal before them."""
    same = keys[:, :, None] == keys[:, None, :]
    same &= _BEFORE[: keys.shape[1], : keys.shape[1]]
    return ~same.any(axis=2)
