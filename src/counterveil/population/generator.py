"""P~ of images from noisy random features: a generator G(z, y) and how it learns.

G minimises Σ_y ‖λ~_y/n~_y − E_z φ(G(z, y))‖², with λ~_y the noisy class sums of φ: the functional
mechanism's perturbed objective, whose data is all in λ~. Training it is post-processing. It is
convolutional, because what is not seen by φ must come from somewhere: from smooth strokes rather
than from single pixels.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from counterveil.encoding import Array
from counterveil.errors import RequestError, VeilError
from counterveil.networks import seeded
from counterveil.population.base import Population, positive_totals
from counterveil.population.features import FIXED_POINT, Features, embedded
from counterveil.privacy.record import NoisyRecord
from counterveil.schema import Pixels, Schema
from counterveil.terminal import Tick, silent

BATCH, RATE = 300, 2e-3  # images of a step, and how far a step goes at first
AT_A_TIME = 1024  # images generated together
CLASS_SCALE = 4.0  # how loud the class is beside z: classes that share all of z stay apart
DARK = -1.0  # where the output starts, before the sigmoid: images are rather dark than bright


@dataclass(frozen=True)
class GeneratorSize:
    """Layers of a generator: numbers of z and of a class, neurons, maps at a quarter and a half."""

    latent: int = 6
    label: int = 16
    hidden: int = 256
    maps: int = 16

    def to_manifest(self) -> dict[str, int]:
        """As in the manifest of a veil."""
        return asdict(self)

    @classmethod
    def from_manifest(cls, content: Any) -> GeneratorSize:
        """The sizes in a manifest; a VeilError unless they are usable."""
        names = set(cls.__dataclass_fields__)
        if not isinstance(content, dict) or set(content) != names:
            raise VeilError("its manifest gives no usable sizes of a generator")
        if not all(type(size) is int and 1 <= size <= 1 << 12 for size in content.values()):
            raise VeilError("its manifest gives no usable sizes of a generator")
        return cls(**content)


class Generator(nn.Module):
    """G: z (rows, latent) and classes (rows,) to images (rows, pixels) in the unit cube.

    A dense layer makes small maps, a quarter of the image high and broad; they are enlarged, a
    convolution reads them, and a last one gives four pixels for each of theirs.
    """

    def __init__(self, image: Pixels, classes: int, size: GeneratorSize) -> None:
        super().__init__()
        self.size, self.image = size, image
        self._half = (image.height + 1) // 2, (image.breadth + 1) // 2
        self._quarter = (self._half[0] + 1) // 2, (self._half[1] + 1) // 2
        self.label = nn.Embedding(classes, size.label)
        self.first = nn.Linear(size.latent + size.label, size.hidden)
        self.second = nn.Linear(size.hidden, size.maps * math.prod(self._quarter))
        self.middle = nn.Conv2d(size.maps, size.maps, 3, padding=1)
        self.last = nn.Conv2d(size.maps, 4 * image.channels, 3, padding=1)

    def forward(self, latent: Tensor, classes: Tensor) -> Tensor:
        known = torch.cat([latent, CLASS_SCALE * self.label(classes)], dim=1)
        found = self.second(self.first(known).relu()).relu()
        maps = found.reshape(len(found), *self._quarter, self.size.maps).movedim(-1, 1)
        maps = nn.functional.interpolate(maps, self._half, mode="bilinear", align_corners=False)
        four = self.last(self.middle(maps).relu())
        pixels = nn.functional.pixel_shuffle(four, 2)
        pixels = nn.functional.pad(pixels, (1, 1, 1, 1), mode="replicate")
        pixels = nn.functional.avg_pool2d(pixels, 3, stride=1)
        pixels = pixels[:, :, : self.image.height, : self.image.breadth]
        return torch.sigmoid(pixels + DARK).movedim(1, -1).flatten(1)  # channels last, as rows are


class FeaturePopulation(Population):
    """Images of a generator, in whole levels, in the classes' noisy proportions.

    Without a generator it only says what one has to learn: `embedding`, the noisy class means of φ,
    (classes, 2K).
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
        """The same with images to draw."""
        return FeaturePopulation(self._schema, self._record, generator)

    @torch.no_grad()
    def _points(self, classes: Array, rng: np.random.Generator) -> Array:
        """Images, flat, in whole levels."""
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
    """How much a record adds to the count of its class: as long as its features are, rounded down.

    In this length it costs no noise (`coefficients.EmbeddingSums`).
    """
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
    generator = seeded(lambda: Generator(features.image, classes, size), seed).to(device)
    wanted = torch.as_tensor(population.embedding, dtype=torch.float32, device=device)
    radians = features.radians(device)
    each = max(2, BATCH // classes)
    labels = torch.arange(classes, device=device).repeat_interleave(each)
    dice = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(generator.parameters(), RATE, fused=True)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step in range(steps):
        latent = torch.randn(len(labels), size.latent, generator=dice).to(device)
        found = embedded(generator(latent, labels), radians).reshape(classes, each, -1).mean(dim=1)
        loss = (found**2).sum() * each / (each - 1) - 2 * (found * wanted).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        decay.step()
        tick(step + 1, "steps of the generator")
    return generator.requires_grad_(False).eval()
