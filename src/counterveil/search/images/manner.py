"""The manner of an image: what may stay the same when it comes to show something else.

Five numbers: where its ink lies (across and down), how it slants, how thick and how sharp its
strokes are. Ink is whatever differs from the median of the image, bright or dark.
"""

from __future__ import annotations

import torch
from torch import Tensor

from counterveil.networks import AsImages
from counterveil.schema import Pixels

NUMBERS = 5
FAINT = 1e-4  # ink of an empty pixel, so that an empty image has a manner
NARROW = 0.01  # squared height of ink, in half sides, below which a slant means little


class Manner:
    """Measures images of one shape."""

    def __init__(self, image: Pixels) -> None:
        self._as_images = AsImages(image)
        self._down = torch.linspace(-1, 1, image.height)[:, None]
        self._across = torch.linspace(-1, 1, image.breadth)

    def __call__(self, points: Tensor) -> Tensor:
        """Encoded images (rows, width) to (rows, 5); a gradient flows through."""
        middle = points.detach().median(dim=1, keepdim=True).values
        ink = self._as_images((points - middle).abs()).sum(dim=1) + FAINT  # (rows, height, breadth)
        total = ink.sum(dim=(1, 2))
        share = ink / total[:, None, None]
        across, down = ((share * place).sum(dim=(1, 2)) for place in (self._across, self._down))
        right = self._across - across[:, None, None]
        below = self._down - down[:, None, None]
        height = (share * below.square()).sum(dim=(1, 2))
        slant = (share * right * below).sum(dim=(1, 2)) / (height + NARROW)
        edges = ink.diff(dim=1).abs().sum(dim=(1, 2)) + ink.diff(dim=2).abs().sum(dim=(1, 2))
        thick = (total / (edges + FAINT)).log()
        between = (points * (1 - points)).sum(dim=1)
        soft = (between / total + NARROW).log()
        return torch.stack([across, down, slant, thick, soft], dim=1)
