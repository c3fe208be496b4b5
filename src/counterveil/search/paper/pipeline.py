"""From encoded queries to legal rows that the model accepts: a list of stages.

    propose         the amortised search, or Algorithm 2, and the legal row nearest to its result
    repair          for queries without an answer: one feature at a time, from the query itself
    try_labelled    for those still without: the nearest rows that the model has classified
    insist          for those still without: Algorithm 2 with an ever heavier L_pred
    climb           for those still without: one feature after the other, by trying values
    polish          give back to the query what an answer does not need
    scan            a smaller change of one feature alone, if there is one
    limit_changes   search anew, move by move, where more features changed than may

Every stage has one signature: (batch, rows, accepted) -> (rows, accepted), where `rows` is a legal
row for each query, (queries, width), and `accepted`, (queries,), says where the model accepts it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from counterveil.models import TargetModel
from counterveil.networks import Amortiser, Autoencoder, is_free
from counterveil.search.batch import Found, QueryBatch
from counterveil.search.constraints.projection import Snap
from counterveil.search.options import SearchOptions
from counterveil.search.paper import algorithm2
from counterveil.search.paper.algorithm2 import SearchObjective, Weights
from counterveil.search.paper.climb import Climb
from counterveil.search.paper.polish import Polish
from counterveil.search.paper.repair import (
    SAFELY,
    LabelledRows,
    Moves,
    margin_beyond,
    margin_gradient,
)
from counterveil.search.paper.scan import Scan
from counterveil.terminal import Tick, silent

REPAIR_STEPS = 80  # single moves for a query that no search could answer
BEYOND = (0.0, 1.0, 2.0, 4.0)  # log-odds past the boundary of a student, until the model agrees
INSIST_ALPHA = (1.0, 4.0, 16.0)  # factors on α for a query without an answer, one after the other
INSIST_ITERATIONS = 200

Stage = Callable[[QueryBatch, Tensor, Tensor], Found]


@dataclass(frozen=True, eq=False)
class Pipeline:
    """Everything that answers are made of.

    `guide` lends its gradient to the search and `judge` decides: they are the same model unless it
    has no gradient, and both are the surrogate with guidance `surrogate`.
    """

    autoencoder: Autoencoder
    prototypes: Tensor
    guide: TargetModel
    judge: TargetModel
    weights: Weights
    snap: Snap
    amortiser: Amortiser | None
    may_repair: bool  # whether single moves may stand for a search
    from_both_sides: bool = False  # polish from the query's own side too, scan, keep the nearest
    labelled_rows: LabelledRows | None = None
    options: SearchOptions = field(default_factory=SearchOptions)  # of one call, as is `tick`
    tick: Tick = silent

    def __call__(self, batch: QueryBatch, options: SearchOptions, tick: Tick = silent) -> Found:
        """A legal row for every query, and whether the judge accepts it."""
        rows = batch.queries
        accepted = torch.zeros(len(batch), dtype=torch.bool, device=rows.device)
        for stage in replace(self, options=options, tick=tick).stages():
            rows, accepted = stage(batch, rows, accepted)
        return rows, accepted

    def stages(self) -> Iterator[Stage]:
        """The stages that the options ask for, in order."""
        if self.options.keep == "last":
            yield self.last_iterate
            return
        by_iterations = self.options.method == "iterations"
        yield self.propose_by_iterations if by_iterations else self.propose_amortised
        if self.may_repair:
            yield self.repair
            yield self.try_labelled
        yield self.insist
        both = self.from_both_sides and self.judge.calls_left is None
        if both and self.may_repair:
            yield self.climb
        if self.options.polish:
            yield self.polish_from_both_starts if both else self.polish
            if both:
                yield self.scan
        yield self.limit_changes

    # --- The stages ---

    def last_iterate(self, batch: QueryBatch, rows: Tensor, accepted: Tensor) -> Found:
        """Algorithm 2 literally: the legal row nearest to its last iterate."""
        objective = self.objective(batch)
        delta = algorithm2.minimise(objective, self.options.iterations, self.tick)
        rows = self.snap(objective.counterfactual(delta), batch.box)
        return rows, self.accepts(rows, batch)

    def propose_by_iterations(self, batch: QueryBatch, rows: Tensor, accepted: Tensor) -> Found:
        """Algorithm 2, and the nearest row on its way that the guide accepts."""
        rows = self._by_iterations(self.objective(batch))
        return rows, self.accepts(rows, batch)

    def propose_amortised(self, batch: QueryBatch, rows: Tensor, accepted: Tensor) -> Found:
        """The δ that the amortised search gives, refined if iterations are asked for."""
        objective = self.objective(batch)
        delta = objective.no_perturbation
        if self.amortiser is not None:
            free = is_free(batch.box.lower, batch.box.upper)
            delta = self.amortiser(batch.queries, batch.targets, free)
        if batch.start_noise is not None:
            delta = delta + batch.start_noise
        if self.options.iterations:
            delta = algorithm2.refine(objective, delta, self.options.iterations)
        with torch.no_grad():
            rows = self.snap(objective.counterfactual(delta), batch.box)
        return rows, self.accepts(rows, batch)

    def repair(self, batch: QueryBatch, rows: Tensor, accepted: Tensor) -> Found:
        """Single moves from the query, further beyond a student's boundary until f agrees."""
        for beyond in BEYOND[:1] if self.guide is self.judge else BEYOND:
            left = (~accepted).nonzero()[:, 0]
            if not len(left):
                break
            part = batch.select(left)
            rows, accepted = self._take(part, self._moves(part, beyond), left, (rows, accepted))
        return rows, accepted

    def try_labelled(self, batch: QueryBatch, rows: Tensor, accepted: Tensor) -> Found:
        """The nearest rows of the target class that a model without a gradient has classified."""
        left = (~accepted).nonzero()[:, 0]
        if self.labelled_rows is None or not len(left):
            return rows, accepted
        part = batch.select(left)
        for tried in self.labelled_rows.nearest(part.queries, part.targets).unbind(dim=1):
            legal = self.snap(tried, part.box)
            rows, accepted = self._take(part, legal, left, (rows, accepted))
        return rows, accepted

    def insist(self, batch: QueryBatch, rows: Tensor, accepted: Tensor) -> Found:
        """Algorithm 2 with an ever heavier L_pred; a soft margin gives way at the last attempt."""
        iterations = max(self.options.iterations, INSIST_ITERATIONS)
        longer = replace(self, options=replace(self.options, iterations=iterations), tick=silent)
        lenient = replace(self, options=replace(self.options, margin=0.0))
        for factor in INSIST_ALPHA:
            left = (~accepted).nonzero()[:, 0]
            if not len(left):
                break
            part = batch.select(left)
            heavier = replace(self.weights, alpha=self.weights.alpha * factor)
            tried = longer._by_iterations(replace(self.objective(part), weights=heavier))
            judging = lenient if self.options.soft_margin and factor == INSIST_ALPHA[-1] else self
            rows, accepted = judging._take(part, tried, left, (rows, accepted))
        return rows, accepted

    def climb(self, batch: QueryBatch, rows: Tensor, accepted: Tensor) -> Found:
        """One feature after the other, by trying their values, where nothing else has helped."""
        left = (~accepted).nonzero()[:, 0]
        if not len(left) or batch.box.ties is not None:
            return rows, accepted
        part = batch.select(left)
        climb = Climb(
            self._single_changes(part),
            lambda tried, query: self.margin(self.judge, tried, part.targets[query]),
            part.max_changes,
        )
        return self._take(part, climb(), left, (rows, accepted))

    def polish(self, batch: QueryBatch, rows: Tensor, accepted: Tensor) -> Found:
        """Accepted rows with as little changed as can be found."""
        found = accepted.nonzero()[:, 0]
        if not len(found):
            return rows, accepted
        part = batch if len(found) == len(rows) else batch.select(found)
        # Where calls of the judge are counted, the guide stands in and the judge is asked once.
        counted = self.judge.calls_left is not None
        polished = Polish(
            nearest_legal=self.snap(part.queries, part.box),
            targets=part.targets,
            box=part.box,
            snap=self.snap,
            margin=partial(self.margin, self.guide if counted else self.judge),
            margin_gradient=partial(margin_gradient, self.guide),
            costs=part.costs,
        )(rows[found])
        if counted:
            still = self.accepts(polished, part)
            polished = torch.where(still[:, None], polished, rows[found])
        rows = rows.clone()
        rows[found] = polished
        return rows, accepted

    def polish_from_both_starts(self, batch: QueryBatch, rows: Tensor, accepted: Tensor) -> Found:
        """Polish the rows so far and rows moved from the query itself; keep the nearer ones."""
        moved = self._moves(batch)
        both_accepted = torch.stack([accepted, self.accepts(moved, batch)], dim=1)
        twice = batch.repeated(2)
        both = torch.stack([rows, moved], dim=1).flatten(0, 1)
        both, _ = self.polish(twice, both, both_accepted.flatten())
        squares = self.snap.squares_by_part(both, twice.queries, twice.costs).sum(dim=1)
        distance = torch.where(both_accepted, squares.unflatten(0, (-1, 2)), torch.inf)
        nearer = distance.argmin(dim=1)
        everyone = torch.arange(len(rows), device=rows.device)
        return both.unflatten(0, (-1, 2))[everyone, nearer], both_accepted.any(dim=1)

    def scan(self, batch: QueryBatch, rows: Tensor, accepted: Tensor) -> Found:
        """A smaller change of one feature alone, where the judge accepts one."""
        return self._single_changes(batch)(rows, accepted)

    def limit_changes(self, batch: QueryBatch, rows: Tensor, accepted: Tensor) -> Found:
        """Search anew, move by move, where an answer changes more features than it may."""
        if batch.max_changes is None:
            return rows, accepted
        too_many = self._changes(rows, batch) > batch.max_changes
        accepted = accepted & ~too_many
        left = too_many.nonzero()[:, 0]
        if len(left):
            part = batch.select(left)
            for beyond in BEYOND:
                rows, accepted = self._take(part, self._moves(part, beyond), left, (rows, accepted))
        return rows, accepted & (self._changes(rows, batch) <= batch.max_changes)

    # --- What the stages share ---

    def _single_changes(self, batch: QueryBatch) -> Scan:
        return Scan(
            encoding=self.judge.encoding,
            snap=self.snap,
            start=self.snap(batch.queries, batch.box),
            box=batch.box,
            accepts=lambda tried, query: self.margin(self.judge, tried, batch.targets[query]) >= 0,
            costs=batch.costs,
        )

    def objective(self, batch: QueryBatch) -> SearchObjective:
        """L_cs of the queries, under the guide."""
        return SearchObjective(
            model=self.guide,
            autoencoder=self.autoencoder,
            weights=self.weights,
            queries=batch.queries,
            targets=batch.targets,
            prototypes=self.prototypes,
            box=batch.box,
        )

    def margin(self, model: TargetModel, rows: Tensor, targets: Tensor) -> Tensor:
        """How far `model` is beyond what is asked of each row, in log-odds; accepted from 0 on."""
        return margin_beyond(model, self.options.margin, rows, targets)

    def accepts(self, rows: Tensor, batch: QueryBatch) -> Tensor:
        """Which rows keep the ties and have at least the margin by the judge, (queries,)."""
        accepted = self.margin(self.judge, rows, batch.targets) >= 0
        return accepted if batch.box.ties is None else accepted & batch.box.ties_held(rows)

    def _by_iterations(self, objective: SearchObjective) -> Tensor:
        """The nearest legal row on the way of Algorithm 2 that the guide accepts, or the last."""
        nearest = algorithm2.NearestAccepted(
            objective, self.snap, lambda rows, goals: self.margin(self.guide, rows, goals) >= 0
        )
        delta = algorithm2.minimise(objective, self.options.iterations, self.tick, nearest.look)
        with torch.no_grad():
            return nearest.or_else(self.snap(objective.counterfactual(delta), objective.box))

    def _moves(self, batch: QueryBatch, beyond: float = 0.0) -> Tensor:
        """Rows reached from the queries by single moves, `beyond` log-odds past the boundary."""
        needed, margin = beyond + SAFELY, self.options.margin
        if margin > 0.5:
            needed += math.log(margin / (1 - min(margin, 1 - 1e-6)))
        moves = Moves(
            self.guide, self.snap, batch.targets, batch.box, batch.max_changes, batch.costs
        )
        return moves.repair(self.snap(batch.queries, batch.box), REPAIR_STEPS, needed)

    def _changes(self, rows: Tensor, batch: QueryBatch) -> Tensor:
        return self.snap.changed_features(rows, batch.queries).sum(dim=1)

    def _take(self, part: QueryBatch, tried: Tensor, left: Tensor, so_far: Found) -> Found:
        """What was found so far, with the rows `tried` for the queries `left` where accepted."""
        rows, accepted = so_far
        better = self.accepts(tried, part) & ~accepted[left]
        rows, accepted = rows.clone(), accepted.clone()
        rows[left[better]], accepted[left[better]] = tried[better], True
        return rows, accepted
