"""The only source of privacy randomness: OpenDP's samplers over the operating system's entropy.

Nothing here takes a seed, and nothing may: noise that can be repeated can be subtracted. The
integer mechanisms are exact: no float touches a private number before its noise is on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import opendp.prelude as dp
import torch
from torch import Tensor

from counterveil.encoding import Array
from counterveil.errors import BudgetError, InternalError
from counterveil.privacy import Budget, record
from counterveil.privacy.record import GAUSSIAN, LAPLACE, Measurement, Mechanism, Sensitivity

dp.enable_features("contrib")


@dataclass(frozen=True)
class Noise:
    """A noise distribution for an integer vector, and the privacy it was proved to give."""

    kind: Mechanism
    scale: float
    epsilon: float
    delta: float

    @property
    def variance(self) -> float:
        """Of one draw."""
        return record.noise_variance(self.kind, self.scale)


class NoiseSource:
    """Where a mechanism gets its noise: the only thing it may do with exact numbers.

    `EXACT` is the one source of the product, of exact discrete noise. An audit may listen by a
    subclass of its own.
    """

    def perturb(
        self, name: str, what: str, exact: Array, sensitivity: Sensitivity, budget: Budget
    ) -> Measurement:
        """Exact int64 sums with the noise that makes them `budget`-DP, as a measurement.

        Formal guarantee: (ε, δ)-DP for vectors that move by at most `sensitivity`.
        """
        l1, l2 = sensitivity.l1, sensitivity.l2
        noise = calibrate(l1, l2, budget.epsilon, budget.delta)
        noisy = add(exact, noise, l1, l2)
        how = noise.kind, noise.scale, noise.epsilon, noise.delta
        return Measurement(name, what, noisy, sensitivity, *how)

    def choose(self, scores: Sequence[int], sensitivity: int, epsilon: float) -> int:
        """The number of (nearly) the highest score.

        Formal guarantee: ε-DP for scores of which each changes by at most `sensitivity`, in any
        direction (permute-and-flip, McKenna & Sheldon 2020).
        """
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64")
        scale = 2 * sensitivity / epsilon
        measurement = dp.m.make_noisy_max(*space, dp.max_divergence(), scale=scale)
        while measurement.map(sensitivity) > epsilon:  # rounding may only ever add noise
            scale = math.nextafter(scale, math.inf)
            measurement = dp.m.make_noisy_max(*space, dp.max_divergence(), scale=scale)
        try:
            return int(measurement([int(score) for score in scores]))
        except Exception:  # whatever went wrong, its message may hold an exact private score
            raise InternalError("the noisy maximum could not be taken") from None


EXACT = NoiseSource()


@lru_cache(maxsize=256)  # of public numbers alone
def calibrate(l1: int, l2: float, epsilon: float, delta: float) -> Noise:
    """The noise with the smaller variance that makes a vector of these sensitivities (ε, δ)-DP.

    Formal guarantee: for any two integer vectors at L1 distance ≤ l1 and L2 distance ≤ l2, adding
    this noise to every entry is (epsilon, delta)-DP; pure ε-DP where delta is 0 or where Laplace
    was chosen. OpenDP's own privacy map is asked and must confirm it.
    """
    scale = l1 / epsilon
    if math.isinf(scale):
        raise BudgetError("epsilon is so small that no finite noise is enough; raise it")
    while _sampler(LAPLACE, scale).map(l1) > epsilon:  # rounding may only ever add noise
        scale = math.nextafter(scale, math.inf)

    def enough(sigma: float) -> bool:
        return _gaussian_epsilon(sigma, l2, delta) <= epsilon

    as_wide = math.sqrt(2) * scale  # the Gaussian with the variance of this Laplace noise
    if delta > 0 and enough(as_wide):
        sigma = float(dp.binary_search(enough, bounds=(0.0, as_wide), T=float))
        if sigma < as_wide:
            return Noise(GAUSSIAN, sigma, epsilon, delta)
    return Noise(LAPLACE, scale, epsilon, 0.0)


def add(values: Array, noise: Noise, l1: int, l2: float) -> Array:
    """`values` plus noise, entry by entry; refuses unless OpenDP confirms the privacy claimed."""
    if values.dtype != np.int64:
        raise InternalError("only whole numbers may get exact noise")
    flat = values.reshape(-1)
    measurement = _sampler(noise.kind, noise.scale, len(flat))
    if noise.kind == LAPLACE:
        proved = measurement.map(l1) <= noise.epsilon
    else:
        proved = _gaussian_epsilon(noise.scale, l2, noise.delta) <= noise.epsilon
    if not proved:
        raise InternalError("the noise does not give the privacy that was promised")
    try:
        noisy = measurement(flat.tolist())
    except Exception:  # whatever went wrong, its message may hold an exact private sum
        raise InternalError("the noise could not be added") from None
    return np.array(noisy, dtype=np.int64).reshape(values.shape)


def _sampler(kind: Mechanism, scale: float, size: int = 1) -> dp.Measurement:
    domain = dp.vector_domain(dp.atom_domain(T="i64"), size=size)
    if kind == LAPLACE:
        return dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
    return dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale)


def _gaussian_epsilon(scale: float, l2: float, delta: float) -> float:
    """ε at δ of the discrete Gaussian by way of zero-concentrated DP, as OpenDP proves it.

    Infinite where it proves none: so little noise that its arithmetic overflows.
    """
    try:
        curve = dp.c.make_zCDP_to_approxDP(_sampler(GAUSSIAN, scale)).map(l2)
        return float(curve.epsilon(delta))
    except dp.OpenDPException:
        return math.inf


def laplace(scale: float, size: int) -> Tensor:
    """`size` independent draws of Lap(scale), as float64. For the mechanism `paper` only."""
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=size), dp.l1_distance(T=float)
    measurement = dp.m.make_laplace(*space, scale=scale)
    return torch.tensor(measurement([0.0] * size), dtype=torch.float64)
