"""Random Fourier features of images: the basis of the functional mechanism that sees shapes.

φ(x) = (cos ω₁·x, …, cos ω_K·x, sin ω₁·x, …, sin ω_K·x)/√K has L2 norm 1 for every image x, and the
mean of φ over a class tells its images from others (Rahimi & Recht 2007; as a basis for private
release: Harder, Adamczewski & Park 2021). The ω hold no data: they are drawn from a public seed,
Gaussian over the frequencies of the cosine transform and falling off towards the high ones.

The private sums take φ in whole numbers, `Features.whole`, by arithmetic that is exact: an image's
vector depends on that image alone, bit by bit, whatever images are computed beside it.

| step | numbers | why exact |
|---|---|---|
| pixels | whole levels, at most 2¹⁶ | the schema |
| ω·x in turns of 2⁻³² | whole numbers below 2⁵³ in any order of summing | `MOST_TURNS` |
| its place on the circle | the upper 16 of 32 bits | whole numbers |
| cosine, sine | a table of whole numbers, in units of 1/`FIXED_POINT` | looked up |
"""

import math

import numpy as np
import torch
from torch import Tensor

from counterveil.encoding import Array
from counterveil.errors import VeilError
from counterveil.population.images import Frequencies
from counterveil.schema import Pixels

SEED = 20_210
FIXED_POINT = 128  # a cosine of 1 in whole numbers
# The frequency, in half-waves over the image's side, that is drawn at 61 % of the deviation: this
# many times the root of the side in pixels.
REACH = 1.6
SHARPNESS = 45.0  # variance of ω at low frequencies, times the number of pixels
TURN = 32  # bits of a full turn
PLACES = 16  # bits of a place on the circle
MOST_TURNS = 1 << (53 - TURN)  # of a sum over all pixels


class Features:
    """K random Fourier features of images of one shape. Public: the same for everybody."""

    def __init__(self, image: Pixels, count: int) -> None:
        side = min(image.height, image.breadth)
        if count < 1 or image.width > MOST_PIXELS:
            raise VeilError("its noisy record has features that such images cannot have")
        self.image, self.count, self.width = image, count, 2 * count
        frequencies = Frequencies(image, side)
        row, column = np.indices((side, side))
        falling = np.exp(-(row**2 + column**2) / (2 * REACH**2 * side)).reshape(-1)
        spread = math.sqrt(SHARPNESS / (image.height * image.breadth)) * falling
        drawn = _normals(count * frequencies.width).reshape(count, frequencies.width)
        waves = frequencies.back(drawn * np.tile(spread, image.channels))  # (K, pixels)
        steps = np.round(waves / (2 * math.pi * image.levels) * (1 << TURN))
        limit = MOST_TURNS * (1 << TURN) // (image.width * image.levels)
        self._steps = np.clip(steps, -limit, limit)  # whole numbers in float64
        self._radians = self._steps * (2 * math.pi * image.levels / (1 << TURN))
        # No image has an integer vector with larger norms; exact.
        self.l2_squared = count * int((COSINES**2 + SINES**2).max())
        self.l1 = count * int((np.abs(COSINES) + np.abs(SINES)).max())

    def whole(self, points: Array) -> Array:
        """Encoded images (rows, pixels) as integers (rows, 2K) in units of 1/(FIXED_POINT·√K)."""
        levels = np.round(points * self.image.levels)
        turns = (levels @ self._steps.T).astype(np.int64)  # exact: see the table above
        places = (turns & ((1 << TURN) - 1)) >> (TURN - PLACES)
        return np.concatenate([COSINES[places], SINES[places]], axis=1)

    def radians(self, device: torch.device) -> Tensor:
        """The ω as float32, (pixels, K), for `embedded`."""
        return torch.as_tensor(self._radians.T, dtype=torch.float32, device=device)


def embedded(points: Tensor, radians: Tensor) -> Tensor:
    """φ of images (rows, pixels) in floats that a gradient flows through: (rows, 2K), norm 1."""
    angles = points @ radians
    return torch.cat([angles.cos(), angles.sin()], dim=1) / math.sqrt(radians.shape[1])


MOST_PIXELS = 1 << 14  # numbers of an image: beyond, ω alone would fill the memory
_CIRCLE = np.arange(1 << PLACES) * (2 * math.pi / (1 << PLACES))
COSINES = np.round(np.cos(_CIRCLE) * FIXED_POINT).astype(np.int64)
SINES = np.round(np.sin(_CIRCLE) * FIXED_POINT).astype(np.int64)


def _normals(count: int) -> Array:
    """Standard normal numbers by Box and Muller, from raw bits that no release of numpy changes."""
    raw = np.random.PCG64(SEED).random_raw(2 * count)
    first, second = (raw >> np.uint64(11)).reshape(2, count) * 2.0**-53
    found: Array = np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * math.pi * second)
    return found
