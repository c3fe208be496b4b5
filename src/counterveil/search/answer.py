"""From encoded queries to legal rows that the model accepts: propose, repair, polish.

    propose   the amortised search, or Algorithm 2, and the nearest legal row of what it gives
    repair    for queries without an answer yet: one feature at a time, from the query itself
    insist    for those still without: Algorithm 2 with ever heavier L_pred
    polish    give back to the query what an answer does not need; in mixed tables this is done from
              both sides, from the proposal and from repair, and the nearer answer is kept

All on tensors; a query is a row of them. `guide` lends its gradient, `judge` decides: they are the
same model unless it has no gradient, and f~ alone with guidance `surrogate`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from counterveil.amortiser import Amortiser, is_free
from counterveil.autoencoder import Autoencoder
from counterveil.models import TargetModel
from counterveil.progress import Tick, silent
from counterveil.search.best import Best
from counterveil.search.constraints import Box
from counterveil.search.latent import search
from counterveil.search.objective import SearchObjective, Weights, held
from counterveil.search.polish import Polishing
from counterveil.search.pool import Pool
from counterveil.search.repair import gap_and_slope, gap_of, repair
from counterveil.search.snap import Snap

REPAIR_STEPS = 80  # single moves for a query that no search could answer
BEYOND = (0.0, 1.0, 2.0, 4.0)  # log-odds past the boundary of a student, until the model agrees
ATTEMPTS, INSIST = 3, 4.0  # searches for a query without an answer; the factor on α each time
INSIST_ITERATIONS = 200
SAFELY = 1e-4  # log-odds: more than float arithmetic is off by


@dataclass(frozen=True)
class How:
    """How to look for answers. `wish`: less than the margin will do where that is not to be had."""

    method: Literal["amortised", "iterations"] = "amortised"
    iterations: int = 0
    keep: Literal["best", "last"] = "best"
    polish: bool = True
    margin: float = 0.0
    wish: bool = False


@dataclass(frozen=True)
class Questions:
    """Encoded queries with target class, box, and what their rules say of costs and changes.

    `costs` of each column, one row or one a query; `most` features that may change, one a query.
    """

    queries: Tensor
    targets: Tensor
    box: Box
    costs: Tensor | None = None
    most: Tensor | None = None

    def __len__(self) -> int:
        return len(self.queries)

    def rows(self, part: Tensor | slice) -> Questions:
        """Some of the questions."""
        costs = self.costs
        return Questions(
            self.queries[part],
            self.targets[part],
            self.box.select(part),
            costs if costs is None or len(costs) == 1 else costs[part],
            None if self.most is None else self.most[part],
        )

    def repeated(self, k: int) -> Questions:
        """Each question k times over."""
        return self.rows(torch.arange(len(self), device=self.queries.device).repeat_interleave(k))

    def holding(self, columns: Tensor) -> Questions:
        """The same where the marked columns must stay as they are."""
        return replace(self, box=held(self.box, columns, self.queries))

    def to(self, device: torch.device) -> Questions:
        moved = (None if each is None else each.to(device) for each in (self.costs, self.most))
        return Questions(
            self.queries.to(device), self.targets.to(device), self.box.to(device), *moved
        )


@dataclass(frozen=True, eq=False)
class Answerer:
    """Everything an answer is made of.

    `mends`: whether single moves may stand for a search; `both_sides`: whether they are tried even
    where a search found something.
    """

    autoencoder: Autoencoder
    prototypes: Tensor
    guide: TargetModel
    judge: TargetModel
    weights: Weights
    snap: Snap
    amortiser: Amortiser | None
    mends: bool
    both_sides: bool = False
    pool: Pool | None = None

    def __call__(
        self, questions: Questions, how: How, tick: Tick = silent, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """A legal row for every question, and whether the judge accepts it.

        `noise` on δ makes the amortised search start elsewhere.
        """
        objective = self.objective(questions)
        if how.keep == "last":
            rows = self.snap(
                objective.counterfactual(search(objective, how.iterations, tick)), questions.box
            )
            return rows, self.stands(rows, questions.targets, how.margin)
        if how.method == "amortised":
            rows = self._amortised(objective, how, noise)
        else:
            rows = self._algorithm_2(objective, how, tick)
        stands = self.stands(rows, questions.targets, how.margin)
        rows, stands = self._mend(questions, how, rows, stands)
        rows, stands = self._insist(objective, how, rows, stands)
        if how.polish and self.both_sides and self.judge.calls_left is None:
            rows, stands = self._nearer_side(questions, how, rows, stands)
        elif how.polish:
            rows = self._polish(questions, how, rows, stands)
        return self._within_budget(questions, how, rows, stands)

    def objective(self, questions: Questions) -> SearchObjective:
        """L_cs of the questions."""
        return SearchObjective(
            model=self.guide,
            autoencoder=self.autoencoder,
            weights=self.weights,
            queries=questions.queries,
            targets=questions.targets,
            all_prototypes=self.prototypes,
            box=questions.box,
        )

    @torch.no_grad()
    def gap(
        self, points: Tensor, targets: Tensor, margin: float = 0.0, by: TargetModel | None = None
    ) -> Tensor:
        """By how much a model, the judge if not said, is for the target class with `margin`."""
        log_proba = (by or self.judge).log_proba(points)
        gap = gap_of(log_proba, targets) - SAFELY
        if margin > 0:
            beyond = log_proba.gather(1, targets[:, None])[:, 0] - math.log(margin)
            gap = torch.minimum(gap, beyond)
        return gap

    def stands(self, rows: Tensor, targets: Tensor, margin: float) -> Tensor:
        """Which rows the judge accepts."""
        return self.gap(rows, targets, margin) >= 0

    def _amortised(self, objective: SearchObjective, how: How, noise: Tensor | None) -> Tensor:
        if self.amortiser is None:
            delta = torch.zeros_like(objective.prototypes)
        else:
            delta = self.amortiser(
                objective.queries,
                objective.targets,
                is_free(objective.box.lower, objective.box.upper),
            )
        if noise is not None:
            delta = delta + noise
        if how.iterations:
            delta = search(objective, how.iterations, start=delta)
        with torch.no_grad():
            return self.snap(objective.counterfactual(delta), objective.box)

    def _algorithm_2(self, objective: SearchObjective, how: How, tick: Tick = silent) -> Tensor:
        """The nearest acceptable legal row on the way; the last one where there is none."""
        best = Best(
            self.snap,
            lambda rows, targets: self.gap(rows, targets, how.margin, self.guide) >= 0,
            objective,
        )
        delta = search(objective, how.iterations, tick, look=best.look)
        with torch.no_grad():
            return best.or_else(self.snap(objective.counterfactual(delta), objective.box))

    def _mend(
        self, questions: Questions, how: How, rows: Tensor, stands: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Single moves from the query, and further beyond the boundary until the judge agrees."""
        if not self.mends:
            return rows, stands
        for beyond in BEYOND[:1] if self.guide is self.judge else BEYOND:
            left = (~stands).nonzero()[:, 0]
            if not len(left):
                break
            part = questions.rows(left)
            mended = self._moves(part, how, beyond)
            rows, stands = self._take(rows, stands, left, mended, part, how)
        left = (~stands).nonzero()[:, 0]
        if self.pool is not None and len(left):
            part = questions.rows(left)
            tries = self.pool.nearest(part.queries, part.targets)
            for number in range(tries.shape[1]):
                tried = self.snap(tries[:, number], part.box)
                rows, stands = self._take(rows, stands, left, tried, part, how)
        return rows, stands

    def _moves(self, part: Questions, how: How, beyond: float = 0.0) -> Tensor:
        need = beyond + SAFELY
        if how.margin > 0.5:
            need += math.log(how.margin / (1 - min(how.margin, 1 - 1e-6)))
        return repair(
            self.snap(part.queries, part.box), part.targets, part.box, self.snap, self.guide,
            steps=REPAIR_STEPS, need=need, most=part.most, costs=part.costs,
        )  # fmt: skip

    def _insist(
        self, objective: SearchObjective, how: How, rows: Tensor, stands: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Algorithm 2 again with a heavier L_pred for queries without an answer."""
        steady = replace(how, iterations=max(how.iterations, INSIST_ITERATIONS))
        for attempt in range(ATTEMPTS):
            left = (~stands).nonzero()[:, 0]
            if not len(left):
                break
            part = objective.rows(left, alpha=INSIST**attempt)
            tried = self._algorithm_2(part, steady)
            settles = how.wish and attempt == ATTEMPTS - 1
            accepted = self.stands(tried, part.targets, 0.0 if settles else how.margin)
            rows, stands = rows.clone(), stands.clone()
            rows[left[accepted]], stands[left] = tried[accepted], accepted
        return rows, stands

    def _nearer_side(
        self, questions: Questions, how: How, rows: Tensor, stands: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Polished answers from the proposal and from the query's side; the nearer of the two."""
        moved = self._moves(questions, how)
        sides = torch.stack([rows, moved], 1).flatten(0, 1)
        accepted = torch.stack([stands, self.stands(moved, questions.targets, how.margin)], 1)
        twice = questions.repeated(2)
        polished = self._polish(twice, how, sides, accepted.flatten())
        squares = self.snap.squares_by_part(polished, twice.queries, twice.costs).sum(dim=1)
        far = torch.where(accepted, squares.unflatten(0, (-1, 2)), torch.inf)
        nearer = far.argmin(dim=1)
        everyone = torch.arange(len(rows), device=rows.device)
        return polished.unflatten(0, (-1, 2))[everyone, nearer], accepted.any(dim=1)

    def _polish(self, questions: Questions, how: How, rows: Tensor, stands: Tensor) -> Tensor:
        found = stands.nonzero()[:, 0]
        if not len(found):
            return rows
        part = questions if len(found) == len(rows) else questions.rows(found)
        if self.judge.calls_left is not None:  # every look costs: the guide stands in
            polished = self._polishing(part, how, self.guide)(rows[found])
            ok = self.stands(polished, part.targets, how.margin)
            polished = torch.where(ok[:, None], polished, rows[found])
        else:
            polished = self._polishing(part, how, self.judge)(rows[found])
        rows = rows.clone()
        rows[found] = polished
        return rows

    def _polishing(self, part: Questions, how: How, judge: TargetModel) -> Polishing:
        return Polishing(
            home=self.snap(part.queries, part.box),
            targets=part.targets,
            box=part.box,
            snap=self.snap,
            gap=lambda points, targets: self.gap(points, targets, how.margin, judge),
            slope=lambda points, targets: gap_and_slope(self.guide, points, targets)[1],
            costs=part.costs,
        )

    def _within_budget(
        self, questions: Questions, how: How, rows: Tensor, stands: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Answers that change more features than they may are sought anew, move by move."""
        if questions.most is None:
            return rows, stands
        over = self._changes(rows, questions) > questions.most
        stands = stands & ~over
        left = over.nonzero()[:, 0]
        if len(left):
            part = questions.rows(left)
            for beyond in BEYOND:
                rows, stands = self._take(
                    rows, stands, left, self._moves(part, how, beyond), part, how
                )
        return rows, stands & (self._changes(rows, questions) <= questions.most)

    def _changes(self, rows: Tensor, questions: Questions) -> Tensor:
        return self.snap.changed_features(rows, questions.queries).sum(dim=1)

    def _take(
        self, rows: Tensor, stands: Tensor, left: Tensor, tried: Tensor, part: Questions, how: How
    ) -> tuple[Tensor, Tensor]:
        """Rows that were tried for the questions `left`, where they stand and nothing did yet."""
        better = self.stands(tried, part.targets, how.margin) & ~stands[left]
        rows, stands = rows.clone(), stands.clone()
        rows[left[better]], stands[left[better]] = tried[better], True
        return rows, stands
