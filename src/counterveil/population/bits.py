"""P~ of bits, from noisy sums: independent inside each class, and shrunk to the pooled ones."""

from functools import cached_property

import numpy as np

from counterveil.encoding import Array
from counterveil.population.base import Population, positive_totals, shrinkage
from counterveil.privacy.record import NoisyRecord
from counterveil.schema import Schema


def likely_frequencies(noisy: Array, scale: float) -> Array:
    """The expected frequency of each bit given its noisy one, whose noise is Laplace of `scale`.

    The most likely distribution of frequencies on a grid (Kiefer & Wolfowitz) is learnt by EM.
    """
    grid = np.concatenate([[1e-4], np.linspace(0.002, 0.998, 250)])
    likelihood = np.exp(-np.abs(noisy[:, None] - grid) / max(scale, 1e-3))
    likelihood /= np.maximum(likelihood.max(axis=1, keepdims=True), 1e-300)
    share = np.full(len(grid), 1 / len(grid))
    for _ in range(300):
        belief = likelihood * share
        belief /= belief.sum(axis=1, keepdims=True)
        share = belief.mean(axis=0)
    return belief @ grid


class BitPopulation(Population):
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
        rows, totals = self._rows, self._totals[:, None]
        noisy_pooled, pooled_variance = self._pooled
        scale = np.sqrt(pooled_variance / 2) / rows
        expected = totals * (rows * likely_frequencies(noisy_pooled / rows, scale)) / rows
        beyond = self._sums - expected
        believed = np.array([shrinkage(residual, self._variance) for residual in beyond])
        return np.clip((expected + believed[:, None] * beyond) / totals, 1e-4, 0.98)

    def _points(self, classes: Array, rng: np.random.Generator) -> Array:
        frequencies = self.frequencies[classes]
        return (rng.random(frequencies.shape) < frequencies).astype(np.float64)
