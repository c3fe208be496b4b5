"""P~ of a set of bits: independent bits inside each class, shrunk to the pooled frequencies."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from counterveil.encoding import Array
from counterveil.population.base import draw_classes, positive_totals, shrinkage
from counterveil.privacy.record import NoisyRecord
from counterveil.schema import Schema

STEPS = 300  # of expectation-maximisation


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

    def __init__(self, schema: Schema, record: NoisyRecord) -> None:
        self._pooled = record.read("pooled", (schema.width,))
        sums, self._variance = record.read("sums", (len(schema.label.classes), 1 + schema.width))
        self._rows, self._sums = record.records(sums[:, 0].sum()), sums[:, 1:]
        self._totals = positive_totals(sums[:, 0], self._rows)
        self.class_share = self._totals / self._totals.sum()

    @cached_property
    def frequencies(self) -> Array:
        """(classes, bits): class sums believed as far as they say more than the pooled ones."""
        rows, totals = self._rows, self._totals
        noisy_pooled, pooled_variance = self._pooled
        scale = np.sqrt(pooled_variance / 2) / rows
        pooled = rows * likely_frequencies(noisy_pooled / rows, scale)
        expected = totals[:, None] * pooled / rows
        kept = [
            prior + shrinkage(row - prior, self._variance) * (row - prior)
            for row, prior in zip(self._sums, expected, strict=True)
        ]
        return np.clip(np.stack(kept) / totals[:, None], 1e-4, 0.98)

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
