"""REVISE (Joshi 2019): gradient descent on the latent code of a VAE.

From the code of the query, Adam on z lowers BCE(f(x'), target) + λ‖x'−x‖₁ with x' = decode(z), for
all of the iterations. The answer is the nearest of the decoded points that f accepts as a legal
row.
"""

from __future__ import annotations

import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

from counterveil.models import Rows, TargetModel
from counterveil.schema import Schema
from counterveil_lab.baselines.base import Answers, Nearest, Problem, check
from counterveil_lab.baselines.vae import EPOCHS, LAYERS, Vae, train_vae


class Revise:
    """All queries at once: Adam works number by number. Nothing is random but the training.

    Several answers are the nearest different rows on the way, and lie close together. A `vae` that
    is trained already saves the training; it then explains `layers` and `epochs` away.
    """

    def __init__(
        self,
        schema: Schema,
        model: TargetModel,
        train: pd.DataFrame,
        *,
        seed: int = 0,
        weight: float = 0.5,
        rate: float = 0.1,
        iterations: int = 1000,
        layers: tuple[int, ...] = LAYERS,
        epochs: int = EPOCHS,
        vae: Vae | None = None,
    ) -> None:
        check(schema, model, gradient=True, name="REVISE")
        self.name = "revise"
        self.model = model
        self.weight, self.rate, self.iterations = weight, rate, iterations
        self.vae = vae or train_vae(
            train, schema, seed=seed, layers=layers, epochs=epochs, device=model.device
        )

    def explain(self, queries: pd.DataFrame, targets: Tensor, *, k: int = 1) -> Answers:
        problem = Problem.pose(self.model, queries, targets, k)
        nearest = Nearest(problem)
        code = self.vae.encode(problem.queries)[0].clone().requires_grad_(True)
        optimiser = torch.optim.Adam([code], self.rate)
        for _ in range(self.iterations):
            points = problem.box.project(self.vae.decode(code))
            (code.grad,) = torch.autograd.grad(self._loss(points, problem).sum(), code)
            optimiser.step()
            rows = problem.legal(points.detach()[:, None], problem.numbers)
            nearest.look(problem.numbers, rows, problem.accepted(rows, problem.numbers))
        return problem.answers(nearest.rows)

    def _loss(self, points: Tensor, problem: Problem) -> Tensor:
        proba = self.model.ask(Rows.of_points(points, self.model.encoding)).exp().clamp(0, 1)
        wanted = functional.one_hot(problem.targets, self.model.classes).to(proba.dtype)
        prediction = functional.binary_cross_entropy(proba, wanted, reduction="none").mean(dim=1)
        return prediction + self.weight * (points - problem.queries).abs().sum(dim=1)
