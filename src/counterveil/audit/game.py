"""The distinguishing game: which of two neighbouring tables is behind a release?

Two worlds, D and D', differ in one unit. What an adversary sees in each is reduced to a score that
is higher in world D'. On the first half of the draws a threshold is chosen, for the event "score at
or above" in favour of D' and for the event "score below" in favour of D; the second half, which had
no say in the choice, gives the bound of each event, and the better one counts. Looking at several
pairs, views and directions would find something by luck, so all bounds that test one claim share
its error evenly (Bonferroni).

A bound above the claimed ε refutes the claim. A bound of 0 means "not detected", never "private".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from counterveil.audit.bound import ERROR, ceiling, epsilon_bound
from counterveil.encoding import Array

DIRECTIONS = 2
CANDIDATES = 400  # thresholds that are tried on the first half


@dataclass(frozen=True)
class Outcome:
    """What a game certified. `held_out` draws a side gave the bound; `ceiling` is their limit."""

    bound: float
    ceiling: float
    held_out: int


@dataclass(frozen=True)
class Claim:
    """(ε, δ), and how many games are played against it."""

    epsilon: float
    delta: float = 0.0
    games: int = 1

    @property
    def error(self) -> float:
        """The error that each direction of each game may use."""
        return ERROR / (self.games * DIRECTIONS)


def play(one: Array, two: Array, claim: Claim) -> Outcome:
    """The game for scores drawn in world D (`one`) and in world D' (`two`), as many of each."""
    half = len(one) // 2
    # Ratios that are equal may differ in the last bit; an event must not tear them apart.
    one, two = np.round(one, 9), np.round(two, 9)
    bounds = []
    for towards_one, towards_two in ((one, two), (-two, -one)):
        threshold = _threshold(towards_one[:half], towards_two[:half], claim)
        bounds.append(
            epsilon_bound(
                int((towards_two[half:] >= threshold).sum()),
                len(towards_two) - half,
                int((towards_one[half:] >= threshold).sum()),
                len(towards_one) - half,
                delta=claim.delta,
                error=claim.error,
            )
        )
    held_out = len(one) - half
    limit = ceiling(held_out, delta=claim.delta, error=claim.error)
    return Outcome(max(bounds), limit, held_out)


def project(one: Array, two: Array) -> tuple[Array, Array]:
    """Scores of released vectors, shape (draws, numbers): along the difference of the means.

    The difference, number by number over its variance, is learnt on the first half.
    """
    half = len(one) // 2
    first_one, first_two = one[:half], two[:half]
    spread = first_one.var(axis=0) + first_two.var(axis=0)
    difference = first_two.mean(axis=0) - first_one.mean(axis=0)
    weights = difference / (spread + 1e-12 + 1e-6 * spread.max(initial=0.0))
    length = float(np.linalg.norm(weights))
    weights = weights / length if length > 0 else weights
    return one @ weights, two @ weights


def by_frequency(one: Array, two: Array) -> tuple[Array, Array]:
    """Scores of discrete answers, given by their numbers: the log-ratio of how often each came.

    The ratios are learnt on the first half; an answer that was never seen there scores 0.
    """
    half = len(one) // 2
    answers = int(max(one.max(), two.max())) + 1
    seen_one = np.bincount(one[:half], minlength=answers) + 1.0
    seen_two = np.bincount(two[:half], minlength=answers) + 1.0
    ratio = np.log(seen_two / seen_one)
    return ratio[one], ratio[two]


def _threshold(one: Array, two: Array, claim: Claim) -> float:
    """The threshold that promises the best bound; Wilson's interval is good enough to choose by."""
    both = np.concatenate([one, two])
    tried = np.unique(both)
    if len(tried) > CANDIDATES:
        tried = np.quantile(both, np.linspace(0, 1, CANDIDATES))
    z = NormalDist().inv_cdf(1 - claim.error / 2)
    low = _wilson(_share_above(two, tried), len(two), -z) - claim.delta
    high = _wilson(_share_above(one, tried), len(one), z)
    return float(tried[np.argmax(np.maximum(low, 1e-300) / high)])


def _share_above(scores: Array, thresholds: Array) -> Array:
    below = np.searchsorted(np.sort(scores), thresholds, side="left")
    return np.asarray(1 - below / len(scores))


def _wilson(share: Array, draws: int, z: float) -> Array:
    centre = share + z * z / (2 * draws)
    width = z * np.sqrt(share * (1 - share) / draws + z * z / (4 * draws * draws))
    return np.asarray((centre + width) / (1 + z * z / draws)) + math.copysign(1e-12, z)
