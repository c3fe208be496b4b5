"""Fast imitations of the noise of the mechanisms, for the audit alone.

The curator's samplers draw from the operating system's entropy and are slow. These draws have the
same distribution, which tests compare, but they come from numpy and can be repeated from a seed.
So no release may ever use them: nothing outside `counterveil.audit` imports this module, and a test
holds that.
"""

import math
from dataclasses import dataclass

import numpy as np

from counterveil.encoding import Array
from counterveil.privacy.record import Measurement

REACH = 12.0  # in standard deviations: what lies beyond has a probability under 1e-31
WIDE = 1e4  # a wider discrete Gaussian is a rounded normal but for parts in a hundred million


def draw(measurement: Measurement, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Independent draws of the noise of a measurement: whole numbers of the given shape."""
    scale = measurement.scale
    if measurement.mechanism == "discrete Laplace":
        # The difference of two geometric numbers with ratio e^(-1/scale).
        success = -math.expm1(-1 / scale)
        return np.asarray(rng.geometric(success, shape) - rng.geometric(success, shape))
    if scale > WIDE:
        return np.asarray(np.rint(rng.normal(0, scale, shape)).astype(np.int64))
    reach = math.ceil(REACH * scale) + 1
    support = np.arange(-reach, reach + 1)
    ladder = np.cumsum(np.exp(-((support / scale) ** 2) / 2))
    dice = rng.random(shape) * ladder[-1]
    return np.asarray(support[np.searchsorted(ladder, dice, side="right")])


def log_ratio(measurement: Measurement, noisy: Array, one: Array, two: Array) -> Array:
    """log P[noisy | two] − log P[noisy | one], exactly, of noisy sums (draws, numbers)."""
    away_one, away_two = np.abs(noisy - one), np.abs(noisy - two)
    if measurement.mechanism == "discrete Laplace":
        return np.asarray((away_one - away_two).sum(axis=-1) / measurement.scale)
    gained = (away_one - away_two) * (away_one + away_two)
    return np.asarray(gained.sum(axis=-1) / (2 * measurement.scale**2))


@dataclass(frozen=True)
class Steps:
    """The steps of a DP-SGD training in which one record alone, the canary, has a gradient.

    `one`, `two`: clipped, in D and in D'. `deviation`: of the noise of a step. `rate`: of batches.
    """

    one: float
    two: float
    deviation: float
    rate: float
    steps: int


def draw_steps(steps: Steps, table: int, draws: int, rng: np.random.Generator) -> Array:
    """Noisy sums of gradients, (draws, steps), of trainings on D (table 0) or on D' (table 1)."""
    shape = draws, steps.steps
    inside = rng.random(shape) < steps.rate
    noise = rng.normal(0, steps.deviation, shape)
    return np.asarray(inside * (steps.one, steps.two)[table] + noise)


def log_ratio_of_steps(steps: Steps, noisy: Array) -> Array:
    """log P[noisy | D'] − log P[noisy | D], exactly, of (draws, steps); batches are secret."""
    outside = math.log1p(-steps.rate) if steps.rate < 1 else -math.inf

    def against_noise(gradient: float) -> Array:
        """For each step, log of (1 − q) + q·φ(noisy − gradient)/φ(noisy), with q the rate."""
        gained = gradient * (noisy - gradient / 2) / steps.deviation**2
        return np.asarray(np.logaddexp(outside, math.log(steps.rate) + gained))

    return np.asarray((against_noise(steps.two) - against_noise(steps.one)).sum(axis=-1))
