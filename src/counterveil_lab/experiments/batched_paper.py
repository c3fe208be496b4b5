"""Many releases of mechanism `paper` trained as one batched model, for an accelerator.

All seeds and all ε of a dataset take each step together. Initial weights, batches, noise and
optimiser are those of `counterveil.curator.paper`, so a release differs from one that was trained
by itself in the rounding of floats alone. Veils are left in the cache, where experiments find them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

from counterveil.curator import paper
from counterveil.curator.noise import laplace
from counterveil.curator.table import PrivateTable
from counterveil.errors import RequestError
from counterveil.files import write_whole
from counterveil.networks import (
    ARCHITECTURES,
    Architecture,
    Autoencoder,
    check_finite,
    class_means,
    seeded,
)
from counterveil.privacy import Budget
from counterveil.veil import Veil
from counterveil_lab.datasets import load
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.releases import NO_NOISE, Epsilon
from counterveil_lab.experiments.runner import Say
from counterveil_lab.recorded import Recorded, adam


@dataclass(frozen=True)
class Wanted:
    """One release: the seed of its split, weights and batches, and its ε."""

    seed: int
    epsilon: Epsilon

    @property
    def budget(self) -> Budget:
        """ε as a number; δ is 0."""
        return Budget(math.inf if self.epsilon == NO_NOISE else float(self.epsilon), 0.0)


def leave_veils(
    dataset: str, seeds: int, epsilons: Sequence[Epsilon], device: torch.device, say: Say
) -> int:
    """Train what the cache does not have yet, and leave it there; how many veils that were."""
    every = [Wanted(seed, epsilon) for seed in range(seeds) for epsilon in epsilons]
    data = {seed: load(dataset, seed=seed) for seed in range(seeds)}
    schema, epochs = data[0].schema, releases.published_epochs(data[0])
    paths = {
        it: releases.veil_place(data[it.seed], "paper", it.epsilon, it.seed, epochs) for it in every
    }
    missing = [it for it, path in paths.items() if path is not None and not path.exists()]
    if not missing:
        return 0
    architecture = replace(ARCHITECTURES[schema.family], epochs=epochs)
    tables = {it.seed: PrivateTable(data[it.seed].train, schema) for it in missing}
    sizes = {seed: len(data[seed].train) for seed in tables}  # splits by people differ in size
    together = [[it for it in missing if sizes[it.seed] == size] for size in set(sizes.values())]
    made = (train(tables, some, architecture, device, say=say) for some in together)
    left = 0
    for wanted, (autoencoder, prototypes) in chain.from_iterable(made):
        path = paths[wanted]
        assert path is not None, "what is missing has a place"
        statement = paper.state(wanted.budget, architecture)
        write_whole(path.with_suffix(".json"), json.dumps(math.nan).encode())  # nobody timed it
        Veil(schema, autoencoder.cpu(), prototypes.cpu(), statement).save(path)
        left += 1
    return left


def train(
    tables: dict[int, PrivateTable],
    wanted: Sequence[Wanted],
    architecture: Architecture,
    device: torch.device,
    *,
    noise: Callable[[float, int], Tensor] = laplace,
    say: Say = lambda words: None,
) -> Iterator[tuple[Wanted, tuple[Autoencoder, Tensor]]]:
    """Algorithm 1 for all `wanted`: each autoencoder with its prototypes (classes, latent).

    `tables`: the training rows of each seed; as many of each that is wanted. A release whose
    training diverged is said and left out.
    """
    seeds = list(dict.fromkeys(it.seed for it in wanted))
    private = [tables[seed].private_rows() for seed in seeds]
    rows = torch.stack([torch.as_tensor(points).float() for points, _ in private]).to(device)
    _, count, width = rows.shape
    delta = paper.sensitivity(architecture.widest)  # step 1
    eta = torch.stack(  # step 2
        [paper.perturbation(width, delta, it.budget, noise) for it in wanted]
    ).to(device)
    kind = paper.Tied if architecture.tied else Autoencoder
    networks = [seeded(lambda: kind(width, architecture.encoder), it.seed) for it in wanted]
    together = _Together(networks, eta, count, architecture, device)
    table_of = torch.tensor([seeds.index(it.seed) for it in wanted], device=device)
    step = together.step_on(rows, table_of)
    shuffled = [torch.Generator().manual_seed(seed) for seed in seeds]
    for epoch in range(architecture.epochs):  # step 4
        orders = torch.stack([torch.randperm(count, generator=each) for each in shuffled])
        orders = orders.to(device)[table_of]
        for numbers in orders.split(architecture.batch, dim=1):
            step(numbers)
        if (epoch + 1) % max(1, architecture.epochs // 10) == 0:
            say(f"{epoch + 1} of {architecture.epochs} epochs, {len(wanted)} networks")
    for place, it in enumerate(wanted):
        network = together.network(networks[place], place)
        try:
            check_finite(network)
        except RequestError as error:
            say(f"seed {it.seed}, ε {it.epsilon}: {error}")
            continue
        classes = len(tables[it.seed].schema.label.classes)
        labels = torch.as_tensor(private[seeds.index(it.seed)][1], device=device)
        yield it, (network, class_means(network, rows[table_of[place]], labels, classes))  # step 5


class _Together:
    """The weights of all networks, stacked, and one optimiser for all of them.

    Adam works on each number by itself: stacked weights learn as they would alone.
    """

    def __init__(
        self,
        networks: Sequence[Autoencoder],
        eta: Tensor,
        count: int,
        architecture: Architecture,
        device: torch.device,
    ) -> None:
        self._plain, self._eta, self._device = networks[0].to(device), eta, device
        self.weights, _ = stack_module_state([network.to(device) for network in networks])
        self._learnt = [name for name, weights in self.weights.items() if weights.requires_grad]
        learnt = [self.weights[name] for name in self._learnt]
        self._optimiser = adam(learnt, paper.LEARNING_RATE, device)

        def loss(weights: dict[str, Tensor], noise: Tensor, x: Tensor) -> Tensor:
            objective = paper.perturbed_objective(noise, count, device)  # step 3
            x_hat = functional_call(self._plain, weights, (x,))
            if architecture.signed:
                return objective(2 * x - 1, 2 * x_hat - 1)
            return objective(x, x_hat)

        self._gradients = vmap(grad(loss))

    def step_on(self, rows: Tensor, table_of: Tensor) -> Recorded:
        """A step of all networks, on the rows of their tables whose numbers it is given."""

        def step(numbers: Tensor) -> None:
            weights = {name: it.detach() for name, it in self.weights.items()}
            gradients = self._gradients(weights, self._eta, rows[table_of[:, None], numbers])
            for name in self._learnt:
                known = self.weights[name].grad
                assert known is not None, "made with the optimiser"
                known.copy_(gradients[name])
            self._optimiser.step()

        return Recorded(step, self._optimiser, self._device)

    def network(self, like: nn.Module, place: int) -> Autoencoder:
        """One of the networks by itself, frozen."""
        state = {name: stack[place].detach() for name, stack in self.weights.items()}
        like.to(self._device).load_state_dict(state)
        like.requires_grad_(False).eval()
        made = like.as_usual() if isinstance(like, paper.Tied) else like
        assert isinstance(made, Autoencoder), "paper trains autoencoders"
        return made
