"""CADEX (Moore 2019): a trainable layer that adds to the input, under a mask.

Adam lowers the cross-entropy to the target class and nothing else. The mask comes from the first
gradient: it drops categories that cannot move (they would sink, or are chosen already) and, with
`top_k`, all but the numbers of the strongest gradient. When the second-highest number of a one-hot
group passes the threshold, its category is chosen. The answer is the first point that f accepts
also as a legal row.
"""

from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from counterveil.encoding import Encoding
from counterveil.errors import RequestError
from counterveil.schema import Categorical
from counterveil_lab.baselines.base import Answers, Fitted, Nearest, Problem
from counterveil_lab.product import log_proba_at


@dataclass(eq=False, kw_only=True)
class Cadex(Fitted):
    """All queries at once: Adam works number by number, so that a batch changes nothing.

    `threshold`: 0 as published; .5 gives far nearer answers. The method needs neither training
    rows nor a seed. The authors' way to several explanations is kept: answer number i comes
    without the i numbers of the strongest gradient.
    """

    threshold: float = 0.0
    top_k: int | None = None
    rate: float = 1e-3
    epochs: int = 1000

    def fit(self, train: pd.DataFrame) -> None:
        self.name = f"cadex-{self.threshold:g}"
        self.require_gradient()
        if not 0 <= self.threshold < 1:
            raise RequestError("threshold must be at least 0 and below 1")
        if self.top_k is not None and self.top_k < 1:
            raise RequestError("top_k must be at least 1")
        self._groups, self._is_category = _one_hot(self.model.encoding)

    def explain(self, queries: pd.DataFrame, targets: Tensor, *, k: int = 1) -> Answers:
        problem = Problem.pose(self.model, queries, targets, k)
        nearest = Nearest(problem)
        for skip in range(k):
            rows, found = self._search(problem, skip)
            nearest.look(problem.numbers, rows[:, None], found[:, None])
        return problem.answers(nearest.rows)

    def _search(self, problem: Problem, skip: int) -> tuple[Tensor, Tensor]:
        """The first legal winner of each query, and which queries have one."""
        queries, goal = problem.queries, problem.targets[:, None]
        rows = queries.clone()
        found = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
        added = torch.zeros_like(queries, requires_grad=True)
        optimiser = torch.optim.Adam([added], self.rate)
        mask: Tensor | None = None
        for epoch in range(self.epochs + 1):
            log_proba = log_proba_at(self.model, queries + added)
            won = (log_proba.argmax(dim=1) == problem.targets) & ~found
            if bool(won.any()):
                numbers = problem.numbers[won]
                legal = problem.legal((queries + added).detach()[won][:, None], numbers)
                stands = problem.accepted(legal, numbers)[:, 0]
                rows[numbers[stands]] = legal[stands, 0]
                found[numbers[stands]] = True
            if epoch == self.epochs or bool(found.all()):
                break
            (gradient,) = torch.autograd.grad(-log_proba.gather(1, goal).sum(), added)
            if mask is None:
                mask = self._mask(gradient, problem, skip)
            added.grad = gradient * mask
            optimiser.step()
            with torch.no_grad():
                added.copy_(problem.box.project(self._choose(queries + added)) - queries)
        return rows, found

    def _mask(self, gradient: Tensor, problem: Problem, skip: int) -> Tensor:
        """Which numbers may move, by the gradient of the loss at the query."""
        is_open = problem.box.upper > problem.box.lower
        rises = (gradient < 0) & (problem.queries < 0.5)
        is_open &= rises | ~self._is_category.to(rises.device)
        strength = torch.where(is_open, gradient.abs(), -1.0)
        rank = strength.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        last = strength.shape[1] if self.top_k is None else skip + self.top_k
        return is_open & (rank >= skip) & (rank < last)

    def _choose(self, points: Tensor) -> Tensor:
        """In each group the second-highest category becomes 1 if it is above the threshold."""
        if not len(self._groups):
            return points
        padded = torch.nn.functional.pad(points, (0, 1), value=-torch.inf)
        values = padded[:, self._groups]
        order = values.sort(dim=2, descending=True, stable=True)
        second = torch.zeros_like(values).scatter_(2, order.indices[:, :, 1:2], 1.0)
        passes = order.values[:, :, 1:2] > self.threshold
        padded[:, self._groups] = torch.where(passes, second, values)
        return padded[:, :-1]


def _one_hot(encoding: Encoding) -> tuple[Tensor, Tensor]:
    """The numbers of each group, filled up with one past the last; and which numbers these are."""
    groups = [
        torch.arange(block.start, block.stop)
        for block in encoding.blocks
        if isinstance(block.feature, Categorical)
    ]
    is_category = torch.zeros(encoding.width, dtype=torch.bool)
    if not groups:
        return torch.zeros(0, 2, dtype=torch.long), is_category
    is_category[torch.cat(groups)] = True
    padded = torch.nn.utils.rnn.pad_sequence(groups, True, padding_value=encoding.width)
    return padded, is_category
