"""What an attack is worth: AUC, true positives at few false ones, and how sure that is.

Scores are higher for whoever the attacker takes for a member. A share of false positives that rests
on fewer than ten people is not a number: `None`, "not resolvable".

>>> area(np.array([2.0, 3.0]), np.array([1.0, 2.0]))
0.875
>>> [round(number, 3) for number in seeds_interval([0.5, 0.6, 0.7])]
[0.6, 0.352, 0.848]
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from counterveil.encoding import Array
from counterveil_lab.results import Row
from counterveil_lab.seeds import t95

RESAMPLES = 400
FEWEST_FALSE = 10  # non-members that a rate of false positives has to rest on
CONFIDENCE = 0.95


def area(members: Array, outsiders: Array) -> float:
    """The probability that a member scores above a non-member; a tie counts one half."""
    return float(_areas(members, outsiders, np.ones((1, len(members))),
                        np.ones((1, len(outsiders))))[0])  # fmt: skip


def caught(members: Array, outsiders: Array, false_share: float) -> float | None:
    """The share of members found at the threshold that `false_share` of the others pass."""
    if false_share * len(outsiders) < FEWEST_FALSE:
        return None
    allowed = math.floor(false_share * len(outsiders))
    threshold = np.sort(outsiders)[::-1][allowed]
    return float((members > threshold).mean())


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
    rng = np.random.default_rng(seed)
    weights = [rng.multinomial(count, np.full(count, 1 / count), RESAMPLES)
               for count in (len(members), len(outsiders))]  # fmt: skip
    return _middle(_areas(members, outsiders, *weights))


def share_interval(values: Array, groups: Array, *, seed: int = 0) -> tuple[float, float]:
    """The bootstrap's interval of a mean of values that come in groups: groups are drawn anew."""
    _, place, counts = np.unique(groups, return_inverse=True, return_counts=True)
    sums = np.bincount(place, weights=values)
    rng = np.random.default_rng(seed)
    weights = rng.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), RESAMPLES)
    return _middle((weights @ sums) / (weights @ counts))


def seeds_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and Student's interval of it over seeds; with a single seed the interval is unknown."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, math.nan, math.nan
    half = t95(len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def _areas(members: Array, outsiders: Array, weights: Array, others: Array) -> Array:
    """The AUC under each row of weights, in one pass over the sorted scores."""
    values, place = np.unique(np.concatenate([members, outsiders]), return_inverse=True)
    mine, theirs = place[: len(members)], place[len(members) :]
    order = np.argsort(theirs, kind="stable")
    edges = np.searchsorted(theirs[order], np.arange(len(values) + 1))
    passed = np.concatenate([np.zeros((len(others), 1)), others[:, order].cumsum(axis=1)], axis=1)
    at_most, below = passed[:, edges[1:]], passed[:, edges[:-1]]
    won = (weights * (at_most + below)[:, mine]).sum(axis=1) / 2
    areas: Array = won / weights.sum(axis=1) / others.sum(axis=1)
    return areas


def _middle(values: Array) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
