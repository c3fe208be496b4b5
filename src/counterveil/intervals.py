"""Estimates with intervals, and exact bounds on a share that was counted."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A share with an interval that holds the true one with a confidence of 95 %."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


def clopper_pearson(hits: float, draws: float, error: float) -> tuple[float, float]:
    """A lower and an upper bound on a probability, each wrong with probability `error` at most."""
    from scipy.stats import beta  # takes a second to load

    low = float(beta.ppf(error, hits, draws - hits + 1)) if hits > 0 else 0.0
    high = float(beta.isf(error, hits + 1, draws - hits)) if hits < draws else 1.0
    return low, high
