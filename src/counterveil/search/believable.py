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
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from counterveil.encoding import Array
from counterveil.models import TargetModel
from counterveil.search.asking import Margin
from counterveil.search.beam import Beam, Candidates, cheapest, first_of_each
from counterveil.search.closer import closer
from counterveil.search.cost import Asked
from counterveil.search.ground import Ground
from counterveil.search.moves import Moves
from counterveil.search.pipeline import Found, QueryBatch, SearchOptions

LEVELS, MOST_LEVELS = 4, 6  # changes that are always tried; and where there is no answer yet
AT_A_TIME = 512  # queries


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
        levels = self._levels()
        if not levels:
            nowhere = np.zeros((len(self.asked.queries), self.k), dtype=bool)
            return self.asked.queries[:, None].repeat(self.k, axis=1), nowhere
        chosen = Candidates.joined(levels).different_ways(self.k, self.moves.feature)
        return closer(self.asked, self.moves.entry, chosen), np.isfinite(chosen.cost)

    def _levels(self) -> list[Candidates]:
        """What is found with one change, with two, and so on."""
        count, found = len(self.asked.queries), []
        best = np.full(count, np.inf, np.float32)
        active, beam = np.arange(count), self._start()
        for level in range(MOST_LEVELS if len(self.moves.entry) else 0):
            going = self._goes_on(level, active, beam, best[active])
            if not going.all():
                active, beam = active[going], beam.select(going)
            if not len(active):
                break
            beam = self._extended(beam, active, self._limit(best[active]))
            found.append(Candidates.of(beam, active, count, MOST_LEVELS, one=self.k == 1))
            best[active] = np.minimum(best[active], beam.cost.min(axis=1))
        return found

    def _start(self) -> Beam:
        """The queries themselves; to stay is no answer."""
        count = len(self.asked.queries)
        nothing = np.zeros((count, 1), np.float32)
        return Beam(
            moves=np.zeros((count, 1, 0), dtype=np.intp),
            key=np.zeros((count, 1), dtype=np.int64),
            effort=nothing,
            density=self.asked.density[:, None],
            margin=self.moves.margin[:, None],
            cost=nothing + np.inf,
            origin=np.zeros((count, 1), dtype=np.intp),
            before=self.moves.density[:, None],
        )

    def _goes_on(self, level: int, active: Array, beam: Beam, best: Array) -> Array:
        """For which queries a further change is tried, (queries,)."""
        going = np.ones(len(active), dtype=bool)
        if self.asked.max_changes is not None:
            going &= self.asked.max_changes[active] > level
        if level >= LEVELS:
            return going & np.isinf(best)
        # No cost is below the effort: where that is more already, all is found.
        least = beam.effort.min(axis=1) + self.moves.effort[active].min(axis=1)
        return going & (self._limit(best) > least)

    def _limit(self, best: Array) -> Array:
        """What an answer may cost: where one is sought, not more than the best so far."""
        return best if self.k == 1 else np.full_like(best, np.inf)

    def _extended(self, beam: Beam, active: Array, limit: Array) -> Beam:
        """The most promising rows of one change more, with f's and the committee's own words."""
        moves, keep = self.moves, self.asked.ground.prices.beam
        further = self._further(beam, active)
        guess = self._guess(beam, active, further)
        everyone, whose = np.arange(len(active))[:, None], active[:, None]
        place = cheapest(guess, 2 * keep)
        state, move = np.divmod(place, len(moves.entry))
        key = beam.key[everyone, state] + moves.keys[move]
        usable = first_of_each(key) & np.isfinite(guess[everyone, place])
        order = (~usable).argsort(axis=1, kind="stable")[:, :keep]
        state, move, key, usable = (each[everyone, order] for each in (state, move, key, usable))
        density = beam.density[everyone, state] + further[everyone, state, move]
        effort = beam.effort[everyone, state] + moves.effort[whose, move]
        after = Beam(
            moves=np.concatenate([beam.moves[everyone, state], move[:, :, None]], axis=2),
            key=key,
            effort=np.where(usable, effort, np.float32(np.inf)),
            density=np.where(usable, density, np.float32(0)),
            margin=beam.margin[everyone, state] + moves.gain[whose, move],
            cost=np.full(move.shape, np.inf, np.float32),
            origin=state,
            before=further,
        )
        self._judge(after, active, limit)
        return after

    def _further(self, beam: Beam, active: Array) -> Array:
        """By how much each further move changes the log-density, (queries, beam, moves)."""
        if not beam.moves.shape[2]:
            return beam.before
        last = beam.moves[:, :, -1]
        beside = self.moves.beside(active.repeat(last.shape[1]), last.ravel())
        further = beam.before[np.arange(len(active))[:, None], beam.origin]
        further += beside.reshape(further.shape)
        return further

    def _guess(self, beam: Beam, active: Array, further: Array) -> Array:
        """What each row with a further move would cost but for doubts: (queries, beam · moves)."""
        asked, prices, unit = self.asked, self.asked.ground.prices, self.asked.ground.unit
        guess = (asked.floor[active, None] - beam.density)[:, :, None] - further
        np.maximum(guess, 0, out=guess)
        guess *= prices.implausible
        short = (prices.safe - beam.margin / unit)[:, :, None] - (self.moves.gain[active] / unit)[
            :, None
        ]
        np.maximum(short, 0, out=short)
        short *= short
        short *= prices.refused
        guess += short
        guess += beam.effort[:, :, None]
        guess += self.moves.effort[active][:, None]
        return guess.reshape(len(active), -1)

    def _judge(self, beam: Beam, active: Array, limit: Array) -> None:
        """Fill in the margins and costs of rows that may cost less than the `limit`, (queries,)."""
        asked = self.asked
        least = beam.effort + asked.shortfall(beam.density, active[:, None])
        where = np.nonzero(least < limit[:, None])
        if not len(where[0]):
            return
        query, least = active[where[0]], least[where]
        entries = self.moves.entry[beam.moves[where]]
        if entries.shape[1] > 1:  # of single moves the margin is known
            beam.margin[where] = asked.margin(
                asked.rows_after(query, entries), asked.targets[query]
            )
        margin = beam.margin[where]
        ok = margin >= 0
        if not ok.any():
            return
        where, query, entries = (where[0][ok], where[1][ok]), query[ok], entries[ok]
        doubt = asked.doubt(asked.sums_after(query, entries), query)
        beam.cost[where] = least[ok] + asked.unsafe(margin[ok]) + doubt


def believable_answers(
    ground: Ground, model: TargetModel, batch: QueryBatch, options: SearchOptions, k: int
) -> Found:
    """Rows of shape (queries, k, width), the cheapest first, and which of them are accepted.

    `model` decides about every row of the beam, wherever it computes; the search itself and
    all tensors given and returned are on the CPU. Queries are taken in parts that fit into memory.
    """
    margin = Margin(model, options.margin)
    rows, accepted = [], []
    for start in range(0, len(batch), AT_A_TIME):
        part = batch.select(slice(start, start + AT_A_TIME))
        found = BelievableSearch(_asked(ground, margin, part), k)()
        rows.append(found[0])
        accepted.append(found[1])
    return torch.from_numpy(np.concatenate(rows)), torch.from_numpy(np.concatenate(accepted))


def _asked(ground: Ground, margin: Margin, batch: QueryBatch) -> Asked:
    """The queries of a batch where the rules let them begin."""
    queries, lower, upper = batch.queries, batch.box.lower, batch.box.upper
    most = None if batch.max_changes is None else batch.max_changes.numpy()
    start = queries
    if bool(((queries < lower) | (queries > upper)).any()):
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
