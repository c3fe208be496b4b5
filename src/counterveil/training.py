"""One loop to train any network: shuffled batches, Adam, progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from counterveil.terminal import Tick, silent

Network = TypeVar("Network", bound=nn.Module)


def seeded(build: Callable[[], Network], seed: int) -> Network:
    """A new network whose initial weights depend on `seed` and on nothing else."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def tanh_network(width: int, hidden: tuple[int, ...], classes: int) -> nn.Sequential:
    """A tanh network over the encoding that answers logits."""
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(width, size), nn.Tanh()]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, classes))


def fit(
    network: nn.Module,
    loss_of: Callable[[Tensor], Tensor],
    rows: int,
    *,
    epochs: int,
    batch: int,
    rate: float,
    seed: int,
    tick: Tick = silent,
) -> None:
    """Minimise `loss_of(row numbers)` over shuffled batches; the network ends frozen."""
    device = next(network.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(network.parameters(), rate, fused=True)
    for epoch in range(epochs):
        order = torch.randperm(rows, generator=generator).to(device)
        for numbers in order.split(batch):
            loss = loss_of(numbers)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        tick(epoch + 1, "epochs")
    network.requires_grad_(False).eval()
