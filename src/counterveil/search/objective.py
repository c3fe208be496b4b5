"""The objective of the search, Eq. search_obj: L_cs(δ) = α·L_pred + β·L_dist + γ·L_prot."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from counterveil.autoencoder import ARCHITECTURES, Autoencoder
from counterveil.models import TargetModel
from counterveil.schema import Family
from counterveil.search.constraints import Box

_ROOT = 1e-12  # keeps the gradient of a norm finite at 0


@dataclass(frozen=True)
class Weights:
    """The balancing coefficients α, β, γ."""

    alpha: float
    beta: float
    gamma: float

    @classmethod
    def of(cls, family: Family) -> Weights:
        """The paper's choice for a family of data (section 5.2)."""
        architecture = ARCHITECTURES[family]
        return cls(architecture.alpha, architecture.beta, architecture.gamma)


@dataclass(frozen=True)
class SearchObjective:
    """L_cs for a batch: each query q has its own target class s, prototype ρ_s and box."""

    model: TargetModel
    autoencoder: Autoencoder
    weights: Weights
    queries: Tensor
    targets: Tensor
    prototypes: Tensor
    box: Box

    def rows(self, numbers: Tensor, *, alpha: float) -> SearchObjective:
        """The objective of some of the queries, with α multiplied by `alpha`."""
        return replace(
            self,
            weights=replace(self.weights, alpha=self.weights.alpha * alpha),
            queries=self.queries[numbers],
            targets=self.targets[numbers],
            prototypes=self.prototypes[numbers],
            box=self.box.rows(numbers),
        )

    def counterfactual(self, delta: Tensor) -> Tensor:
        """ψ^Dec(ρ_s + δ), with what the constraints fix put back to the query's."""
        return self.box.project(self.autoencoder.decode(self.prototypes + delta))

    def __call__(self, delta: Tensor) -> Tensor:
        """L_cs of each row."""
        point = self.counterfactual(delta)
        log_proba = self.model.log_proba(point)
        prediction = -log_proba.gather(1, self.targets[:, None])[:, 0]  # L_pred
        distance = _norm(point - self.queries)  # L_dist
        prototype = _norm(delta)  # L_prot
        weights = self.weights
        return weights.alpha * prediction + weights.beta * distance + weights.gamma * prototype


def _norm(vectors: Tensor) -> Tensor:
    return torch.sqrt((vectors * vectors).sum(dim=1) + _ROOT)
