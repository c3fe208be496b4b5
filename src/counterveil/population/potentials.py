"""log P~(row | class) as a sum: over the cells of single features, and of pairs of features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterveil.encoding import Array


@dataclass(frozen=True)
class Potentials:
    """What the cells of a row add to its log-density.

    `alone`: of each feature, (classes, cells). `pairs`: two features and (classes, cells of one,
    cells of the other).
    """

    alone: tuple[Array, ...]
    pairs: tuple[tuple[int, int, Array], ...] = ()

    def log_density(self, codes: Array) -> Array:
        """(rows, classes), of the cell of each feature, (rows, features)."""
        found = np.zeros((len(codes), len(self.alone[0])))
        for number, table in enumerate(self.alone):
            found += table[:, codes[:, number]].T
        for one, two, table in self.pairs:
            found += table[:, codes[:, one], codes[:, two]].T
        return found


def logs(values: Array) -> Array:
    """Logarithms that stay finite where a value is 0."""
    found: Array = np.log(np.maximum(values, 1e-12))
    return found
