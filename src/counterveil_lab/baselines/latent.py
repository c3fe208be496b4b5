"""C-CHVAE and REVISE: two methods that search the latent space of a variational autoencoder.

The autoencoder has the defaults of the library CARLA. It learns from the training rows as they are,
with no noise: that is the published method, and why its answers are no more private than the rows.
"""

from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional

from counterveil.errors import RequestError
from counterveil.networks import seeded
from counterveil.schema import Schema
from counterveil_lab.baselines.base import Answers, Fitted, Nearest, Problem
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
        return self.decoder(latent)


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


@dataclass(eq=False, kw_only=True)
class _LatentSearch(Fitted):
    """What both methods need: f and a VAE, trained here unless one is given as `vae`."""

    layers: tuple[int, ...] = LAYERS
    epochs: int = EPOCHS
    vae: Vae | None = None

    def fit(self, train: pd.DataFrame) -> None:
        how: dict[str, Any] = {"layers": self.layers, "epochs": self.epochs, "seed": self.seed}
        self._vae = self.vae or train_vae(train, self.schema, device=self.model.device, **how)


@dataclass(eq=False, kw_only=True)
class Cchvae(_LatentSearch):
    """C-CHVAE (Pawelczyk 2020): the latent space searched in growing shells.

    Around the code μ(x) of the query, `samples` points in the L1 shell from 0 to `step`, then from
    `step` to 2·`step`, and so on for `shells` shells. They are decoded and become legal rows. The
    first shell with a row that f accepts has the answer: the nearest in L1, or the k nearest. f
    needs no gradient. All queries try the same random directions, so that an answer does not
    depend on which other queries were asked.
    """

    samples: int = 300
    step: float = 0.1
    shells: int = 1000

    def fit(self, train: pd.DataFrame) -> None:
        self.name = "cchvae"
        super().fit(train)

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
        codes, _ = self._vae.encode(problem.queries)
        generator = torch.Generator().manual_seed(self.seed)
        for shell in range(self.shells):
            direction = torch.randn(self.samples, codes.shape[1], generator=generator)
            norm = self.step * (shell + torch.rand(self.samples, 1, generator=generator))
            around = direction * (norm / direction.abs().sum(dim=1, keepdim=True))
            decoded = self._vae.decode(codes[numbers][:, None] + around.to(codes.device))
            rows = problem.legal(decoded, numbers)
            accepted = problem.accepted(rows, numbers)
            nearest.look(numbers, rows, accepted)
            numbers = numbers[~accepted.any(dim=1)]
            if not len(numbers):
                break


@dataclass(eq=False, kw_only=True)
class Revise(_LatentSearch):
    """REVISE (Joshi 2019): gradient descent on the latent code, for all queries at once.

    From the code of the query, Adam on z lowers BCE(f(x'), target) + `weight`·‖x'-x‖₁ with
    x' = decode(z), for all of the iterations. The answer is the nearest of the decoded points that
    f accepts as a legal row. Several answers are the nearest different rows on the way, and lie
    close together. Nothing is random but the training.
    """

    weight: float = 0.5
    rate: float = 0.1
    iterations: int = 1000

    def fit(self, train: pd.DataFrame) -> None:
        self.name = "revise"
        self.require_gradient()
        super().fit(train)

    def explain(self, queries: pd.DataFrame, targets: Tensor, *, k: int = 1) -> Answers:
        problem = Problem.pose(self.model, queries, targets, k)
        nearest = Nearest(problem)
        code = self._vae.encode(problem.queries)[0].clone().requires_grad_(True)
        optimiser = torch.optim.Adam([code], self.rate)
        for _ in range(self.iterations):
            points = problem.box.project(self._vae.decode(code))
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
