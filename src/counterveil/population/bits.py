"""P~ of a set of bits: independent bits inside each class, shrunk to the pooled frequencies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterveil.encoding import Array
from counterveil.population.base import draw_classes, positive_totals, shrinkage, to_simplex

CLEARLY = 2.5  # deviations of the noise


@dataclass(frozen=True)
class NoisyBitSums:
    """What was measured: pooled sums of each bit, and class counts and class sums."""

    rows: int
    pooled: Array  # (bits,)
    pooled_variance: float
    counts: Array  # (classes,)
    sums: Array  # (classes, bits)
    variance: float


def _stand_out(noisy: Array, deviation: float, ones: float, rows: int) -> Array:
    """Counts of bits: believed where they exceed the noise clearly, evened out where not."""
    clear = noisy > CLEARLY * deviation + ones / len(noisy)
    counts = np.clip(noisy, 0.0, 0.98 * rows)
    kept = float(counts[clear].sum())
    rest = np.flatnonzero(~clear)
    if len(rest):
        left = max(ones - kept, 0.05 * ones)
        small = to_simplex(noisy[rest], left)
        trust = shrinkage(noisy[rest] - noisy[rest].mean(), deviation**2)
        counts[rest] = trust * small + (1 - trust) * left / len(rest)
    return counts


class BitPopulation:
    """Bernoulli bits with a frequency for each class."""

    def __init__(self, noisy: NoisyBitSums) -> None:
        totals = positive_totals(noisy.counts, noisy.rows)
        self.class_share = totals / totals.sum()
        bits = len(noisy.pooled)
        # The sum over all bits is far less noisy than each of them: it fixes how many ones there
        # are. Bits that stand out of the noise keep their count; the others share what is left.
        ones = float(np.clip(noisy.pooled.sum(), noisy.rows * 0.5, noisy.rows * bits / 2))
        pooled = _stand_out(noisy.pooled, np.sqrt(noisy.pooled_variance), ones, noisy.rows)
        expected = totals[:, None] * pooled / noisy.rows
        kept = [
            prior + shrinkage(row - prior, noisy.variance) * (row - prior)
            for row, prior in zip(noisy.sums, expected, strict=True)
        ]
        self.frequencies = np.clip(np.stack(kept) / totals[:, None], 1e-4, 0.98)

    @property
    def without_tree(self) -> BitPopulation:
        """Itself."""
        return self

    def sample(
        self, count: int, rng: np.random.Generator, class_share: Array | None = None
    ) -> tuple[Array, Array]:
        """`count` rows of bits and their classes."""
        classes = draw_classes(self.class_share, class_share, count, rng)
        points = rng.random((count, self.frequencies.shape[1])) < self.frequencies[classes]
        return points.astype(np.float64), classes
