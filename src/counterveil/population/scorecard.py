"""The private model of a mixed table: a scorecard, read off the noisy record alone.

Every cell of every feature has points for each class, log P~(cell | class) − log P~(cell), and a
row gets the weighted sum of its cells' points. With weights of 1 this is Bayes' rule for features
that are independent inside a class. Where features go together (income and education), that counts
the same thing twice. With a copula the weights are those of Fisher's linear discriminant over the
points of all features. Classes count evenly: a row is put where it would be if every class had as
many people.
"""

from dataclasses import dataclass

import numpy as np

from counterveil.encoding import Array
from counterveil.population.copula import Copula
from counterveil.population.mixed import MixedPopulation

DOUBT = 2.0  # how much the noise on correlations counts against them
MOST = 1.5  # weight of a feature


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
    weights, offsets = np.ones(len(points)), np.zeros(len(population.totals))
    if population.copula is not None and len(offsets) == 2:
        weights = _discriminant(population, population.copula, points)
        middle = 0.0  # between the classes' mean sums
        for table, weight, own in zip(population.tables, weights, points, strict=True):
            middle += weight * float((_rows(table) @ (own[1] - own[0])).mean())
        offsets = np.array([middle / 2, -middle / 2])
    return Scorecard(points, weights, offsets)


def _discriminant(population: MixedPopulation, copula: Copula, points: tuple[Array, ...]) -> Array:
    """Weights (features,) by Fisher's linear discriminant over the points of two classes."""
    share, follow, deviation = population.class_share, [], []
    for table, own, scores in zip(population.tables, points, copula.scores, strict=True):
        rows, contrast = _rows(table), own[1] - own[0]
        centred = contrast - (rows @ contrast)[:, None]
        spread = float(share @ (rows * centred**2).sum(axis=1))
        deviation.append(np.sqrt(max(spread, 1e-12)))
        # How closely points follow scores inside a class: as much of a correlation is theirs.
        follow.append(float(share @ (rows * centred * scores).sum(axis=1)) / deviation[-1])
    links = copula.links * np.outer(follow, follow)
    np.fill_diagonal(links, 1.0)
    # Points are log-ratios: with nothing in common every weight is 1. The noisier the correlations,
    # the closer to that the weights stay.
    off = ~np.eye(len(links), dtype=bool)
    doubt = DOUBT * float(np.sqrt(np.mean(copula.noise[off] ** 2) * len(links))) if off.any() else 0
    freed = np.linalg.solve(links + doubt * np.eye(len(links)), (1 + doubt) * np.array(deviation))
    found: Array = np.clip(freed / deviation, 0.0, MOST)
    return found


def _rows(table: Array) -> Array:
    positive = np.maximum(table, 1e-9)
    return positive / positive.sum(axis=1, keepdims=True)
