"""`theorem-3`: does the search add bias to the noise of a prototype?

Theorem 3 of the paper: E[cs(ρ_s + η) − cs(ρ_s)] = 0 over the noise η, where cs(ρ) is the
counterfactual that Algorithm 2 finds from prototype ρ. The proof pairs each ρ_s + η with its
reflection ρ_s − η and says that the search commutes with the reflection, so that the two
differences cancel. An affine search does that; a search through networks need not.

Here ρ_s is the prototype of mechanism `paper` without noise, and η is Laplace noise of a stated
scale, drawn anew for every coordinate, query and draw; one seed scales the same draws to every
scale. What is compared are the points ψ^Dec(ρ_s + η + δ) of the last iteration, before they are
made legal rows, by three maps:

| map | what it is |
|---|---|
| affine | Algorithm 2 with the tangents of decoder and log f at ρ_s, without the norms of L_cs |
| decoder | ψ^Dec alone: Algorithm 2 with no iteration |
| search | Algorithm 2 as published |

The first is the control: there the proof is right, so no bias may be found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from counterveil.models import adapt
from counterveil.search.constraints.bounds import Box
from counterveil.search.paper.algorithm2 import ITERATIONS, SearchObjective, Weights, minimise
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.runner import Case, Experiment, Options, combined
from counterveil_lab.product import log_proba_at, runner_up
from counterveil_lab.results import Row
from counterveil_lab.targets import encoded

DATASETS = ("adult", "digits")
SCALES = (0.01, 0.03, 0.1)  # of the Laplace noise; a code lies between 0 and 1
MAPS = ("affine", "decoder", "search")
QUERIES, DRAWS = 10, 200
QUICK_QUERIES, QUICK_DRAWS, QUICK_ITERATIONS = 3, 20, 20


@dataclass(frozen=True)
class NoisyStart(SearchObjective):
    """L_cs with the prototype ρ_s + η in the place of ρ_s."""

    noise: Tensor  # η, (queries, latent)

    def counterfactual(self, delta: Tensor) -> Tensor:
        """ψ^Dec(ρ_s + η + δ), shape (queries, width)."""
        return super().counterfactual(self.noise + delta)


@dataclass(frozen=True)
class AffineStart(NoisyStart):
    """The same with tangents at ρ_s in the place of ψ^Dec and of log f, and α·L_pred alone.

    The loss is linear in δ, so all starts take the same steps, and the end is affine in η.
    """

    centre: Tensor  # ψ^Dec(ρ_s), (queries, width)
    slope: Tensor  # the derivative of ψ^Dec at ρ_s, (queries, width, latent)
    rise: Tensor  # the derivative of log f_s(ψ^Dec) at ρ_s, (queries, latent)

    @classmethod
    def of(cls, start: NoisyStart) -> AffineStart:
        """The tangents of a start, at the prototype of each target class."""
        decode, prototypes = start.autoencoder.decode, start.prototypes
        codes = prototypes.clone().requires_grad_(True)
        log_proba = log_proba_at(start.model, decode(codes))  # (classes, classes)
        (rise,) = torch.autograd.grad(log_proba.diagonal().sum(), codes)
        slope = torch.func.vmap(torch.func.jacrev(decode))(prototypes)
        centre, slope, rise = (each[start.targets] for each in (decode(prototypes), slope, rise))
        return cls(**vars(start), centre=centre, slope=slope, rise=rise)

    def counterfactual(self, delta: Tensor) -> Tensor:
        """The tangent of ψ^Dec, at ρ_s + η + δ, shape (queries, width)."""
        return self.centre + (self.slope @ (self.noise + delta)[:, :, None])[:, :, 0]

    def __call__(self, delta: Tensor) -> Tensor:
        """α·L_pred by the tangent of log f, but for a constant, shape (queries,)."""
        return -self.weights.alpha * (self.rise * (self.noise + delta)).sum(dim=1)


def ends(start: NoisyStart, by: str, iterations: int) -> Tensor:
    """The points at which a map ends, (queries, width); `by`: affine, decoder or search."""
    start = AffineStart.of(start) if by == "affine" else start
    delta = minimise(start, 0 if by == "decoder" else iterations)
    with torch.no_grad():
        return start.counterfactual(delta)


def bias_of(found: Tensor) -> Row:
    """How far the mean over draws is from the end without noise, root mean square over queries.

    `found`: ends of shape (queries, 1 + draws, width); the first of each query is without noise.
    `standard_error` is what the bias would be by chance if the theorem held, `ratio` the bias in
    such errors: 1 is expected then. `spread` is the standard deviation of an end.
    """
    without, draws = found[:, 0].double(), found[:, 1:].double()
    bias = (draws.mean(dim=1) - without).square().sum(dim=1).mean().sqrt()
    spread = draws.var(dim=1).sum(dim=1).mean().sqrt()
    error = spread / draws.shape[1] ** 0.5
    row = {"bias": bias, "standard_error": error, "ratio": bias / error, "spread": spread}
    return {name: float(value) for name, value in {**row, "relative_bias": bias / spread}.items()}


def cases(options: Options) -> Iterator[Case]:
    names = options.names(DATASETS, DATASETS)
    return combined(dataset=names, scale=SCALES, seed=options.repetitions)


def measure_case(dataset: str, scale: float, seed: int, *, quick: bool) -> list[Row]:
    """The bias of each map, for the same queries and the same draws."""
    data = releases.data_for(dataset, seed, quick=quick)
    judge = adapt(releases.target_for(data, seed), data.schema)
    made = releases.release(data, "paper", releases.NO_NOISE, seed, quick=quick)
    veil = made.veil
    count, draws = (QUICK_QUERIES, QUICK_DRAWS) if quick else (QUERIES, DRAWS)
    asked = data.test.head(count)
    shape = count, 1 + draws, veil.autoencoder.latent
    noise = torch.as_tensor(np.random.default_rng(seed).laplace(scale=scale, size=shape)).float()
    noise[:, 0] = 0
    points = encoded(asked, data.schema)[0].repeat_interleave(1 + draws, dim=0)
    start = NoisyStart(
        model=judge,
        autoencoder=veil.autoencoder,
        weights=Weights.of(data.schema.family),
        queries=points,
        targets=runner_up(judge, asked).repeat_interleave(1 + draws),
        prototypes=veil.prototypes,
        box=Box(torch.zeros_like(points), torch.ones_like(points)),  # nothing is forbidden
        noise=noise.flatten(0, 1),
    )
    head: Row = {**releases.head_of(made, "paper"), "mechanism": "paper"}
    head |= {"epsilon": releases.NO_NOISE, "queries": count, "draws": draws}
    rows = []
    for by in MAPS:
        found = ends(start, by, QUICK_ITERATIONS if quick else ITERATIONS)
        rows.append({**head, "map": by, **bias_of(found.unflatten(0, (count, 1 + draws)))})
    return rows


THEOREM_3 = Experiment(
    "whether the search adds bias to the noise of a prototype (the paper's Theorem 3).",
    cases,
    measure_case,
    chosen_by=(),
)
