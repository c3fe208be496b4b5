"""Benchmarks of the product: what answers cost beside other methods, and the load it bears."""

from counterveil_lab.results import Row

SLOW_S = 10.0


def head(
    dataset: str, method: str, epsilon: float | None, seed: int = 0, guidance: str | None = "model"
) -> Row:
    """What a row is about; a method without an ε has no mechanism either."""
    private = epsilon is not None
    return {
        "dataset": dataset,
        "method": method,
        "mechanism": "functional" if private else None,
        "guidance": guidance if private else None,
        "epsilon": epsilon,
        "delta": 0.0 if private else None,
        "seed": seed,
    }
