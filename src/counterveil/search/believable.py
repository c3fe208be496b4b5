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

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from counterveil.models import TargetModel
from counterveil.search.beam import Beam, different_ways, merged
from counterveil.search.closer import closer
from counterveil.search.constraints import SAME
from counterveil.search.cost import Asked
from counterveil.search.ground import Ground
from counterveil.search.pipeline import Found, QueryBatch, SearchOptions
from counterveil.search.repair import ask_points, margin_of

LEVELS, MOST_LEVELS = 4, 6  # changes that are always tried; and where there is no answer yet
AT_A_TIME = 512  # queries
HELPS = 0.02  # units of f that a change must gain by itself


@dataclass(frozen=True)
class BelievableSearch(Asked):
    """The search for a batch of queries."""

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
            found = merged(found, active, beam)
        chosen, ok = different_ways(found, k)
        return closer(self, chosen, ok), ok

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
        gained = self.margin(self.legal(rows, query), self.targets[query])
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

    def _extended(self, beam: Beam, active: Tensor, effort: Tensor, gain: Tensor) -> Beam:
        """The most promising rows of one change more, with f's and the committee's own words."""
        targets, feature = self.targets[active], self.menu.feature
        density = self._after_each_entry(beam, targets)  # (queries, beam, entries)
        efforts = beam.effort[:, :, None] + effort[:, None, :]
        margin = beam.margin[:, :, None] + gain[:, None, :]
        guess = self.cost(efforts, density, margin, self.floor[active, None, None])
        guess.masked_fill_(beam.changed[:, :, feature], torch.inf)
        place = self._cheapest(guess.flatten(1))
        state, entry = place // len(feature), place % len(feature)
        before, keep = beam.at(state), place.shape[1]
        everyone = torch.arange(len(active))[:, None]
        rows = torch.where(self.menu.mask[entry], self.menu.points[entry], before.rows)
        rows = self.legal(rows.flatten(0, 1), active.repeat_interleave(keep)).view_as(rows)
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
        return self.judged(after, active, torch.isfinite(guess[there]))

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


def believable_answers(
    ground: Ground, model: TargetModel, batch: QueryBatch, options: SearchOptions, k: int
) -> Found:
    """Rows of shape (queries, k, width), the cheapest first, and which of them are accepted.

    `model` decides about every row of the beam, wherever it computes; the search itself and
    all tensors given and returned are on the CPU. Queries are taken in parts that fit into memory.
    """

    def margin(rows: Tensor, targets: Tensor) -> Tensor:
        return margin_of(ask_points(model, rows), options.margin, targets)

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
