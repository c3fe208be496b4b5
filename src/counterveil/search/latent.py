"""Algorithm 2 of the paper: counterfactual search in the latent space.

    Input: prototype ρ_s, query q, autoencoder ψ, model f.   Output: counterfactual ξ.

    1. Select the target class s.
    2. Set α, β, γ for Eq. search_obj.
    3. For each iteration: optimise the perturbation δ in objective Eq. search_obj.
    4. Return the counterfactual ψ^Dec(ρ_s + δ).

All queries of a batch go through the iterations together: a query is a row of a tensor. Whoever
calls may look at ψ^Dec(ρ_s + δ) on the way and keep the best of what it saw; rows whose objective
has come to rest then drop out, so that the last few do not hold up the rest.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from counterveil.search.objective import SearchObjective
from counterveil.terminal import Tick, silent

LEARNING_RATE = 0.05
REFINING_RATE, CALMED = 0.02, 0.9  # from a start that is nearly right; by how much it calms down
LOOK_EVERY = 10
AT_REST, PATIENCE = 1e-3, 6  # looks without so much of an improvement of the objective
_BETAS, _ROOT = (0.9, 0.999), 1e-8  # Adam's own


def search(
    objective: SearchObjective,
    iterations: int,
    tick: Tick = silent,
    *,
    start: Tensor | None = None,
    look: Callable[[Tensor, Tensor], None] | None = None,
) -> Tensor:
    """Steps 3 and 4 for every query of the objective: δ.

    `look(numbers, points)` is shown the points of the queries `numbers` now and then. From 0 as in
    the paper, or refined from a `start`, which never ends with a higher objective than it had.
    """
    if start is not None:
        return _refined(objective, iterations, start)
    final = torch.zeros_like(objective.prototypes)
    numbers = torch.arange(len(final), device=final.device)
    part, delta = objective, final.clone()
    mean, square = torch.zeros_like(delta), torch.zeros_like(delta)
    best = torch.full((len(delta),), torch.inf, device=delta.device)
    waited = torch.zeros_like(numbers)
    for iteration in range(1, iterations + 1):
        delta.requires_grad_(True)
        losses = part(delta)
        (slope,) = torch.autograd.grad(losses.sum(), delta)
        with torch.no_grad():
            step, mean, square = _adam(slope, mean, square, iteration)
            delta = delta - LEARNING_RATE * step
            tick(iteration, "iterations")
            if look is None or (iteration % LOOK_EVERY and iteration != iterations):
                continue
            look(numbers, part.counterfactual(delta))
            better = losses < best - AT_REST
            best = torch.minimum(best, losses.detach())
            waited = torch.where(better, 0, waited + 1)
            moving = waited < PATIENCE
            if not bool(moving.all()):
                final[numbers] = delta
                keep = moving.nonzero()[:, 0]
                numbers, part = numbers[keep], part.rows(keep)
                delta, mean, square = delta[keep], mean[keep], square[keep]
                best, waited = best[keep], waited[keep]
                if not len(keep):
                    break
    final[numbers] = delta.detach()
    return final


def _refined(objective: SearchObjective, iterations: int, start: Tensor) -> Tensor:
    """The δ of lowest objective on a way from `start` that calms down, for each query."""
    best, delta = start, start.clone()
    lowest = torch.full((len(start),), torch.inf, device=start.device)
    mean, square = torch.zeros_like(delta), torch.zeros_like(delta)
    for iteration in range(1, iterations + 2):
        delta.requires_grad_(True)
        losses = objective(delta)
        (slope,) = torch.autograd.grad(losses.sum(), delta)
        with torch.no_grad():
            better = losses < lowest
            lowest = torch.where(better, losses, lowest)
            best = torch.where(better[:, None], delta, best)
            step, mean, square = _adam(slope, mean, square, iteration)
            rate = REFINING_RATE * (1 - CALMED * (iteration - 1) / iterations)
            delta = delta - rate * step
    return best.detach()


def _adam(
    slope: Tensor, mean: Tensor, square: Tensor, iteration: int
) -> tuple[Tensor, Tensor, Tensor]:
    """A step of Adam at rate 1, and its moments."""
    mean = mean.lerp(slope, 1 - _BETAS[0])
    square = square.lerp(slope * slope, 1 - _BETAS[1])
    scale = (square / (1 - _BETAS[1] ** iteration)).sqrt() + _ROOT
    return mean / (1 - _BETAS[0] ** iteration) / scale, mean, square
