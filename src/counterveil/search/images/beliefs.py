"""What the noisy population says about images: all from P~ alone, nothing about a model or a query.

How likely an image is in a class is read off the noisy record itself:

- random features: ⟨φ(x), λ~_y/n~_y⟩, the class mean of φ at x. That is a kernel density estimate
  of the people's images, with the kernel ⟨φ(x), φ(x')⟩ and the record's noise;
- frequencies: the log-density of the Gaussian with the noisy class means.

Either is counted in standard deviations among P~'s own images of the class, above their mean.

The manner of an image is what may stay the same when it comes to show something else. Five numbers:
where its ink lies (across and down), how it slants, how thick and how sharp its strokes are. Ink is
whatever differs from the median of the image, bright or dark.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from counterveil.networks import AsImages
from counterveil.population import FeaturePopulation, ImagePopulation
from counterveil.population.features import embedded
from counterveil.schema import Pixels

IMAGES = 200  # of each class that are drawn and kept
MOST_NUMBERS = 1 << 25  # of all kept images
FEWEST = 16  # images of a class, however large they are
LEAST_SPREAD = 1e-6
NUMBERS = 5  # of a manner
FAINT = 1e-4  # ink of an empty pixel, so that an empty image has a manner
NARROW = 0.01  # squared height of ink, in half sides, below which a slant means little

Drawn = ImagePopulation | FeaturePopulation
Score = Callable[[Tensor, Tensor], Tensor]  # images (rows, width), classes (rows,) -> (rows,)


class ImageBeliefs:
    """P~ of images for the search. Images are encoded points, (rows, width).

    `image`: their shape. `classes`, `count`: how many classes there are, and images of each in
    `samples`, (classes, count, width). `manners`: those of the samples, (classes, count, 5).
    `latent`: what the generator made the samples from, (classes, count, numbers); None where there
    is no generator. `usual_change`: the mean absolute difference of a pixel between two samples.
    """

    def __init__(self, population: Drawn, image: Pixels) -> None:
        self.population, self.image = population, image
        self.classes = len(population.class_share)
        self.count = max(FEWEST, min(IMAGES, MOST_NUMBERS // (self.classes * image.width)))
        self.samples, self.latent = self._drawn()
        mixed = self.samples.transpose(0, 1).flatten(0, 1)  # neighbours are of different classes
        self.usual_change = max(float((mixed[1:] - mixed[:-1]).abs().mean()), LEAST_SPREAD)
        self._manner_spread = manner_of(mixed, image).std(dim=0).clamp(min=LEAST_SPREAD)
        self.manners = torch.stack([self.manner(own) for own in self.samples])
        self._score = _score_of(population)
        scores = [self._score(own, self._goals(at)) for at, own in enumerate(self.samples)]
        found = torch.stack(scores)
        self._middle = found.mean(dim=1)
        self._spread = found.std(dim=1).clamp(min=LEAST_SPREAD)
        self._ranks = ((found - self._middle[:, None]) / self._spread[:, None]).sort(dim=1).values

    def _goals(self, goal: int) -> Tensor:
        return torch.full((self.count,), goal)

    @torch.no_grad()
    def _drawn(self) -> tuple[Tensor, Tensor | None]:
        """Images of P~, (classes, count, width), and what a generator made them from."""
        population, rng = self.population, np.random.default_rng(0)
        if isinstance(population, FeaturePopulation) and population.generator is not None:
            size = (self.classes, self.count, population.generator.size.latent)
            latent = torch.as_tensor(rng.normal(size=size), dtype=torch.float32)
            drawn = [population.generator(own, self._goals(at)) for at, own in enumerate(latent)]
            return torch.stack(drawn), latent
        evenly = np.eye(self.classes)
        drawn = [population.sample(self.count, rng, evenly[at])[0] for at in range(self.classes)]
        return torch.as_tensor(np.stack(drawn), dtype=torch.float32), None

    def manner(self, points: Tensor) -> Tensor:
        """The manner of images, (rows, 5), in standard deviations among all samples."""
        return manner_of(points, self.image) / self._manner_spread

    def likelihood(self, points: Tensor, targets: Tensor) -> Tensor:
        """How likely each image is in its target class, (rows,), in standard deviations."""
        return (self._score(points, targets) - self._middle[targets]) / self._spread[targets]

    def rank(self, likelihood: Tensor, targets: Tensor) -> Tensor:
        """The share of P~'s images of the target class that are less likely, (rows,)."""
        below = torch.searchsorted(self._ranks[targets], likelihood.contiguous()[:, None])
        return below[:, 0] / self.count

    def floor(self, share: float) -> Tensor:
        """The likelihood that so many of P~'s images of each class stay below, (classes,)."""
        return self._ranks[:, int(share * (self.count - 1))]


def manner_of(points: Tensor, image: Pixels) -> Tensor:
    """The manner of encoded images (rows, width), (rows, 5); a gradient flows through."""
    middle = points.detach().median(dim=1, keepdim=True).values
    ink = AsImages(image)((points - middle).abs()).sum(dim=1) + FAINT  # (rows, height, breadth)
    total = ink.sum(dim=(1, 2))
    share = ink / total[:, None, None]
    places = torch.linspace(-1, 1, image.breadth), torch.linspace(-1, 1, image.height)[:, None]
    across, down = ((share * place).sum(dim=(1, 2)) for place in places)
    right, below = places[0] - across[:, None, None], places[1] - down[:, None, None]
    height = (share * below.square()).sum(dim=(1, 2))
    slant = (share * right * below).sum(dim=(1, 2)) / (height + NARROW)
    edges = ink.diff(dim=1).abs().sum(dim=(1, 2)) + ink.diff(dim=2).abs().sum(dim=(1, 2))
    thick = (total / (edges + FAINT)).log()
    between = (points * (1 - points)).sum(dim=1)
    soft = (between / total + NARROW).log()
    return torch.stack([across, down, slant, thick, soft], dim=1)


def _score_of(population: Drawn) -> Score:
    """How likely images are in a class, in a unit of the population's own."""
    if isinstance(population, FeaturePopulation):
        waves = population.features.radians(torch.device("cpu"))
        means = torch.as_tensor(population.embedding, dtype=torch.float32)
        return lambda points, classes: (embedded(points, waves) * means[classes]).sum(dim=1)
    image = population.frequencies.image
    rows, columns, spread, centres = (
        torch.as_tensor(each, dtype=torch.float32)
        for each in (*population.frequencies.waves, population.spread, population.means)
    )

    def log_density(points: Tensor, classes: Tensor) -> Tensor:
        pixels = points.reshape(-1, image.height, image.breadth, image.channels)
        found = torch.einsum("uh,nhwc,vw->ncuv", rows, pixels, columns).flatten(1)
        return -((found - centres[classes]) / spread).square().sum(dim=1) / 2

    return log_density
