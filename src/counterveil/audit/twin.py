"""A fast twin of the privacy noise, for the audit alone.

The samplers of `counterveil.curator.noise` are exact, draw from the operating system's entropy and
take their time; a game at the level of coefficients wants millions of draws. These have the same
distribution, come from numpy and can be repeated from a seed, which is why no release may ever use
them: nothing outside `counterveil.audit` imports this module, and a test holds that. Another test
holds their distribution against that of the real samplers.
"""

from __future__ import annotations

import math

import numpy as np

from counterveil.curator.noise import Noise
from counterveil.encoding import Array

REACH = 12.0  # in standard deviations: what lies beyond has a probability under 1e-31
WIDE = 1e4  # a wider discrete Gaussian is a rounded normal but for parts in a hundred million


def draw(noise: Noise, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Independent draws of `noise`, as whole numbers."""
    if noise.kind == "discrete Laplace":
        # The difference of two geometric numbers with ratio e^(-1/scale).
        success = -math.expm1(-1 / noise.scale)
        return np.asarray(rng.geometric(success, shape) - rng.geometric(success, shape))
    if noise.scale > WIDE:
        return np.asarray(np.rint(rng.normal(0, noise.scale, shape)).astype(np.int64))
    reach = math.ceil(REACH * noise.scale) + 1
    support = np.arange(-reach, reach + 1)
    ladder = np.cumsum(np.exp(-((support / noise.scale) ** 2) / 2))
    dice = rng.random(shape) * ladder[-1]
    return np.asarray(support[np.searchsorted(ladder, dice, side="right")])


def log_ratio(noise: Noise, noisy: Array, one: Array, two: Array) -> Array:
    """log P[noisy | two] − log P[noisy | one], exactly, summed over the last axis."""
    away_one, away_two = np.abs(noisy - one), np.abs(noisy - two)
    if noise.kind == "discrete Laplace":
        return np.asarray((away_one - away_two).sum(axis=-1) / noise.scale)
    gained = (away_one - away_two) * (away_one + away_two)
    return np.asarray(gained.sum(axis=-1) / (2 * noise.scale**2))
