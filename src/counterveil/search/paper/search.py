"""From encoded queries to legal rows that the model accepts, by Algorithm 2.

    algorithm_2   the nearest accepted row on its way, or as in the paper the last one
    repair        one feature at a time, from the query itself
    polish        give back to the query what an answer does not need

Of what Algorithm 2 and repair lead to, the nearer one is kept. Without polish, repair is only for
queries that Algorithm 2 leaves without an answer. `Found` is a legal row for each query, (queries,
width), and where the model accepts it, (queries,).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from counterveil.models import TargetModel
from counterveil.networks import Autoencoder
from counterveil.search.batch import Found, QueryBatch
from counterveil.search.constraints.projection import Snap
from counterveil.search.options import SearchOptions
from counterveil.search.paper.algorithm2 import NearestAccepted, SearchObjective, Weights, minimise
from counterveil.search.paper.polish import OfRows, Polish
from counterveil.search.paper.repair import GreedyRepair, margin_and_gradient, margin_beyond
from counterveil.terminal import Tick, silent

BEYOND = (0.0, 1.0, 2.0, 4.0)  # log-odds past the boundary of a student, until the model agrees


@dataclass(frozen=True, eq=False)
class PaperSearch:
    """Everything that answers are made of.

    `guide` lends its gradient to the search and `target_model` decides: they are the same model
    unless it has no gradient, and both are the surrogate with guidance `surrogate`.
    """

    autoencoder: Autoencoder
    prototypes: Tensor
    guide: TargetModel
    target_model: TargetModel
    weights: Weights
    snap: Snap

    def __call__(self, batch: QueryBatch, options: SearchOptions, tick: Tick = silent) -> Found:
        """A legal row for every query, and whether the model accepts it."""
        found = self.algorithm_2(batch, options, tick)
        if options.keep == "last":
            return found
        if options.polish:
            repaired = self.polish(batch, options, self.repair(batch, options))
            found = self.nearer(batch, self.polish(batch, options, found), repaired)
        else:
            found = self.limited(batch, found)
            found = _or_else(batch, found, lambda left: self.repair(left, options))
        if options.soft_margin and options.margin > 0:  # else it is enough that the class wins
            lenient = replace(options, margin=0.0, soft_margin=False)
            found = _or_else(batch, found, lambda left: self(left, lenient))
        return found

    # --- The steps ---

    def algorithm_2(self, batch: QueryBatch, options: SearchOptions, tick: Tick = silent) -> Found:
        """The nearest row on the way of Algorithm 2 that the guide accepts; else the last one."""
        asked = batch.queries, batch.targets, self.prototypes, batch.box
        objective = SearchObjective(self.guide, self.autoencoder, self.weights, *asked)
        nearest = NearestAccepted(objective, self.snap, self._margin(self.guide, options))
        look = None if options.keep == "last" else nearest.look
        delta = minimise(objective, options.iterations, tick, look)
        with torch.no_grad():
            rows = nearest.or_else(self.snap(objective.counterfactual(delta), batch.box))
        return rows, self.accepts(rows, batch, options)

    def repair(self, batch: QueryBatch, options: SearchOptions) -> Found:
        """Single moves from the query; beyond the boundary of a student until the model agrees."""
        greedy = GreedyRepair(self.guide, self._asked, self.snap, options.margin)

        def moved(part: QueryBatch, beyond: float) -> Found:
            rows = greedy(part, beyond)
            return self.limited(part, (rows, self.accepts(rows, part, options)))

        found = moved(batch, BEYOND[0])
        for beyond in () if self._asked is self.target_model else BEYOND[1:]:
            found = _or_else(batch, found, partial(moved, beyond=beyond))
        return found

    def polish(self, batch: QueryBatch, options: SearchOptions, found: Found) -> Found:
        """The accepted rows with as little changed as can be found."""
        rows, accepted = found
        which = accepted.nonzero()[:, 0]
        if not len(which):
            return found
        part = batch.select(which)
        polish = Polish(
            nearest_legal=self.snap(part.queries, part.box),
            targets=part.targets,
            box=part.box,
            snap=self.snap,
            margin=self._margin(self._asked, options),
            margin_gradient=lambda *of: margin_and_gradient(self.guide, options.margin, *of)[1],
            costs=part.costs,
        )
        polished = polish(rows[which])
        if self._asked is not self.target_model:
            still = self.accepts(polished, part, options)
            polished = torch.where(still[:, None], polished, rows[which])
        return rows.index_copy(0, which, polished), accepted

    def nearer(self, batch: QueryBatch, first: Found, second: Found) -> Found:
        """The nearer accepted row of each query, by the costs of its columns."""

        def distance(found: Found) -> Tensor:
            rows, accepted = self.limited(batch, found)
            squares = self.snap.squares_by_part(rows, batch.queries, batch.costs).sum(dim=1)
            return torch.where(accepted, squares, torch.inf)

        here, there = distance(first), distance(second)
        rows = torch.where((there < here)[:, None], second[0], first[0])
        return rows, torch.minimum(here, there) < torch.inf

    def limited(self, batch: QueryBatch, found: Found) -> Found:
        """The same rows; accepted are only those that change no more features than may."""
        if batch.max_changes is None:
            return found
        changes = self.snap.changed_features(found[0], batch.queries).sum(dim=1)
        return found[0], found[1] & (changes <= batch.max_changes)

    # --- What the steps share ---

    def accepts(self, rows: Tensor, batch: QueryBatch, options: SearchOptions) -> Tensor:
        """Which rows the model accepts, with the relations of their rules kept, (queries,)."""
        accepted = self._margin(self.target_model, options)(rows, batch.targets) >= 0
        return accepted if batch.box.ties is None else accepted & batch.box.ties_held(rows)

    @property
    def _asked(self) -> TargetModel:
        """The model, or its student where calls of the model are counted."""
        return self.target_model if self.target_model.calls_left is None else self.guide

    def _margin(self, model: TargetModel, options: SearchOptions) -> OfRows:
        return partial(margin_beyond, model, options.margin)


def _or_else(batch: QueryBatch, found: Found, search: Callable[[QueryBatch], Found]) -> Found:
    """What was found, and what `search` finds for the queries without an accepted row."""
    rows, accepted = found
    left = (~accepted).nonzero()[:, 0]
    if not len(left):
        return found
    tried, fine = search(batch.select(left))
    rows = rows.index_copy(0, left, torch.where(fine[:, None], tried, rows[left]))
    return rows, accepted.index_copy(0, left, fine)
