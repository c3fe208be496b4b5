"""The variational autoencoder of C-CHVAE and REVISE, with the defaults of the library CARLA.

It learns from the training rows as they are, with no noise: that is the published method, and why
its answers are no more private than the rows.
"""

from __future__ import annotations

from itertools import pairwise

import pandas as pd
import torch
from torch import Tensor, nn

from counterveil.errors import RequestError
from counterveil.networks import seeded
from counterveil.schema import Schema
from counterveil_lab.targets import encoded

LAYERS = (512, 256, 8)
EPOCHS = 10
BATCH = 32
RATE = 1e-3
WEIGHT_DECAY = 1e-6
KL_WEIGHT = 0.3


class Vae(nn.Module):
    """Dense layers with ReLU down to a normal distribution, and back up to a sigmoid."""

    def __init__(self, width: int, layers: tuple[int, ...] = LAYERS) -> None:
        super().__init__()
        *hidden, latent = layers
        sizes = [width, *hidden]
        self.trunk = _dense(sizes)
        self.mean = nn.Linear(sizes[-1], latent)
        self.log_variance = nn.Linear(sizes[-1], latent)
        self.decoder = nn.Sequential(
            _dense([latent, *reversed(hidden)]), nn.Linear(sizes[1], width), nn.Sigmoid()
        )

    def encode(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of the latent vectors."""
        inner = self.trunk(points)
        return self.mean(inner), self.log_variance(inner)

    def decode(self, latent: Tensor) -> Tensor:
        """Points inside the unit cube; seldom legal rows."""
        points: Tensor = self.decoder(latent)
        return points


def train_vae(
    train: pd.DataFrame,
    schema: Schema,
    *,
    seed: int = 0,
    layers: tuple[int, ...] = LAYERS,
    epochs: int = EPOCHS,
    device: torch.device | None = None,
) -> Vae:
    """A VAE of the rows `train`, label and all else aside; frozen, on `device`.

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
            loss = _loss(vae, points[numbers.to(device)], noise, beta)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return vae.requires_grad_(False).eval()


def _loss(vae: Vae, points: Tensor, noise: Tensor, beta: float) -> Tensor:
    mean, log_variance = vae.encode(points)
    decoded = vae.decode(mean + noise * (log_variance / 2).exp())
    reconstruction = nn.functional.binary_cross_entropy(decoded, points, reduction="sum")
    kl = (mean.square() + log_variance.exp() - 1 - log_variance).sum() / 2
    return reconstruction + beta * kl


def _dense(sizes: list[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for wide, narrow in pairwise(sizes):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*layers)
