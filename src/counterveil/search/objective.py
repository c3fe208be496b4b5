"""The objective of the search, Eq. search_obj: L_cs(δ) = α·L_pred + β·L_dist + γ·L_prot."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from counterveil.autoencoder import ARCHITECTURES, Autoencoder
from counterveil.models import TargetModel
from counterveil.schema import Family
from counterveil.search.constraints import Box

SURROGATE_ALPHA = 4.0
_ROOT = 1e-12  # keeps the gradient of a norm finite at 0


@dataclass(frozen=True)
class Weights:
    """The balancing coefficients α, β, γ."""

    alpha: float
    beta: float
    gamma: float

    @classmethod
    def of(cls, family: Family, guidance: str = "model") -> Weights:
        """The paper's choice for a family of data (section 5.2).

        With guidance `surrogate` α is heavier: what convinces f~ has to convince a model that was
        never asked.
        """
        architecture = ARCHITECTURES[family]
        heavier = SURROGATE_ALPHA if guidance == "surrogate" else 1.0
        return cls(heavier * architecture.alpha, architecture.beta, architecture.gamma)


@dataclass(frozen=True)
class SearchObjective:
    """L_cs for a batch: each query q has its own target class s, prototype ρ_s and box."""

    model: TargetModel
    autoencoder: Autoencoder
    weights: Weights
    queries: Tensor
    targets: Tensor
    all_prototypes: Tensor  # one of every class
    box: Box

    @property
    def prototypes(self) -> Tensor:
        """ρ_s of each query."""
        return self.all_prototypes[self.targets]

    def rows(
        self, numbers: Tensor, *, alpha: float = 1.0, targets: Tensor | None = None
    ) -> SearchObjective:
        """The objective of some of the queries, with α multiplied, or with other targets."""
        return replace(
            self,
            weights=replace(self.weights, alpha=self.weights.alpha * alpha),
            queries=self.queries[numbers],
            targets=self.targets[numbers] if targets is None else targets,
            box=self.box.select(numbers),
        )

    def holding(self, columns: Tensor) -> SearchObjective:
        """The same where the marked columns of the queries must stay."""
        return replace(self, box=held(self.box, columns, self.queries))

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


def held(box: Box, columns: Tensor, queries: Tensor) -> Box:
    """The box where the marked columns must stay as near to the query's as they may be."""
    home = box.project(queries)
    return replace(
        box,
        lower=torch.where(columns, home, box.lower),
        upper=torch.where(columns, home, box.upper),
    )


def _norm(vectors: Tensor) -> Tensor:
    return torch.sqrt((vectors * vectors).sum(dim=1) + _ROOT)
