"""Many releases of mechanism `paper` trained as one batched model, for an accelerator.

The networks of the paper are small: a GPU is idle most of the time while it trains one of them.
Here all seeds and all ε of a dataset take each step together. Initial weights, batches, noise and
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

Say = Callable[[str], None]
WARM_STEPS = 3  # before the steps of a GPU are recorded


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
    shuffled = [torch.Generator().manual_seed(seed) for seed in seeds]
    for epoch in range(architecture.epochs):  # step 4
        orders = torch.stack([torch.randperm(count, generator=each) for each in shuffled])
        orders = orders.to(device)[table_of]
        for numbers in orders.split(architecture.batch, dim=1):
            together.step(rows, table_of, numbers)
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

    Adam works on each number by itself: stacked weights learn as they would alone. The steps of a
    GPU are recorded once and played again, for launching them one by one would take most of the
    time.
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
        for name in self._learnt:
            self.weights[name].grad = torch.zeros_like(self.weights[name])
        on_gpu = device.type == "cuda"
        self._optimiser = torch.optim.Adam(
            [self.weights[name] for name in self._learnt],
            paper.LEARNING_RATE,
            fused=True,
            capturable=on_gpu,
        )
        self._recorded: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] | None = (
            {} if on_gpu else None
        )

        def loss(weights: dict[str, Tensor], noise: Tensor, x: Tensor) -> Tensor:
            objective = paper.perturbed_objective(noise, count, device)  # step 3
            x_hat = functional_call(self._plain, weights, (x,))
            if architecture.signed:
                return objective(2 * x - 1, 2 * x_hat - 1)
            return objective(x, x_hat)

        self._gradients = vmap(grad(loss))

    def step(self, rows: Tensor, table_of: Tensor, numbers: Tensor) -> None:
        """One step of all networks on the rows `numbers`, (networks, batch), of their tables."""
        if self._recorded is None:
            self._step(rows, table_of, numbers)
            return
        size = numbers.shape[1]
        if size not in self._recorded:
            self._recorded[size] = self._record(rows, table_of, numbers)
        graph, given = self._recorded[size]
        given.copy_(numbers)
        graph.replay()

    def _step(self, rows: Tensor, table_of: Tensor, numbers: Tensor) -> None:
        weights = {name: it.detach() for name, it in self.weights.items()}
        gradients = self._gradients(weights, self._eta, rows[table_of[:, None], numbers])
        for name in self._learnt:
            known = self.weights[name].grad
            assert known is not None, "made with the optimiser"
            known.copy_(gradients[name])
        self._optimiser.step()

    def _record(
        self, rows: Tensor, table_of: Tensor, numbers: Tensor
    ) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """A recorded step and the tensor that it reads the numbers from; nothing is learnt."""
        given = numbers.clone()
        before = {name: it.detach().clone() for name, it in self.weights.items()}
        kept = {
            (name, key): value.clone()
            for name in self._learnt
            for key, value in self._optimiser.state[self.weights[name]].items()
        }
        aside = torch.cuda.Stream(self._device)
        aside.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(aside):
            for _ in range(WARM_STEPS):
                self._step(rows, table_of, given)
        torch.cuda.current_stream(self._device).wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(rows, table_of, given)
        with torch.no_grad():
            for name in self._learnt:
                self.weights[name].copy_(before[name])
                for key, value in self._optimiser.state[self.weights[name]].items():
                    value.copy_(kept[name, key]) if (name, key) in kept else value.zero_()
        return graph, given

    def network(self, like: nn.Module, place: int) -> Autoencoder:
        """One of the networks by itself, frozen."""
        state = {name: stack[place].detach() for name, stack in self.weights.items()}
        like.to(self._device).load_state_dict(state)
        like.requires_grad_(False).eval()
        made = like.as_usual() if isinstance(like, paper.Tied) else like
        assert isinstance(made, Autoencoder), "paper trains autoencoders"
        return made
