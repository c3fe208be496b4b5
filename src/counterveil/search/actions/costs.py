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
from dataclasses import dataclass
from functools import cached_property

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
    def entry_scale(self) -> Tensor:
        """How far up the value of each entry is in the unit of effort, (entries,)."""
        assert self.people is not None
        scales = self.people.effort_scale(self.menu.points)
        return scales.gather(1, self.menu.feature[:, None])[:, 0]

    @cached_property
    def entry_tail(self) -> Tensor:
        """How far out the value of each entry is, (entries,)."""
        assert self.people is not None
        return self.people.tail(self.menu.points).gather(1, self.menu.feature[:, None])[:, 0]

    @cached_property
    def entry_cell(self) -> Tensor:
        """The cell of each entry in the line of all cells, (entries,)."""
        assert self.people is not None
        return self.people.cells(self.menu.points).gather(1, self.menu.feature[:, None])[:, 0]


class BatchCosts:
    """Costs of rows for the queries of a batch; `query` says whose each row is."""

    def __init__(self, context: Context, question: Question, batch: QueryBatch) -> None:
        self.context, self.question, self.batch = context, question, batch
        self.queries, self.targets = batch.queries, batch.targets
        self.scale = torch.ones(len(batch), device=self.queries.device)
        self.safe = 0.0
        if context.prices is not None:
            prices = context.prices
            self.scale = self.scale * (math.sqrt(prices.refused) / context.unit)
            self.safe = prices.safe * context.unit

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
        """The margin of the queries themselves, (queries,)."""
        return self.question.margin_of(self.own_log_proba, self.targets)

    @cached_property
    def own_log_proba(self) -> Tensor:
        """What the model says of the queries themselves, (queries, classes)."""
        before = self.batch.before
        return self.question.log_proba(self.queries) if before is None else before.to(self.queries)

    @cached_property
    def _effort_scale(self) -> Tensor:
        return self._people.effort_scale(self.queries)

    @cached_property
    def _own_tail(self) -> Tensor:
        return self._people.tail(self.queries)

    @cached_property
    def _own_values(self) -> Tensor:
        return self.queries[:, self._people.first_column]

    @cached_property
    def _counted(self) -> Tensor:
        """Which features are numbers that the queries have, (queries, features)."""
        return self._people.is_number & self._people.known(self.queries)

    @cached_property
    def _other_effort(self) -> Tensor:
        """What a change costs that is not from one number to another, (features,)."""
        assert self.context.prices is not None
        prices = self.context.prices
        return torch.where(self._people.is_number, prices.unknown, prices.category)

    @cached_property
    def _feature_costs(self) -> Tensor | None:
        costs = self.batch.costs
        return None if costs is None else costs[:, self._people.first_column]

    @cached_property
    def own_implausibility(self) -> Tensor:
        """Of the queries themselves, (queries,)."""
        if self.context.prices is None:
            return torch.zeros(len(self.queries), device=self.queries.device)
        return self.context.prices.implausible * (self._floor - self._own_density)

    @cached_property
    def _own_density(self) -> Tensor:
        return self._people.log_density(self.cells, self.targets)

    @cached_property
    def _floor(self) -> Tensor:
        """The log-density below which an answer is implausible, (queries,).

        That is the query's own, or the floor of the target class where that is higher.
        """
        assert self.context.prices is not None
        return torch.maximum(
            self._own_density, self._people.floor(self.context.prices.floor)[self.targets]
        )

    @property
    def _people(self) -> People:
        assert self.context.people is not None, "believable costs need a population"
        return self.context.people

    # --- Single actions, by tables ---

    def of_actions(self, actions: Actions) -> tuple[Tensor, Tensor]:
        """The effort of every action alone, and by how much it changes the implausibility.

        (queries, entries) both, for actions that move one feature each.
        """
        menu, queries, costs = self.context.menu, self.queries, self.batch.costs
        if self.context.prices is None:
            weight = torch.ones_like(queries) if costs is None else costs
            weighted, size = queries * weight, torch.where(menu.is_number, actions.value, 1.0)
            effort = (queries * weighted) @ menu.mask.float().T
            effort += size * (size * (weight @ menu.unit.square().T) - 2 * weighted @ menu.unit.T)
            return effort.clamp_(min=0), torch.zeros_like(effort)
        people, prices, context = self._people, self.context.prices, self.context
        own = self.cells[:, menu.feature]
        goals = self.targets[:, None]
        less = people.alone[goals, own] - people.alone[goals, context.entry_cell]
        if people.beside is not None:
            field = self.field
            less += field.gather(1, own) - field[:, context.entry_cell]
        return self.entry_effort, prices.implausible * less

    @cached_property
    def entry_effort(self) -> Tensor:
        """What every entry of the menu costs by itself, (queries, entries)."""
        people, prices, menu = self._people, self.context.prices, self.context.menu
        assert prices is not None
        way = (menu.value - self.queries[:, menu.column]).abs_()
        moved = (self.context.entry_scale - self._effort_scale[:, menu.feature]).abs_()
        moved += self._size(way, people.spread[menu.feature])
        farther = self.context.entry_tail - self._own_tail[:, menu.feature]
        moved += farther.clamp_(min=0).mul_(prices.tail)
        effort = torch.where(
            self._counted[:, menu.feature], moved, self._other_effort[menu.feature]
        )
        if self._feature_costs is not None:
            effort *= self._feature_costs[:, menu.feature]
        return effort + prices.change

    @cached_property
    def field(self) -> Tensor:
        """What each cell adds beside the cells of the queries, (queries, cells)."""
        return self._people.field(self.cells, self.targets)

    # --- Rows ---

    def terms(self, rows: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        """Effort and implausibility of rows (rows, width), (rows,) each.

        The implausibility is negative where a row is more likely than it has to be.
        """
        if self.context.prices is None:
            square = (rows - self.queries[query]).square_()
            if self.batch.costs is not None:
                square *= self.batch.costs[query]
            effort = square.sum(dim=1)
            return effort, torch.zeros_like(effort)
        people, prices = self._people, self.context.prices
        cells = people.cells(rows)
        efforts, changed = self._efforts(rows, cells, query)
        if people.has_links:
            efforts = efforts * (1 - people.following(efforts, changed))
        effort = (efforts * changed).sum(dim=1)
        density = people.log_density(cells, self.targets[query])
        implausibility = prices.implausible * (self._floor[query] - density)
        return effort, implausibility

    def _efforts(self, rows: Tensor, cells: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        """What each feature costs if it changed, and whether it did, (rows, features) both."""
        people, prices = self._people, self.context.prices
        assert prices is not None
        way = (rows[:, people.first_column] - self._own_values[query]).abs_()
        counted = self._counted[query]
        changed = torch.where(counted, way > SAME, cells != self.cells[query])
        if people.has_derived:
            changed &= ~people.derived
        moved = (people.effort_scale(rows) - self._effort_scale[query]).abs_()
        moved += self._size(way, people.spread)
        moved += (people.tail(rows) - self._own_tail[query]).clamp_(min=0).mul_(prices.tail)
        effort = torch.where(counted, moved, self._other_effort)
        if self._feature_costs is not None:
            effort *= self._feature_costs[query]
        return effort + prices.change, changed

    def _size(self, way: Tensor, spread: Tensor) -> Tensor:
        """What the ways of numbers cost for their size; `way` is overwritten."""
        assert self.context.prices is not None
        return way.div_(spread).log1p_().mul_(self.context.prices.size / math.log(2))

    def shortfall(self, margin: Tensor, query: Tensor) -> Tensor:
        """How far a margin is below a safe one, in the root of the unit of J; negative above."""
        return (self.safe - margin) * self.scale[query]

    def instability(self, cells: Tensor, query: Tensor) -> Tensor:
        """What rows cost for the doubts of the committee, by their cells (rows, features)."""
        committee, prices = self.context.committee, self.context.prices
        assert committee is not None
        assert prices is not None
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
        effort, implausibility = self.terms(rows, query)
        least = effort + implausibility.clamp(min=0)
        return self.of_accepted(rows, query, least, self.margin(rows, query))
