"""P~ of a mixed table: class tables, a copula that says what goes together, and pair tables.

| from | what |
|---|---|
| counts of single features, class sums of scores | the table of each feature in each class |
| second moments of scores | correlations: a Gaussian copula (`copula.py`) |
| counts of the strongest pairs | what correlations do not say: a husband is a man |

Rows are drawn from the copula; where pairs were counted, the features in them are then drawn again
in turn, each given the rest of its row (Gibbs sampling).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from counterveil.encoding import Array
from counterveil.errors import RequestError, VeilError
from counterveil.population.base import Population, to_simplex
from counterveil.population.copula import Copula
from counterveil.population.grid import Grid
from counterveil.population.marginals import Marginals
from counterveil.population.moments import Moments
from counterveil.population.numbers import ChosenCells
from counterveil.privacy.record import NoisyRecord
from counterveil.schema import Schema

__all__ = ["Grid", "MixedPopulation"]

SWEEPS = 2  # over the features whose pairs were counted, when rows are drawn
EMPTY = -27.0  # log-share of people of a cell that holds nobody
MOST_TIMES = 20.0  # more or less often than the copula says that two cells meet


@dataclass(frozen=True)
class Potentials:
    """log P~(row | class) as a sum: what each cell, and each pair of cells, adds to it.

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


class MixedPopulation(Population):
    """P~ of a mixed table. A `VeilError` if the record is not that of this schema.

    `tables`: for each feature the counts (classes, cells) that are believed; `totals`: of each
    class; `variance`: of the noise on a count of (class, cell); `copula`: what goes together, None
    where no moments were measured.
    """

    def __init__(self, schema: Schema, record: NoisyRecord) -> None:
        self.record = record
        known = Marginals(schema, record)
        self.totals, self.variance, self.tables = known.totals, known.variance, known.tables
        self.class_share = self.totals / self.totals.sum()
        self.grid, self._coarse = known.shaped_grid(), known.coarse
        self.copula: Copula | None = None
        self._met: tuple[tuple[int, int, Array], ...] = ()  # counted pairs, times the copula's
        if record.find("moments"):
            moments = Moments.read(record, known.tables, known.scores, known.rows)
            self.tables = known.with_sums(moments)
            self.copula = Copula(self.tables, known.scores, moments)
            if record.find("pairs"):
                self._met = self._read_pairs(self.copula)

    def _points(self, classes: Array, rng: np.random.Generator) -> Array:
        if self.copula is None:
            codes = np.stack([_draw(table[classes], rng) for table in self.tables], axis=1)
        else:
            codes = self.copula.draw(classes, rng)
            for _ in range(SWEEPS if self._met else 0):
                for feature in sorted({each for *pair, _ in self._met for each in pair}):
                    odds = self.conditionals(codes, classes, feature)
                    codes[:, feature] = _draw(odds, rng)
        return self.grid.points(codes, rng)

    def conditionals(self, codes: Array, classes: Array, feature: int) -> Array:
        """P~(cell of `feature` | the rest of the row, class), (rows, cells).

        `codes`: the cell of each feature, (rows, features); that of `feature` is not looked at.
        """
        found = self.potentials.alone[feature][classes]
        if self.copula is not None:
            scores = [
                table[classes, codes[:, each]] for each, table in enumerate(self.copula.scores)
            ]
            pulled = self.copula.inverse[feature].copy()
            pulled[feature] = 0.0
            toward = -np.stack(scores, axis=1) @ pulled
            found = found + toward[:, None] * self.copula.scores[feature][classes]
        for one, two, times in self._met:
            if feature in (one, two):
                other = two if feature == one else one
                table = np.log(times if feature == two else times.T)
                found = (
                    found + table[self._coarse[other][codes[:, other]]][:, self._coarse[feature]]
                )
        found = np.exp(found - found.max(axis=1, keepdims=True))
        return found / found.sum(axis=1, keepdims=True)

    def log_density(self, points: Array) -> Array:
        """log P~(cells of the row | class), (rows, classes), of encoded rows (rows, width).

        A number counts by the bin it lies in. Without a copula it adds up to 1 over all cells. With
        one, a cell has the density of the copula at its middle times its share of people: it adds
        up to 1 the better the finer the cells are, and counted pairs change it a little. The
        differences of two rows, and so ranks and `conditionals`, do not depend on that.
        """
        found = self.potentials.log_density(self.grid.codes(points))
        if self.copula is not None:
            found = found - 0.5 * np.linalg.slogdet(self.copula.links)[1]
        return found

    @cached_property
    def potentials(self) -> Potentials:
        """log P~(cells | class), but for a constant, as a sum over features and pairs."""
        return self.potentials_from(EMPTY)

    def potentials_from(self, rarest: float) -> Potentials:
        """The same, where no cell by itself has a log-share of people below `rarest`."""
        alone = tuple(np.maximum(_logs(_rows(table)), rarest) for table in self.tables)
        if self.copula is None:
            return Potentials(alone)
        scores, inverse = self.copula.scores, self.copula.inverse
        alone = tuple(
            table - 0.5 * (inverse[number, number] - 1) * scores[number] ** 2
            for number, table in enumerate(alone)
        )
        met = {(one, two): times for one, two, times in self._met}
        pairs = []
        for one, two in combinations(range(len(alone)), 2):
            table = -inverse[one, two] * scores[one][:, :, None] * scores[two][:, None, :]
            if (one, two) in met:
                table = table + np.log(met[one, two])[self._coarse[one]][:, self._coarse[two]]
            pairs.append((one, two, table))
        return Potentials(alone, tuple(pairs))

    def percentiles(self, feature: int, of_class: int | None = None) -> tuple[Array, Array]:
        """Places in the unit cube and the share of people up to them, of all or of a class.

        For numbers alone.

        Both rise; between two places the share rises evenly. A value that many people share stands
        twice in a row, with the share of people below it and with that up to it.
        """
        cells, table = self.grid.cells[feature], self.tables[feature]
        people = table.sum(axis=0) if of_class is None else table[of_class]
        if not isinstance(cells, ChosenCells):
            raise RequestError("percentiles are of numbers")
        inside = np.bincount(cells.into, cells.weights)[cells.into]
        share = people[cells.into] * cells.weights / np.maximum(inside, 1e-12)
        ends = np.cumsum(share / share.sum())
        starts = np.concatenate([[0.0], ends[:-1]])
        places = np.stack([cells.pieces.low, cells.pieces.high], axis=1).ravel()
        return np.maximum.accumulate(places), np.stack([starts, ends], axis=1).ravel()

    def _read_pairs(self, copula: Copula) -> tuple[tuple[int, int, Array], ...]:
        """Two features, and how many times more often than in the copula their cells meet."""
        chosen, features = self.record.pairs, range(len(self.tables))
        if not chosen or any(
            one not in features or two not in features[one + 1 :] for one, two in chosen
        ):
            raise VeilError("its noisy record holds no pairs of its features")
        expected = [self._expected(copula, one, two) for one, two in chosen]
        ends = np.cumsum([table.size for table in expected])
        flat, variance = self.record.read("pairs", (int(ends[-1]),))
        found = []
        for (one, two), prior, noisy in zip(
            chosen, expected, np.split(flat, ends[:-1]), strict=True
        ):
            believed = believable(noisy.reshape(1, *prior.shape), prior[None], variance)[0]
            joint = to_simplex(believed.ravel(), self.totals.sum()).reshape(prior.shape)
            joint = joint + 1e-3 * prior + 1e-9
            times = np.clip(joint / np.maximum(prior, 1e-9), 1 / MOST_TIMES, MOST_TIMES)
            found.append((one, two, times))
        return tuple(found)

    def _expected(self, copula: Copula, one: int, two: int) -> Array:
        """The counts that the copula expects of two features, in coarse cells."""
        link = float(copula.links[one, two])
        first, second = copula.scores[one][:, :, None], copula.scores[two][:, None, :]
        # The density of two normal numbers with this correlation, over that of two without.
        odds = (link * first * second - link**2 * (first**2 + second**2) / 2) / (1 - link**2)
        joint = rake(np.exp(np.clip(odds, -30, 30)), self.tables[one], self.tables[two])
        return merge(merge(joint.sum(axis=0), self._coarse[two]).T, self._coarse[one]).T


def rake(dependence: Array, one: Array, two: Array, rounds: int = 12) -> Array:
    """Joint counts (classes, a, b) with the margins `one` (classes, a) and `two` (classes, b).

    They start from independence times `dependence` (classes, a, b), and are scaled to one margin
    and to the other in turn (iterative proportional fitting): odds ratios stay as they are.
    """
    one, two = one + 1e-9, two + 1e-9
    joint = one[:, :, None] * _rows(two)[:, None, :] * dependence
    for _ in range(rounds):
        joint = joint * (two / joint.sum(axis=1))[:, None, :]
        joint = joint * (one / joint.sum(axis=2))[:, :, None]
    return joint


def believable(noisy: Array, expected: Array, variance: float) -> Array:
    """`noisy` counts, believed as far as they say more than `expected` and noise would.

    Empirical Bayes: the counts of a class (first axis) deviate from what is expected by some share
    τ of it. τ² is what the squared deviations hold beyond the known variance of the noise; each
    cell is then believed by signal / (signal + noise). Every class has its own τ: a small class
    deviates more from what all have in common than a large one.
    """
    residual = noisy - expected
    cells = tuple(range(1, noisy.ndim))
    beyond_noise = (residual**2 - variance).sum(axis=cells, keepdims=True)
    size = (expected**2).sum(cells, keepdims=True)
    signal = np.maximum(0.0, beyond_noise) / np.maximum(size, 1e-9) * expected**2
    return expected + residual * signal / (signal + variance)


def merge(counts: Array, coarse: Array) -> Array:
    """Counts of fine cells added up to coarse ones, along the last axis."""
    merged = np.zeros((*counts.shape[:-1], int(coarse.max()) + 1))
    for cell, into in enumerate(coarse):
        merged[..., into] += counts[..., cell]
    return merged


def _rows(counts: Array) -> Array:
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-12)


def _draw(weights: Array, rng: np.random.Generator) -> Array:
    """One cell for each row of `weights`, by inversion."""
    ladder = np.cumsum(weights, axis=1)
    dice = rng.random(len(weights))[:, None] * ladder[:, -1:]
    return np.minimum((ladder <= dice).sum(axis=1), weights.shape[1] - 1)


def _logs(values: Array) -> Array:
    """Logarithms that stay finite where a value is 0."""
    found: Array = np.log(np.maximum(values, 1e-12))
    return found
