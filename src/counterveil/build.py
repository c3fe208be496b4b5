"""From a population P~ to the networks of a Veil: generator, autoencoder, prototypes, surrogate.

All of it is post-processing of the noisy record: training may take as many samples, epochs and
tries as it likes at no privacy cost. The objective is the expectation of the loss under P~, which
is the noisy L_D(W) of the functional mechanism.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from counterveil.encoding import Array
from counterveil.networks import ARCHITECTURES, Autoencoder, class_means, fit, train_surrogate
from counterveil.population import FeaturePopulation, Generator, MixedPopulation, Population
from counterveil.population.generator import train_generator
from counterveil.population.whole_scorecard import Surrogate, WholeScorecard, scorecard
from counterveil.privacy.recipe import Training
from counterveil.schema import Family, Pixels, Schema
from counterveil.terminal import Tick, silent

__all__ = ["TRAININGS", "Networks", "Training", "epochs_of", "fit_networks", "reconstruction_loss"]

TRAININGS: dict[Family, Training] = {
    "mixed": Training(20_000, 24, 256, 5e-3, (32, 16), 15),
    "image": Training(20_000, 30, 256, 1e-3, (128, 64), 10),
    "binary": Training(20_000, 8, 128, 2e-3, (128, 64), 10, rises=True),
}
CONVOLUTIONAL_EPOCHS = 6  # of a convolutional surrogate


@dataclass(frozen=True)
class Networks:
    """What was trained on P~."""

    autoencoder: Autoencoder
    prototypes: Tensor  # (classes, latent)
    surrogate: Surrogate
    generator: Generator | None = None  # of images measured by random features


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

    The seed steers samples, weights and batches. `tick` counts to `epochs_of`.
    """
    training = training or TRAININGS[schema.family]
    generator: Generator | None = None
    image: Pixels | None = None  # of a convolutional surrogate
    if isinstance(population, FeaturePopulation):
        steps = training.generator_steps
        generator = train_generator(
            population,
            steps * training.epochs,
            seed=seed,
            device=device,
            tick=lambda step, words="": None if step % steps else tick(step // steps, words),
        )
        population, image = population.with_generator(generator), schema.images[0]
    done = training.epochs if generator is not None else 0
    rng = np.random.default_rng(seed)
    classes = len(schema.label.classes)
    evenly = np.full(classes, 1 / classes)

    def sample(class_share: Array | None = None) -> tuple[Tensor, Tensor]:
        points, labels = population.sample(training.samples, rng, class_share)
        return (
            torch.as_tensor(points, dtype=torch.float32, device=device),
            torch.as_tensor(labels, dtype=torch.long, device=device),
        )

    points, _ = sample()
    hidden = ARCHITECTURES[schema.family].encoder
    autoencoder = Autoencoder.new(schema.width, hidden, seed).to(device)
    autoencoder.start_at(points.mean(dim=0))
    fit(
        autoencoder,
        lambda rows: reconstruction_loss(autoencoder, points[rows]).sum(dim=1).mean(),
        len(points),
        epochs=training.epochs,
        batch=training.batch,
        rate=training.rate,
        rises=training.rises,
        seed=seed,
        tick=lambda epoch, words="": tick(done + epoch, words),
    )
    # Every class its own samples: a rare class has a prototype as good as the others'.
    prototypes = class_means(autoencoder, *sample(evenly), classes)
    made = None if generator is None else generator.cpu()
    if isinstance(population, MixedPopulation):
        card = WholeScorecard.of(scorecard(population), population.grid)
        return Networks(autoencoder.cpu(), prototypes.cpu(), card)
    hidden, epochs = training.surrogate, training.surrogate_epochs
    if image is not None:  # neurons of the dense layer follow from the plain network's
        hidden, epochs = (16, 32, hidden[-1]), min(epochs, CONVOLUTIONAL_EPOCHS)
    drawn = sample(evenly)
    learnt = train_surrogate(*drawn, classes, hidden=hidden, epochs=epochs, seed=seed, image=image)
    return Networks(autoencoder.cpu(), prototypes.cpu(), learnt.cpu(), made)


def epochs_of(population: Population, training: Training) -> int:
    """How far `tick` will count in `fit_networks`."""
    return training.epochs * (2 if isinstance(population, FeaturePopulation) else 1)


def reconstruction_loss(autoencoder: Autoencoder, rows: Tensor) -> Tensor:
    """ℓ(x, W), column by column: cross-entropy of the reconstruction, shaped like `rows`.

    It is sharper than squared error on categories and has the same minimiser.
    """
    edge = 1e-6  # keeps the logarithm of a reconstruction finite
    reconstructed = autoencoder(rows).clamp(edge, 1 - edge)
    return nn.functional.binary_cross_entropy(reconstructed, rows, reduction="none")
