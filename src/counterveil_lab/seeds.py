"""Intervals over a handful of repetitions."""

from __future__ import annotations

from scipy import stats


def t95(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's t."""
    return float(stats.t.ppf(0.975, freedom))
