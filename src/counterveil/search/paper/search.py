"""From encoded queries to legal rows that the model accepts, by Algorithm 2.

    algorithm_2   the nearest accepted row on its way, or as in the paper the last one
    repair        one feature at a time, from the query itself
    polish        give back to the query what an answer does not need

Of what Algorithm 2 and repair lead to, the nearer one is kept. Without polish, repair is only for
queries that Algorithm 2 leaves without an answer. `Found` is a legal row for each query, (queries,
width), and where the model accepts it, (queries,). Further answers to a query are sought with one
feature of an earlier answer held as it is in the query ("and without changing your hours?").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from counterveil.models import TargetModel
from counterveil.networks import Autoencoder
from counterveil.search.asking import Question
from counterveil.search.batch import Found, QueryBatch, cheapest
from counterveil.search.constraints.projection import Snap
from counterveil.search.options import SearchOptions
from counterveil.search.paper.algorithm2 import NearestAccepted, SearchObjective, Weights, minimise
from counterveil.search.paper.moves import GreedyRepair, Polish
from counterveil.terminal import Tick, silent

BEYOND = (0.0, 1.0, 2.0, 4.0)  # log-odds past the boundary of a student, until the model agrees
TRIES = 2  # searches for each further answer
DIFFERENT = 0.1  # of a pixel; whether a feature changes is 0 or 1


@dataclass(frozen=True, eq=False)
class PaperSearch:
    """Everything that answers are made of.

    `guide` lends its gradient to the search and `target_model` decides: they are the same model
    unless it has no gradient, and both are the surrogate with guidance `surrogate`. `asked`: the
    one that may be asked freely, the guide where calls of the model are counted.
    """

    autoencoder: Autoencoder
    prototypes: Tensor
    guide: TargetModel
    target_model: TargetModel
    asked: TargetModel
    weights: Weights
    snap: Snap

    def __call__(self, batch: QueryBatch, options: SearchOptions, tick: Tick = silent) -> Found:
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
            lenient = options.model_copy(update={"margin": 0.0})
            found = _or_else(batch, found, lambda left: self(left, lenient))
        return found

    def several(
        self, batch: QueryBatch, options: SearchOptions, k: int, tick: Tick = silent
    ) -> Found:
        """The nearest rows that change different features, (queries, k, width), the nearest first.

        And which of them are accepted, (queries, k). Of a picture, pixels tell answers apart.
        """
        generator = torch.Generator().manual_seed(options.seed)
        found = [self(batch, options, tick)]
        everyone = torch.arange(len(batch), device=batch.queries.device)
        for _ in range(TRIES * (k - 1)):
            which = torch.randint(len(found), (len(batch),), generator=generator).to(everyone)
            earlier = torch.stack([rows for rows, _ in found])[which, everyone]
            held = self._one_change(earlier, batch.queries, generator)
            found.append(self(batch.holding(held), options))
        tried, accepted = (torch.stack(each, dim=1) for each in zip(*found, strict=True))
        distance = torch.where(accepted, (tried - batch.queries[:, None]).norm(dim=2), torch.inf)
        kinds = tried
        if len(self.snap.feature_of_part.unique()) > 1:
            changed = [self.snap.changed_features(rows, batch.queries) for rows, _ in found]
            kinds = torch.stack(changed, dim=1).float()

        def alike(place: Tensor) -> Tensor:
            return (kinds - kinds[everyone, place][:, None]).abs().amax(dim=2) < DIFFERENT

        places, there = cheapest(distance, k, alike)
        return tried[everyone[:, None], places], there

    def _one_change(self, rows: Tensor, queries: Tensor, generator: torch.Generator) -> Tensor:
        """The columns of one changed feature of each row, chosen at random: (rows, width)."""
        snap, changed = self.snap, self.snap.changed_features(rows, queries)
        if changed.shape[1] == 1:  # a picture: half of its pixels
            dice = torch.rand(len(rows), snap.parts, generator=generator).to(rows.device)
            return (dice < 0.5)[:, snap.part_of_column]
        dice = torch.rand(changed.shape, generator=generator).to(rows.device)
        chosen = torch.where(changed, dice, -1.0).argmax(dim=1, keepdim=True)
        return snap.columns_of_features(torch.zeros_like(changed).scatter_(1, chosen, True))

    # --- The steps ---

    def algorithm_2(self, batch: QueryBatch, options: SearchOptions, tick: Tick = silent) -> Found:
        """The nearest row on the way of Algorithm 2 that the guide accepts; else the last one."""
        asked = batch.queries, batch.targets, self.prototypes, batch.box
        objective = SearchObjective(self.guide, self.autoencoder, self.weights, *asked)
        margin = Question(self.guide, options.margin).margin_as_is
        nearest = NearestAccepted(objective, self.snap, margin)
        look = None if options.keep == "last" else nearest.look
        delta = minimise(objective, options.iterations, tick, look)
        with torch.no_grad():
            rows = nearest.or_else(self.snap(objective.counterfactual(delta), batch.box))
        return rows, self.accepts(rows, batch, options)

    def repair(self, batch: QueryBatch, options: SearchOptions) -> Found:
        """Single moves from the query; beyond the boundary of a student until the model agrees."""
        greedy = GreedyRepair(*self._questions(options), self.snap)

        def moved(part: QueryBatch, beyond: float) -> Found:
            rows = greedy(part, beyond)
            return self.limited(part, (rows, self.accepts(rows, part, options)))

        found = moved(batch, BEYOND[0])
        for beyond in () if self.asked is self.target_model else BEYOND[1:]:
            found = _or_else(batch, found, partial(moved, beyond=beyond))
        return found

    def polish(self, batch: QueryBatch, options: SearchOptions, found: Found) -> Found:
        """The accepted rows with as little changed as can be found."""
        rows, accepted = found
        which = accepted.nonzero()[:, 0]
        if not len(which):
            return found
        part = batch.select(which)
        polished = Polish(*self._questions(options), self.snap, part)(rows[which])
        if self.asked is not self.target_model:
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
        question = Question(self.target_model, options.margin)
        accepted = question.margin_as_is(rows, batch.targets) >= 0
        return accepted if batch.box.ties is None else accepted & batch.box.ties_held(rows)

    def _questions(self, options: SearchOptions) -> tuple[Question, Question]:
        """What the guide, and the model that is asked, have to say of rows."""
        return Question(self.guide, options.margin), Question(self.asked, options.margin)


def _or_else(batch: QueryBatch, found: Found, search: Callable[[QueryBatch], Found]) -> Found:
    """What was found, and what `search` finds for the queries without an accepted row."""
    rows, accepted = found
    left = (~accepted).nonzero()[:, 0]
    if not len(left):
        return found
    tried, fine = search(batch.select(left))
    rows = rows.index_copy(0, left, torch.where(fine[:, None], tried, rows[left]))
    return rows, accepted.index_copy(0, left, fine)
