"""Painters: where the images that may be answers come from, as functions of a few numbers.

- `Redrawn`: a new image of the target class by the generator of P~.
- `Retouched`: the query with a smooth change; for a P~ that cannot draw.

Both take strokes (rows, numbers), queries (rows, width) and target classes (rows,), and give images
(rows, width) in the unit cube. They are differentiable: the search moves the strokes. `strain` is
what unusual strokes cost, (rows,).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from counterveil.networks import AsImages
from counterveil.population import Generator
from counterveil.population.images import Frequencies
from counterveil.schema import Pixels

SMOOTH = 0.025  # deviation of the blur of a generated image, in sides
DARKEST = 1e-4  # a pixel below it is as dark as that
TONE = 2  # numbers of the tone: logarithm of the contrast, brightness
USUAL, OF_TONE = 0.3, 0.05  # prices of unusual numbers
FIRST_STEP = 0.5  # deviation of further starts of a smooth change


class Redrawn:
    """Images of the generator, smoothed before the sigmoid, with a contrast and a brightness.

    Noise in the record leaves grain in the generator's images. Without it, and with the contrast of
    the query, they look as drawn with its pen.
    """

    rate = 0.05  # how far a step of the search goes

    def __init__(self, generator: Generator) -> None:
        self.generator, image = generator, generator.image
        self._as_images, self._channels = AsImages(image), image.channels
        deviation = SMOOTH * min(image.height, image.breadth)
        self._reach = max(1, round(3 * deviation))
        place = torch.arange(-self._reach, self._reach + 1.0)
        kernel = torch.exp(-(place**2) / (2 * deviation**2))
        self._kernel = (kernel / kernel.sum()).expand(image.channels, 1, 1, -1)

    def __call__(self, strokes: Tensor, queries: Tensor, targets: Tensor) -> Tensor:
        latent, contrast, brightness = strokes[:, :-TONE], strokes[:, -2:-1], strokes[:, -1:]
        logits = self._smooth(torch.logit(self.generator(latent, targets), DARKEST))
        return torch.sigmoid(contrast.exp() * logits + brightness)

    def _smooth(self, points: Tensor) -> Tensor:
        """Images, (rows, width), blurred down and across; edges go on beyond the image."""
        pictures, reach = self._as_images(points), [self._reach] * 2
        across, down = self._kernel, self._kernel.transpose(2, 3)
        for kernel, sides in ((across, [*reach, 0, 0]), (down, [0, 0, *reach])):
            padded = nn.functional.pad(pictures, sides, mode="replicate")
            pictures = nn.functional.conv2d(padded, kernel, groups=self._channels)
        return pictures.movedim(1, -1).flatten(1)

    def strain(self, strokes: Tensor) -> Tensor:
        latent, tone = strokes[:, :-TONE], strokes[:, -TONE:]
        unusual = (latent.square().mean(dim=1) - 1).clamp(min=0)
        return USUAL * unusual + OF_TONE * tone.square().sum(dim=1)

    def starts(self, latent: Tensor) -> Tensor:
        """Strokes of the generator's own images: no tone is changed."""
        return torch.cat([latent, latent.new_zeros(*latent.shape[:-1], TONE)], dim=-1)


class Retouched:
    """The query with changes that are the smoother the larger they are.

    A stroke is the change of one frequency of the cosine transform, in units of the public guess of
    how much it varies.
    """

    rate = 0.1

    def __init__(self, image: Pixels) -> None:
        frequencies = Frequencies(image, min(image.height, image.breadth))
        self._shape = (-1, image.channels, frequencies.side, frequencies.side)
        self._rows, self._columns, self._spread = (
            torch.as_tensor(each, dtype=torch.float32)
            for each in (*frequencies.waves, frequencies.spread())
        )

    def __call__(self, strokes: Tensor, queries: Tensor, targets: Tensor) -> Tensor:
        change = (strokes * self._spread).reshape(self._shape)
        pixels = torch.einsum("uh,ncuv,vw->nhwc", self._rows, change, self._columns)
        return (queries + pixels.flatten(1)).clamp(0, 1)

    def strain(self, strokes: Tensor) -> Tensor:
        return strokes.new_zeros(len(strokes))

    def starts(self, queries: int, count: int, seed: int) -> Tensor:
        """Strokes (queries, count, numbers): no change at first, then random ones."""
        dice = np.random.default_rng(seed)
        drawn = FIRST_STEP * dice.normal(size=(count, len(self._spread)))
        drawn[0] = 0.0
        return torch.as_tensor(drawn, dtype=torch.float32).expand(queries, -1, -1)


Painter = Redrawn | Retouched
