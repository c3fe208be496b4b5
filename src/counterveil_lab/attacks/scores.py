"""What an attack is worth: AUC, true positives at few false ones, and how sure that is.

Scores are higher for whoever the attacker takes for a member. A share of false positives that rests
on fewer than ten people is not a number: `None`, "not resolvable".

>>> area(np.array([2.0, 3.0]), np.array([1.0, 2.0]))
0.875
>>> [round(number, 3) for number in seeds_interval([0.5, 0.6, 0.7])]
[0.6, 0.352, 0.848]
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats

from counterveil.encoding import Array
from counterveil_lab import intervals
from counterveil_lab.intervals import CONFIDENCE
from counterveil_lab.results import Row

RESAMPLES = 400
FEWEST_FALSE = 10  # non-members that a rate of false positives has to rest on


def area(members: Array, outsiders: Array) -> float:
    """The probability that a member scores above a non-member; a tie counts one half."""
    return float(_areas(members, outsiders))


def _areas(members: Array, outsiders: Array, axis: int = -1) -> Array:
    """The AUC from ranks (Mann-Whitney), along an axis."""
    count, others = members.shape[axis], outsiders.shape[axis]
    ranks = stats.rankdata(np.concatenate([members, outsiders], axis=axis), axis=axis)
    own = np.take(ranks, range(count), axis=axis).sum(axis=axis)
    return (own - count * (count + 1) / 2) / (count * others)


def caught(members: Array, outsiders: Array, false_share: float) -> float | None:
    """The share of members found at the threshold that `false_share` of the others pass."""
    allowed = math.floor(false_share * len(outsiders))
    if false_share * len(outsiders) < FEWEST_FALSE:
        return None
    return float((members > np.sort(outsiders)[::-1][allowed]).mean())


def worth(members: Array, outsiders: Array, *, seed: int = 0) -> Row:
    """Every number of one attack on one arena; the interval is over the people who were scored.

    `auc_first` and `auc_second` are those of two halves of the people: who picks the best of
    several attackers picks by the one and reports the other.
    """
    low, high = interval(members, outsiders, seed=seed)
    low_second, high_second = interval(members[1::2], outsiders[1::2], seed=seed)
    return {
        "members": len(members),
        "outsiders": len(outsiders),
        "auc": area(members, outsiders),
        "auc_low": low,
        "auc_high": high,
        "auc_first": area(members[::2], outsiders[::2]),
        "auc_second": area(members[1::2], outsiders[1::2]),
        "auc_second_low": low_second,
        "auc_second_high": high_second,
        "tpr_at_1": caught(members, outsiders, 0.01),
        "tpr_at_01": caught(members, outsiders, 0.001),
    }


def interval(members: Array, outsiders: Array, *, seed: int = 0) -> tuple[float, float]:
    """The bootstrap's interval of the AUC: members and non-members are drawn anew, each apart."""
    return bootstrap((members, outsiders), _areas, seed)


def share_interval(values: Array, groups: Array, *, seed: int = 0) -> tuple[float, float]:
    """The bootstrap's interval of a mean of values that come in groups: groups are drawn anew."""
    _, place, counts = np.unique(groups, return_inverse=True, return_counts=True)
    sums = np.bincount(place, weights=values)

    def mean(sums: Array, counts: Array, axis: int = -1) -> Array:
        return sums.sum(axis=axis) / counts.sum(axis=axis)

    return bootstrap((sums, counts), mean, seed, paired=True)


def bootstrap(
    samples: Sequence[Array], statistic: Callable[..., Array], seed: int, *, paired: bool = False
) -> tuple[float, float]:
    """The percentile interval of a statistic; a sample of one number has no spread."""
    if min(len(sample) for sample in samples) < 2:
        return (float(statistic(*samples)),) * 2
    found = stats.bootstrap(
        samples,
        statistic,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        paired=paired,
        vectorized=True,
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(found.low), float(found.high)


def seeds_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and Student's interval of it over seeds; with a single seed the interval is unknown."""
    mean, several = float(np.mean(values)), len(values) > 1
    spread = float(stats.sem(values)) if several else math.nan
    return mean, *intervals.of_mean(mean, len(values), spread)
