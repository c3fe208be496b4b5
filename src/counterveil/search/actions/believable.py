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
guessed: the log-odds of f as if moves added up, effort and density exactly, by tables. Then f and
the committee are asked about those rows of the beam that may cost less than the best one found so
far. In the end numbers move closer to the query where that costs less.

Where rules tie features to each other, or give numbers steps, `tied_search` does the same on
rows that keep them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from counterveil.encoding import Array
from counterveil.models import TargetModel
from counterveil.search.actions.asking import Margin
from counterveil.search.actions.beam import Beam, Candidates, Level, cheapest, first_of_each
from counterveil.search.actions.closer import closer
from counterveil.search.actions.cost import Asked
from counterveil.search.actions.ground import Ground
from counterveil.search.actions.moves import Moves
from counterveil.search.actions.tied_search import TiedSearch
from counterveil.search.batch import Found, QueryBatch
from counterveil.search.options import SearchOptions

LEVELS, MOST_LEVELS = 4, 6  # changes that are always tried; and where there is no answer yet
AT_A_TIME = 512  # queries
TIED_AT_A_TIME = 128


@dataclass(frozen=True)
class BelievableSearch:
    """The search for `k` answers to each query of a batch."""

    asked: Asked
    k: int = 1

    @cached_property
    def moves(self) -> Moves:
        return Moves.of(self.asked)

    def __call__(self) -> tuple[Array, Array]:
        """Rows of shape (queries, k, width), the cheapest first, and which of them f accepts.

        Two answers to a query never change the same features, nor one all that another does.
        """
        count = len(self.asked.queries)
        if not len(self.moves.entry):
            nowhere = np.zeros((count, self.k), dtype=bool)
            return self.asked.queries[:, None].repeat(self.k, axis=1), nowhere
        if self.k == 1:
            chosen = Candidates.cheapest(self._levels(), count, MOST_LEVELS)
        else:
            every = Candidates.of(self._levels(), count, MOST_LEVELS)
            chosen = every.different_ways(self.k, self.moves.feature)
        return closer(self.asked, self.moves.entry, chosen), np.isfinite(chosen.cost)

    def _levels(self) -> list[Level]:
        """The rows with one change, with two, and so on, and of which queries they are."""
        active = np.arange(len(self.asked.queries))
        beam = self._single_moves()
        found, best = [(active, beam)], beam.cost.min(axis=1)
        for level in range(1, MOST_LEVELS):
            going = self._goes_on(level, active, beam, best[active])
            if not going.all():
                active, beam = active[going], beam.select(going)
            if len(active):
                limit = self._limit(best[active])
                active, beam = self._extended(beam, active, limit, is_last=level >= LEVELS - 1)
            if not len(active):
                break
            found.append((active, beam))
            best[active] = np.minimum(best[active], beam.cost.min(axis=1))
        return found

    def _goes_on(self, level: int, active: Array, beam: Beam, best: Array) -> Array:
        """For which queries a further change is tried, (queries,)."""
        if level >= LEVELS:
            going = np.isinf(best)
        else:  # no cost is below the effort: where that is more already, all is found
            going = self._limit(best) > beam.effort.min(axis=1) + self.moves.least[active]
        if self.asked.max_changes is not None:
            going &= self.asked.max_changes[active] > level
        return going

    def _limit(self, best: Array) -> Array:
        """What an answer may cost: where one is sought, not more than the best so far."""
        return best if self.k == 1 else np.full_like(best, np.inf)

    def _single_moves(self) -> Beam:
        """The most promising rows of one change; f was asked about every one of them."""
        asked, moves = self.asked, self.moves
        unusual = asked.unusual[:, None] + moves.unusual
        unsafe = moves.start[:, None] + moves.unsafe
        guess = moves.effort + np.maximum(unusual, 0) + np.square(np.maximum(unsafe, 0))
        place = cheapest(guess, asked.ground.prices.beam)
        move = place % len(moves.entry)
        beam = Beam(
            moves=move[:, :, None],
            key=moves.keys.take(move),
            effort=moves.effort.take(place),
            unusual=unusual.take(place),
            unsafe=unsafe.take(place),
            cost=np.full(move.shape, np.inf, np.float32),
            origin=np.zeros_like(move),
            before=moves.unusual[:, None],
        )
        limit = np.full(len(unusual), np.inf, np.float32)
        if asked.max_changes is not None:
            limit[asked.max_changes < 1] = -np.inf
        self._judge(beam, np.arange(len(unusual)), limit)
        return beam

    def _extended(
        self, beam: Beam, active: Array, limit: Array, *, is_last: bool
    ) -> tuple[Array, Beam]:
        """The most promising rows of one change more, with f's and the committee's own words.

        `limit`: what a row may cost to be of use, (queries,). With `is_last` nothing comes after
        these rows, and queries without any such row are left out. Returns the queries, too.
        """
        moves, keep = self.moves, self.asked.ground.prices.beam
        further = self._further(beam, active)
        guess = np.maximum(beam.unusual[:, :, None] + further, 0)
        guess += beam.effort[:, :, None]
        guess += moves.effort[active][:, None]
        if is_last:
            going = guess.min(axis=(1, 2)) < limit  # as if all of them were safe
            if not going.all():
                active, beam, limit = active[going], beam.select(going), limit[going]
                guess, further = guess[going], further[going]
            if not len(active):
                return active, beam
        unsafe = np.maximum(beam.unsafe[:, :, None] + moves.unsafe[active][:, None], 0)
        unsafe *= unsafe
        guess += unsafe
        place = cheapest(guess.reshape(len(active), -1), 2 * keep)
        state, move = np.divmod(place, len(moves.entry))
        key = beam.key.take(state) + moves.keys.take(move)
        usable = first_of_each(key) & np.isfinite(guess.take(place))
        order = (~usable).argsort(axis=1, kind="stable")[:, :keep]
        order += np.arange(0, usable.size, usable.shape[1])[:, None]
        place, state, move = place.take(order), state.take(order), move.take(order)
        effort = beam.effort.take(state) + moves.effort[active[:, None], move]
        so_far = beam.moves.reshape(beam.key.size, -1).take(state, axis=0)
        after = Beam(
            moves=np.concatenate([so_far, move[:, :, None]], axis=2),
            key=key.take(order),
            effort=np.where(usable.take(order), effort, np.float32(np.inf)),
            unusual=beam.unusual.take(state) + further.take(place),
            unsafe=beam.unsafe.take(state) + moves.unsafe[active[:, None], move],
            cost=np.full(move.shape, np.inf, np.float32),
            origin=state - np.arange(0, beam.key.size, beam.key.shape[1])[:, None],
            before=further,
        )
        self._judge(after, active, limit)
        return active, after

    def _further(self, beam: Beam, active: Array) -> Array:
        """By how much each further move changes `unusual`, (queries, beam, moves)."""
        count, width, every = beam.before.shape
        origin = beam.origin + np.arange(0, count * width, width)[:, None]
        further = beam.before.reshape(-1, every).take(origin, axis=0)
        last = beam.moves[:, :, -1]
        further += self.moves.beside(active.repeat(last.shape[1]), last.ravel()).reshape(
            further.shape
        )
        return further

    def _judge(self, beam: Beam, active: Array, limit: Array) -> None:
        """Fill in `unsafe` and the cost of rows that may cost less than the `limit`, (queries,)."""
        asked, width = self.asked, beam.key.shape[1]
        least = beam.effort + np.maximum(beam.unusual, 0)
        at = np.flatnonzero(least < limit[:, None])
        if not len(at):
            return
        query = active.take(at // width)
        entries = self.moves.entry.take(beam.moves.reshape(beam.key.size, -1).take(at, axis=0))
        unsafe = beam.unsafe.take(at)
        if entries.shape[1] > 1:  # of single moves it is known
            unsafe = asked.unsafe(asked.rows_after(query, entries), query)
            beam.unsafe.put(at, unsafe)
        cost = least.take(at) + np.square(np.maximum(unsafe, 0))
        fine = np.flatnonzero((unsafe <= asked.boundary) & (cost < limit.take(at // width)))
        if len(fine):
            query, entries = query.take(fine), entries.take(fine, axis=0)
            doubt = asked.doubt(asked.sums_after(query, entries), query)
            beam.cost.put(at.take(fine), cost.take(fine) + doubt)


def believable_answers(
    ground: Ground, model: TargetModel, batch: QueryBatch, options: SearchOptions, k: int
) -> Found:
    """Rows of shape (queries, k, width), the cheapest first, and which of them are accepted.

    `model` decides about every row of the beam, wherever it computes; the search itself and
    all tensors given and returned are on the CPU. Queries are taken in parts that fit into memory.
    """
    margin = Margin(model, options.margin)
    is_tied = batch.box.ties is not None
    size = TIED_AT_A_TIME if is_tied else AT_A_TIME
    rows, accepted = [], []
    for start in range(0, len(batch), size):
        part = batch if len(batch) <= size else batch.select(slice(start, start + size))
        asked = _asked(ground, margin, part)
        found = (TiedSearch(asked, part.box, k) if is_tied else BelievableSearch(asked, k))()
        rows.append(found[0])
        accepted.append(found[1])
    return torch.from_numpy(np.concatenate(rows)), torch.from_numpy(np.concatenate(accepted))


def _asked(ground: Ground, margin: Margin, batch: QueryBatch) -> Asked:
    """The queries of a batch where the rules let them begin; themselves where rules tie them."""
    queries, lower, upper = batch.queries, batch.box.lower, batch.box.upper
    most = None if batch.max_changes is None else batch.max_changes.numpy()
    start = queries
    if batch.box.ties is None and bool(((queries < lower) | (queries > upper)).any()):
        start = ground.snap(queries, batch.box)
        if most is not None:  # what the rules themselves move counts, too
            most = most - ground.snap.changed_features(start, queries).sum(dim=1).numpy()
    costs = None if batch.costs is None else batch.costs.numpy()
    return Asked(
        ground,
        margin,
        start.numpy(),
        batch.targets.numpy(),
        lower.numpy(),
        upper.numpy(),
        costs,
        most,
    )
