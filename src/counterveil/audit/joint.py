"""How the numbers of the noise go together, against independent draws of the stated distribution.

A variance sees neither tails that were cut off nor noise that comes twice. Here the curator's noise
on two vectors, larger than any record's, is compared with its exact distribution at every distance
that is not too rare; and it must not go with itself at any shift, with the other vector's, or with
the exact numbers that it is put on, though every generator that takes a seed is seeded alike.

False alarms: each comparison is wrong with a probability of `RARE`, or beyond `FAR` deviations.
"""

import math
import random
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import torch
from scipy.stats import binom

from counterveil.audit import fast_noise
from counterveil.curator.noise import EXACT
from counterveil.encoding import Array
from counterveil.privacy import Rho, Share
from counterveil.privacy.record import Measurement, Sensitivity
from counterveil.privacy.statement import LAPLACE

FAR, RARE = 7.5, 1e-10
SEEN = 25.0  # draws that are expected beyond a distance: that none comes is a finding
LAPLACE_DRAWS, GAUSSIAN_DRAWS = 60_000, 180_000  # in each vector: tails beyond 6 b, and beyond 4 σ


def seed_all() -> None:
    """Seed every generator that takes one, always alike."""
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)


def large_vectors(share: Share) -> Iterator[str]:
    """What is wrong with the curator's noise for this share on two large vectors."""
    size = GAUSSIAN_DRAWS if isinstance(share, Rho) else LAPLACE_DRAWS
    exact = 1 << np.arange(size, dtype=np.int64) % 41
    exact[::3] = 0
    sensitivity, noise = Sensitivity(2, math.sqrt(2)), []
    for _ in range(2):
        seed_all()
        answer = EXACT.perturb("x", "x", exact, sensitivity, share)
        noise.append(answer.values - exact)
    yield from other_tails(np.concatenate(noise), answer)
    drawn = [each.astype(np.float64) / math.sqrt(answer.variance) for each in noise]
    yield from goes_together([drawn[0][None], drawn[1][None]], ["one vector", "the next one"])
    for each in drawn:
        of_size = np.log2(exact + 1) - np.log2(exact + 1).mean()
        if abs(of_size @ each) > FAR * np.linalg.norm(of_size):
            yield "the noise goes with the numbers that it is on"
        if abs(of_size @ (each**2 - 1)) > 3 * FAR * np.linalg.norm(of_size):
            yield "how large the noise is goes with the numbers that it is on"


def other_tails(noise: Array, answer: Measurement) -> Iterator[str]:
    """At which distances there is more or less of the noise than its distribution has there."""
    distances = np.arange(1, math.ceil(fast_noise.REACH * 4 * answer.scale))
    beyond = tail(answer, distances)
    seen = beyond * len(noise) >= SEEN
    far = int(distances[-1]) + 1
    counts = np.bincount(np.abs(noise).clip(max=far), minlength=far + 1)
    found = counts[::-1].cumsum()[::-1][distances[seen]]
    for distance, share, count in zip(distances[seen], beyond[seen], found, strict=True):
        sides = binom.cdf(count, len(noise), share), binom.sf(count - 1, len(noise), share)
        if min(sides) < RARE:
            much = count / len(noise) / share
            yield f"{much:.2f} of the noise that should be at {distance} or beyond is there"
            return
    if abs(noise.sum()) > FAR * math.sqrt(answer.variance * len(noise)):
        yield "the noise is not even about 0"


def tail(answer: Measurement, distances: Array) -> Array:
    """P[|noise| ≥ distance], exactly, for ascending whole distances from 1 on."""
    if answer.mechanism == LAPLACE:
        ratio = math.exp(-1 / answer.scale)
        return np.asarray(2 * ratio**distances / (1 + ratio))
    weights = np.exp(-((distances / answer.scale) ** 2) / 2)
    return np.asarray(2 * weights[::-1].cumsum()[::-1] / (1 + 2 * weights.sum()))


def goes_together(noise: Sequence[Array], names: Sequence[str]) -> Iterator[str]:
    """Which noise goes with other noise: of each measurement (runs, numbers), of variance 1."""
    for (one, first), (two, second) in combinations(zip(noise, names, strict=True), 2):
        width = min(one.shape[1], two.shape[1])
        products = one[:, :width] * two[:, :width]
        if abs(products.sum()) > FAR * math.sqrt(products.size):
            yield f"the noise on {first} and on {second} is the same, or goes together"
    flat = np.concatenate(list(noise), axis=1).ravel()
    if shift := comes_again(flat):
        yield f"noise comes again {shift} numbers later"


def comes_again(noise: Array) -> int:
    """At which shift noise of variance 1 goes with itself; 0 where at none up to half its length.

    >>> dice = np.random.default_rng(0)
    >>> once = dice.normal(size=1000)
    >>> comes_again(once), comes_again(np.concatenate([once, once]))
    (0, 1000)
    """
    size = len(noise)
    power = np.abs(np.fft.rfft(noise, 2 * size)) ** 2
    shifts = np.arange(1, size // 2 + 1)
    sums = np.abs(np.fft.irfft(power)[shifts]) / np.sqrt(size - shifts)
    return int(shifts[sums.argmax()]) if sums.max() > FAR else 0
