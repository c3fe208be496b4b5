"""The private model of a mixed table: a scorecard, read off the noisy population alone.

Every cell of every feature has points for each class, log P~(cell | class) − log P~(cell), and a
row gets the weighted sum of its cells' points. With weights of 1 this is Bayes' rule for features
that are independent inside a class. Where features go together (income and education), that counts
the same thing twice. So the weights are those with which the sums predict the classes of rows of P~
best (logistic regression), and never below 0: points for a class are not held against it. Where
nothing goes together they come out near 1. Classes count evenly: a row is put where it would be if
every class had as many people.
"""

from dataclasses import dataclass

import numpy as np

from counterveil.encoding import Array
from counterveil.population.mixed import MixedPopulation

ROWS = 40_000  # of P~, from which weights are learnt
MOST_NUMBERS = 30_000_000  # rows · classes · features that are held together
ROUNDS = 12  # of Newton's method, at most
OWN = 0.02  # weights of 1, and offsets of 0, are believed like so much of the rows


@dataclass(frozen=True)
class Scorecard:
    """Points of each feature, (classes, cells) each; weights (features,); offsets (classes,)."""

    points: tuple[Array, ...]
    weights: Array
    offsets: Array


def scorecard(population: MixedPopulation) -> Scorecard:
    """The scorecard of a population; with weights where it knows what goes together."""
    points = tuple(
        np.log(_rows(table)) - np.log(table.sum(axis=0) / table.sum())
        for table in population.tables
    )
    classes, features = len(population.totals), len(points)
    if population.copula is None:
        return Scorecard(points, np.ones(features), np.zeros(classes))
    labels = np.arange(min(ROWS, MOST_NUMBERS // (classes * features))) % classes
    codes = population.codes(labels, np.random.default_rng(0))
    told = [own[:, cells].T for own, cells in zip(points, codes.T, strict=True)]
    return Scorecard(points, *weights_of(np.stack(told, axis=2), labels))


def weights_of(told: Array, labels: Array) -> tuple[Array, Array]:
    """Weights (features,) ≥ 0 and offsets (classes,) that predict `labels` (rows,) best.

    `told`: the points of each row, (rows, classes, features). The probabilities of the classes are
    the softmax of offsets and weighted sums. Newton's method; weights below 0 are 0.
    """
    rows, classes, features = told.shape
    one_of = np.broadcast_to(np.eye(classes), (rows, classes, classes))
    known = np.concatenate([told, one_of], axis=2)
    size = np.concatenate([told.var(axis=1).mean(axis=0), np.ones(classes)])
    ridge = OWN * rows * np.maximum(size, 1e-6)
    start = np.concatenate([np.ones(features), np.zeros(classes)])
    found, each = start.copy(), np.arange(rows)
    for _ in range(ROUNDS):
        sums = known @ found
        chance = np.exp(sums - sums.max(axis=1, keepdims=True))
        chance /= chance.sum(axis=1, keepdims=True)
        mean = (chance[:, None] @ known)[:, 0]
        slope = (known[each, labels] - mean).sum(axis=0) - ridge * (found - start)
        spread = (np.sqrt(chance)[:, :, None] * (known - mean[:, None])).reshape(-1, len(found))
        curve = spread.T @ spread + np.diag(ridge)
        free = (found > 0) | (slope > 0)
        free[features:] = True
        before, step = found.copy(), np.linalg.solve(curve[np.ix_(free, free)], slope[free])
        found[free] += step
        found[:features] = np.maximum(found[:features], 0.0)
        if np.abs(found - before).max() < 1e-3:
            break
    return found[:features], found[features:]


def _rows(table: Array) -> Array:
    positive = np.maximum(table, 1e-9)
    return positive / positive.sum(axis=1, keepdims=True)
