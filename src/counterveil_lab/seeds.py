"""Intervals over a handful of repetitions."""

from __future__ import annotations

# Student's t, two-sided 95 %, for 1, 2, … degrees of freedom.
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
       2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086)  # fmt: skip


def t95(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's t."""
    return T95[freedom - 1] if freedom <= len(T95) else 1.96 + 2.5 / freedom
