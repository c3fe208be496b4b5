"""Believable answers: little effort, like people of the target class, true of other models too.

A row x that f accepts costs, in units of percentiles,

    J(x) = effort(x) + change·changes(x) + implausible·shortfall(x) + unstable·doubt(x)

- effort: Σ over changed features of |F~(x) − F~(query)|, F~ the percentile among the people of P~;
  a changed category or binary value counts `Prices.category`, and so does a number that was
  missing; all times the user's costs;
- shortfall: how far log P~(x | target) lies below the query's own, or below the floor that a share
  of P~'s rows of the target class stay below if that is higher, in nats;
- doubt: how far a committee of models learnt from P~ is from being sure of the target class, in
  log-odds, mean over its members; and how far f itself is.

The search is a beam over the menu. From the query every single move is tried, and f is asked about
each. The best few are extended by a further move, and so on. Which extension is promising is
guessed: the log-odds of f and of the committee as if moves added up, the density exactly, by
tables. Then f and the committee are asked about the rows of the beam themselves. In the end numbers
move closer to the query where that costs less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Self

import numpy as np
import torch
from torch import Tensor

from counterveil.models import Rows, TargetModel
from counterveil.population import TreePopulation
from counterveil.search.beliefs import Beliefs
from counterveil.search.committee import Committee, committee_of_model, committee_of_people
from counterveil.search.constraints import SAME, Box
from counterveil.search.menu import Menu, menu_of
from counterveil.search.pipeline import Found, QueryBatch, SearchOptions
from counterveil.search.repair import logit_margin, margin_beyond
from counterveil.search.snap import Snap

LEVELS, MOST_LEVELS = 4, 6  # changes that are always tried; and where there is no answer yet
AT_A_TIME = 512  # queries
PEOPLE = 2000  # of P~ that units are measured by
LEAST_UNIT = 1e-3  # log-odds
HELPS = 0.02  # units of f that a change must gain by itself
CLOSER = 7  # values of a number on the way back to the query that are tried

Margin = Callable[[Tensor, Tensor], Tensor]  # (rows, targets) -> log-odds beyond acceptance


@dataclass(frozen=True)
class Prices:
    """What an answer costs besides its effort in percentiles.

    A unit of a model is the standard deviation of its log-odds among the people of P~: what is sure
    for a cautious model is nothing for another.
    """

    change: float = 0.2  # one more changed feature
    category: float = 0.45  # effort of a changed category
    implausible: float = 0.5  # a nat below the floor
    floor: float = 0.45  # the share of P~'s own rows of the target class below it
    unstable: float = 0.5  # a unit of doubt of the committee
    sure: float = 0.4  # units from which a member of the committee has no doubt
    refused: float = 7.0  # the square of the units that f is short of `safe`
    safe: float = 0.6  # units of f beyond its boundary
    beam: int = 24  # rows that are kept of each query


UNASKED = Prices(unstable=1.0, sure=2.0, refused=3.0, safe=2.0)  # where f~ stands in for f


@dataclass(frozen=True)
class Beam:
    """Rows of each query with what is known of them; all have the shape (queries, beam, …)."""

    rows: Tensor
    codes: Tensor  # the cell of each feature
    changed: Tensor  # which features differ from the query
    effort: Tensor  # with the price of the changes
    density: Tensor  # log P~(row | target)
    margin: Tensor  # of f
    cost: Tensor  # J; infinite where there is no row

    def select(self, part: Tensor) -> Self:
        """The beams of some of the queries."""
        return type(self)(*(getattr(self, each.name)[part] for each in fields(self)))

    def joined(self, other: Self) -> Self:
        """The rows of two beams of the same queries side by side."""
        names = [each.name for each in fields(self)]
        pairs = [(getattr(self, name), getattr(other, name)) for name in names]
        return type(self)(*(torch.cat(pair, dim=1) for pair in pairs))

    def at(self, place: Tensor) -> Self:
        """For each query the rows at these places, (queries, any number)."""
        everyone = torch.arange(len(place))[:, None]
        return type(self)(*(getattr(self, each.name)[everyone, place] for each in fields(self)))


@dataclass(frozen=True)
class Ground:
    """What all searches of one veil share."""

    beliefs: Beliefs
    menu: Menu
    committee: Committee
    snap: Snap
    prices: Prices
    unit: float  # of the model that decides about rows, in log-odds
    committee_unit: float

    @cached_property
    def heights(self) -> Tensor:
        """How far up each entry of the menu is, (entries,); 0 for what is no number."""
        every = self.beliefs.heights(self.menu.points)
        return every.gather(1, self.menu.feature[:, None])[:, 0]

    @classmethod
    def of(
        cls, population: TreePopulation, snap: Snap, model: TargetModel, *, stands_in: bool
    ) -> Ground:
        """The ground of a population for a model that is asked; or that stands in for another."""
        beliefs, menu = Beliefs(population), menu_of(population)
        committee = committee_of_people(beliefs)
        if not stands_in:
            committee = committee_of_model(beliefs, model)
        prices = UNASKED if stands_in else Prices()
        people, _ = population.sample(PEOPLE, np.random.default_rng(0))
        points = torch.as_tensor(people, dtype=torch.float32)
        goals = [torch.full((PEOPLE,), goal) for goal in range(beliefs.classes)]
        log_proba = model.ask(Rows.of_points(points, model.encoding))
        own = torch.stack([logit_margin(log_proba, goal) for goal in goals])
        codes = beliefs.codes(points)
        theirs = torch.stack([committee.margins(codes, goal) for goal in goals])
        units = [max(float(each.std(dim=1).mean()), LEAST_UNIT) for each in (own, theirs)]
        return cls(beliefs, menu, committee, snap, prices, *units)


@dataclass(frozen=True)
class BelievableSearch:
    """The search for a batch of queries."""

    ground: Ground
    queries: Tensor  # (queries, width), legal and inside their boxes
    targets: Tensor
    box: Box
    margin: Margin
    costs: Tensor | None = None  # of a change in each column, (queries, width)
    max_changes: Tensor | None = None  # how many features may change, (queries,)

    @property
    def beliefs(self) -> Beliefs:
        return self.ground.beliefs

    @property
    def menu(self) -> Menu:
        return self.ground.menu

    @property
    def prices(self) -> Prices:
        return self.ground.prices

    @torch.no_grad()
    def __call__(self, k: int = 1) -> tuple[Tensor, Tensor]:
        """Rows of shape (queries, k, width), the cheapest first, and which of them f accepts.

        Two answers to a query never change the same features, nor one all that another does.
        """
        start = self._start()
        count = len(self.queries)
        if not len(self.menu):
            return start.rows.expand(-1, k, -1), torch.zeros(count, k, dtype=torch.bool)
        effort, gain = self._single_moves(start)
        found = start  # its cost is infinite: to stay is no answer
        active, beam = torch.arange(count), start
        for level in range(MOST_LEVELS):
            open_still = torch.ones(len(active), dtype=torch.bool)
            if self.max_changes is not None:
                open_still &= self.max_changes[active] > level
            best = found.cost.amin(dim=1)[active]
            if level >= LEVELS:
                open_still &= ~torch.isfinite(best)
            elif k == 1:  # no cost is below the effort: where that is more already, all is found
                least = beam.effort.amin(dim=1) + effort.amin(dim=1)[active]
                open_still &= best > least
            active, beam = active[open_still], beam.select(open_still)
            if not len(active):
                break
            beam = self._extended(beam, active, effort[active], gain[active])
            found = _merged(found, active, beam)
        chosen, ok = _different_ways(found, k)
        return self._closer(chosen, ok), ok

    def _start(self) -> Beam:
        codes = self.beliefs.codes(self.queries)
        count, features = codes.shape
        nothing = torch.zeros(count)
        parts = (
            self.queries,
            codes,
            torch.zeros(count, features, dtype=torch.bool),
            nothing,
            self.beliefs.log_density(codes, self.targets),
            self.margin(self.queries, self.targets),
            nothing + torch.inf,
        )
        return Beam(*(part[:, None] for part in parts))

    def _single_moves(self, start: Beam) -> tuple[Tensor, Tensor]:
        """Of every entry of the menu, taken alone: what it costs, and what f gains, in log-odds.

        Both (queries, entries); the cost is infinite where the entry is closed, changes nothing, or
        does not bring f towards the target class: no answer asks for what does not help.
        """
        is_open = self._open_entries()
        feature, columns = self.menu.feature, self.menu.mask.float().argmax(dim=1)
        own = self.ground.heights
        way = (own - self.beliefs.heights(self.queries)[:, feature]).abs()
        known = torch.stack(
            [self.beliefs.is_known(self.queries, each) for each in range(len(self.menu.places))],
            dim=1,
        )
        counted = self.beliefs.is_number[feature] & known[:, feature]
        effort = torch.where(counted, way, self.prices.category)
        if self.costs is not None:
            effort = effort * self.costs[:, columns]
        query, entry = is_open.nonzero(as_tuple=True)
        rows = torch.where(self.menu.mask[entry], self.menu.points[entry], self.queries[query])
        gain = torch.zeros(is_open.shape)
        gained = self.margin(self._legal(rows, query), self.targets[query])
        gain[query, entry] = gained - start.margin[query, 0]
        helps = is_open & (gain > HELPS * self.ground.unit)
        return torch.where(helps, effort + self.prices.change, torch.inf), gain

    def _open_entries(self) -> Tensor:
        """Which entries a query may take and does not have already: (queries, entries)."""
        is_open = torch.zeros(len(self.queries), len(self.menu), dtype=torch.bool)
        for place in self.menu.places:
            if place.stop > place.start:
                at = self.menu.mask[place.start].nonzero()[:, 0]
                own = self.menu.points[place][:, at]
                sides = (each[:, None, at] for each in (self.box.lower, self.box.upper))
                low, high = sides
                inside = ((own >= low - SAME) & (own <= high + SAME)).all(dim=2)
                other = ((own - self.queries[:, None, at]).abs() > SAME).any(dim=2)
                is_open[:, place] = inside & other
        return is_open

    def _legal(self, rows: Tensor, query: Tensor) -> Tensor:
        """`rows` with linked features together; entries are legal by themselves."""
        return rows if self.box.queries is None else self.ground.snap(rows, self.box.select(query))

    def _extended(self, beam: Beam, active: Tensor, effort: Tensor, gain: Tensor) -> Beam:
        """The most promising rows of one change more, with f's and the committee's own words."""
        targets, feature = self.targets[active], self.menu.feature
        density = self._after_each_entry(beam, targets)  # (queries, beam, entries)
        efforts = beam.effort[:, :, None] + effort[:, None, :]
        margin = beam.margin[:, :, None] + gain[:, None, :]
        guess = self._cost(efforts, density, margin, self._floor[active, None, None])
        guess.masked_fill_(beam.changed[:, :, feature], torch.inf)
        place = self._cheapest(guess.flatten(1))
        state, entry = place // len(feature), place % len(feature)
        before, keep = beam.at(state), place.shape[1]
        everyone = torch.arange(len(active))[:, None]
        rows = torch.where(self.menu.mask[entry], self.menu.points[entry], before.rows)
        rows = self._legal(rows.flatten(0, 1), active.repeat_interleave(keep)).view_as(rows)
        moved = feature[entry][:, :, None]
        there = everyone, state, entry
        after = replace(
            before,
            rows=rows,
            codes=before.codes.scatter(2, moved, self.menu.code[entry][:, :, None]),
            changed=before.changed.scatter(2, moved, True),
            effort=efforts[there],
            density=density[there],
        )
        return self._judged(after, active, torch.isfinite(guess[there]))

    def _judged(self, beam: Beam, query: Tensor, usable: Tensor) -> Beam:
        """The beam with the margin of f and the cost; infinite where f refuses, or not usable.

        `query`: whose row of the beam is whose, (rows of the beam,).
        """
        keep, targets = beam.rows.shape[1], self.targets[query]
        rows, goals = beam.rows.flatten(0, 1), targets.repeat_interleave(keep)
        margin = self.margin(rows, goals).unflatten(0, (-1, keep))
        codes = beam.codes.flatten(0, 1)
        if self.box.queries is not None:  # linked features moved along
            codes = self.beliefs.codes(rows)
        members = self.ground.committee.margins(codes, goals) / self.ground.committee_unit
        doubt = (self.prices.sure - members).clamp(min=0).mean(dim=1).unflatten(0, (-1, keep))
        cost = self._cost(beam.effort, beam.density, margin, self._floor[query, None])
        cost = cost + self.prices.unstable * doubt
        cost = torch.where(usable & (margin >= 0), cost, torch.inf)
        return replace(beam, margin=margin, cost=cost)

    @cached_property
    def _floor(self) -> Tensor:
        """The log-density below which an answer costs: the query's own, or P~'s if higher."""
        own = self.beliefs.log_density(self.beliefs.codes(self.queries), self.targets)
        return torch.maximum(own, self.beliefs.floor(self.prices.floor)[self.targets])

    def _cost(self, effort: Tensor, density: Tensor, margin: Tensor, floor: Tensor) -> Tensor:
        """J but for the doubt of the committee."""
        shortfall = (floor - density).clamp(min=0)
        unsafe = (self.prices.safe - margin / self.ground.unit).clamp(min=0).square()
        return effort + self.prices.implausible * shortfall + self.prices.refused * unsafe

    def _cheapest(self, guess: Tensor) -> Tensor:
        """The places of the cheapest of (queries, any number); the same moves only once.

        The same moves in another order have the same cost and lie side by side.
        """
        many = min(2 * self.prices.beam, guess.shape[1])
        cost, place = guess.topk(many, dim=1, largest=False)
        again = torch.zeros_like(cost, dtype=torch.bool)
        again[:, 1:] = (cost[:, 1:] - cost[:, :-1]).abs() < 1e-6 * (1 + cost[:, 1:].abs())
        order = torch.where(again, torch.inf, cost).argsort(dim=1, stable=True)
        return place.gather(1, order[:, : self.prices.beam])

    def _after_each_entry(self, beam: Beam, targets: Tensor) -> Tensor:
        """The log-density after each further entry, (queries, beam, entries)."""
        menu, beliefs, at = self.menu, self.beliefs, targets[:, None]
        shape = (*beam.codes.shape[:2], len(menu))
        density = beam.density[:, :, None].expand(shape).clone()
        for number, (alone, place) in enumerate(zip(beliefs.alone, menu.places, strict=True)):
            code, now = menu.code[place], beam.codes[:, :, number]
            density[:, :, place] += alone[targets][:, None, code] - alone[at, now][:, :, None]
        for one, two, pair in beliefs.pairs:
            first, second = beam.codes[:, :, one], beam.codes[:, :, two]
            now = pair[at, first, second][:, :, None]
            here, there = menu.places[one], menu.places[two]
            by_second = pair.transpose(1, 2)[:, :, menu.code[here]]
            density[:, :, here] += by_second[at, second] - now
            density[:, :, there] += pair[:, :, menu.code[there]][at, first] - now
        return density

    def _closer(self, beam: Beam, ok: Tensor) -> Tensor:
        """The rows with changed numbers as near to the query as is cheapest, one after another."""
        k = beam.rows.shape[1]
        for number, fine in enumerate(self.menu.fine):
            if fine is None:
                continue
            query, answer = (beam.changed[:, :, number] & ok).nonzero(as_tuple=True)
            if not len(query):
                continue
            rows, column = beam.rows[query, answer], self.beliefs.first_column[number]
            known = self.beliefs.is_known(self.queries[query], number)
            mine, now = self.queries[query, column], rows[:, column]
            tried = self._on_the_way(fine, mine, now, known)  # (rows, tries)
            low, high = self.box.lower[query, column, None], self.box.upper[query, column, None]
            usable = (tried >= low - SAME) & (tried <= high + SAME)
            usable &= ((tried - mine[:, None]).abs() > SAME) | ~known[:, None]
            better = self._with_values(beam, (query, answer), number, tried)
            judged = self._judged(better, query, usable)
            cost = torch.cat([beam.cost[query, answer][:, None], judged.cost], dim=1)
            place = cost.argmin(dim=1)
            take = place > 0
            one = judged.at((place - 1).clamp(min=0)[:, None])
            where = query[take], answer[take]
            for each in fields(beam):
                getattr(beam, each.name)[where] = getattr(one, each.name)[take, 0]
        return beam.rows.reshape(len(beam.rows), k, -1)

    def _on_the_way(self, fine: Tensor, mine: Tensor, now: Tensor, known: Tensor) -> Tensor:
        """Fine values between the query's and the answer's; around the answer's where unknown."""
        here = torch.searchsorted(fine, now.contiguous())
        start = torch.where(known, torch.searchsorted(fine, mine.contiguous()), here - CLOSER // 2)
        share = torch.arange(CLOSER) / CLOSER
        place = start[:, None] + ((here - start)[:, None] * share).round().long()
        place = torch.where(known[:, None], place, start[:, None] + torch.arange(CLOSER))
        return fine[place.clamp(0, len(fine) - 1)]

    def _with_values(
        self, beam: Beam, where: tuple[Tensor, Tensor], number: int, tried: Tensor
    ) -> Beam:
        """The rows at `where` with other values of a number: a beam of (rows, tries)."""
        query, tries = where[0], tried.shape[1]
        base = type(beam)(*(getattr(beam, each.name)[where][:, None] for each in fields(beam)))
        base = base.at(torch.zeros(len(query), tries, dtype=torch.long))
        column = self.beliefs.first_column[number]
        rows = base.rows.clone()
        before = rows[:, 0, column]
        rows[:, :, column] = tried
        flat, goals = rows.flatten(0, 1), self.targets[query].repeat_interleave(tries)
        codes = self.beliefs.codes(flat)
        density = self.beliefs.log_density(codes, goals).unflatten(0, (-1, tries))
        shares = self.beliefs.height(number, torch.stack([before, self.queries[query, column]]))
        ways = (self.beliefs.height(number, tried) - shares[1][:, None]).abs()
        known = self.beliefs.is_known(self.queries[query], number)[:, None]
        spared = torch.where(known, (shares[0] - shares[1]).abs()[:, None] - ways, 0.0)
        if self.costs is not None:
            spared = spared * self.costs[query, column, None]
        return replace(
            base,
            rows=rows,
            codes=codes.unflatten(0, (-1, tries)),
            density=density,
            effort=base.effort - spared,
        )


def believable_answers(
    ground: Ground, model: TargetModel, batch: QueryBatch, options: SearchOptions, k: int
) -> Found:
    """Rows of shape (queries, k, width), the cheapest first, and which of them are accepted.

    `model` decides about every row of the beam. Queries are taken in parts that fit into memory.
    """
    margin = partial(margin_beyond, model, options.margin)
    rows, accepted = [], []
    for start in range(0, len(batch), AT_A_TIME):
        part = batch.select(slice(start, start + AT_A_TIME))
        start_rows = ground.snap(part.queries, part.box)
        most = part.max_changes
        if most is not None:  # what the rules themselves move counts, too
            most = most - ground.snap.changed_features(start_rows, part.queries).sum(dim=1)
        search = BelievableSearch(
            ground, start_rows, part.targets, part.box, margin, part.costs, most
        )
        found = search(k)
        rows.append(found[0])
        accepted.append(found[1])
    return torch.cat(rows), torch.cat(accepted)


def _merged(found: Beam, active: Tensor, beam: Beam) -> Beam:
    """What was found so far with the rows of a beam for the queries `active`."""
    room = beam.rows.shape[1]
    empty = found.at(torch.zeros(len(found.rows), room, dtype=torch.long))
    empty.cost.fill_(torch.inf)
    for each in fields(beam):
        getattr(empty, each.name)[active] = getattr(beam, each.name)
    return found.joined(empty)


def _different_ways(found: Beam, k: int) -> tuple[Beam, Tensor]:
    """For each query the k cheapest rows, none of which changes all that a cheaper one does."""
    cost, places, ok = found.cost.clone(), [], []
    for _ in range(k):
        least, place = cost.min(dim=1)
        places.append(place)
        ok.append(torch.isfinite(least))
        mine = found.changed[torch.arange(len(place)), place][:, None]
        more = (found.changed & mine).sum(dim=2) == mine.sum(dim=2)
        fewer = (found.changed & mine).sum(dim=2) == found.changed.sum(dim=2)
        cost = torch.where(more | fewer, torch.inf, cost)
    return found.at(torch.stack(places, dim=1)), torch.stack(ok, dim=1)
