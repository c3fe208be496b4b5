"""The private model of a mixed table: a scorecard, read off the noisy record alone.

Every cell of every feature has points for each class, log P~(cell | class) − log P~(cell), and a
row gets the weighted sum of its cells' points. With weights of 1 this is Bayes' rule for features
that are independent inside a class. Where features go together (income and education), that counts
the same thing twice. The noisy record may therefore hold, for the features that tell most, the
sums Σ_rows q_i·q_j of products of points: their covariances. The weights are then those of Fisher's
linear discriminant over the points. Classes count evenly: a row is put where it would be if every
class had as many people.
"""

from dataclasses import dataclass

import numpy as np

from counterveil.encoding import Array
from counterveil.population.mixed import TreePopulation
from counterveil.privacy.record import UNIT, NoisyRecord

FAR = 2.0  # standard deviations: points beyond are cut before products are taken
LINKS = np.array([0.01, 0.03, 0.1, 0.3, 0.6])  # how strongly two features may go together
MANY = np.array([5.0, 5.0, 1.0, 1.0, 1.0])  # pairs expected at each strength, before looking
DOUBT = 2.0  # how much the noise on correlations counts against them
MOST = 1.5  # weight of a feature


@dataclass(frozen=True)
class Scorecard:
    """Points of each feature, (classes, cells) each; weights (features,); offsets (classes,)."""

    points: tuple[Array, ...]
    weights: Array
    offsets: Array


@dataclass(frozen=True)
class WholePoints:
    """Points in whole numbers for the features that tell most: what covariances are taken of.

    `features` (m,) are their numbers; `values` the whole points of each coarse cell; `size` what
    UNIT stands for. A row's points have squares that add up to at most UNIT².
    """

    features: Array
    values: tuple[Array, ...]
    size: float


def whole_points(population: TreePopulation, most: int) -> WholePoints:
    """Of the (at most) `most` features with the largest spread of points; two classes alone."""
    contrasts = [_contrast(table) for table in population.wide]
    shares = [table.sum(axis=0) / table.sum() for table in population.wide]
    spread = np.sqrt([share @ points**2 for share, points in zip(shares, contrasts, strict=True)])
    chosen = np.argsort(-spread, kind="stable")[:most]
    cut = [np.clip(contrasts[j], -FAR * spread[j], FAR * spread[j]) for j in chosen]
    largest = np.array([np.abs(points).max() for points in cut])
    size = max(float(np.sqrt((largest**2).sum())), 1e-9)
    whole = tuple(np.trunc((1 - 1e-9) * UNIT * points / size).astype(np.int64) for points in cut)
    return WholePoints(chosen, whole, size)


def scorecard(population: TreePopulation) -> Scorecard:
    """The scorecard of a population; with covariances where its record holds them."""
    record = population.record
    points = tuple(
        np.log(_rows(table)) - np.log(table.sum(axis=0) / table.sum())
        for table in population.tables
    )
    weights, offsets = np.ones(len(points)), np.zeros(len(population.totals))
    if record.find("products"):
        weights, offsets = _discriminant(population, record, points)
    return Scorecard(points, weights, offsets)


def _discriminant(
    population: TreePopulation, record: NoisyRecord, points: tuple[Array, ...]
) -> tuple[Array, Array]:
    """Weights (features,) and offsets (classes,) by Fisher's linear discriminant, two classes."""
    whole = whole_points(population, record.products)
    many, rows = len(whole.features), population.totals.sum()
    noisy, variance = record.read("products", (many * (many - 1) // 2,))
    unit = (whole.size / UNIT) ** 2 / rows
    tables = [_rows(population.wide[j]) for j in whole.features]
    values = [found * whole.size / UNIT for found in whole.values]
    means = np.array([table @ found for table, found in zip(tables, values, strict=True)])
    squares = np.array([table @ found**2 for table, found in zip(tables, values, strict=True)])
    own = (squares - means**2) @ population.class_share  # variances inside the classes
    own = np.maximum(own, 0.2 * (squares @ population.class_share) + 1e-12)
    one, two = np.triu_indices(many, 1)
    between = (means[one] * means[two]) @ population.class_share
    scale = np.sqrt(own[one] * own[two])
    left = np.sqrt(variance) * unit / scale  # noise on a correlation
    links = likely_links((noisy * unit - between) / scale, left)
    correlations = np.eye(many)
    correlations[one, two] = correlations[two, one] = links
    # Points are log-ratios: with nothing in common every weight is 1. The noisier the correlations,
    # the closer to that the weights stay.
    doubt = DOUBT * float(np.sqrt(np.mean(left**2) * many))
    deviation = np.sqrt(own)
    freed = np.linalg.solve(correlations + doubt * np.eye(many), (1 + doubt) * deviation)
    weights = np.ones(len(points))
    weights[whole.features] = np.clip(freed / deviation, 0.0, MOST)
    middle = 0.0  # between the classes' mean sums
    for number, (table, weight) in enumerate(zip(population.tables, weights, strict=True)):
        middle += weight * float((_rows(table) @ (points[number][1] - points[number][0])).mean())
    return weights, np.array([middle / 2, -middle / 2])


def likely_links(noisy: Array, noise: Array) -> Array:
    """The expected correlation of each pair given its noisy one and the deviation of that noise.

    Most pairs hardly go together and some do strongly: a mixture of Gaussians whose shares are
    learnt from the noisy correlations themselves.
    """
    spread = LINKS[:, None] ** 2 + noise**2
    log_likelihood = -0.5 * (noisy**2 / spread + np.log(spread))
    likelihood = np.exp(log_likelihood - log_likelihood.max(axis=0))
    share = MANY / MANY.sum()
    for _ in range(30):
        belief = likelihood * share[:, None]
        belief /= belief.sum(axis=0)
        share = (belief.sum(axis=1) + MANY) / (len(noisy) + MANY.sum())
    return (belief * LINKS[:, None] ** 2 / spread).sum(axis=0) * noisy


def _contrast(table: Array) -> Array:
    """Points of class 1 over class 0 in each cell, 0 on average over the people."""
    own = _rows(table)
    points = np.log(own[1]) - np.log(own[0])
    return points - (table.sum(axis=0) / table.sum()) @ points


def _rows(table: Array) -> Array:
    positive = np.maximum(table, 1e-9)
    return positive / positive.sum(axis=1, keepdims=True)
