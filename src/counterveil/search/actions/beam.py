"""The search: sets of actions, extended one action at a time, the most promising ones first.

    1. Ask the model about every single action of every query.
    2. Keep the most promising rows: what they cost, as if the model's margin could still be had at
       its price.
    3. Extend them by one action more. Which extensions are promising is guessed as if the margins
       of actions added up; effort and density are exact.
    4. Ask the model about those rows that may still cost less than the best answer so far. Go on
       with 3, up to a few actions.

Actions are taken in the order of their promise, so that no set of actions comes twice. All queries
of a batch go through this together, as tensors on any device.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from counterveil.search.actions.actions import Actions
from counterveil.search.actions.costs import BatchCosts
from counterveil.search.actions.follow import follow
from counterveil.search.actions.seen import Seen

BEAM = 12  # rows that are kept of each query
PROMISING = (32, 64)  # single actions of a query that are combined: two a feature, so many
LEVELS, MOST_LEVELS = 4, 6  # actions that are always tried; and where there is no answer yet
FOLLOWED = 3  # single actions of a query that other features follow
HELPS = 0.02  # units of the model that an action must gain by itself
LEAST_GAIN = 1e-6  # log-odds, for the nearest answers
PRICE = 8.0  # times what a shortfall would cost if numbers had no bounds, for the nearest answers


Known = TypeVar("Known", "Singles", "Beam")


class Singles(NamedTuple):
    """The most promising single actions of each query, the best first, (queries, actions) each.

    `effort`: infinite where there is no action. `implausibility`, `gain`: by how much an action
    changes them. `pairs`: what the second of two actions adds to the implausibility beside the
    first, (queries, actions, actions); infinite where it may not follow the first. `rows`: where an
    action leads, (queries, actions, width); None where rules do not couple features.
    """

    entry: Tensor
    feature: Tensor
    effort: Tensor
    implausibility: Tensor
    gain: Tensor
    pairs: Tensor
    rows: Tensor | None = None


class Beam(NamedTuple):
    """Rows of each query, (queries, beam, …). The effort is infinite where there is no row.

    `pairs`: what each action would add to the implausibility beside those taken, (…, actions);
    infinite where it may not follow. `moved`: features that the search has moved, (…, features);
    None where rules do not couple features.
    """

    rows: Tensor
    effort: Tensor
    implausibility: Tensor
    margin: Tensor
    pairs: Tensor
    moved: Tensor | None = None


def _some(known: Known, part: Tensor) -> Known:
    """What is known of some of the queries."""
    found = (None if each is None else each[part] for each in known)
    return type(known)(*found)  # type: ignore[arg-type]


class BeamSearch:
    """The search for answers to the queries of one batch. `seen` holds what it found."""

    def __init__(self, costs: BatchCosts, actions: Actions, *, several: bool = False) -> None:
        self.costs, self.actions, self.several = costs, actions, several
        self.people = costs.context.people if costs.believable else None
        self.queries, self.count = costs.queries, len(costs.queries)
        self.everyone = torch.arange(self.count, device=self.queries.device)
        self.own_margin = costs.own_margin
        self.seen = Seen.nothing(self.queries, self.own_margin, several or not costs.believable)

    def __call__(self) -> Seen:
        """Search; the numbers of answers are not yet pulled back."""
        found = self._single_actions()
        if found is None:
            return self.seen
        (singles, beam), active = found, self.everyone
        self._follow(beam)
        for level in range(1, MOST_LEVELS):
            going = self._goes_on(level, active, beam, singles).nonzero()[:, 0]
            if not len(going):
                break
            if len(going) < len(active):
                active, beam, singles = active[going], _some(beam, going), _some(singles, going)
            beam = self._extended(beam, active, singles)
        left = (~self.seen.answered[active]).nonzero()[:, 0]
        if len(left):
            margin, place = beam.margin[left].max(dim=1)
            self.seen.look(beam.rows[left, place], active[left], margin)
        return self.seen

    def _follow(self, beam: Beam) -> None:
        query, place = beam.effort[:, :FOLLOWED].isfinite().nonzero(as_tuple=True)
        follow(self.costs, self.actions, self.seen, beam.rows[query, place], query)

    def _goes_on(self, level: int, active: Tensor, beam: Beam, singles: Singles) -> Tensor:
        best = self.seen.cost[active]
        if level >= LEVELS:
            going = best.isinf()
        elif self.several:
            going = torch.ones_like(best, dtype=torch.bool)
        else:  # no cost is below the effort: where that is more already, all is found
            going = best > singles.effort.amin(dim=1) + beam.effort.amin(dim=1)
        most = self.costs.batch.max_changes
        return going if most is None else going & (most[active] > level)

    # --- Single actions ---

    def _single_actions(self) -> tuple[Singles, Beam] | None:
        """The promising actions of every query, as the model sees them; the best as a beam.

        The model is asked about all of them. None where no query may do anything.
        """
        actions, costs, menu = self.actions, self.costs, self.actions.menu
        query, entry = actions.is_open.nonzero(as_tuple=True)
        rows = actions.take(self.queries[query], query, entry)
        if actions.is_coupled:
            rows, query, entry = self._coupled(rows, query, entry)
        if not len(query):
            return None
        if actions.is_coupled:
            effort, implausibility = costs.terms(rows, query)
            implausibility = implausibility - costs.own_implausibility[query]
        else:
            effort, implausibility = (each[query, entry] for each in costs.of_actions(actions))
        least = effort + (costs.own_implausibility[query] + implausibility).clamp_(min=0)
        margin = self.seen.ask(costs, rows, query, least)
        gain = margin - self.own_margin[query]
        helps = gain > (HELPS * costs.context.unit if costs.believable else LEAST_GAIN)
        if not costs.believable:
            self._price_margins(query[helps], entry[helps], gain[helps], effort[helps])
        promise = least + costs.shortfall(margin, query).clamp_(min=0).square_()
        dense = promise.new_full(actions.is_open.shape, torch.inf)
        dense[query, entry] = promise.masked_fill_(~helps, torch.inf)
        few, many = PROMISING
        combined = min(len(menu), max(few, min(many, 2 * actions.features)))
        best, chosen = dense.topk(combined, dim=1, largest=False)
        pair = torch.zeros_like(dense, dtype=torch.long)
        pair[query, entry] = torch.arange(len(query), device=rows.device)
        pair = pair.gather(1, chosen)  # places among the rows that were asked about
        feature = menu.feature[chosen]
        singles = Singles(
            entry=chosen,
            feature=feature,
            effort=effort[pair].masked_fill_(best.isinf(), torch.inf),
            implausibility=implausibility[pair],
            gain=gain[pair],
            pairs=self._pairs(chosen, feature),
            rows=rows[pair] if actions.is_coupled else None,
        )
        first = pair[:, :BEAM]
        beam = Beam(
            rows=rows[first],
            effort=singles.effort[:, :BEAM],
            implausibility=costs.own_implausibility[:, None] + singles.implausibility[:, :BEAM],
            # Where there is no action, `pair` leads to a row of another query: it has no margin.
            margin=margin[first].masked_fill(best[:, :BEAM].isinf(), -torch.inf),
            pairs=singles.pairs[:, :BEAM],
            moved=actions.moved(chosen[:, :BEAM]) if actions.is_coupled else None,
        )
        return singles, beam

    def _coupled(self, rows: Tensor, query: Tensor, entry: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rows after single actions that keep the coupled rules, and whose and which they are."""
        moved = self.actions.moved(entry)
        rows, fine = self.actions.lawful(rows, query, moved)
        nothing = moved.new_zeros(self.count, moved.shape[1])
        kept, moves = self.actions.lawful(self.queries, self.everyone, nothing)
        if bool(moves.any()):  # the rules themselves move the query
            whose, there = self.everyone[moves], kept[moves]
            self.seen.ask(self.costs, there, whose, self.costs.least(there, whose))
        return rows[fine], query[fine], entry[fine]

    def _price_margins(self, query: Tensor, entry: Tensor, gain: Tensor, effort: Tensor) -> None:
        """What a log-odds costs in squared distance, for the nearest answers of each query.

        If margins were linear, a shortfall s would take a squared distance of s² / Σ_j g_j², where
        g_j is the gain of feature j for its way.
        """
        features = self.actions.features
        place = query * features + self.actions.menu.feature[entry]
        best = torch.zeros(self.count * features, device=query.device)
        best.scatter_reduce_(0, place, gain.square() / effort.clamp(1e-12), "amax")
        total = best.view(self.count, -1).sum(dim=1)
        self.costs.scale = PRICE * total.clamp_(1e-12).rsqrt()

    def _pairs(self, entry: Tensor, feature: Tensor) -> Tensor:
        """What the second of two actions adds to the implausibility, (queries, actions, actions).

        Infinite where both are of one feature, and where the second is not after the first: no set
        of actions comes twice.
        """
        order = torch.arange(entry.shape[1], device=entry.device)
        barred = (order <= order[:, None]) | (feature[:, :, None] == feature[:, None])
        people, prices = self.people, self.costs.context.prices
        if people is None or people.beside is None or prices is None:
            nothing = torch.zeros(barred.shape, device=entry.device)
            return nothing.masked_fill_(barred, torch.inf)
        after = self.costs.context.of_entries[2][entry]
        before = self.costs.cells.gather(1, feature)
        block = (self.costs.targets * people.grid.width)[:, None]
        change, was = (
            people.beside.index_select(0, (each + block).flatten()) for each in (after, before)
        )
        change = change.sub_(was).view(*after.shape, -1)
        cells = (each[:, None].expand(-1, len(order), -1) for each in (before, after))
        lost, added = (change.gather(2, each) for each in cells)
        return lost.sub_(added).mul_(prices.implausible).masked_fill_(barred, torch.inf)

    # --- Sets of actions ---

    def _extended(self, beam: Beam, active: Tensor, singles: Singles) -> Beam:
        """The most promising rows of one action more, (active, beam, …).

        `singles`: of the active queries.
        """
        guess, implausibility, reaches = self._guess(beam, active, singles)
        states, many = guess.shape[1:]
        best, place = self._most_promising(guess.flatten(1), reaches.flatten(1))
        state, action = place // many, place % many
        each = torch.arange(len(active), device=active.device)[:, None]
        from_state, from_single = (each * states + state).flatten(), each * many + action
        from_single = from_single.flatten()
        query = active.repeat_interleave(best.shape[1])
        before = beam.rows.flatten(0, 1).index_select(0, from_state)
        effort = (beam.effort.gather(1, state) + singles.effort.gather(1, action)).flatten()
        implausible = implausibility.flatten(1).gather(1, place).flatten()
        fine, moved = best.isfinite().flatten(), None
        if singles.rows is None or beam.moved is None:
            rows = self.actions.take(before, query, singles.entry.gather(1, action).flatten())
        else:
            moved = beam.moved.flatten(0, 1)[from_state]
            rows = self._joint(before, query, singles.rows.flatten(0, 1)[from_single], moved)
            moved |= self.actions.moved(singles.entry.gather(1, action).flatten())
            rows, lawful = self.actions.lawful(rows, query, moved)
            fine &= lawful
            effort, implausible = self.costs.terms(rows, query)
        least = effort + implausible.clamp(min=0)
        if not self.several:  # what costs more than the best so far is of no use
            fine &= least < self.seen.cost[query]
        margin, at = torch.full_like(least, -torch.inf), fine.nonzero()[:, 0]
        if len(at):
            margin[at] = self.seen.ask(self.costs, rows[at], query[at], least[at])
        pairs = beam.pairs.flatten(0, 1).index_select(0, from_state)
        pairs += singles.pairs.flatten(0, 1).index_select(0, from_single)
        shape = best.shape
        return Beam(
            rows=rows.unflatten(0, shape),
            effort=effort.masked_fill_(margin.isinf(), torch.inf).view(shape),
            implausibility=implausible.view(shape),
            margin=margin.view(shape),
            pairs=pairs.unflatten(0, shape),
            moved=None if moved is None else moved.unflatten(0, shape),
        )

    def _most_promising(self, guess: Tensor, reaches: Tensor) -> tuple[Tensor, Tensor]:
        """The least of `guess`, (active, rows), and their places, (active, beam) each.

        Of the nearest answers half are rows that the model is expected to accept (`reaches`): what
        the others are short of may cost more than its price, or not be had at all.
        """
        size = min(BEAM, guess.shape[1])
        if self.costs.believable:
            return guess.topk(size, dim=1, largest=False)
        best, place = guess.masked_fill(~reaches, torch.inf).topk(size // 2, dim=1, largest=False)
        left = torch.where(best.isfinite(), torch.inf, guess.gather(1, place))
        others = guess.scatter(1, place, left).topk(size - size // 2, dim=1, largest=False)
        return torch.cat([best, others[0]], dim=1), torch.cat([place, others[1]], dim=1)

    def _guess(self, beam: Beam, active: Tensor, singles: Singles) -> tuple[Tensor, Tensor, Tensor]:
        """What each row would cost after each further action, (active, beam, actions).

        And its implausibility, and whether the margin would be reached.
        """
        costs = self.costs
        implausibility = beam.implausibility[:, :, None] + singles.implausibility[:, None]
        implausibility += beam.pairs
        short = (costs.safe - beam.margin)[:, :, None] - singles.gain[:, None]
        reaches = short <= 0
        guess = short.mul_(costs.scale[active][:, None, None]).clamp_(min=0).square_()
        guess += implausibility.clamp(min=0)
        guess += beam.effort[:, :, None]
        guess += singles.effort[:, None]
        return guess, implausibility, reaches

    def _joint(self, rows: Tensor, query: Tensor, after: Tensor, moved: Tensor) -> Tensor:
        """Rows after an action that moves several features; what was moved before stays moved."""
        changed = (after - self.queries[query]).abs() > 1e-6
        held = self.actions.projection.columns_of_features(moved)
        return torch.where(changed & ~held, after, rows)
