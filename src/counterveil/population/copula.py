"""What goes together: a Gaussian copula over class tables, from noisy second moments.

Inside a class every feature has its own table, and the features go together like normal numbers
with correlations R, the same in all classes. R is what the noisy moments leave over beyond what the
classes explain, believed as far as its known noise allows and brought to a correlation matrix.

With t the scores of a row's cells, centred and scaled in its class,

    log P~(row | class) = Σ log P~(cell | class) − ½·tᵀ(R⁻¹ − I)t − ½·log |R|

which adds up over cells and pairs of cells: a cell stands for all numbers in it, by its middle.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from counterveil.encoding import Array
from counterveil.population.moments import Moments, normal_scores

EDGE = 1.1  # times the largest eigenvalue of noise alone, that a common cause must stand out by
SURE = 4.5  # deviations of noise that a correlation without a common cause must stand out by
STRONGEST = 0.98  # correlation of two features that are not the same
# Eigenvalue of R: no feature follows from others but for so much of its variance. Noise on the
# correlations counts as such, up to the second number.
LEAST = (0.1, 0.5)


class Copula:
    """`scores`: t of each cell of each feature, (classes, cells) each. `links`: R.

    `noise`: (features, features), the deviation of the noise on each correlation. `information`:
    what two features say about each other, in nats, (features, features). `orders`: of the cells of
    each feature, by their scores. `hidden`: the correlations of normal numbers that, cut into
    cells, have R; rows are drawn with those.
    """

    def __init__(
        self, tables: tuple[Array, ...], scores: tuple[Array, ...], moments: Moments
    ) -> None:
        totals = tables[0].sum(axis=1)
        share = totals / totals.sum()
        own = [table / np.maximum(table.sum(axis=1, keepdims=True), 1e-12) for table in tables]
        means = np.array([table @ score for table, score in zip(own, scores, strict=True)]).T
        squares = np.array([table @ score**2 for table, score in zip(own, scores, strict=True)]).T
        spread = np.sqrt(np.maximum(squares - means**2, 1e-6))  # (classes, features)
        within = np.sqrt(share @ spread**2)
        scale = np.outer(within, within)
        noisy = moments.products - (means.T * share) @ means
        self.noise = moments.noise / scale
        self._noisy, links = noisy / scale, likely(noisy, within**2, moments.noise) / scale
        least = float(np.clip(np.median(self.noise), *LEAST))
        self.links = correlation_matrix(links, least)
        believed = np.where(links != 0, self.links, 0.0)
        self.information = -0.5 * np.log1p(-(believed**2))
        self.scores = tuple(
            (score - means[:, [number]]) / spread[:, [number]]
            for number, score in enumerate(scores)
        )
        # Of normal numbers that are cut into cells the scores go together less than the numbers.
        self.orders = [np.argsort(score, kind="stable") for score in scores]
        blurred = [
            np.sqrt(share @ [row @ normal_scores(row, order) ** 2 for row in table])
            for table, order in zip(own, self.orders, strict=True)
        ]
        self.hidden = correlation_matrix(
            links / np.maximum(np.outer(blurred, blurred), 0.05), least
        )

    def odds(self, one: int, two: int) -> Array:
        """How many times more often than by chance cells of two features meet, (classes, a, b)."""
        link = float(self.links[one, two])
        first, second = self.scores[one][:, :, None], self.scores[two][:, None, :]
        log = (link * first * second - link**2 * (first**2 + second**2) / 2) / (1 - link**2)
        odds: Array = np.exp(np.clip(log, -30, 30))
        return odds

    def strongest(self, many: int) -> tuple[tuple[int, int], ...]:
        """The (at most) `many` pairs of features that go together most, or seem to."""
        one, two = np.triu_indices(len(self.links), 1)
        seem, sure = np.abs(self._noisy[one, two]), self.information[one, two]
        best = np.lexsort((-seem, -sure))[:many]
        return tuple(zip(one[best].tolist(), two[best].tolist(), strict=True))


def likely(noisy: Array, variances: Array, noise: float, rounds: int = 20) -> Array:
    """Covariances that are believed, 0 on the diagonal, (features, features).

    `noisy`: with noise of deviation `noise`; its diagonal is not looked at. `variances`: known.
    Where many features go together they have a few causes in common: eigenvalues beyond the largest
    of noise alone are kept, each without what noise adds to it. Single pairs that stand out of what
    is left come on top.
    """
    of_noise = 4 * noise**2 * len(noisy)  # the square of its largest eigenvalue, nearly
    common = np.zeros_like(noisy)
    for _ in range(rounds):  # the diagonal of the common part is not known: found step by step
        whole = noisy.copy()
        np.fill_diagonal(whole, np.minimum(np.diag(common), STRONGEST * variances))
        values, axes = np.linalg.eigh(whole)
        kept = np.where(values > EDGE * np.sqrt(of_noise), values**2 - of_noise, 0.0)
        common = (axes * np.sqrt(np.maximum(kept, 0.0))) @ axes.T
    rest = noisy - common
    alone = np.where(np.abs(rest) > SURE * noise, rest - noise**2 / np.where(rest, rest, 1.0), 0.0)
    found = common + alone
    np.fill_diagonal(found, 0.0)
    return found


def correlation_matrix(links: Array, least: float, rounds: int = 20) -> Array:
    """A correlation matrix near `links` whose eigenvalues are (nearly) at least `least`."""
    found = np.clip(links, -STRONGEST, STRONGEST)
    np.fill_diagonal(found, 1.0)
    for _ in range(rounds):
        values, axes = np.linalg.eigh(found)
        if values[0] >= 0.99 * least:
            break
        found = (axes * np.maximum(values, least)) @ axes.T
        size = np.sqrt(np.diag(found))
        found = found / np.outer(size, size)
    return found


class Tree:
    """The tree of a population: of every feature the one that says most about it.

    Along the tree P~ holds whole tables in place of correlations, which can say more (a husband is
    a man). The copula adds what the tree leaves over, with R_T the correlations that follow from
    those along the tree alone.

    `parents`: (parent, child) of every feature, parents first; -1 for no parent. `left_over`:
    R⁻¹ − R_T⁻¹, (features, features). `log_scale`: ½·log |R_T| − ½·log |R|, with which the density
    adds up to 1, but for cells that stand for all numbers in them.
    """

    def __init__(self, copula: Copula, information: Array) -> None:
        self._copula, self.parents = copula, spanning_tree(information)
        links = copula.links
        inverse, log_scale = np.eye(len(links)), 0.0
        for pair in self.pairs:
            link = links[pair]
            inverse[pair, pair] += link**2 / (1 - link**2)
            inverse[pair, pair[::-1]] -= link / (1 - link**2)
            log_scale += np.log1p(-(link**2)) / 2
        self.left_over = np.linalg.inv(links) - inverse
        self.log_scale = float(log_scale - np.linalg.slogdet(links)[1] / 2)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """(parent, child) of every feature that has a parent."""
        return tuple(pair for pair in self.parents if pair[0] >= 0)

    def draw(self, rows: int, rng: np.random.Generator) -> Array:
        """Even numbers from 0 to 1, (rows, features): what is new in each beside its parent."""
        hidden = self._copula.hidden
        normal = rng.normal(size=(rows, len(hidden))) @ np.linalg.cholesky(hidden).T
        new = normal.copy()
        for parent, child in self.pairs:
            link = hidden[parent, child]
            new[:, child] = (normal[:, child] - link * normal[:, parent]) / np.sqrt(1 - link**2)
        found: Array = ndtr(new)
        return found


def spanning_tree(strength: Array) -> tuple[tuple[int, int], ...]:
    """(parent, child) of every feature, parents first, by the strongest pairs; -1 for no parent."""
    alone = strength.sum(axis=1)
    reach = np.zeros(len(strength))  # how strongly each goes with a feature of the tree
    parents, found = np.full(len(strength), -1), []
    left = list(range(len(strength)))
    while left:
        child = max(left, key=lambda each: (reach[each], alone[each]))
        left.remove(child)
        found.append((int(parents[child]), child))
        nearer = [each for each in left if strength[child, each] > reach[each]]
        parents[nearer], reach[nearer] = child, strength[child, nearer]
    return tuple(found)
