"""The distinguishing game, and the lower bound on ε that it certifies.

Two neighbouring tables, D and D', differ in one unit (a record, or a person). An adversary who
knows both tables sees what a mechanism gave out for one of them and has to say for which. What it
sees is reduced to one number, the score, which tends to be higher for D'.

(ε, δ)-DP means P[event | D'] ≤ e^ε·P[event | D] + δ for every event. The game looks at the events
"score at or above a threshold", in favour of D', and "score below a threshold", in favour of D. The
first half of the draws chooses the threshold. The second half, which had no say in that choice,
counts how often the event happens for each table, and exact binomial bounds (Clopper–Pearson) turn
the counts into a lower bound on ε. All bounds that test one claim share its error of 5 % evenly
(Bonferroni), so with a confidence of 95 % all of them hold together.

A bound above the claimed ε refutes the claim. A bound of 0 means "not detected", never "private".

>>> round(epsilon_bound(90, 10, 100), 2)
1.54
>>> [round(ceiling(draws), 2) for draws in (200, 300, 10_000)]
[3.98, 4.39, 7.9]
"""

import math
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist

import numpy as np

from counterveil.audit.report import Row
from counterveil.encoding import Array
from counterveil.errors import CounterveilError
from counterveil.intervals import clopper_pearson

ERROR = 0.05  # the probability that any bound against a claim is too high
DIRECTIONS = 2  # events in favour of D' and events in favour of D
CANDIDATES = 400  # thresholds tried on the first half
RUNS_AT_ZERO = 26  # times e^ε: runs whose ceiling is above ε, with some room

Scores = tuple[Array, Array]  # of draws for D and of as many draws for D'
Dice = np.random.Generator | None  # of fast noise; without them noise is the curator's own


def epsilon_bound(
    hits_two: int, hits_one: int, draws: int, *, delta: float = 0.0, error: float = ERROR
) -> float:
    """A lower bound on ε, too high with probability `error` at most; 0 where no ε is refuted.

    The event was fixed before its `hits_two` of `draws` draws for D' and `hits_one` for D were
    seen.
    """
    low, _ = clopper_pearson(hits_two, draws, error / 2)
    _, high = clopper_pearson(hits_one, draws, error / 2)
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0


def ceiling(draws: int, *, delta: float = 0.0, error: float = ERROR) -> float:
    """The highest bound that so many draws can give: of what always happens for D', never for D."""
    return epsilon_bound(draws, 0, draws, delta=delta, error=error)


@dataclass(frozen=True)
class Claim:
    """The (ε, δ) that a mechanism promises, and how many games are played against it."""

    epsilon: float
    delta: float = 0.0
    games: int = 1

    @property
    def error(self) -> float:
        """The share of the error that each direction of each game may use."""
        return ERROR / (self.games * DIRECTIONS)


@dataclass(frozen=True)
class Outcome:
    """What one game certified: a lower bound on ε, and the highest bound it could have given."""

    bound: float
    ceiling: float


def play(one: Array, two: Array, claim: Claim) -> Outcome:
    """Play the game on scores of draws for D (`one`) and of as many draws for D' (`two`)."""
    half = len(one) // 2
    held_out = len(one) - half
    bound_of = partial(epsilon_bound, draws=held_out, delta=claim.delta, error=claim.error)
    # Likelihood ratios that are equal may differ in the last bit; no threshold may separate them.
    one, two = np.round(one, 9), np.round(two, 9)
    bounds = []
    for lower, higher in ((one, two), (-two, -one)):
        threshold = _threshold(lower[:half], higher[:half], claim)
        hits_lower, hits_higher = (int((x[half:] >= threshold).sum()) for x in (lower, higher))
        bounds.append(bound_of(hits_higher, hits_lower))
    return Outcome(max(bounds), bound_of(held_out, 0))


def _threshold(one: Array, two: Array, claim: Claim) -> float:
    """The threshold with the best bound, estimated by Wilson's interval, which is fast."""
    both = np.concatenate([one, two])
    tried = np.unique(both)
    if len(tried) > CANDIDATES:
        tried = np.quantile(both, np.linspace(0, 1, CANDIDATES))

    def wilson(scores: Array, z: float) -> Array:
        """An end of the interval, `z` deviations off; the tiny term keeps divisors above 0."""
        draws = len(scores)
        share = 1 - np.searchsorted(np.sort(scores), tried, side="left") / draws
        centre = share + z * z / (2 * draws)
        width = z * np.sqrt(share * (1 - share) / draws + z * z / (4 * draws * draws))
        return np.asarray((centre + width) / (1 + z * z / draws)) + math.copysign(1e-12, z)

    z = NormalDist().inv_cdf(1 - claim.error / 2)
    low, high = wilson(two, -z) - claim.delta, wilson(one, z)
    return float(tried[np.argmax(np.maximum(low, 1e-300) / high)])


def project(one: Array, two: Array) -> Scores:
    """Score released vectors, (draws, numbers), by a projection learnt on the first half of draws.

    It is on the difference of the two means, each number weighted by one over its variance.
    """
    first_one, first_two = one[: len(one) // 2], two[: len(two) // 2]
    variance = first_one.var(axis=0) + first_two.var(axis=0)
    difference = first_two.mean(axis=0) - first_one.mean(axis=0)
    weights = difference / (variance + 1e-12 + 1e-6 * variance.max(initial=0.0))
    length = float(np.linalg.norm(weights))
    weights = weights / length if length > 0 else weights
    return one @ weights, two @ weights


@dataclass(frozen=True)
class Effort:
    """How many `draws` of noisy numbers and `runs` of real releases to make for each table.

    `seed` steers the fast noise of the audit; the curator's own noise takes no seed.
    """

    draws: int = 100_000
    runs: int = 300
    seed: int = 0

    def runs_for(self, epsilon: float) -> int:
        """As many runs as asked for, or more where so few could never refute this ε."""
        return max(self.runs, math.ceil(RUNS_AT_ZERO * math.exp(epsilon)))

    def rng(self, *names: object) -> np.random.Generator:
        """The generator of the game with these names."""
        return np.random.default_rng((self.seed, zlib.crc32(repr(names).encode())))


@dataclass(frozen=True)
class _Planned:
    """What is seen (`view`) of which pair of tables, and the claim that it tests."""

    mechanism: str
    view: str
    pair: str
    claim: Claim

    def _row(self, draws: int, outcome: Outcome, refuted: bool, found: str = "") -> Row:
        asked = self.mechanism, self.view, self.pair, self.claim.epsilon, self.claim.delta, draws
        return Row(*asked, outcome.bound, outcome.ceiling, 1 - ERROR, refuted, found)


@dataclass(frozen=True)
class Game(_Planned):
    """A planned game. `scores` makes the draws, `draws` for each table, and scores them."""

    draws: int
    scores: Callable[[], Scores]

    def play(self) -> Row:
        outcome = play(*self.scores(), self.claim)
        return self._row(self.draws, outcome, outcome.bound > self.claim.epsilon)


@dataclass(frozen=True)
class Check(_Planned):
    """A planned check of something that the proof needs and that must hold exactly.

    `find` gives what is wrong in a few public words, or nothing. A check makes no draws: it has no
    bound, and what it finds refutes the claim by itself.
    """

    find: Callable[[], Iterable[str]]
    draws = 0

    def play(self) -> Row:
        try:
            found = "; ".join(dict.fromkeys(self.find()))
        except CounterveilError as error:
            found = f"it fails: {error}"
        return self._row(self.draws, Outcome(0.0, 0.0), bool(found), found)
