"""C-CHVAE and REVISE: two methods that search the latent space of a variational autoencoder.

The autoencoder has the defaults of the library CARLA. It learns from the training rows as they are,
with no noise: that is the published method, and why its answers are no more private than the rows.
"""

from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional

from counterveil.errors import RequestError
from counterveil.models import TargetModel
from counterveil.networks import seeded
from counterveil.schema import Schema
from counterveil_lab.baselines.base import Answers, Nearest, Problem, check
from counterveil_lab.product import dense_relu, log_proba_at
from counterveil_lab.targets import encoded

LAYERS = (512, 256, 8)
EPOCHS, BATCH, RATE, WEIGHT_DECAY, KL_WEIGHT = 10, 32, 1e-3, 1e-6, 0.3
NUMBERS_AT_A_TIME = 2**24  # decoded at once; bounds the memory


class Vae(nn.Module):
    """Dense layers with ReLU down to a normal distribution, and back up to a sigmoid."""

    def __init__(self, width: int, layers: tuple[int, ...] = LAYERS) -> None:
        super().__init__()
        *hidden, latent = layers
        sizes = [width, *hidden]
        self.trunk = dense_relu(sizes)
        self.mean = nn.Linear(sizes[-1], latent)
        self.log_variance = nn.Linear(sizes[-1], latent)
        self.decoder = nn.Sequential(
            dense_relu([latent, *reversed(hidden)]), nn.Linear(sizes[1], width), nn.Sigmoid()
        )

    def encode(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of the latent vectors of points (rows, width)."""
        inner = self.trunk(points)
        return self.mean(inner), self.log_variance(inner)

    def decode(self, latent: Tensor) -> Tensor:
        """Points inside the unit cube; seldom legal rows."""
        points: Tensor = self.decoder(latent)
        return points


def train_vae(
    train: pd.DataFrame,
    schema: Schema,
    *,
    seed: int = 0,
    layers: tuple[int, ...] = LAYERS,
    epochs: int = EPOCHS,
    device: torch.device | None = None,
) -> Vae:
    """A VAE of the features of the rows `train`; frozen, on `device`.

    Binary cross-entropy summed over the numbers + β·KL; β grows from 0 to .3 over the epochs.
    """
    if len(layers) < 2:
        raise RequestError("layers: a VAE needs a hidden layer and a latent one")
    points = encoded(train, schema)[0].to(device)
    vae = seeded(lambda: Vae(schema.width, layers), seed).to(device)
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(vae.parameters(), RATE, weight_decay=WEIGHT_DECAY, fused=True)
    for epoch in range(epochs):
        beta = KL_WEIGHT * epoch / max(1, epochs - 1)
        for numbers in torch.randperm(len(points), generator=generator).split(BATCH):
            noise = torch.randn(len(numbers), layers[-1], generator=generator).to(device)
            goal = points[numbers.to(device)]
            mean, log_variance = vae.encode(goal)
            decoded = vae.decode(mean + noise * (log_variance / 2).exp())
            reconstruction = functional.binary_cross_entropy(decoded, goal, reduction="sum")
            kl = (mean.square() + log_variance.exp() - 1 - log_variance).sum() / 2
            optimiser.zero_grad()
            (reconstruction + beta * kl).backward()
            optimiser.step()
    return vae.requires_grad_(False).eval()


class _LatentSearch:
    """What both methods need: f and a VAE, trained here unless one is given as `vae`."""

    name: str
    gradient: bool

    def __init__(
        self,
        schema: Schema,
        model: TargetModel,
        train: pd.DataFrame,
        *,
        seed: int = 0,
        layers: tuple[int, ...] = LAYERS,
        epochs: int = EPOCHS,
        vae: Vae | None = None,
    ) -> None:
        check(schema, model, gradient=self.gradient, name=self.name.upper())
        self.model, self.seed = model, seed
        self.vae = vae or train_vae(
            train, schema, seed=seed, layers=layers, epochs=epochs, device=model.device
        )


class Cchvae(_LatentSearch):
    """C-CHVAE (Pawelczyk 2020): the latent space searched in growing shells.

    Around the code μ(x) of the query, `samples` points in the L1 shell from 0 to `step`, then from
    `step` to 2·`step`, and so on for `shells` shells. They are decoded and become legal rows. The
    first shell with a row that f accepts has the answer: the nearest in L1, or the k nearest. f
    needs no gradient. All queries try the same random directions, so that an answer does not
    depend on which other queries were asked.
    """

    name, gradient = "cchvae", False

    def __init__(
        self, *given: Any, samples: int = 300, step: float = 0.1, shells: int = 1000, **options: Any
    ) -> None:
        super().__init__(*given, **options)
        self.samples, self.step, self.shells = samples, step, shells

    @torch.no_grad()
    def explain(self, queries: pd.DataFrame, targets: Tensor, *, k: int = 1) -> Answers:
        problem = Problem.pose(self.model, queries, targets, k)
        nearest = Nearest(problem)
        together = NUMBERS_AT_A_TIME // (self.samples * problem.queries.shape[1])
        for numbers in problem.numbers.split(max(1, together)):
            self._search(problem, nearest, numbers)
        return problem.answers(nearest.rows)

    def _search(self, problem: Problem, nearest: Nearest, numbers: Tensor) -> None:
        """Shell after shell for the queries `numbers`; who has an answer leaves the search."""
        codes, _ = self.vae.encode(problem.queries)
        generator = torch.Generator().manual_seed(self.seed)
        for shell in range(self.shells):
            direction = torch.randn(self.samples, codes.shape[1], generator=generator)
            norm = self.step * (shell + torch.rand(self.samples, 1, generator=generator))
            around = direction * (norm / direction.abs().sum(dim=1, keepdim=True))
            decoded = self.vae.decode(codes[numbers][:, None] + around.to(codes.device))
            rows = problem.legal(decoded, numbers)
            accepted = problem.accepted(rows, numbers)
            nearest.look(numbers, rows, accepted)
            numbers = numbers[~accepted.any(dim=1)]
            if not len(numbers):
                break


class Revise(_LatentSearch):
    """REVISE (Joshi 2019): gradient descent on the latent code, for all queries at once.

    From the code of the query, Adam on z lowers BCE(f(x'), target) + `weight`·‖x'-x‖₁ with
    x' = decode(z), for all of the iterations. The answer is the nearest of the decoded points that
    f accepts as a legal row. Several answers are the nearest different rows on the way, and lie
    close together. Nothing is random but the training.
    """

    name, gradient = "revise", True

    def __init__(
        self,
        *given: Any,
        weight: float = 0.5,
        rate: float = 0.1,
        iterations: int = 1000,
        **options: Any,
    ) -> None:
        super().__init__(*given, **options)
        self.weight, self.rate, self.iterations = weight, rate, iterations

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
        proba = log_proba_at(self.model, points).exp().clamp(0, 1)
        wanted = functional.one_hot(problem.targets, self.model.classes).to(proba.dtype)
        prediction = functional.binary_cross_entropy(proba, wanted, reduction="none").mean(dim=1)
        return prediction + self.weight * (points - problem.queries).abs().sum(dim=1)
