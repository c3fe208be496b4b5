"""From a population P~ to what a Veil holds: autoencoder, prototypes, surrogate.

All of it is post-processing of noisy numbers: training may take as many samples, epochs and tries
as it likes at no privacy cost. The objective is the expectation of the loss under P~, which is the
noisy L_D(W) of the functional mechanism.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from counterveil.autoencoder import ARCHITECTURES, Autoencoder, class_means
from counterveil.encoding import Array
from counterveil.population import Population
from counterveil.schema import Family, Schema
from counterveil.surrogate import train_surrogate
from counterveil.terminal import Tick, silent
from counterveil.training import fit

EDGE = 1e-6


@dataclass(frozen=True)
class Training:
    """How much to train for one family of data."""

    samples: int
    epochs: int
    batch: int
    rate: float
    surrogate: tuple[int, ...]
    surrogate_epochs: int


TRAININGS: dict[Family, Training] = {
    "mixed": Training(20_000, 60, 256, 5e-3, (32, 16), 15),
    "image": Training(20_000, 30, 256, 1e-3, (128, 64), 10),
    "binary": Training(20_000, 30, 256, 1e-3, (128, 64), 10),
}


@dataclass(frozen=True)
class Moulded:
    """What was trained on P~."""

    autoencoder: Autoencoder
    prototypes: Tensor
    surrogate: nn.Sequential


def mould(
    population: Population,
    schema: Schema,
    *,
    seed: int,
    device: torch.device,
    epochs: int | None = None,
    tick: Tick = silent,
) -> Moulded:
    """Train on samples of P~. The seed steers samples, weights and batches."""
    training = TRAININGS[schema.family]
    rng = np.random.default_rng(seed)
    classes = len(schema.label.classes)
    points, _ = _tensors(population.sample(training.samples, rng), device)
    autoencoder = Autoencoder.new(schema.width, ARCHITECTURES[schema.family].encoder, seed).to(
        device
    )
    fit(
        autoencoder,
        lambda rows: _cross_entropy(autoencoder(points[rows]), points[rows]),
        len(points),
        epochs=epochs or training.epochs,
        batch=training.batch,
        rate=training.rate,
        seed=seed,
        tick=tick,
    )
    # Every class its own samples: a rare class has a prototype as good as the others'.
    evenly = np.full(classes, 1 / classes)
    even_points, even_labels = _tensors(population.sample(training.samples, rng, evenly), device)
    prototypes = class_means(autoencoder, even_points, even_labels, classes)
    # f~ learns from features that are independent inside a class: the tree's tables are noisier,
    # and on Adult and Hospital an f~ that learnt from them agreed less with the target model.
    plain_points, plain_labels = _tensors(
        population.without_tree.sample(training.samples, rng, evenly), device
    )
    surrogate = train_surrogate(
        plain_points,
        plain_labels,
        classes,
        hidden=training.surrogate,
        epochs=training.surrogate_epochs,
        seed=seed,
    )
    return Moulded(autoencoder.cpu(), prototypes.cpu(), surrogate.cpu())


def _cross_entropy(x_hat: Tensor, x: Tensor) -> Tensor:
    """ℓ(x, W): sharper than squared error on categories, and the same minimiser."""
    kept = x_hat.clamp(EDGE, 1 - EDGE)
    return nn.functional.binary_cross_entropy(kept, x, reduction="none").sum(dim=1).mean()


def _tensors(sample: tuple[Array, Array], device: torch.device) -> tuple[Tensor, Tensor]:
    points, labels = sample
    return (
        torch.as_tensor(points, dtype=torch.float32, device=device),
        torch.as_tensor(labels, dtype=torch.long, device=device),
    )
