"""How the classes differ in one feature: noisy class counts -> believable class tables.

What a class has more or less often than all classes together is far smaller than the counts
themselves, and drowns first. So it is estimated by itself: the ratio of a class in a cell is 1 plus
a deviation, and the deviations have a Gaussian prior. Its size, and over the cells of a number or
of ordered categories its smoothness, are not chosen but averaged over, each weighted by how well it
explains the noisy counts, whose noise is known (Gaussian-process regression; empirical Bayes).
A feature that tells the classes apart by no more than noise ends with equal tables.
"""

from dataclasses import dataclass

import numpy as np

from counterveil.encoding import Array
from counterveil.population.base import to_simplex

SIZES = np.array([0.0, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0])  # of deviations, before looking
FAR = 6.0  # no class has a cell more than so many times more or less often than all classes have
ROUNDS = 10
FEW = 4  # cells in order from which their order is used


@dataclass(frozen=True)
class ScoreSums:
    """What is known of a feature besides its counts: noisy sums (classes,) of `scores` (cells,)."""

    scores: Array
    sums: Array
    variance: float


def class_tables(
    noisy: Array,
    totals: Array,
    variance: float,
    in_order: int = 0,
    pooled: Array | None = None,
    known: ScoreSums | None = None,
) -> Array:
    """Counts (classes, cells) that add up to `totals` (classes,), from noisy ones.

    `variance`: of the noise on each count. `in_order`: so many cells, the first ones, lie side by
    side: bins of a number, or ordered categories. `pooled` (cells,): what all classes have in each
    cell, where that is known better than from the sums of `noisy`. `known`: sums of scores.
    """
    rows = totals.sum()
    whole = to_simplex(noisy.sum(axis=0), rows) if pooled is None else pooled
    share = (whole / rows + 1e-6) / (1 + 1e-6 * len(whole))
    ratio = 1 + deviations(noisy, share, totals, variance, in_order, known)
    tables = totals[:, None] * share * np.clip(ratio, 1 / FAR, FAR)
    for _ in range(ROUNDS):  # to the classes' totals, and to what they have together in each cell
        tables = tables * (rows * share / tables.sum(axis=0))
        tables = tables * (totals / tables.sum(axis=1))[:, None]
    return tables


def deviations(
    noisy: Array,
    share: Array,
    totals: Array,
    variance: float,
    in_order: int = 0,
    known: ScoreSums | None = None,
) -> Array:
    """The expected deviation (classes, cells) of each class from `share` (cells,), given the noise.

    The noisy count of a class less its part of the noisy count of all classes is
    totals·share·deviation plus noise, and the sum of its scores is one more such number.
    """
    rows, priors = totals.sum(), shapes(noisy.shape[1], in_order)
    part = totals / rows
    residual = noisy - part[:, None] * noisy.sum(axis=0)
    noise = variance * ((1 - part) ** 2 + (len(totals) - 1) * part**2)
    found = np.empty_like(noisy)
    seen = np.diag(share)  # what is seen of deviations, (numbers, cells)
    along_axes = [np.linalg.eigh(seen @ prior @ seen.T) for prior in priors]
    for number, counted in enumerate(residual):
        own = counted
        if known is not None:
            # Told in the unit in which its noise is that of a count.
            unit = np.sqrt(noise[number] / known.variance)
            seen = np.vstack([np.diag(share), unit * share * known.scores])
            beyond = known.sums[number] - totals[number] * (share @ known.scores)
            own = np.append(own, unit * beyond)
            along_axes = [np.linalg.eigh(seen @ prior @ seen.T) for prior in priors]
        evidence, means = [], []
        for prior, (spread, axes) in zip(priors, along_axes, strict=True):
            along = axes.T @ own
            for size in SIZES:
                reach = size * totals[number]
                total = reach**2 * np.maximum(spread, 0.0) + noise[number]
                evidence.append(-0.5 * ((along**2 / total).sum() + np.log(total).sum()))
                means.append(size * reach * (prior @ (seen.T @ (axes @ (along / total)))))
        weight = np.exp(np.array(evidence) - max(evidence))
        found[number] = weight @ np.stack(means) / weight.sum()
    return found


def shapes(cells: int, in_order: int) -> list[Array]:
    """Prior covariances of deviations, (cells, cells) each: what may be smooth over the cells."""
    if in_order < FEW:
        return [np.eye(cells)]
    place = np.linspace(-1.0, 1.0, in_order)
    curved = place**2 - 1 / 3
    parabola = 0.1 + np.outer(place, place) + np.outer(curved, curved)
    single = np.eye(in_order)

    def near(reach: float) -> Array:
        return np.exp(-((place[:, None] - place) ** 2) / (2 * reach**2))

    found = []
    for smooth in (
        parabola + 0.003 * single,
        0.7 * parabola + 0.3 * near(0.3),
        0.8 * near(0.15) + 0.2 * single,
    ):
        prior = np.eye(cells)
        prior[:in_order, :in_order] = smooth
        found.append(prior)
    return found
