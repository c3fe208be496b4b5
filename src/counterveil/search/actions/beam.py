"""The rows that a believable search keeps of each query, and the choice among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Self

import numpy as np

from counterveil.encoding import Array


@dataclass(frozen=True)
class Beam:
    """Rows of each query as the moves that lead to them; all arrays are (queries, beam, …).

    `moves`: numbers of moves, (queries, beam, moves each). `key`: the same number for the same
    moves in any order. `effort`, `unusual` and `unsafe` of `cost`; the effort is infinite
    where there is no row, and `unsafe` is a guess where f was not asked. `cost`: J; infinite where
    f refuses, or was not asked. Where a row comes from: `origin`, its place in the beam before, and
    `before`, by how much each further move would have changed `unusual` there, (queries, beam
    before, moves).
    """

    moves: Array
    key: Array
    effort: Array
    unusual: Array
    unsafe: Array
    cost: Array
    origin: Array
    before: Array

    def select(self, part: Array) -> Self:
        """The beams of some of the queries."""
        return type(self)(*(getattr(self, each.name)[part] for each in fields(self)))


Level = tuple[Array, Beam]  # the queries of a beam, by their numbers, and the beam


@dataclass(frozen=True)
class Candidates:
    """Rows that may be answers, (queries, rows each); the cost is infinite where there is none.

    `moves`: (queries, rows each, most moves), filled up with -1. The rest as in `Beam`.
    """

    moves: Array
    effort: Array
    unusual: Array
    cost: Array

    @classmethod
    def of(cls, levels: Sequence[Level], count: int, most: int) -> Self:
        """All rows of some beams, of `count` queries; `most`: moves that lead to a row."""
        widths = [beam.cost.shape[1] for _, beam in levels]
        found = cls._none(count, sum(widths), most)
        for (active, beam), end in zip(levels, np.cumsum(widths).tolist(), strict=True):
            place = slice(end - beam.cost.shape[1], end)
            found.moves[active, place, : beam.moves.shape[2]] = beam.moves
            found.effort[active, place], found.unusual[active, place] = beam.effort, beam.unusual
            found.cost[active, place] = beam.cost
        return found

    @classmethod
    def cheapest(cls, levels: Sequence[Level], count: int, most: int) -> Self:
        """The cheapest row of each query."""
        found = cls._none(count, 1, most)
        for active, beam in levels:
            place = beam.cost.argmin(axis=1) + np.arange(0, beam.cost.size, beam.cost.shape[1])
            cost = beam.cost.take(place)
            better = np.flatnonzero(cost < found.cost[active, 0])
            if len(better):
                query, place = active[better], place[better]
                moves = beam.moves.reshape(beam.cost.size, -1)[place]
                found.moves[query, 0, : moves.shape[1]] = moves
                found.effort[query, 0] = beam.effort.take(place)
                found.unusual[query, 0] = beam.unusual.take(place)
                found.cost[query, 0] = cost[better]
        return found

    @classmethod
    def _none(cls, count: int, width: int, most: int) -> Self:
        numbers = (np.full((count, width), np.inf, np.float32) for _ in range(3))
        return cls(np.full((count, width, most), -1), *numbers)

    def different_ways(self, k: int, feature: Array) -> Self:
        """For each query the k cheapest, none of which changes all that a cheaper one does.

        `feature`: that each move changes, (moves,).
        """
        places, least = different_ways(self.cost, self._changed(feature), k)
        where = np.arange(len(self.cost))[:, None], places
        moves, effort, unusual = (each[where] for each in (self.moves, self.effort, self.unusual))
        return type(self)(moves, effort, unusual, least)

    def _changed(self, feature: Array) -> Array:
        """Which features the candidates change, (queries, rows each, features)."""
        changed = np.zeros((*self.cost.shape, int(feature.max()) + 1), dtype=bool)
        for moves in np.moveaxis(self.moves, 2, 0):
            query, row = np.nonzero(moves >= 0)
            changed[query, row, feature[moves[query, row]]] = True
        return changed


def different_ways(cost: Array, changed: Array, k: int) -> tuple[Array, Array]:
    """The places of the k cheapest rows of each query, and their costs, (queries, k) each.

    None of them changes all that a cheaper one does, or less. `cost`: (queries, rows each).
    `changed`: which features the rows change, (queries, rows each, features).
    """
    cost, everyone, places, least = cost.copy(), np.arange(len(cost)), [], []
    for _ in range(k):
        places.append(cost.argmin(axis=1))
        least.append(cost[everyone, places[-1]])
        mine = changed[everyone, places[-1]][:, None]
        both = (changed & mine).sum(axis=2)
        cost[(both == mine.sum(axis=2)) | (both == changed.sum(axis=2))] = np.inf
    return np.stack(places, axis=1), np.stack(least, axis=1)


def cheapest(guess: Array, many: int) -> Array:
    """The places of the `many` cheapest, in ascending order, of (queries, any number).

    Places are counted through all queries.
    """
    begin = np.arange(0, guess.size, guess.shape[1])[:, None]
    if many >= guess.shape[1]:
        return guess.argsort(axis=1, kind="stable") + begin
    place = np.argpartition(guess, many - 1, axis=1)[:, :many] + begin
    order = guess.take(place).argsort(axis=1, kind="stable")
    return place.take(order + np.arange(0, place.size, many)[:, None])


def first_of_each(keys: Array) -> Array:
    """Which of (queries, any number) have no equal before them."""
    same = keys[:, :, None] == keys[:, None, :]
    same &= _is_before(keys.shape[1])
    return ~same.any(axis=2)


@lru_cache(maxsize=8)
def _is_before(count: int) -> Array:
    """Of every two places, whether the second is before the first: (places, places)."""
    return np.tri(count, k=-1, dtype=bool)
