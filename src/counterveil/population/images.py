"""P~ of images: Gaussian over low frequencies, with means from noisy class sums.

The variation around the means is a public guess.
"""

import numpy as np

from counterveil.encoding import Array
from counterveil.errors import VeilError
from counterveil.population.base import Population, positive_totals, shrinkage
from counterveil.privacy.record import NoisyRecord
from counterveil.schema import Pixels, Schema

FINE = 1 << 12  # cosines in fixed point
SPREAD = 0.12  # standard deviation of frequency (1, 0), as a share of the image's side


class Frequencies:
    """The orthonormal cosine transform of images, cut to `side` × `side` frequencies. Public."""

    def __init__(self, image: Pixels, side: int) -> None:
        if side > min(image.height, image.breadth):
            raise VeilError("its noisy record has more frequencies than its images")
        self.image, self.side = image, side
        self.width = image.channels * side**2
        # The cosines down and across an image: (side, height) and (side, breadth).
        self.waves = _cosines(image.height, side), _cosines(image.breadth, side)

    def of(self, points: Array) -> Array:
        """Pixels in [0, 1], flat, as coefficients (images, channels·side²)."""
        return self._transform(points, *self.waves)

    def whole(self, points: Array, fixed_point: int) -> Array:
        """Coefficients in units of 1/fixed_point, by exact arithmetic on whole numbers.

        The cosines are rounded to 12 bits; sums of products stay far below 2⁵³, so that a float
        product is exact and an image's coefficients do not depend on the images around it.
        """
        rows, columns = (np.round(waves * FINE) for waves in self.waves)
        found = self._transform(np.round(points * self.image.levels), rows, columns)
        scaled = found * fixed_point / (FINE * FINE * self.image.levels)
        return np.round(scaled).astype(np.int64)

    def _transform(self, points: Array, rows: Array, columns: Array) -> Array:
        pixels = points.reshape(-1, self.image.height, self.image.breadth, self.image.channels)
        found = np.einsum("uh,nhwc,vw->ncuv", rows, pixels, columns, optimize=True)
        return found.reshape(len(points), -1)

    def back(self, coefficients: Array) -> Array:
        """The images of coefficients, flat, not yet cut to [0, 1]."""
        square = coefficients.reshape(-1, self.image.channels, self.side, self.side)
        rows, columns = self.waves
        found = np.einsum("uh,ncuv,vw->nhwc", rows, square, columns, optimize=True)
        return found.reshape(len(coefficients), -1)

    def spread(self) -> Array:
        """The public guess of how much each coefficient varies: natural images fall off as 1/f."""
        u, v = np.meshgrid(np.arange(self.side), np.arange(self.side), indexing="ij")
        one = SPREAD * self.image.height / np.maximum(u + v, 1.0)
        return np.tile(one.reshape(-1), self.image.channels)


class ImagePopulation(Population):
    """Class means from noisy sums, variation from the public guess.

    `means`: the coefficients (classes, frequencies); `spread`: how much each varies.
    """

    def __init__(self, schema: Schema, record: NoisyRecord) -> None:
        self.frequencies = Frequencies(schema.images[0], record.frequencies)
        shape = (len(schema.label.classes), 1 + self.frequencies.width)
        whole, variance_of_whole = record.read("sums", shape)
        variance = variance_of_whole / record.fixed_point**2
        counts, sums = np.split(whole / record.fixed_point, [1], axis=1)
        rows = record.records(whole[:, 0].sum() / record.fixed_point)
        totals = positive_totals(counts[:, 0], rows)
        self.class_share = totals / totals.sum()
        self.spread = self.frequencies.spread()
        # Each frequency is believed as far as its expected size exceeds the noise on the mean.
        believe = _wiener(self.spread * 3, variance * len(totals) / rows**2)
        pooled = sums.sum(axis=0) / rows * believe
        residual = sums - totals[:, None] * pooled
        weight = shrinkage(residual, variance)
        believe = _wiener(self.spread, variance / totals[:, None] ** 2)
        self.means = pooled + min(1.0, weight * 2) * believe * (residual / totals[:, None])

    def _points(self, classes: Array, rng: np.random.Generator) -> Array:
        means = self.means[classes]
        points = self.frequencies.back(means + rng.normal(size=means.shape) * self.spread)
        levels = self.frequencies.image.levels
        return np.round(np.clip(points, 0, 1) * levels) / levels


def _cosines(length: int, side: int) -> Array:
    """The first `side` vectors of the orthonormal DCT-II of `length` points."""
    place, frequency = np.arange(length), np.arange(side)[:, None]
    waves = np.cos(np.pi * (place + 0.5) * frequency / length) * np.sqrt(2 / length)
    waves[0] /= np.sqrt(2)
    return waves


def _wiener(spread: Array, variance: Array | float) -> Array:
    signal = spread**2
    return signal / (signal + variance)
