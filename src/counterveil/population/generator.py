"""P~ of images from noisy random features: a generator G(z, y) and how it learns.

G minimises Σ_y ‖λ~_y/n~_y − E_z φ(G(z, y))‖², with λ~_y the noisy class sums of φ: the functional
mechanism's perturbed objective, whose data is all in λ~. Training it is post-processing. It paints
with small patches that are the same all over the image, because what is not seen by φ must come
from somewhere: from strokes rather than from single pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from counterveil.encoding import Array
from counterveil.errors import RequestError, VeilError
from counterveil.networks import fit, seeded
from counterveil.population.base import Population, positive_totals
from counterveil.population.features import FIXED_POINT, Features, embedded
from counterveil.privacy.record import NoisyRecord
from counterveil.schema import Pixels, Schema
from counterveil.terminal import Tick, silent

BATCH, RATE = 200, 5e-3  # images of a step, and how far a step goes at first
AT_A_TIME = 1024  # images generated together
CLASS_SCALE = 4.0  # how loud the class is beside z: classes that share all of z stay apart
DARK = -1.0  # where the output starts, before the sigmoid: images are rather dark than bright
CELL, PATCH = 4, 8  # pixels: how far apart patches lie, and how high and broad they are


Norm = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class GeneratorSize:
    """Layers of a generator: numbers of z and of a class, neurons, and how many patches it has."""

    latent: int = 10
    label: int = 16
    hidden: int = 256
    maps: int = 32

    @classmethod
    def from_manifest(cls, content: Any) -> GeneratorSize:
        """The sizes in a manifest; a VeilError unless they are usable."""
        fits = isinstance(content, dict) and set(content) == set(cls.__dataclass_fields__)
        if fits and all(type(size) is int and 1 <= size <= 1 << 12 for size in content.values()):
            return cls(**content)
        raise VeilError("its manifest gives no usable sizes of a generator")


class Generator(nn.Module):
    """G: z (rows, latent) and classes (rows,) to images (rows, pixels) in the unit cube.

    Two dense layers say how strong each of `maps` patches is in each cell of `CELL` × `CELL`
    pixels; what patches give to a pixel adds up before the sigmoid. A convolution would be slower.
    """

    def __init__(self, image: Pixels, classes: int, size: GeneratorSize) -> None:
        super().__init__()
        self.size, self.image = size, image
        self.cells = -(-image.height // CELL), -(-image.breadth // CELL)
        self.label = nn.Embedding(classes, size.label)
        self.first = nn.Linear(size.latent + size.label, size.hidden)
        self.second = nn.Linear(size.hidden, size.maps * math.prod(self.cells))
        self.patches = nn.Linear(size.maps, image.channels * PATCH**2, bias=False)
        self.base = nn.Parameter(torch.full((image.channels, 1, 1), DARK))

    def forward(self, latent: Tensor, classes: Tensor) -> Tensor:
        return self.paint(latent, classes, nn.Identity(), nn.Identity())

    def paint(self, latent: Tensor, classes: Tensor, first: Norm, second: Norm) -> Tensor:
        """Images, with what enters the two relus normalised: (rows, neurons), (cells, maps)."""
        known = torch.cat([latent, CLASS_SCALE * self.label(classes)], dim=1)
        found = self.second(first(self.first(known)).relu())
        strengths = second(found.reshape(-1, self.size.maps)).relu()
        shape = len(latent), math.prod(self.cells), self.image.channels * PATCH**2
        parts = self.patches(strengths).reshape(shape)
        whole = CELL * self.cells[0], CELL * self.cells[1]
        overlap = (PATCH - CELL) // 2
        added = nn.functional.fold(
            parts.transpose(1, 2), whole, PATCH, padding=overlap, stride=CELL
        )
        pixels = (added + self.base)[:, :, : self.image.height, : self.image.breadth]
        return torch.sigmoid(pixels).movedim(1, -1).flatten(1)  # channels last, as rows are


class _Normalised(nn.Module):
    """A generator while it learns: what enters a relu has mean 0 and variance 1 over a batch."""

    def __init__(self, generator: Generator) -> None:
        super().__init__()
        self.generator = generator
        self.first = nn.BatchNorm1d(generator.size.hidden)
        self.second = nn.BatchNorm1d(generator.size.maps)

    def forward(self, latent: Tensor, classes: Tensor) -> Tensor:
        return self.generator.paint(latent, classes, self.first, self.second)

    @torch.no_grad()
    def settled(self) -> Generator:
        """The generator alone, with the last means and variances in its weights."""
        made = self.generator
        for layer, norm in ((made.first, self.first), (made.second, self.second)):
            repeated = len(layer.bias) // norm.num_features
            assert norm.running_mean is not None
            assert norm.running_var is not None
            scale = norm.weight / (norm.running_var + norm.eps).sqrt()
            shift = norm.bias - norm.running_mean * scale
            layer.weight.mul_(scale.repeat(repeated)[:, None])
            layer.bias.mul_(scale.repeat(repeated)).add_(shift.repeat(repeated))
        return made.requires_grad_(False).eval()


class FeaturePopulation(Population):
    """Images of a generator, in whole levels, in the classes' noisy proportions.

    `embedding`: what it has to learn, the noisy class means of φ, (classes, 2K).
    """

    def __init__(
        self, schema: Schema, record: NoisyRecord, generator: Generator | None = None
    ) -> None:
        self.features = Features(schema.images[0], record.features)
        shape = (len(schema.label.classes), 1 + self.features.width)
        whole, _ = record.read("sums", shape)
        counts = whole[:, 0] / count_weight(record.features)
        totals = positive_totals(counts, record.records(counts.sum()))
        self.class_share = totals / totals.sum()
        unit = FIXED_POINT * math.sqrt(record.features)
        self.embedding = whole[:, 1:] / (unit * totals[:, None])
        self.generator = generator
        self._schema, self._record = schema, record

    def with_generator(self, generator: Generator) -> FeaturePopulation:
        return FeaturePopulation(self._schema, self._record, generator)

    @torch.no_grad()
    def _points(self, classes: Array, rng: np.random.Generator) -> Array:
        if self.generator is None:
            raise RequestError(
                "this population has no generator yet; use Veil.population() of a release, or "
                "counterveil.build.fit_networks"
            )
        device = next(self.generator.parameters()).device
        latent = rng.normal(size=(len(classes), self.generator.size.latent))
        drawn = torch.as_tensor(latent, dtype=torch.float32).split(AT_A_TIME)
        wanted = torch.as_tensor(classes, dtype=torch.long).split(AT_A_TIME)
        images = [
            self.generator(z.to(device), y.to(device)) for z, y in zip(drawn, wanted, strict=True)
        ]
        levels = self.features.image.levels
        points = torch.cat(images).cpu().double().numpy() if images else latent[:, :0]
        found: Array = np.round(points * levels) / levels
        return found


def count_weight(features: int) -> int:
    """How much a record adds to its class's count: as long as its features, so at no cost."""
    return math.isqrt(features) * FIXED_POINT


def train_generator(
    population: FeaturePopulation,
    steps: int,
    *,
    seed: int,
    device: torch.device,
    size: GeneratorSize | None = None,
    tick: Tick = silent,
) -> Generator:
    """A generator whose images have the population's embedding, class by class.

    Every step draws `BATCH` images, as many of each class. The square of their mean embedding is
    freed of what the finite number of images adds to it: with ‖φ‖ = 1 and m images of a class,
    E‖mean‖² = ‖μ‖² + (1 − ‖μ‖²)/m. The rate falls to 0 along a cosine.
    """
    features, classes = population.features, len(population.class_share)
    size = size or GeneratorSize()
    new = seeded(lambda: _Normalised(Generator(features.image, classes, size)), seed).to(device)
    wanted = torch.as_tensor(population.embedding, dtype=torch.float32, device=device)
    radians = features.radians(device)
    each = max(2, BATCH // classes)
    labels = torch.arange(classes, device=device).repeat_interleave(each)
    dice = torch.Generator().manual_seed(seed)

    def loss_of(_: Tensor) -> Tensor:
        latent = torch.randn(len(labels), size.latent, generator=dice).to(device)
        found = embedded(new(latent, labels), radians).reshape(classes, each, -1).mean(dim=1)
        return (found**2).sum() * each / (each - 1) - 2 * (found * wanted).sum()

    def count(done: int, words: str = "") -> None:
        tick(done, "steps of the generator")

    fit(new, loss_of, 1, seed=seed, tick=count, epochs=steps, batch=1, rate=RATE, falls=True)
    return new.settled()
