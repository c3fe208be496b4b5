"""Algorithm 2 of the paper: counterfactual search in the latent space.

    Input: prototype ρ_s, query q, autoencoder ψ, model f.    Output: counterfactual ξ.

    1. Select the target class s.                                   `select_targets`
    2. Set α, β, γ for Eq. search_obj.                              `Weights`
    3. For each iteration: optimise the perturbation δ in
       L_cs(δ) = α·L_pred + β·L_dist + γ·L_prot (Eq. search_obj).   `SearchObjective`, `minimise`
    4. Return the counterfactual ψ^Dec(ρ_s + δ).                    `SearchObjective.counterfactual`

All queries of a batch go through the iterations together: a query is a row of a tensor. What the
paper does not have is said where it stands: the constraints of a query (a box that ψ^Dec(ρ_s + δ)
is projected onto), and queries that leave the batch early.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from counterveil.errors import RequestError
from counterveil.models import Rows, TargetModel
from counterveil.networks import Adam, Autoencoder
from counterveil.schema import Category, Family, Label
from counterveil.search.asking import go_on
from counterveil.search.constraints.bounds import Box
from counterveil.search.constraints.projection import Snap
from counterveil.terminal import Tick, silent

ITERATIONS = 300
LEARNING_RATE = 0.05
LOOK_EVERY = 5  # iterations between two looks at the rows on the way
AT_REST = 1e-2  # an objective that improves by less between two looks is at rest ...
PATIENCE = 3  # ... after so many looks
SURROGATE_ALPHA = 4.0
_TINY = 1e-12  # keeps the gradient of a norm finite at 0

TargetClasses = Category | Sequence[Category] | None
Look = Callable[[Tensor, Tensor], None]


# --- Step 1: the target class s of each query ---


def select_targets(log_proba: Tensor, asked: TargetClasses, label: Label) -> Tensor:
    """Step 1: the number of the target class of each query, shape (queries,).

    `log_proba`: what the model says of the queries, shape (queries, classes). `asked`: a class for
    all queries, or one for each, by any of its names; None takes the most likely class after the
    predicted one.
    """
    if asked is None:
        predicted = log_proba.argmax(dim=1, keepdim=True)
        return log_proba.scatter(1, predicted, -torch.inf).argmax(dim=1)
    if isinstance(asked, (str, int, float, np.generic)):
        numbers = [label.number_of(asked)] * len(log_proba)
    else:
        numbers = [label.number_of(name) for name in asked]
    if len(numbers) != len(log_proba):
        raise RequestError(f"target: {len(numbers)} classes for {len(log_proba)} queries")
    return torch.tensor(numbers)


# --- Step 2: the balancing coefficients ---


@dataclass(frozen=True)
class Weights:
    """The balancing coefficients α, β, γ of Eq. search_obj."""

    alpha: float
    beta: float
    gamma: float

    @classmethod
    def of(cls, family: Family, guidance: str = "model") -> Weights:
        """The paper's choice for a family of data (section 5.2)."""
        weights = PAPER_WEIGHTS[family]
        if guidance == "surrogate":  # the answer has to convince a model that is never asked
            return replace(weights, alpha=SURROGATE_ALPHA * weights.alpha)
        return weights


PAPER_WEIGHTS: dict[Family, Weights] = {
    "mixed": Weights(alpha=1, beta=0.5, gamma=0.1),
    "image": Weights(alpha=1, beta=0.2, gamma=20),
    "binary": Weights(alpha=1, beta=0.5, gamma=10),
}


# --- Step 3: the objective, and its minimum over δ ---


@dataclass(frozen=True)
class SearchObjective:
    """L_cs (Eq. search_obj) for a batch of queries."""

    model: TargetModel
    autoencoder: Autoencoder
    weights: Weights
    queries: Tensor  # (queries, width) in the unit cube
    targets: Tensor  # (queries,) class numbers
    prototypes: Tensor  # ρ of every class, (classes, latent)
    box: Box  # what each answer may look like

    def __call__(self, delta: Tensor) -> Tensor:
        """L_cs of each query, shape (queries,), for perturbations of shape (queries, latent)."""
        go_on()
        point, weights = self.counterfactual(delta), self.weights
        log_proba = self.model.ask(Rows.of_points(point, self.model.encoding))
        prediction = -log_proba.gather(1, self.targets[:, None])[:, 0]  # L_pred
        distance = _norm(point - self.queries)  # L_dist
        to_prototype = _norm(delta)  # L_prot
        return weights.alpha * prediction + weights.beta * distance + weights.gamma * to_prototype

    def counterfactual(self, delta: Tensor) -> Tensor:
        """Step 4: ψ^Dec(ρ_s + δ), shape (queries, width), projected onto the query's box."""
        return self.box.project(self.autoencoder.decode(self.prototypes[self.targets] + delta))

    @property
    def no_perturbation(self) -> Tensor:
        """δ = 0 for every query, shape (queries, latent)."""
        return torch.zeros_like(self.prototypes[self.targets])

    def select(self, indices: Tensor) -> SearchObjective:
        queries, targets = self.queries[indices], self.targets[indices]
        return replace(self, queries=queries, targets=targets, box=self.box.select(indices))


def _norm(vectors: Tensor) -> Tensor:
    return torch.sqrt((vectors * vectors).sum(dim=1) + _TINY)


def minimise(
    objective: SearchObjective, iterations: int, tick: Tick = silent, look: Look | None = None
) -> Tensor:
    """Step 3 as in the paper, by Adam from δ = 0: the last δ of each query, (queries, latent).

    `look(indices, points)`, if given, is shown the points ψ^Dec(ρ_s + δ) of the queries `indices`
    at the start and every few iterations. Queries whose objective is at rest leave the batch.
    """
    final = objective.no_perturbation
    active = torch.arange(len(final), device=final.device)
    adam = Adam([final.clone()], LEARNING_RATE)
    lowest = torch.full((len(final),), torch.inf, device=final.device)
    looks_at_rest = torch.zeros_like(active)
    if look is not None:
        with torch.no_grad():
            look(active, objective.counterfactual(final))
    for iteration in range(1, iterations + 1):
        delta = adam.tensors[0].detach().requires_grad_(True)
        losses = objective(delta)
        adam.step(torch.autograd.grad(losses.sum(), delta))
        tick(iteration, "iterations")
        if look is None or (iteration % LOOK_EVERY and iteration != iterations):
            continue
        with torch.no_grad():
            look(active, objective.counterfactual(adam.tensors[0]))
        losses = losses.detach()
        looks_at_rest = torch.where(losses < lowest - AT_REST, 0, looks_at_rest + 1)
        lowest = torch.minimum(lowest, losses)
        moving = (looks_at_rest < PATIENCE).nonzero()[:, 0]
        if len(moving) < len(active):
            final[active] = adam.tensors[0]
            active, objective = active[moving], objective.select(moving)
            lowest, looks_at_rest = lowest[moving], looks_at_rest[moving]
            adam.select(moving)
        if not len(active):
            break
    final[active] = adam.tensors[0]
    return final


# --- Step 4: what is kept of the counterfactuals on the way ---


class NearestAccepted:
    """The nearest legal row of each query, on the way, that has a margin of at least 0."""

    def __init__(
        self, objective: SearchObjective, snap: Snap, margin: Callable[[Tensor, Tensor], Tensor]
    ) -> None:
        self._objective, self._snap, self._margin = objective, snap, margin
        self._rows = objective.queries.clone()
        self._distance = torch.full((len(self._rows),), torch.inf, device=self._rows.device)

    def look(self, indices: Tensor, points: Tensor) -> None:
        """Consider `points`, shape (len(indices), width), one for each of the queries `indices`."""
        seen = self._objective.select(indices)
        rows = self._snap(points, seen.box)
        distance = (rows - seen.queries).norm(dim=1)
        accepted = self._margin(rows, seen.targets) >= 0
        better = accepted & (distance < self._distance[indices])
        if seen.box.ties is not None:
            better &= seen.box.ties_held(rows)
        self._rows[indices[better]] = rows[better]
        self._distance[indices[better]] = distance[better]

    def or_else(self, rows: Tensor) -> Tensor:
        """The rows kept, and those of `rows` for queries without one, shape (queries, width)."""
        return torch.where(self._distance.isfinite()[:, None], self._rows, rows)
