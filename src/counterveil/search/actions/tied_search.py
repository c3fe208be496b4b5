"""The believable search of `believable` where rules tie features or give numbers steps.

Entries of the menu cannot be taken one by one there: a move may force another, or forbid it. So
every row is brought to a row nearby that keeps the rules, and what it costs is measured on that
row. What the search has moved keeps its value if that is possible; all other features are the
query's own, or go along.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import product

import numpy as np
import torch

from counterveil.encoding import Array
from counterveil.search.actions.beam import different_ways
from counterveil.search.actions.closer import on_the_way
from counterveil.search.actions.cost import Asked
from counterveil.search.actions.moves import HELPS, open_entries
from counterveil.search.constraints.bounds import Box

LEVELS, MOST_LEVELS = 4, 6  # moves that are always tried; and where there is no answer yet
MOST_ROWS = 4096  # of the menu that are all tried for a query without an answer


@dataclass(frozen=True)
class Settled:
    """Rows that keep all rules; arrays of (rows, …).

    `query`: whose each is. `moved`: which features the search has moved itself, and `changed`:
    which differ from the query, (rows, features). `effort`, `unusual` and `unsafe` of
    `cost`. `cost`: J; infinite where f refuses.
    """

    query: Array
    rows: Array
    moved: Array
    changed: Array
    effort: Array
    unusual: Array
    unsafe: Array
    cost: Array

    def select(self, part: Array) -> Settled:
        """Some of the rows."""
        return type(self)(*(getattr(self, each.name)[part] for each in fields(self)))

    def put(self, at: Array, others: Settled) -> None:
        """Replace the rows `at` by other ones, in place."""
        for each in fields(self):
            getattr(self, each.name)[at] = getattr(others, each.name)

    def with_others(self, others: Settled) -> Settled:
        """These rows and other ones."""
        both = ((getattr(self, each.name), getattr(others, each.name)) for each in fields(self))
        return type(self)(*(np.concatenate(pair) for pair in both))

    @property
    def promise(self) -> Array:
        """What rows cost but for doubts, as if f accepted them all, (rows,)."""
        return self.effort + np.maximum(self.unusual, 0) + np.square(np.maximum(self.unsafe, 0))


@dataclass(frozen=True)
class TiedSearch:
    """The search for `k` answers to each query; `asked` has the queries as they were given."""

    asked: Asked
    box: Box
    k: int = 1

    def __call__(self) -> tuple[Array, Array]:
        """Rows of shape (queries, k, width), the cheapest first, and which of them f accepts."""
        count, features = len(self.asked.queries), self.asked.ground.beliefs.features
        everyone = np.arange(count)
        nothing = np.zeros((count, features), dtype=bool)
        found, _ = self._settled(everyone, self.asked.queries, nothing)
        single, entry = self._single_moves()
        beam = single
        for level in range(1, MOST_LEVELS + 1):
            found = found.with_others(beam)
            answered = np.isin(everyone, found.query[np.isfinite(found.cost)])
            going = np.ones(count, dtype=bool) if level < LEVELS else ~answered
            beam = beam.select(going[beam.query])
            if level == MOST_LEVELS or not len(beam.query):
                break
            best = _cheapest(beam.promise, beam.query, self.asked.ground.prices.beam)
            beam = self._extended(beam.select(best), single, entry)
        for query in np.setdiff1d(everyone, found.query[np.isfinite(found.cost)]).tolist():
            found = found.with_others(self._whole_menu(query))
        return self._chosen(found)

    # --- Rows that keep the rules, and what they cost ---

    def _settled(self, query: Array, rows: Array, moved: Array) -> tuple[Settled, Array]:
        """The rows nearby that keep the rules and differ from their queries, each only once.

        What is not `moved`, (rows, features), starts from the query's own value. Also returns which
        of the given rows they come from, ascending.
        """
        asked, snap = self.asked, self.asked.ground.snap
        own, box = asked.queries[query], self.box.select(torch.from_numpy(query))
        pinned = snap.columns_of_features(torch.from_numpy(moved))
        wanted = torch.where(pinned, torch.from_numpy(rows), torch.from_numpy(own))
        legal = snap(wanted, box, pinned)
        changed = np.zeros_like(moved)
        differ = snap.changed_features(legal, torch.from_numpy(own)).numpy()
        changed[:, : differ.shape[1]] = differ  # what is derived counts with its source
        changes = changed.sum(axis=1)
        fine = box.ties_held(legal).numpy() & (changes > 0)
        if asked.max_changes is not None:
            fine &= changes <= asked.max_changes[query]
        rows, kept = legal.numpy(), np.flatnonzero(fine)
        kept = kept[_first_of_each(query[kept], rows[kept])]
        return self._measured(query[kept], rows[kept], moved[kept], changed[kept]), kept

    def _measured(self, query: Array, rows: Array, moved: Array, changed: Array) -> Settled:
        """Rows that keep the rules with what they cost; f is asked about each."""
        asked, ground, beliefs = self.asked, self.asked.ground, self.asked.ground.beliefs
        codes = beliefs.codes(rows)
        way = np.abs(beliefs.heights(rows) - asked.heights[query])
        counted = beliefs.is_number & asked.known[query]
        effort = np.where(counted, way, np.float32(ground.prices.category))
        if asked.costs is not None:
            effort = effort * asked.costs[query][:, beliefs.first_column]
        effort = ((effort + np.float32(ground.prices.change)) * changed).sum(axis=1)
        lost = self._density[query] - beliefs.log_density(codes, asked.targets[query])
        unusual = asked.unusual[query] + np.float32(ground.prices.implausible) * lost
        unsafe = asked.unsafe(rows, query) if len(rows) else np.zeros(0, np.float32)
        found = Settled(query, rows, moved, changed, effort, unusual, unsafe, effort)
        cost = np.full(len(rows), np.inf, np.float32)
        fine = np.flatnonzero(unsafe <= asked.boundary)
        if len(fine):
            doubt = asked.doubt(ground.committee.sums(codes[fine]), query[fine])
            cost[fine] = found.promise[fine] + doubt
        return replace(found, cost=cost)

    @cached_property
    def _density(self) -> Array:
        """The log-density of the queries themselves, (queries,)."""
        return self.asked.ground.beliefs.log_density(self.asked.codes, self.asked.targets)

    @cached_property
    def _start(self) -> Array:
        """`unsafe` of the queries themselves, (queries,)."""
        return self.asked.unsafe(self.asked.queries, np.arange(len(self.asked.queries)))

    # --- Moves ---

    @cached_property
    def _is_open(self) -> Array:
        return open_entries(self.asked)

    def _single_moves(self) -> tuple[Settled, Array]:
        """The rows that single entries lead to and that bring f towards the target class.

        And the entry of each, (rows,).
        """
        asked, menu = self.asked, self.asked.ground.menu
        query, entry = np.nonzero(self._is_open)
        moved = _one_hot(menu.feature[entry], asked.ground.beliefs.features)
        found, kept = self._settled(query, asked.rows_after(query, entry[:, None]), moved)
        gain = self._start[found.query] - found.unsafe
        helps = gain > HELPS * math.sqrt(asked.ground.prices.refused)
        return found.select(helps), entry[kept[helps]]

    def _extended(self, beam: Settled, single: Settled, entry: Array) -> Settled:
        """The most promising rows of one move more. Guessed as if what moves do added up."""
        asked, menu = self.asked, self.asked.ground.menu
        first = np.searchsorted(single.query, beam.query, side="left")
        many = np.searchsorted(single.query, beam.query, side="right") - first
        state = np.repeat(np.arange(len(many)), many)
        move = first[state] + _place_among_equals(state)
        other = ~beam.moved[state, menu.feature[entry[move]]]
        state, move = state[other], move[other]
        query = beam.query[state]
        unusual = beam.unusual[state] + single.unusual[move] - asked.unusual[query]
        unsafe = beam.unsafe[state] + single.unsafe[move] - self._start[query]
        guess = beam.effort[state] + single.effort[move]
        guess = guess + np.maximum(unusual, 0) + np.square(np.maximum(unsafe, 0))
        best = _cheapest(guess, query, 2 * asked.ground.prices.beam)
        state, taken = state[best], entry[move[best]]
        rows = np.where(menu.mask[taken], menu.points[taken], beam.rows[state])
        moved = beam.moved[state] | _one_hot(menu.feature[taken], beam.moved.shape[1])
        return self._settled(beam.query[state], rows, moved)[0]

    def _whole_menu(self, query: int) -> Settled:
        """All rows of the menu for one query, if they are few; for where the beam found none."""
        asked, menu = self.asked, self.asked.ground.menu
        is_open = self._is_open[query]
        # -1: the feature stays; the first combination, in which all do, is left out.
        choices = [[-1, *np.flatnonzero(is_open[at]) + at.start] for at in menu.places]
        few = math.prod(map(len, choices)) <= MOST_ROWS
        every = np.array([*product(*choices)][1:] if few else [], dtype=np.intp)
        every = every.reshape(-1, len(choices))
        rows = asked.queries[[query]].repeat(len(every), axis=0)
        for entry in every.T:
            taken = menu.mask[entry] & (entry >= 0)[:, None]
            rows = np.where(taken, menu.points[entry], rows)
        return self._settled(np.full(len(every), query), rows, every >= 0)[0]

    # --- The end ---

    def _chosen(self, found: Settled) -> tuple[Array, Array]:
        """The k cheapest rows of each query that change different features, moved closer to it."""
        count, width = self.asked.queries.shape
        place = _place_among_equals(found.query)
        cost = np.full((count, max(self.k, 1 + place.max(initial=0))), np.inf, np.float32)
        number = np.zeros(cost.shape, dtype=np.intp)
        changed = np.zeros((*cost.shape, found.changed.shape[1]), dtype=bool)
        cost[found.query, place], changed[found.query, place] = found.cost, found.changed
        number[found.query, place] = np.arange(len(place))
        best, least = different_ways(cost, changed, self.k)
        ok = np.isfinite(least)
        start = self.asked.ground.snap(torch.from_numpy(self.asked.queries), self.box).numpy()
        rows = start[:, None].repeat(self.k, axis=1)
        chosen = found.select(number[np.arange(count)[:, None], best][ok])
        rows[ok] = self._closer(chosen).rows.reshape(-1, width)
        return rows, ok

    def _closer(self, answers: Settled) -> Settled:
        """Answers with each changed number as near to the query as is cheapest."""
        asked, beliefs = self.asked, self.asked.ground.beliefs
        for number in np.flatnonzero(answers.changed.any(axis=0) & beliefs.is_number).tolist():
            who = np.flatnonzero(answers.changed[:, number])
            query, column = answers.query[who], beliefs.first_column[number]
            fine, mine = asked.ground.fine[number][0], asked.queries[query, column]
            known, now = asked.known[query, number], answers.rows[who, column]
            tried = fine[on_the_way(fine, mine, now, known)]
            answer = np.repeat(who, tried.shape[1])
            rows, moved = answers.rows[answer], answers.moved[answer]
            rows[:, column], moved[:, number] = tried.ravel(), True
            found, kept = self._settled(answers.query[answer], rows, moved)
            best = _cheapest(found.cost, answer[kept], 1)
            best = best[found.cost[best] < answers.cost[answer[kept[best]]]]
            answers.put(answer[kept[best]], found.select(best))
        return answers


def _one_hot(feature: Array, features: int) -> Array:
    """A mask of one feature each, (rows, features)."""
    return feature[:, None] == np.arange(features)


def _cheapest(values: Array, query: Array, many: int) -> Array:
    """The places of the `many` least values of each query; both (rows,)."""
    order = np.lexsort((values, query))
    return order[_place_among_equals(query[order]) < many]


def _place_among_equals(numbers: Array) -> Array:
    """How many equal numbers come before each, (numbers,)."""
    order = np.argsort(numbers, kind="stable")
    place = np.empty(len(numbers), dtype=np.intp)
    place[order] = np.arange(len(numbers)) - np.searchsorted(numbers[order], numbers[order])
    return place


def _first_of_each(query: Array, rows: Array) -> Array:
    """The places of rows, (rows, width), that come the first time for their query, ascending."""
    weights = np.random.default_rng(0).random(rows.shape[1])
    keys = np.stack([query, np.rint(rows.astype(np.float64) @ weights * 1e8)], axis=1)
    return np.sort(np.unique(keys, axis=0, return_index=True)[1])
