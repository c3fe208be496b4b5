"""What an answer costs, for the queries of one batch.

A row that the model accepts costs

    J = effort + implausibility + margin shortfall² + instability

- effort: of every changed feature the percentiles that it moves, its relative size, how much
  farther out it is than the query's own, and the price of a change, times the user's costs; a
  number where none was known costs more than a category; a change that follows from another one,
  because both features go together, costs less by as much; for the nearest answers the squared
  encoded distance;
- implausibility: how far log P~(row given target) is below the query's own, or below a floor that
  many of P~'s rows are below, if that is higher;
- margin shortfall: how far the model is below a margin that is safe;
- instability: how far a committee of models learnt from P~ is from being sure.

The nearest answers have no other cost than their effort: it is enough that the model accepts them.
All are computed from rows alone, so that the same function says what any row costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from counterveil.encoding import Encoding
from counterveil.search.actions.actions import Actions
from counterveil.search.actions.committee import Committee
from counterveil.search.actions.menu import Menu
from counterveil.search.actions.people import People
from counterveil.search.asking import Question
from counterveil.search.batch import QueryBatch
from counterveil.search.constraints.bounds import SAME


@dataclass(frozen=True)
class Prices:
    """What an answer costs besides its effort in percentiles.

    A unit of a model is the standard deviation of its log-odds among the people of P~: what is sure
    for a cautious model is nothing for another.
    """

    change: float = 0.2  # one more changed feature
    tail: float = 1.0  # e times fewer people have a number so far out
    category: float = 0.45  # effort of a changed category
    unknown: float = 1.5  # effort of a number where none was known
    size: float = 0.1  # a doubling of a number's way, in spreads of that number
    implausible: float = 0.8  # a nat below the floor
    floor: float = 0.6  # the share of P~'s own rows of the target class below it
    unstable: float = 0.5  # a unit of doubt of the committee
    sure: float = 0.4  # units from which a member of the committee has no doubt
    refused: float = 7.0  # the square of the units that the model is short of `safe`
    safe: float = 0.75  # units of the model beyond its boundary


UNASKED = Prices(unstable=1.0, sure=2.0, refused=3.0, safe=2.0)  # where f~ stands in for f


@dataclass(frozen=True)
class Context:
    """What all searches of one veil and model share, on one device.

    `people` and `committee` are None for the nearest answers. `unit`, `committee_unit`: the
    standard deviations of the log-odds of the model and of the committee, over the people of P~.
    """

    encoding: Encoding
    menu: Menu
    prices: Prices | None
    people: People | None = None
    committee: Committee | None = None
    unit: float = 1.0
    committee_unit: float = 1.0

    @cached_property
    def of_entries(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of the value of each entry how far up it is in the unit of effort, how far out, and its
        cell in the line of all cells, (entries,) each."""
        assert self.people is not None
        points, own = self.menu.points, self.menu.feature[:, None]
        found = (self.people.effort_scale, self.people.tail, self.people.cells)
        scale, tail, cell = (each(points).gather(1, own)[:, 0] for each in found)
        return scale, tail, cell


class BatchCosts:
    """Costs of rows for the queries of a batch; `query` says whose each row is."""

    def __init__(self, context: Context, question: Question, batch: QueryBatch) -> None:
        self.context, self.question, self.batch = context, question, batch
        self.queries, self.targets = batch.queries, batch.targets
        self.scale = torch.ones(len(batch), device=self.queries.device)
        self.safe = 0.0
        if self.believable:
            self.scale = self.scale * (math.sqrt(self._prices.refused) / context.unit)
            self.safe = self._prices.safe * context.unit

    @property
    def believable(self) -> bool:
        return self.context.prices is not None

    # --- The queries themselves ---

    @cached_property
    def cells(self) -> Tensor:
        """The cell of each feature of the queries, (queries, features)."""
        return self._people.cells(self.queries)

    @cached_property
    def own_margin(self) -> Tensor:
        return self.question.margin_of(self.own_log_proba, self.targets)

    @cached_property
    def own_log_proba(self) -> Tensor:
        """What the model says of the queries themselves, (queries, classes)."""
        before = self.batch.before
        return self.question.log_proba(self.queries) if before is None else before.to(self.queries)

    @cached_property
    def _own(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of the queries' features the value, how far up it is in the unit of effort, how far out,
        and whether it is a number that is there, (queries, features) each."""
        people, queries = self._people, self.queries
        there = people.is_number & people.known(queries)
        values = queries[:, people.first_column]
        return values, people.effort_scale(queries), people.tail(queries), there

    @cached_property
    def _feature_costs(self) -> Tensor | None:
        costs = self.batch.costs
        return None if costs is None else costs[:, self._people.first_column]

    @cached_property
    def own_implausibility(self) -> Tensor:
        if not self.believable:
            return torch.zeros(len(self.queries), device=self.queries.device)
        return self._prices.implausible * (self._floor - self._own_density)

    @cached_property
    def _own_density(self) -> Tensor:
        return self._people.log_density(self.cells, self.targets)

    @cached_property
    def _floor(self) -> Tensor:
        """The log-density below which an answer is implausible, (queries,).

        That is the query's own, or the floor of the target class where that is higher.
        """
        return torch.maximum(
            self._own_density, self._people.floor(self._prices.floor)[self.targets]
        )

    @property
    def _people(self) -> People:
        assert self.context.people is not None, "believable costs need a population"
        return self.context.people

    @property
    def _prices(self) -> Prices:
        assert self.context.prices is not None, "the nearest answers have no other cost"
        return self.context.prices

    # --- Single actions, by tables ---

    def of_actions(self, actions: Actions) -> tuple[Tensor, Tensor]:
        """The effort of every action alone, and by how much it changes the implausibility.

        (queries, entries) both, for actions that move one feature each.
        """
        menu, queries, costs = self.context.menu, self.queries, self.batch.costs
        if not self.believable:
            weight = torch.ones_like(queries) if costs is None else costs
            weighted, size = queries * weight, torch.where(menu.is_number, actions.value, 1.0)
            effort = (queries * weighted) @ menu.mask.float().T
            effort += size * (size * (weight @ menu.unit.square().T) - 2 * weighted @ menu.unit.T)
            return effort.clamp_(min=0), torch.zeros_like(effort)
        people, (*_, cell) = self._people, self.context.of_entries
        own = self.cells[:, menu.feature]
        goals = self.targets[:, None]
        less = people.alone[goals, own] - people.alone[goals, cell]
        if people.beside is not None:
            field = people.field(self.cells, self.targets)
            less += field.gather(1, own) - field[:, cell]
        return self.entry_effort, self._prices.implausible * less

    @cached_property
    def entry_effort(self) -> Tensor:
        """What every entry of the menu costs by itself, (queries, entries)."""
        menu, (scale, tail, _) = self.context.menu, self.context.of_entries
        value, *own = (each[:, menu.feature] for each in self._own)
        way = (menu.value - value).abs_()
        effort = self._effort(way, scale, tail, own, menu.feature)
        if self._feature_costs is not None:
            effort *= self._feature_costs[:, menu.feature]
        return effort + self._prices.change

    # --- Rows ---

    def terms(self, rows: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        """Effort and implausibility of rows (rows, width), (rows,) each.

        The implausibility is negative where a row is more likely than it has to be.
        """
        if not self.believable:
            square = (rows - self.queries[query]).square_()
            if self.batch.costs is not None:
                square *= self.batch.costs[query]
            effort = square.sum(dim=1)
            return effort, torch.zeros_like(effort)
        people = self._people
        cells = people.cells(rows)
        efforts, changed = self._efforts(rows, cells, query)
        if people.has_links:
            efforts = efforts * (1 - people.following(efforts, changed))
        effort = (efforts * changed).sum(dim=1)
        density = people.log_density(cells, self.targets[query])
        return effort, self._prices.implausible * (self._floor[query] - density)

    def least(self, rows: Tensor, query: Tensor) -> Tensor:
        """What rows cost whatever the model says of them, (rows,)."""
        effort, implausibility = self.terms(rows, query)
        return effort + implausibility.clamp(min=0)

    def _efforts(self, rows: Tensor, cells: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        """What each feature costs if it changed, and whether it did, (rows, features) both."""
        people = self._people
        value, *own = (each[query] for each in self._own)
        way = (rows[:, people.first_column] - value).abs_()
        changed = torch.where(own[-1], way > SAME, cells != self.cells[query])
        if people.has_derived:
            changed &= ~people.derived
        effort = self._effort(way, people.effort_scale(rows), people.tail(rows), own)
        if self._feature_costs is not None:
            effort *= self._feature_costs[query]
        return effort + self._prices.change, changed

    def _effort(
        self, way: Tensor, scale: Tensor, tail: Tensor, own: Sequence[Tensor], at: Any = ...
    ) -> Tensor:
        """What features cost that go a `way`, which is overwritten, to such a scale and tail.

        `own`: scale and tail of the query, and whether it has a number there; `at`: the features.
        """
        people, prices, (own_scale, own_tail, there) = self._people, self._prices, own
        other = torch.where(people.is_number, prices.unknown, prices.category)
        moved = (scale - own_scale).abs_()
        moved += way.div_(people.spread[at]).log1p_().mul_(prices.size / math.log(2))
        moved += (tail - own_tail).clamp_(min=0).mul_(prices.tail)
        return torch.where(there, moved, other[at])

    def shortfall(self, margin: Tensor, query: Tensor) -> Tensor:
        """How far a margin is below a safe one, in the root of the unit of J; negative above."""
        return (self.safe - margin) * self.scale[query]

    def instability(self, cells: Tensor, query: Tensor) -> Tensor:
        """What rows cost for the doubts of the committee, by their cells (rows, features)."""
        committee, prices = self.context.committee, self._prices
        assert committee is not None
        members = committee.margins(cells, self.targets[query]) / self.context.committee_unit
        return prices.unstable * (prices.sure - members).clamp(min=0).mean(dim=1)

    def margin(self, rows: Tensor, query: Tensor) -> Tensor:
        """How far the model is beyond what is asked of rows, (rows,): accepted from 0 on."""
        return self.question.margin(rows, self.targets[query])

    def of_accepted(self, rows: Tensor, query: Tensor, least: Tensor, margin: Tensor) -> Tensor:
        """J of rows that cost at least so much; infinite where the model refuses, (rows,)."""
        if not self.believable:
            return torch.where(margin >= 0, least, torch.inf)
        cost = torch.full_like(margin, torch.inf)
        fine = (margin >= 0).nonzero()[:, 0]
        if len(fine):
            whose = query[fine]
            short = self.shortfall(margin[fine], whose).clamp_(min=0).square_()
            doubt = self.instability(self._people.cells(rows[fine]), whose)
            cost[fine] = least[fine] + short + doubt
        return cost

    def cost(self, rows: Tensor, query: Tensor) -> Tensor:
        """J of rows (rows, width), by asking the model about each; infinite where it refuses."""
        return self.of_accepted(rows, query, self.least(rows, query), self.margin(rows, query))
