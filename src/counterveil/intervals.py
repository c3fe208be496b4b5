"""Exact bounds on a share that was counted."""

from scipy.stats import beta


def clopper_pearson(hits: float, draws: float, error: float) -> tuple[float, float]:
    """A lower and an upper bound on a probability, each wrong with probability `error` at most."""
    low = float(beta.ppf(error, hits, draws - hits + 1)) if hits > 0 else 0.0
    high = float(beta.isf(error, hits + 1, draws - hits)) if hits < draws else 1.0
    return low, high
