"""What every population offers, and how noisy numbers are made believable."""

from abc import ABC, abstractmethod

import numpy as np

from counterveil.encoding import Array


class Population(ABC):
    """P~: encoded legal rows with their classes, as many as one likes, at no privacy cost."""

    class_share: Array

    def sample(
        self, count: int, rng: np.random.Generator, class_share: Array | None = None
    ) -> tuple[Array, Array]:
        """`count` encoded rows and their classes; by default in the classes' own proportions."""
        share = self.class_share if class_share is None else class_share
        classes = rng.choice(len(share), size=count, p=share)
        return self._points(classes, rng), classes

    @abstractmethod
    def _points(self, classes: Array, rng: np.random.Generator) -> Array:
        """An encoded row of each of these classes."""


def to_simplex(values: Array, total: float) -> Array:
    """The nearest non-negative vector with the given positive sum."""
    ordered = np.sort(values)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, len(values) + 1)
    kept = np.flatnonzero(ordered - excess > 0)
    if not len(kept):  # numbers so large that `total` is lost in rounding: differences decide
        return to_simplex(values - values.max(), total)
    return np.maximum(values - excess[kept[-1]], 0.0)


def shrinkage(residual: Array, variance: float) -> float:
    """James–Stein: the share of a noisy residual that its noise alone does not explain."""
    return float(max(0.0, 1 - residual.size * variance / max(float((residual**2).sum()), 1e-9)))


def positive_totals(estimate: Array, rows: int) -> Array:
    """Noisy class counts as positive numbers that add up to `rows`."""
    floor = rows / len(estimate) * 1e-3
    return to_simplex(estimate - floor, rows - floor * len(estimate)) + floor
