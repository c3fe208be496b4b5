"""From encoded queries to answers: the search over actions for mixed tables.

actions        what each query may do                         `actions.py`
beam           sets of actions that the model accepts         `beam.py`
last attempt   where there are none: coordinate ascent        `last_attempt.py`
shrink         numbers move back towards the query            `shrink.py`
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from counterveil.encoding import Array
from counterveil.models import TargetModel
from counterveil.population import MixedPopulation
from counterveil.search.actions.actions import Actions
from counterveil.search.actions.beam import BeamSearch
from counterveil.search.actions.committee import committee_of_model, committee_of_people
from counterveil.search.actions.costs import UNASKED, BatchCosts, Context, Prices
from counterveil.search.actions.follow import follow
from counterveil.search.actions.last_attempt import LastAttempt
from counterveil.search.actions.menu import menu_of
from counterveil.search.actions.people import People
from counterveil.search.actions.seen import Seen
from counterveil.search.actions.shrink import Shrink
from counterveil.search.asking import Question, class_margin
from counterveil.search.batch import Answers, QueryBatch, cheapest
from counterveil.search.constraints.bounds import SAME
from counterveil.search.constraints.projection import Snap
from counterveil.search.results.refusals import Opening
from counterveil.terminal import Tick, silent

PEOPLE = 2000  # of P~ that units are measured by
LEAST_UNIT = 1e-3  # log-odds
MOST_UNIT = 2.0  # log-odds, where P~ is mostly noise: models are surer of rows like nobody
AT_A_TIME, MOST = 512, 1 << 19  # queries on the processor, and on a GPU with much memory
MEMORY = 192 << 10  # bytes of a GPU for each query
SHRUNK = 3  # rows of a query that are made as near as can be, for the nearest answers
CANDIDATES = 128  # rows of a query among which several answers are chosen


def believable_context(
    population: MixedPopulation, model: TargetModel, device: torch.device, *, stands_in: bool
) -> Context:
    """What searches for believable answers need; `stands_in`: the model does so for another."""
    people, encoding = People(population, device), model.encoding
    committee = committee_of_people(people) if stands_in else committee_of_model(people, model)
    prices = UNASKED if stands_in else Prices()
    drawn, _ = population.sample(PEOPLE, np.random.default_rng(0))
    points = torch.as_tensor(drawn, dtype=torch.float32, device=device)
    log_proba, cells = Question(model).log_proba(points), people.cells(points)
    own, theirs = [], []
    for goal in range(people.classes):
        goals = torch.full((PEOPLE,), goal, device=device)
        own.append(class_margin(log_proba, goals).std())
        theirs.append(committee.margins(cells, goals).std(dim=0).mean())
    units = [max(float(torch.stack(each).mean()), LEAST_UNIT) for each in (own, theirs)]
    if not (people.veil_knows or stands_in):
        prices, units[0] = replace(prices, implausible=0.0, unstable=0.0), min(units[0], MOST_UNIT)
    menu = menu_of(encoding, population, device, kinks=model.kinks)
    return Context(encoding, menu, prices, people, committee, *units)


def answers(
    context: Context,
    question: Question,
    batch: QueryBatch,
    projection: Snap,
    k: int,
    tick: Tick = silent,
) -> Answers:
    """`k` answers to each query of a batch, the cheapest first.

    All tensors are on the device of the context. Queries are taken in parts that fit into memory,
    and those whose rules couple features apart from the others; nothing is sought where no row
    keeps the rules. `tick` counts queries.
    """
    found, done = Answers.nothing(batch.queries, k), 0
    size = _at_a_time(batch.queries.device)
    ties = batch.box.ties
    for kind in [torch.arange(len(batch))] if ties is None else ties.parts():
        for part in kind.to(batch.queries.device).split(size):
            with torch.inference_mode():  # what is put into `found` may be changed afterwards
                some = batch if len(part) == len(batch) else batch.select(part)
                found.put(part, _PartSearch(context, question, some, projection, k)())
            done += len(part)
            tick(done, "people")
    return found


@dataclass
class _PartSearch:
    """The search for answers to queries that fit into memory together."""

    context: Context
    question: Question
    batch: QueryBatch
    projection: Snap
    k: int

    def __call__(self) -> Answers:
        """Beam, a last attempt where that found nothing, and numbers pulled back."""
        context, batch, count = self.context, self.batch, len(self.batch)
        costs = BatchCosts(context, self.question, batch)
        actions = Actions.of(context.menu, batch, self.projection, offered=costs.believable)
        seen = BeamSearch(costs, actions, several=self.k > 1)()
        best = seen.answered.nonzero()[:, 0]
        follow(costs, actions, seen, seen.rows[best], best)
        shrink = Shrink(costs, actions, seen)
        proved = torch.zeros(count, dtype=torch.bool, device=batch.queries.device)
        opens: list[Opening | None] = [None] * count
        left = (~seen.answered).nonzero()[:, 0]
        if len(left):
            every = Actions.of(context.menu, batch, self.projection, offered=False)
            last = LastAttempt(costs, every, seen)
            proved[left] = last(left)
            late = left[seen.answered[left]]
            if len(late):
                cheaper = shrink.give_back(seen.rows[late], late, seen.cost[late])
                seen.rows[late], seen.cost[late] = cheaper
            left = left[~seen.answered[left]]
            for number, opening in self._opens(last, left).items():
                opens[number] = opening
        rows, query, place, cost = self._chosen(seen, actions)
        found = batch.queries[:, None].repeat(1, self.k, 1)
        accepted = torch.zeros(count, self.k, dtype=torch.bool, device=found.device)
        if len(query):
            if self._candidates > self.k:
                rows, cost = shrink.exchange(rows, query, cost)
            rows, cost = shrink(rows, query, cost)
            place = _ranks(query, cost) if self.k < self._candidates else place
            kept = place < self.k
            found[query[kept], place[kept]] = rows[kept]
            accepted[query[kept], place[kept]] = True
        return Answers(found, accepted, seen.asked, proved, seen.surest, opens)

    @property
    def _candidates(self) -> int:
        """How many rows of each query are shrunk: the nearest one may be the second at first."""
        return self.k if self.context.prices is not None else max(self.k, SHRUNK)

    def _chosen(self, seen: Seen, actions: Actions) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The cheapest rows of each query, none of which changes all that another does.

        Rows (rows, width), whose they are, which answer they are, and what they cost.
        """
        if self._candidates == 1:
            query = seen.answered.nonzero()[:, 0]
            return seen.rows[query], query, torch.zeros_like(query), seen.cost[query]
        if not seen.accepted:
            nothing = seen.asked[:0]
            return seen.rows[:0], nothing, nothing, seen.cost[:0]
        query, rows, cost = (torch.cat(each) for each in zip(*seen.accepted, strict=True))
        rank = _ranks(query, cost)
        query, rows, cost, rank = (part[rank < CANDIDATES] for part in (query, rows, cost, rank))
        changed = actions.changed(rows, query)
        number = query.new_full((len(self.batch), CANDIDATES), -1)
        number[query, rank] = torch.arange(len(query), device=query.device)
        dense, ways = torch.where(number >= 0, cost[number], torch.inf), changed[number]
        everyone = torch.arange(len(dense), device=query.device)

        def alike(place: Tensor) -> Tensor:
            mine = ways[everyone, place][:, None]
            both = (ways & mine).sum(dim=2)
            return (both == mine.sum(dim=2)) | (both == ways.sum(dim=2))

        places, there = cheapest(dense, self._candidates, alike)
        turn, whose = there.T.nonzero(as_tuple=True)
        at = number[whose, places[whose, turn]]
        return rows[at], query[at], turn, cost[at]

    def _opens(self, last: LastAttempt, left: Tensor) -> dict[int, Opening]:
        """The one rule whose lifting opens a way, for those of the queries `left` that have one."""
        found: dict[int, Opening] = {}
        if not len(left):
            return found
        menu, box, most = self.context.menu, self.batch.box.select(left), self.batch.max_changes
        names = [feature.name for feature in self.context.encoding.schema.features]
        rows, entry = last.closed_ways(left)
        held = box.upper - box.lower <= SAME
        for place in (entry >= 0).nonzero()[:, 0].tolist():
            by = int(entry[place])
            rule = "immutable" if bool(held[place][menu.mask[by]].all()) else "allowed"
            sure = self._sure(rows[place], left[place])
            found[int(left[place])] = Opening(rule, names[int(menu.feature[by])], *sure)
        if most is not None:
            rows, opened = self._with_more_changes(last, left)
            for place in opened.nonzero()[:, 0].tolist():
                sure, limit = self._sure(rows[place], left[place]), int(most[left[place]])
                found.setdefault(int(left[place]), Opening("max_changes", None, *sure, limit))
        return found

    def _with_more_changes(self, last: LastAttempt, left: Tensor) -> tuple[Tensor, Tensor]:
        """Accepted rows that change more features than may, (left, width), and where there are.

        Few changes first: by the beam, and by the last attempt where that finds nothing.
        """
        free = replace(self.batch, max_changes=None).select(left)
        costs = BatchCosts(self.context, self.question, free)
        offered = Actions.of(self.context.menu, free, self.projection, offered=costs.believable)
        seen = BeamSearch(costs, offered, several=False)()
        rows, opened = seen.rows, seen.answered
        last.seen.asked[left] += seen.asked - 1
        rest = (~opened).nonzero()[:, 0]
        if len(rest):
            rows[rest], opened[rest] = last.with_more_changes(left[rest])
            late = rest[opened[rest]]
            if len(late):
                cost = costs.cost(rows[late], late)
                rows[late], _ = Shrink(costs, offered, seen).give_back(rows[late], late, cost)
        return rows, opened

    def _sure(self, row: Tensor, query: Tensor) -> tuple[float, Array]:
        """How sure the model is of the target class for a row, (width,), and the row."""
        chances = self.question.log_proba(row[None])[0].exp()
        return float(chances[self.batch.targets[query]]), row.cpu().numpy()


def _at_a_time(device: torch.device) -> int:
    if device.type != "cuda":
        return AT_A_TIME
    memory = torch.cuda.get_device_properties(device).total_memory
    return min(MOST, max(AT_A_TIME, memory // MEMORY))


def _ranks(query: Tensor, cost: Tensor) -> Tensor:
    """The rank of each row among those of its query, the cheapest first, (rows,)."""
    order = cost.argsort(stable=True)
    order = order[query[order].argsort(stable=True)]
    each = torch.bincount(query)
    begin = (each.cumsum(0) - each)[query[order]]
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device) - begin
    return rank
