"""P~ of a mixed table: class tables, a copula that says what goes together, and pair tables.

| from | what |
|---|---|
| counts of single features, class sums of scores | the table of each feature in each class |
| second moments of scores | correlations: a Gaussian copula (`copula.py`) |
| counts of the strongest pairs | what correlations do not say: a husband is a man |

The pairs that say most make a tree (`copula.Tree`), and every feature has a table with its parent
there: that of the copula, corrected by the counts of the pair where it was counted. What else goes
together is left to the copula.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from counterveil.encoding import Array
from counterveil.errors import RequestError, VeilError
from counterveil.population.base import Population, to_simplex
from counterveil.population.copula import Copula, Tree
from counterveil.population.grid import Grid
from counterveil.population.groups import Groups, count_width, tables_of_groups
from counterveil.population.marginals import Marginals
from counterveil.population.moments import Moments
from counterveil.population.numbers import ChosenCells
from counterveil.privacy.record import NoisyRecord
from counterveil.schema import Schema

__all__ = ["Grid", "MixedPopulation"]

EMPTY = -27.0  # log-share of people of a cell that holds nobody
RAREST_PAIR = 1e-3  # of what the copula expects of two cells: no pair of cells holds fewer


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
    class; `noisy`: the counts as measured; `variance`: of the noise on each of them; `copula`: what
    goes together, None where no moments were measured.
    """

    def __init__(self, schema: Schema, record: NoisyRecord) -> None:
        self.record = record
        known = Marginals(schema, record)
        self.totals, self.variance, self.tables = known.totals, known.variance, known.tables
        self.noisy = known.noisy
        self.class_share = self.totals / self.totals.sum()
        self.grid, self._coarse = known.shaped_grid(), known.coarse
        self._counted = known.counted
        self.copula: Copula | None = None
        self.tree: Tree | None = None
        self._odds: dict[int, Array] = {}  # of meeting, with the parent: (classes, its cells, own)
        self._joint: dict[int, Array] = {}  # with the parent: (classes, its cells, own cells)
        if record.find("moments"):
            moments = Moments.read(record, known.tables, known.scores, known.rows)
            self.tables = known.with_sums(moments)
            self.copula = Copula(self.tables, known.scores, moments)
            self.tree, self._odds = self._along_tree(self.copula)
            self._joint = self._raked(self.tables)
        self.groups = Groups.of_record(schema, record)
        if self.groups is not None:
            rows = self.groups.count * len(self.totals)
            self._in_groups = record.read("groups", (rows, count_width(self._counted, self.groups)))

    def _raked(self, tables: tuple[Array, ...], whose: Any = slice(None)) -> dict[int, Array]:
        """Of each child the counts with its parent; `whose`: the veil's class of each class."""
        pairs = () if self.tree is None else self.tree.pairs
        return {
            child: rake(self._odds[child][whose], tables[parent], tables[child])
            for parent, child in pairs
        }

    def by_groups(self) -> MixedPopulation:
        """P~ whose classes are (group, class), where groups were named at release: to draw from.

        What goes together in a group is what goes together in its class.
        """
        if self.groups is None:
            raise RequestError("no groups were named when this veil was released")
        other, classes = copy(self), len(self.totals)
        totals, tables = tables_of_groups(
            self.groups, self._counted, self.tables, self.totals, *self._in_groups
        )
        other.__dict__.pop("potentials", None)
        other.totals, other.tables = totals, tables
        other.class_share = totals / totals.sum()
        other._joint = self._raked(tables, np.tile(np.arange(classes), self.groups.count))
        return other

    def _points(self, classes: Array, rng: np.random.Generator) -> Array:
        return self.grid.points(self.codes(classes, rng), rng)

    def codes(self, classes: Array, rng: np.random.Generator) -> Array:
        """The cell of each feature, (rows, features), of one row of each of these classes."""
        if self.tree is None or self.copula is None:
            dice = rng.random((len(classes), len(self.tables)))
            drawn = [_pick(table[classes], dice[:, each]) for each, table in enumerate(self.tables)]
            return np.stack(drawn, axis=1)
        dice = self.tree.draw(len(classes), rng)
        codes = np.empty(dice.shape, dtype=np.int64)
        for parent, child in self.tree.parents:
            if parent < 0:
                weights = self.tables[child][classes]
            else:
                weights = self._joint[child][classes, codes[:, parent]]
            order = self.copula.orders[child]
            codes[:, child] = order[_pick(weights[:, order], dice[:, child])]
        return codes

    def log_density(self, points: Array) -> Array:
        """log P~(cells of the row | class), (rows, classes), of encoded rows (rows, width).

        A number counts by the bin it lies in. Without a copula it adds up to 1 over all cells. With
        one, a cell has the density of the copula at its middle times its share of people: it adds
        up to 1 the better the finer the cells are, and counted pairs change it a little. The
        differences of two rows, and so ranks, do not depend on that.
        """
        found = self.potentials.log_density(self.grid.codes(points))
        if self.tree is not None:
            found = found + self.tree.log_scale
        return found

    @cached_property
    def potentials(self) -> Potentials:
        """log P~(cells | class), but for a constant, as a sum over features and pairs."""
        return self.potentials_from(EMPTY)

    def potentials_from(self, rarest: float) -> Potentials:
        """The same, where no cell by itself has a log-share of people below `rarest`."""
        alone = self.singles_from(rarest)
        if self.tree is None or self.copula is None:
            return Potentials(alone)
        scores, left_over = self.copula.scores, self.tree.left_over
        alone = tuple(
            table - 0.5 * left_over[number, number] * scores[number] ** 2
            for number, table in enumerate(alone)
        )
        together = {}
        for one, two in combinations(range(len(alone)), 2):
            pull = -left_over[one, two]
            together[one, two] = pull * scores[one][:, :, None] * scores[two][:, None, :]
        for parent, child in self.tree.pairs:
            met = _lift(self._joint[child])
            one, two = min(parent, child), max(parent, child)
            together[one, two] += met if parent == one else met.swapaxes(1, 2)
        return Potentials(alone, tuple((*pair, table) for pair, table in together.items()))

    def singles_from(self, rarest: float) -> tuple[Array, ...]:
        """log P~(cell | class) of each feature by itself, at least `rarest`, (classes, cells)."""
        return tuple(np.maximum(_logs(_rows(table)), rarest) for table in self.tables)

    def percentiles(self, feature: int, of_class: int | None = None) -> tuple[Array, Array]:
        """Places of a number in the unit cube and the share of people up to them.

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

    def _along_tree(self, copula: Copula) -> tuple[Tree, dict[int, Array]]:
        """The tree, and how often cells meet: of each child (classes, parent's cells, own)."""
        information, times = copula.information.copy(), {}
        for (one, two), noisy, variance in self._counted_pairs():
            coarse = self._coarse[one], self._coarse[two]
            joint = rake(copula.odds(one, two), self.tables[one], self.tables[two]).sum(axis=0)
            expected = merge(merge(joint, coarse[1]).T, coarse[0]).T
            believed = believable(noisy[None], expected[None], variance)[0]
            counts = to_simplex(believed.ravel(), self.totals.sum()).reshape(expected.shape)
            ratio = np.maximum(counts / np.maximum(expected, 1e-9), RAREST_PAIR)
            times[one, two] = ratio[coarse[0]][:, coarse[1]]
            information[one, two] = information[two, one] = _information(counts)
        tree, found = Tree(copula, information), {}
        for parent, child in tree.pairs:
            odds = copula.odds(parent, child)
            if (parent, child) in times:
                odds = odds * times[parent, child]
            elif (child, parent) in times:
                odds = odds * times[child, parent].T
            found[child] = odds
        return tree, found

    def _counted_pairs(self) -> list[tuple[tuple[int, int], Array, float]]:
        """Two features, the noisy counts of their coarse cells, and the variance of the noise."""
        if not self.record.find("pairs"):
            return []
        chosen, features = self.record.pairs, range(len(self.tables))
        if not chosen or any(
            one not in features or two not in features[one + 1 :] for one, two in chosen
        ):
            raise VeilError("its noisy record holds no pairs of its features")
        cells = [int(coarse.max()) + 1 for coarse in self._coarse]
        shapes = [(cells[one], cells[two]) for one, two in chosen]
        ends = np.cumsum([rows * columns for rows, columns in shapes])
        flat, variance = self.record.read("pairs", (int(ends[-1]),))
        return [
            (pair, noisy.reshape(shape), variance)
            for pair, noisy, shape in zip(chosen, np.split(flat, ends[:-1]), shapes, strict=True)
        ]


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
    τ of it, of each class its own; τ² is what squared deviations hold beyond the noise.
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


def _pick(weights: Array, dice: Array) -> Array:
    """One cell for each row of `weights` (rows, cells), by inversion; `dice` lie in 0 to 1."""
    ladder = np.cumsum(weights, axis=1)
    return np.minimum((ladder <= dice[:, None] * ladder[:, -1:]).sum(axis=1), weights.shape[1] - 1)


def _information(counts: Array) -> float:
    """What two features say about each other, in nats, by the counts (a, b) of their cells."""
    joint = counts / counts.sum()
    chance = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    return float((joint * (_logs(joint) - _logs(chance))).sum())


def _lift(joint: Array) -> Array:
    """log of how many times more often two cells meet than by chance, (classes, a, b)."""
    one, two = joint.sum(axis=2, keepdims=True), joint.sum(axis=1, keepdims=True)
    return _logs(joint) - _logs(one * two / joint.sum(axis=(1, 2), keepdims=True))


def _logs(values: Array) -> Array:
    """Logarithms that stay finite where a value is 0."""
    found: Array = np.log(np.maximum(values, 1e-12))
    return found
