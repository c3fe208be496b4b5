"""Views of an image: how it looks turned, slanted, stretched, moved or grained a little.

A model has blind spots: images that it puts into a class and no other model would. What it still
puts there in all views is seldom one. The views are public and always the same.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from counterveil.networks import AsImages, random_maps
from counterveil.schema import Pixels

COUNT = 16
SIZE = 0.65  # of the largest changes that surrogates learn with
GRAIN = 0.1  # deviation of a pixel


class Views:
    """`COUNT` views of images of one shape."""

    def __init__(self, image: Pixels) -> None:
        self._as_images = AsImages(image)
        dice = torch.Generator().manual_seed(0)
        shape = [COUNT, image.channels, image.height, image.breadth]
        maps = random_maps(COUNT, dice, SIZE)
        self._grids = nn.functional.affine_grid(maps, shape, align_corners=False)
        self._grain = GRAIN * torch.randn(COUNT, image.width, generator=dice)

    def __call__(self, points: Tensor, number: int) -> Tensor:
        """One view of encoded images (rows, width), in the unit cube; a gradient flows through."""
        grid = self._grids[number % COUNT].expand(len(points), -1, -1, -1)
        seen = nn.functional.grid_sample(self._as_images(points), grid, align_corners=False)
        return (seen.movedim(1, -1).flatten(1) + self._grain[number % COUNT]).clamp(0, 1)
