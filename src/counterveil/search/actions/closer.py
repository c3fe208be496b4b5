"""The last step of the believable search: changed numbers move closer to the query's own."""

from __future__ import annotations

import numpy as np

from counterveil.encoding import Array
from counterveil.search.actions.beam import Candidates
from counterveil.search.actions.cost import Asked
from counterveil.search.constraints.bounds import SAME

CLOSER = 7  # values of a number on the way back to the query that are tried


def closer(asked: Asked, entry: Array, found: Candidates) -> Array:
    """The rows of candidates, (queries, k, width), each number as near to the query as is cheapest.

    `entry`: of each move its place on the menu. One number is moved after another. Where there is
    no candidate the row is the query.
    """
    rows = asked.queries[:, None].repeat(found.cost.shape[1], axis=1)
    there = np.nonzero(np.isfinite(found.cost))
    answers = _Answers(asked, entry, found, there)
    for number in np.flatnonzero(answers.changed.any(axis=0) & asked.ground.beliefs.is_number):
        answers.bring_closer(int(number))
    rows[there] = answers.rows
    return rows


class _Answers:
    """Rows that f accepts and what they cost, while their numbers are moved: (rows, …).

    `heights`: how far up their numbers were before that.
    """

    def __init__(
        self, asked: Asked, entry: Array, found: Candidates, there: tuple[Array, ...]
    ) -> None:
        menu, self.asked, self.query = asked.ground.menu, asked, there[0]
        self.effort, self.unusual, self.cost = (
            each[there] for each in (found.effort, found.unusual, found.cost)
        )
        self.rows, self.codes = asked.queries[self.query], asked.codes[self.query]
        self.heights = asked.heights[self.query]
        self.changed = np.zeros(self.codes.shape, dtype=bool)
        for moves in found.moves[there].T:
            who = np.flatnonzero(moves >= 0)
            if not len(who):
                break
            taken = entry[moves[who]]
            self.rows[who] = np.where(menu.mask[taken], menu.points[taken], self.rows[who])
            feature = menu.feature[taken]
            self.codes[who, feature] = menu.code[taken]
            self.heights[who, feature] = asked.ground.heights[taken]
            self.changed[who, feature] = True
        for source, derived, follows in asked.ground.beliefs.follows:
            moved = self.changed[:, source]
            self.codes[moved, derived] = follows[self.codes[moved, source]]
        self.sums = asked.ground.committee.sums(self.codes)

    def bring_closer(self, number: int) -> None:
        """Move one number to the cheapest of the values that are tried."""
        asked, ground, beliefs = self.asked, self.asked.ground, self.asked.ground.beliefs
        who = np.flatnonzero(self.changed[:, number])
        if not len(who):
            return
        query, column = self.query[who], beliefs.first_column[number]
        fine, heights, cells = ground.fine[number]
        mine, known = asked.queries[query, column], asked.known[query, number]
        place = on_the_way(fine, mine, self.rows[who, column], known)
        tried, cell = fine.take(place), cells.take(place)
        low, high = asked.lower[query, column, None], asked.upper[query, column, None]
        usable = (tried >= low - SAME) & (tried <= high + SAME)
        usable &= (np.abs(tried - mine[:, None]) > SAME) | ~known[:, None]
        effort = self.effort[who, None] - self._spared(who, number, heights.take(place))
        unusual = self.unusual[who, None] + self._more_unusual(who, number, cell)
        least = effort + np.maximum(unusual, 0)
        row, way = np.nonzero(usable & (least < self.cost[who, None]))
        if not len(row):
            return
        rows = self.rows[who[row]]
        rows[:, column] = tried[row, way]
        unsafe = asked.unsafe(rows, query[row])
        table, start = ground.committee.cells, beliefs.starts[number]
        sums = self.sums[who[row]] + table[start + cell[row, way]]
        sums -= table[start + self.codes[who[row], number]]
        cost = np.full(tried.shape, np.inf, np.float32)
        judged = least[row, way] + np.square(np.maximum(unsafe, 0)) + asked.doubt(sums, query[row])
        cost[row, way] = np.where(unsafe <= asked.boundary, judged, np.inf)
        best = (cost.argmin(axis=1)[row] == way) & (cost[row, way] < self.cost[who[row]])
        row, way, to = row[best], way[best], who[row[best]]
        self.rows[to], self.sums[to] = rows[best], sums[best]
        self.codes[to, number], self.cost[to] = cell[row, way], cost[row, way]
        self.effort[to], self.unusual[to] = effort[row, way], unusual[row, way]

    def _spared(self, who: Array, number: int, heights: Array) -> Array:
        """How much less effort values at `heights`, (rows, tries), are than those of the rows."""
        asked, query = self.asked, self.query[who]
        column = asked.ground.beliefs.first_column[number]
        own = asked.heights[query, number]
        spared = np.abs(self.heights[who, number] - own)[:, None] - np.abs(heights - own[:, None])
        spared = np.where(asked.known[query, number, None], spared, np.float32(0))
        return spared if asked.costs is None else spared * asked.costs[query, column, None]

    def _more_unusual(self, who: Array, number: int, cell: Array) -> Array:
        """By how much `unusual` changes if the number falls into other cells, (rows, tries)."""
        codes, goals = self.codes[who], self.asked.targets[self.query[who]]
        both = np.concatenate([codes[:, number, None], cell], axis=1)
        density = self.asked.ground.beliefs.density_of(number, both, codes, goals)
        return self.asked.ground.prices.implausible * (density[:, :1] - density[:, 1:])


def on_the_way(fine: Array, mine: Array, now: Array, known: Array) -> Array:
    """Places of fine values between the query's and the answer's, (rows, tries).

    Around the answer's where the query's is unknown.
    """
    here = np.searchsorted(fine, now)
    start = np.where(known, np.searchsorted(fine, mine), here - CLOSER // 2)[:, None]
    steps = np.arange(CLOSER)
    between = np.rint((here[:, None] - start) * (steps / CLOSER)).astype(np.intp)
    place = start + np.where(known[:, None], between, steps)
    return np.minimum(np.maximum(place, 0), len(fine) - 1)
