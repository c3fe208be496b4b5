"""NICE (Brughmans et al. 2023): values of the nearest accepted training row, one after the other.

Written after the authors' package NICEx, which wants numpy 1 and pandas 1. A donor is a training
row that f puts into the target class and that is of it. The nearest by HEOM (numbers divided by
their range, 1 for a category that differs) gives its values, the one with the best reward first,
until f accepts. Every answer is made of pieces of one real row: nothing about it is private.

NICEx knows no features that must stay. Here they keep the query's values, and the donor is the
nearest with whose other values f accepts the query.
"""

from dataclasses import dataclass
from typing import Literal

import pandas as pd
import torch
from torch import Tensor

from counterveil.encoding import Array
from counterveil.schema import Numeric
from counterveil_lab.baselines.base import Answers, Fitted, Problem
from counterveil_lab.baselines.latent import Vae, train_vae
from counterveil_lab.percentiles import unit_points
from counterveil_lab.product import log_proba_at
from counterveil_lab.targets import encoded

Reward = Literal["none", "sparsity", "proximity", "plausibility"]
DONORS_AT_A_TIME = 256
QUERIES_AT_A_TIME = 64
TINY = 1e-11  # as in NICEx


@dataclass(eq=False, kw_only=True)
class Nice(Fitted):
    """`reward` chooses the next value, by what it adds to the probability of the target class.

    "sparsity": the most; "proximity": the most for its distance; "plausibility": the most times
    what an autoencoder's error falls by (`vae`, trained here unless given). "none" takes over all
    values of the donor at once.
    """

    reward: Reward = "sparsity"
    vae: Vae | None = None

    def fit(self, train: pd.DataFrame) -> None:
        self.name = f"nice-{self.reward}"
        schema, model = self.schema, self.model
        self._blocks = model.encoding.blocks
        if self.reward == "plausibility" and self.vae is None:
            self.vae = train_vae(train, schema, seed=self.seed, device=model.device)
        points, classes = encoded(train, schema)
        said = torch.cat([self._log_proba(part).argmax(dim=1) for part in points.split(8192)])
        right = said.cpu() == classes
        self._donors, self._classes = points[right].to(model.device), classes[right]
        self._ranges = {
            block.start: _Range(points[:, block.start].numpy())
            for block in self._blocks
            if isinstance(block.feature, Numeric)
        }
        self._places = self._space(self._donors)
        self._of_feature = torch.zeros(len(self._blocks), schema.width, dtype=torch.bool)
        for number, block in enumerate(self._blocks):
            self._of_feature[number, block.at] = True
        self._of_feature = self._of_feature.to(model.device)

    @torch.no_grad()
    def explain(self, queries: pd.DataFrame, targets: Tensor, *, k: int = 1) -> Answers:
        """Answers from the k nearest donors that f accepts; fewer where there are fewer."""
        problem = Problem.pose(self.model, queries, targets, k)
        rows = problem.queries[:, None].repeat(1, k, 1)
        for numbers in problem.numbers.split(QUERIES_AT_A_TIME):
            donated, found = self._nearest(problem, numbers)
            asked, place = found.nonzero(as_tuple=True)
            if len(asked):
                whole, whose = donated[asked, place], numbers[asked]
                given = whole if self.reward == "none" else self._climb(problem, whose, whole)
                rows[whose, place] = given
        return problem.answers(problem.legal(rows, problem.numbers))

    def _nearest(self, problem: Problem, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """The k nearest rows that f accepts, (queries, k, width), and which there are."""
        rows = problem.queries[numbers][:, None].repeat(1, problem.k, 1)
        found = torch.zeros(rows.shape[:2], dtype=torch.bool, device=rows.device)
        far = torch.cdist(self._space(problem.queries[numbers]), self._places, p=1)
        for i, number in enumerate(numbers):
            mine = (self._classes == problem.targets[number].cpu()).nonzero()[:, 0].to(rows.device)
            order = mine[far[i, mine].argsort(stable=True)]
            for part in order.split(DONORS_AT_A_TIME) if len(order) else ():
                legal = problem.legal(self._donors[part][None], number[None])
                good = legal[0, problem.accepted(legal, number[None])[0]]
                free = (~found[i]).nonzero()[: len(good), 0]
                rows[i, free], found[i, free] = good[: len(free)], True
                if found[i].all():
                    break
        return rows, found

    def _climb(self, problem: Problem, numbers: Tensor, whole: Tensor) -> Tensor:
        """From the queries `numbers` towards the accepted rows `whole`, a feature at a time."""
        start = problem.queries[numbers]
        rows, target = start.clone(), problem.targets[numbers]
        left = torch.arange(len(rows), device=rows.device)
        while len(left):
            here = rows[left]
            steps = torch.where(self._of_feature, whole[left][:, None], here[:, None])
            moved = (steps != here[:, None]).any(dim=2)
            worth = self._worth(start[left], here, steps, target[left])
            best = torch.where(moved, worth, -torch.inf).argmax(dim=1)
            rows[left] = steps[torch.arange(len(left), device=rows.device), best]
            winner = self._log_proba(rows[left]).argmax(dim=1)
            left = left[(winner != target[left]) & (rows[left] != whole[left]).any(dim=1)]
        return rows

    def _worth(self, start: Tensor, here: Tensor, steps: Tensor, target: Tensor) -> Tensor:
        """The reward of each of `steps` (rows, features, width) from `here` (rows, width)."""
        shape, flat = steps.shape[:2], steps.flatten(0, 1)
        after = self._log_proba(flat).exp().reshape(*shape, -1)
        before = self._log_proba(here).exp()
        pick = target[:, None, None].expand(-1, shape[1], 1)
        gain = after.gather(2, pick)[:, :, 0] - before.gather(1, target[:, None])
        if self.reward == "proximity":
            origin = self._space(start)
            far = (self._space(flat).reshape(*shape, -1) - origin[:, None]).abs().sum(dim=2)
            return gain / (far - (self._space(here) - origin).abs().sum(dim=1)[:, None] + TINY)
        if self.reward == "plausibility":
            return gain * (self._error(here)[:, None] - self._error(flat).reshape(shape))
        return gain

    def _error(self, points: Tensor) -> Tensor:
        """The squared error of the autoencoder, (points,)."""
        assert self.vae is not None
        again = self.vae.decode(self.vae.encode(points)[0])
        return (again - points).square().sum(dim=1)

    def _space(self, points: Tensor) -> Tensor:
        """Points whose L1 distance is HEOM."""
        there = unit_points(self._blocks, points.double().cpu().numpy(), self._ranges)
        return there.to(points.device)

    def _log_proba(self, points: Tensor) -> Tensor:
        return log_proba_at(self.model, points.to(self.model.device))


class _Range:
    """Numbers from the smallest to the largest of the training rows, as 0 to 1."""

    def __init__(self, values: Array) -> None:
        self._low = float(values.min())
        self._span = max(float(values.max()) - self._low, TINY)

    def __call__(self, values: Array) -> Array:
        return (values - self._low) / self._span
