"""How much ε so many draws can certify: exact binomial bounds, nothing asymptotic.

(ε, δ)-DP means P[event | D'] ≤ e^ε·P[event | D] + δ for every event. Seen so and so often in each
world, an event gives a lower bound on ε: Clopper–Pearson from below for D', from above for D, each
with half of the error that is allowed.

>>> round(epsilon_bound(90, 100, 10, 100), 2)
1.54
>>> [round(ceiling(draws), 2) for draws in (200, 300, 10_000)]
[3.98, 4.39, 7.9]
"""

from __future__ import annotations

import math
from collections.abc import Callable

ERROR = 0.05  # of a whole claim: its bounds hold together with a confidence of 95 %


def lower_share(hits: int, draws: int, error: float) -> float:
    """A probability that is below the true one except with probability `error`."""
    if hits == 0:
        return 0.0
    return _root(lambda share: _at_least(hits, draws, share) - error)[0]


def upper_share(hits: int, draws: int, error: float) -> float:
    """A probability that is above the true one except with probability `error`."""
    if hits == draws:
        return 1.0
    return _root(lambda share: _at_least(hits + 1, draws, share) - (1 - error))[1]


def epsilon_bound(
    hits_two: int,
    draws_two: int,
    hits_one: int,
    draws_one: int,
    *,
    delta: float = 0.0,
    error: float = ERROR,
) -> float:
    """The largest ε that the counts refute, or 0 where they refute none.

    Of `draws_two` draws of one world `hits_two` met the event, and in the other world `hits_one`
    of `draws_one`. A mechanism that is (ε, δ)-DP gives a number above ε with probability at most
    `error`, provided that the event was fixed before these draws were seen.
    """
    low = lower_share(hits_two, draws_two, error / 2) - delta
    high = upper_share(hits_one, draws_one, error / 2)
    return max(0.0, math.log(low / high)) if low > 0 else 0.0


def ceiling(draws: int, *, delta: float = 0.0, error: float = ERROR) -> float:
    """What `draws` held-out draws a side certify at most: always in one world, never in the other.

    A bound can be no better than this, however much is leaked. It says how blind the audit is.
    """
    return epsilon_bound(draws, draws, 0, draws, delta=delta, error=error)


def _at_least(hits: int, draws: int, share: float) -> float:
    """P[Binomial(draws, share) ≥ hits], which is the incomplete beta function I(hits, rest)."""
    return _beta_cdf(share, hits, draws - hits + 1)


def _root(rising: Callable[[float], float]) -> tuple[float, float]:
    """Where a rising function on [0, 1] changes sign, from below and from above."""
    low, high = 0.0, 1.0
    for _ in range(70):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return low, high


def _beta_cdf(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Lentz's method)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta_cdf(1 - x, b, a)
    log_front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 100_000):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away_from_zero(1 + numerator * d)
            c = _away_from_zero(1 + numerator / c)
            step = c * d
            fraction *= step
        if abs(step - 1) < 1e-14:
            break
    return math.exp(log_front) * fraction / a


def _away_from_zero(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300
