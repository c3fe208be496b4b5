"""The only source of privacy randomness: OpenDP's samplers over the operating system's entropy.

Nothing here takes a seed, and nothing may: noise that can be repeated can be subtracted. The
integer mechanisms are exact: no float touches a private number before its noise is on it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import opendp.prelude as dp
import torch
from torch import Tensor

from counterveil.encoding import Array
from counterveil.errors import BudgetError, InternalError
from counterveil.privacy import Budget, Rho, Share, record
from counterveil.privacy.budget import float_below
from counterveil.privacy.record import Measurement, Sensitivity, spent_by
from counterveil.privacy.statement import GAUSSIAN, LAPLACE, Mechanism

dp.enable_features("contrib")


@dataclass(frozen=True)
class Noise:
    """A noise distribution for an integer vector, and the privacy it was proved to give."""

    kind: Mechanism
    scale: float
    share: Share

    @property
    def variance(self) -> float:
        return record.noise_variance(self.kind, self.scale)


class NoiseSource:
    """Where a mechanism gets its noise: the only thing it may do with exact numbers.

    `EXACT` is the one source of the product; an audit may listen by a subclass of its own.
    """

    def perturb(
        self, name: str, what: str, exact: Array, sensitivity: Sensitivity, share: Share
    ) -> Measurement:
        """Exact int64 sums with the noise that makes them private by `share`, as a measurement.

        Formal guarantee: (ε, δ)-DP, or ρ-zCDP, for vectors that move by at most `sensitivity`.
        """
        l1, l2 = sensitivity.l1, sensitivity.l2
        noise = calibrate(l1, l2, share)
        noisy = add(exact, noise, l1, l2)
        how, spent = (noise.kind, noise.scale), spent_by(noise.share)
        return Measurement(name, what, noisy, sensitivity, *how, **spent)


EXACT = NoiseSource()


@lru_cache(maxsize=256)  # of public numbers alone
def rho_of(budget: Budget) -> Rho | None:
    """The largest ρ for which ρ-zCDP is (ε, δ)-DP, as OpenDP proves it; None where there is none.

    Formal guarantee: every ρ-zCDP mechanism with the ρ returned, or a smaller one, is (ε, δ)-DP.
    Proof: OpenDP's map takes a distance d through a Gaussian of scale 1, which is d²/2-zCDP, to ε
    at δ by a bound on all mechanisms of that ρ (Canonne, Kamath and Steinke 2020). `d` is one for
    which that is at most ε, and what is returned is d²/2, rounded down.
    """
    if budget.delta <= 0:
        return None

    def enough(distance: float) -> bool:
        return _gaussian_epsilon(1.0, distance, budget.delta) <= budget.epsilon

    tail = -math.log(budget.delta)
    root = budget.epsilon / (math.sqrt(tail + budget.epsilon) + math.sqrt(tail))
    low = 0.999 * math.sqrt(2) * root  # ε = ρ + 2·√(ρ·tail) is enough: Bun and Steinke 2016
    if not enough(low):
        return None
    high = 2 * low
    while enough(high):
        low, high = high, 2 * high
    while high - low > 1e-13 * low:
        middle = (low + high) / 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    rho = float_below(Fraction(low) ** 2 / 2)
    return Rho(rho) if rho > 0 else None


def _raised(scale: float, enough: Callable[[float], bool]) -> float:
    """The scale, or one that is larger by a hair: rounding may only ever add noise."""
    found, more = scale, 2.0**-52
    while 0 < found < math.inf:
        if enough(found):
            return found
        found, more = scale * (1 + more), 2 * more
    raise BudgetError("the budget is so small or so large that no noise fits it; change it")


@lru_cache(maxsize=256)  # of public numbers alone
def calibrate(l1: int, l2: float, share: Share) -> Noise:
    """The noise that makes a vector of these sensitivities private by `share`.

    Formal guarantee: for any two integer vectors at L1 distance ≤ l1 and L2 distance ≤ l2, adding
    this noise to every entry is ρ-zCDP for a ρ (discrete Gaussian of scale l2/√(2ρ)), and
    (ε, δ)-DP for a budget: by the noise with the smaller variance, and pure ε-DP where δ is 0 or
    where that is Laplace noise. OpenDP's own privacy map is asked and must confirm it.
    """
    if isinstance(share, Rho):
        wanted = share.rho
        sigma = l2 / math.sqrt(2 * wanted)
        return Noise(GAUSSIAN, _raised(sigma, lambda sigma: _rho(sigma, l2) <= wanted), share)
    epsilon, delta = share.epsilon, share.delta
    scale = l1 / epsilon
    if math.isinf(scale):
        raise BudgetError("epsilon is so small that no finite noise is enough; raise it")
    scale = _raised(scale, lambda scale: _sampler(LAPLACE, scale).map(l1) <= epsilon)

    def enough(sigma: float) -> bool:
        return _gaussian_epsilon(sigma, l2, delta) <= epsilon

    as_wide = math.sqrt(2) * scale  # the Gaussian with the variance of this Laplace noise
    if delta > 0 and enough(as_wide):
        sigma = float(dp.binary_search(enough, bounds=(0.0, as_wide), T=float))
        if sigma < as_wide:
            return Noise(GAUSSIAN, sigma, share)
    return Noise(LAPLACE, scale, Budget(epsilon))


def add(values: Array, noise: Noise, l1: int, l2: float) -> Array:
    """`values` plus noise, entry by entry; refuses unless OpenDP confirms the privacy claimed."""
    if values.dtype != np.int64:
        raise InternalError("only whole numbers may get exact noise")
    flat = values.reshape(-1)
    measurement = _sampler(noise.kind, noise.scale, len(flat))
    share = noise.share
    if isinstance(share, Rho):
        proved = noise.kind == GAUSSIAN and _rho(noise.scale, l2) <= share.rho
    elif noise.kind == LAPLACE:
        proved = measurement.map(l1) <= share.epsilon
    else:
        proved = _gaussian_epsilon(noise.scale, l2, share.delta) <= share.epsilon
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


def _rho(scale: float, l2: float) -> float:
    """ρ of the discrete Gaussian, as OpenDP proves it; infinite where its arithmetic overflows."""
    try:
        return float(_sampler(GAUSSIAN, scale).map(l2))
    except dp.OpenDPException:
        return math.inf


def _gaussian_epsilon(scale: float, l2: float, delta: float) -> float:
    """ε at δ of the discrete Gaussian by zCDP, as OpenDP proves it; infinite where it overflows."""
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
