"""P~ of a set of bits: independent bits inside each class, shrunk to the pooled frequencies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterveil.encoding import Array
from counterveil.population.base import draw_classes, positive_totals, shrinkage
from counterveil.privacy.record import NoisyRecord
from counterveil.schema import Schema

STEPS = 300  # of expectation-maximisation


@dataclass(frozen=True)
class NoisyBitSums:
    """The measurements of a set of bits: pooled sums of each bit, class counts and class sums."""

    rows: int
    pooled: Array  # (bits,)
    pooled_variance: float
    counts: Array  # (classes,)
    sums: Array  # (classes, bits)
    variance: float

    @classmethod
    def of_record(cls, schema: Schema, record: NoisyRecord) -> NoisyBitSums:
        """The sums in a record; a `VeilError` if they are not those of this schema."""
        pooled, pooled_variance = record.read("pooled", (schema.width,))
        sums, variance = record.read("sums", (len(schema.label.classes), 1 + schema.width))
        counts = sums[:, 0]
        rows = record.records(counts.sum())
        return cls(rows, pooled, pooled_variance, counts, sums[:, 1:], variance)


def likely_frequencies(noisy: Array, scale: float) -> Array:
    """The expected frequency of each bit given its noisy one, whose noise is Laplace of `scale`.

    What frequencies there are, and how many bits have each, is itself learnt from the noisy ones:
    the most likely distribution on a fine grid (Kiefer & Wolfowitz), by expectation-maximisation.
    """
    grid = np.concatenate([[1e-4], np.linspace(0.002, 0.998, 250)])
    likelihood = np.exp(-np.abs(noisy[:, None] - grid) / max(scale, 1e-3))
    likelihood /= np.maximum(likelihood.max(axis=1, keepdims=True), 1e-300)
    share = np.full(len(grid), 1 / len(grid))
    for _ in range(STEPS):
        belief = likelihood * share
        belief /= belief.sum(axis=1, keepdims=True)
        share = belief.mean(axis=0)
    return belief @ grid


class BitPopulation:
    """Bernoulli bits with a frequency for each class."""

    def __init__(self, noisy: NoisyBitSums) -> None:
        totals = positive_totals(noisy.counts, noisy.rows)
        self.class_share = totals / totals.sum()
        scale = np.sqrt(noisy.pooled_variance / 2) / noisy.rows
        pooled = noisy.rows * likely_frequencies(noisy.pooled / noisy.rows, scale)
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
