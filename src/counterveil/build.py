"""From a population P~ to the networks of a Veil: autoencoder, prototypes, surrogate.

All of it is post-processing of the noisy record: training may take as many samples, epochs and
tries as it likes at no privacy cost. The objective is the expectation of the loss under P~, which
is the noisy L_D(W) of the functional mechanism.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from counterveil.encoding import Array
from counterveil.networks import ARCHITECTURES, Autoencoder, class_means, fit, train_surrogate
from counterveil.population import Population
from counterveil.schema import Family, Schema
from counterveil.terminal import Tick, silent


@dataclass(frozen=True)
class Training:
    """How much to train for one family of data."""

    samples: int  # of P~
    epochs: int
    batch: int
    rate: float
    surrogate: tuple[int, ...]  # neurons of each hidden layer
    surrogate_epochs: int


TRAININGS: dict[Family, Training] = {
    "mixed": Training(20_000, 60, 256, 5e-3, (32, 16), 15),
    "image": Training(20_000, 30, 256, 1e-3, (128, 64), 10),
    "binary": Training(20_000, 30, 256, 1e-3, (128, 64), 10),
}


@dataclass(frozen=True)
class Networks:
    """What was trained on P~."""

    autoencoder: Autoencoder
    prototypes: Tensor  # (classes, latent)
    surrogate: nn.Sequential


def fit_networks(
    population: Population,
    schema: Schema,
    *,
    seed: int,
    device: torch.device,
    training: Training | None = None,
    tick: Tick = silent,
) -> Networks:
    """Train on samples of P~, for as long as is usual for this family or as `training` says.

    The seed steers samples, weights and batches. `tick` counts the epochs of the autoencoder.
    """
    training = training or TRAININGS[schema.family]
    rng = np.random.default_rng(seed)
    classes = len(schema.label.classes)
    evenly = np.full(classes, 1 / classes)

    def sample(drawn: Population, class_share: Array | None = None) -> tuple[Tensor, Tensor]:
        points, labels = drawn.sample(training.samples, rng, class_share)
        return (
            torch.as_tensor(points, dtype=torch.float32, device=device),
            torch.as_tensor(labels, dtype=torch.long, device=device),
        )

    points, _ = sample(population)
    hidden = ARCHITECTURES[schema.family].encoder
    autoencoder = Autoencoder.new(schema.width, hidden, seed).to(device)
    fit(
        autoencoder,
        lambda rows: reconstruction_loss(autoencoder, points[rows]).sum(dim=1).mean(),
        len(points),
        epochs=training.epochs,
        batch=training.batch,
        rate=training.rate,
        seed=seed,
        tick=tick,
    )
    # Every class its own samples: a rare class has a prototype as good as the others'.
    prototypes = class_means(autoencoder, *sample(population, evenly), classes)
    # f~ learns from features that are independent inside a class: the tree's tables are noisier,
    # and on Adult and Hospital an f~ that learnt from them agreed less with the target model.
    plain = sample(population.without_tree, evenly)
    hidden, epochs = training.surrogate, training.surrogate_epochs
    surrogate = train_surrogate(*plain, classes, hidden=hidden, epochs=epochs, seed=seed)
    return Networks(autoencoder.cpu(), prototypes.cpu(), surrogate.cpu())


def reconstruction_loss(autoencoder: Autoencoder, rows: Tensor) -> Tensor:
    """ℓ(x, W), column by column: cross-entropy of the reconstruction, shaped like `rows`.

    It is sharper than squared error on categories and has the same minimiser.
    """
    edge = 1e-6  # keeps the logarithm of a reconstruction finite
    reconstructed = autoencoder(rows).clamp(edge, 1 - edge)
    return nn.functional.binary_cross_entropy(reconstructed, rows, reduction="none")
