"""Algorithm 2 of the paper: counterfactual search in the latent space.

    Input: prototype ρ_s, query q, autoencoder ψ, model f.   Output: counterfactual ξ.

    1. Select the target class s.
    2. Set α, β, γ for Eq. search_obj.
    3. For each iteration: optimise the perturbation δ in objective Eq. search_obj.
    4. Return the counterfactual ψ^Dec(ρ_s + δ).

All queries of a batch go through the iterations together: a query is a row of a tensor. Whoever
calls may look at ψ^Dec(ρ_s + δ) on the way and keep the best of what it saw.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from counterveil.progress import Tick, silent
from counterveil.search.objective import SearchObjective

LEARNING_RATE = 0.05


def search(
    objective: SearchObjective,
    iterations: int,
    tick: Tick = silent,
    *,
    look: Callable[[Tensor], None] | None = None,
    every: int = 10,
) -> Tensor:
    """Steps 3 and 4 for every query of the objective, from δ = 0."""
    delta = torch.zeros_like(objective.prototypes, requires_grad=True)
    optimiser = torch.optim.Adam([delta], LEARNING_RATE, fused=True)
    for iteration in range(iterations):
        (delta.grad,) = torch.autograd.grad(objective(delta).sum(), delta)
        optimiser.step()
        tick(iteration + 1, "iterations")
        if look is not None and (iteration + 1) % every == 0:
            with torch.no_grad():
                look(objective.counterfactual(delta))
    with torch.no_grad():
        return objective.counterfactual(delta)
