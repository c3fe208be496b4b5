"""Scores of cells, and the second moments of a table's scores: which features go together.

Every cell of a feature has a score: the mean of a standard normal number over the share of people
that the cell holds, cells in order (Φ⁻¹ of its ranks, averaged). Bins and ordered categories have
an order; other categories are put in the order of what they say about the class. A missing value
comes before all others: then columns that are missing together have scores that go together. The
scores come from noisy counts alone.

The private side takes them in whole numbers. A row x is the scores of its cells, cut to a public
norm, and a weight g in the place of its class. Summed over the rows are

| of | sums | for |
|---|---|---|
| features i < j | 2·x_i·x_j | correlations: the copula, and the weights of the private model |
| a feature | x_i² | how much of the scores the cut has left |
| a class and a feature | 2·g·x_i | how the classes differ, in one number a feature |

Twice, because both stand twice in x·xᵀ: then a row adds at most (Σ|x_i|)² ≤ UNIT² in L1 norm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from counterveil.encoding import Array
from counterveil.privacy.record import UNIT, NoisyRecord

# By the norm that rows are cut to: L1 for Laplace noise, L2 for Gaussian noise.
LABEL = {1: 0.2, 2: 0.4}  # g, as a share of UNIT
TYPICAL = {1: 0.8, 2: 1.0}  # of the norm of a row: longer ones are cut
LEFT = (0.25, 1.1)  # of the squares of scores, after the cut
APART = 0.2  # by how much features differ in that


@dataclass(frozen=True)
class WholeScores:
    """Scores in whole numbers, and the public norm that rows are cut to.

    `values`: of each cell of each feature. `size`: what UNIT stands for. `label`: g. `l1`,
    `l2_squared`: what the scores of a row are cut to; with g the norm of a row is at most UNIT.
    """

    values: tuple[Array, ...]
    size: float
    label: int
    l1: int
    l2_squared: int


def scores_of(tables: tuple[Array, ...], in_order: tuple[int, ...]) -> tuple[Array, ...]:
    """The score of each cell of each feature, (cells,) each, 0 on average over the people.

    `tables`: counts (classes, cells) that are believed. `in_order`: how many cells of each
    feature, the first ones, lie side by side.
    """
    return tuple(
        normal_scores(table.sum(axis=0), _order(table, ordered))
        for table, ordered in zip(tables, in_order, strict=True)
    )


def normal_scores(people: Array, order: Array) -> Array:
    """The mean of a standard normal number over the share of `people` (cells,) in each cell."""
    share = np.maximum(people[order], 1e-9)
    share = share / share.sum()
    ends = np.clip(np.concatenate([[0.0], np.cumsum(share)]), 0.0, 1.0)
    height = np.exp(-(ndtri(ends[1:-1]) ** 2) / 2) / np.sqrt(2 * np.pi)
    height = np.concatenate([[0.0], height, [0.0]])
    scores = np.empty(len(share))
    scores[order] = (height[:-1] - height[1:]) / share
    return scores


def _order(table: Array, ordered: int) -> Array:
    """The cells from low to high, a missing value first; others by what they say of the class."""
    cells, people = table.shape[1], table.sum(axis=0)
    if ordered >= 2:
        return np.roll(np.arange(cells), cells - ordered)
    own = np.maximum(table, 1e-9) / np.maximum(table.sum(axis=1, keepdims=True), 1e-9)
    told = np.log(np.maximum(own, 1e-9)) - np.log(np.maximum(people / people.sum(), 1e-9))
    # Of many classes: along the direction in which their shares of the cells differ most.
    weighted = told * np.sqrt(np.maximum(people, 1e-9))
    says = np.linalg.svd(weighted, full_matrices=False)[0][:, 0] @ told
    return np.argsort(says, kind="stable")


def whole_scores(scores: tuple[Array, ...], tables: tuple[Array, ...], norm: int) -> WholeScores:
    """Scores in whole numbers, so that rows of typical length have the public norm."""
    shares = [table.sum(axis=0) / table.sum() for table in tables]
    power = [share @ np.abs(score) ** norm for share, score in zip(shares, scores, strict=True)]
    label = int(LABEL[norm] * UNIT)
    room = (UNIT**norm - label**norm) ** (1 / norm)
    size = max(TYPICAL[norm] * float(np.sum(power)) ** (1 / norm), 1e-9) * UNIT / room
    most = 2 * UNIT  # of one score: longer ones would be cut anyway
    values = tuple(
        np.clip(np.rint(score * (UNIT / size)), -most, most).astype(np.int64) for score in scores
    )
    if norm == 1:
        return WholeScores(values, size, label, UNIT - label, (UNIT - label) ** 2)
    return WholeScores(values, size, label, most * len(values), UNIT**2 - label**2)


@dataclass(frozen=True)
class Moments:
    """What the noisy second moments of a record say, in units of the scores.

    `products`: means over all rows of s_i·s_j, (features, features), mended for the cut; the
    diagonal is what the tables say. `sums`: of the scores of each class, (classes, features).
    `noise`: the deviation of the noise on a product; `sums_variance`: of that on a sum.
    """

    products: Array
    sums: Array
    noise: float
    sums_variance: float

    @classmethod
    def read(
        cls, record: NoisyRecord, tables: tuple[Array, ...], scores: tuple[Array, ...], rows: float
    ) -> Moments:
        """From a record; `tables` and `scores` are those of its counts of single features."""
        features, classes = len(tables), len(tables[0])
        one, two = np.triu_indices(features)
        flat, variance = record.read("moments", (len(one) + classes * features,))
        upper, sums = flat[: len(one)], flat[len(one) :].reshape(classes, features)
        whole = whole_scores(scores, tables, record.norm)
        unit = whole.size / UNIT
        squares = np.array(
            [table.sum(axis=0) @ score**2 for table, score in zip(tables, scores, strict=True)]
        )
        # How much of the squares the cut has left: of all features together, and of each.
        noisy, blur = upper[one == two] * unit**2, variance * unit**4
        left = float(np.clip(noisy.sum() / squares.sum(), *LEFT))
        likely = left * squares
        trust = (APART * likely) ** 2 / ((APART * likely) ** 2 + blur)
        kept = np.maximum(likely + trust * (noisy - likely), likely / 2)
        products = np.zeros((features, features))
        products[one, two] = products[two, one] = upper * (unit**2 / 2)
        mend = np.sqrt(squares / np.maximum(kept, 1e-9))
        products = products * np.outer(mend, mend) / rows
        np.fill_diagonal(products, squares / rows)
        # Of scores as they are, without the cut.
        of_sum = unit / (2 * whole.label) / np.sqrt(left)
        noise = float(np.sqrt(blur)) / 2 / left / rows
        return cls(products, sums * of_sum, noise, variance * of_sum**2)
