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

LINKS = np.array([0.01, 0.03, 0.1, 0.3, 0.7])  # how strongly two features may go together
MANY = np.array([5.0, 5.0, 1.0, 1.0, 1.0])  # pairs expected at each strength, before looking
SURE = 3.0  # deviations of noise that a correlation must stand out by
STRONGEST = 0.98  # correlation of two features that are not the same
# Eigenvalue of R: no feature follows from others but for so much of its variance. Noise on the
# correlations counts as such, up to the second number.
LEAST = (0.1, 0.5)


class Copula:
    """`scores`: t of each cell of each feature, (classes, cells) each. `links`: R, and `inverse`.

    `noise`: (features, features), the deviation of the noise on each correlation.
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
        one, two = np.triu_indices(len(tables), 1)
        noisy = (moments.products - (means.T * share) @ means) / scale
        self.noise = moments.noise / scale
        links = np.eye(len(tables))
        links[one, two] = links[two, one] = likely_links(noisy[one, two], self.noise[one, two])
        least = float(np.clip(np.median(self.noise), *LEAST))
        self.links = correlation_matrix(links, least)
        self.inverse = np.linalg.inv(self.links)
        self.scores = tuple(
            (score - means[:, [number]]) / spread[:, [number]]
            for number, score in enumerate(scores)
        )
        # Of normal numbers that are cut into cells the scores go together less than the numbers.
        self._orders = [np.argsort(score, kind="stable") for score in scores]
        blurred = [
            np.sqrt(share @ [row @ normal_scores(row, order) ** 2 for row in table])
            for table, order in zip(own, self._orders, strict=True)
        ]
        self._hidden = correlation_matrix(
            links / np.maximum(np.outer(blurred, blurred), 0.05), least
        )
        self._ladders = [
            np.cumsum(table[:, order], axis=1)
            for table, order in zip(own, self._orders, strict=True)
        ]

    def draw(self, classes: Array, rng: np.random.Generator) -> Array:
        """The cell of each feature, (rows, features), of rows of these classes."""
        root = np.linalg.cholesky(self._hidden)
        ranks = ndtr(rng.normal(size=(len(classes), len(root))) @ root.T)
        codes = np.empty(ranks.shape, dtype=np.int64)
        for feature, (order, ladder) in enumerate(zip(self._orders, self._ladders, strict=True)):
            for label in range(len(ladder)):
                mine = classes == label
                place = np.searchsorted(ladder[label][:-1], ranks[mine, feature], side="right")
                codes[mine, feature] = order[place]
        return codes

    def strongest(self, many: int) -> tuple[tuple[int, int], ...]:
        """The (at most) `many` pairs of features that go together most."""
        one, two = np.triu_indices(len(self.links), 1)
        best = np.argsort(-np.abs(self.links[one, two]), kind="stable")[:many]
        return tuple(zip(one[best].tolist(), two[best].tolist(), strict=True))


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
    found = (belief * LINKS[:, None] ** 2 / spread).sum(axis=0) * noisy
    # Of many pairs the noise alone makes some look strong, and R would be made of those.
    found = np.where(np.abs(noisy) > SURE * noise, found, 0.0)
    return np.clip(found, -STRONGEST, STRONGEST)


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
