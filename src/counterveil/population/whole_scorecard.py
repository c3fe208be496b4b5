"""The private model of a mixed table: a scorecard, read off the noisy population alone.

Every cell of every feature has points for each class, log P~(cell | class) − log P~(cell), and a
row gets the weighted sum of its cells' points. With weights of 1 this is Bayes' rule for features
that are independent inside a class. Where features go together (income and education), that counts
the same thing twice. So the weights are those with which the sums predict the classes of rows of P~
best (logistic regression), and never below 0: points for a class are not held against it. Where
nothing goes together they come out near 1. Classes count evenly: a row is put where it would be if
every class had as many people.

As a network it counts in whole numbers: what it says of a row depends on this row alone, exactly.

The points of a feature lie on straight lines: a place is the share of the way between two values
that a number has gone, and each class gets so much of the points of this way. Shares are whole
numbers of 1/65,536, and so are points. Sums of their products stay below 2⁵³, where floats hold
whole numbers exactly, so they are the same in any order: in every batch, on every machine, with any
number of threads. What comes before them is one operation of IEEE 754 on each number by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from counterveil.encoding import Array
from counterveil.errors import VeilError
from counterveil.population.grid import Grid
from counterveil.population.mixed import MixedPopulation
from counterveil.schema.columns import MISSING_VALUE

WHOLE = 65_536  # parts of a way, and of a point
AT_A_TIME = 512  # rows
ROWS = 40_000  # of P~, from which weights are learnt
MOST_NUMBERS = 30_000_000  # rows · classes · features that are held together
ROUNDS = 12  # of Newton's method, at most
OWN = 0.02  # weights of 1, and offsets of 0, are believed like so much of the rows
MOST = 2.0**53  # below it floats hold whole numbers exactly


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


class WholeScorecard(nn.Module):
    """Encoded rows (rows, width) to the logits of the classes (rows, classes).

    `columns` (ways,): the column that each way reads. `starts`, `slopes` (ways,): of x it has gone
    (x − start)·slope, cut to 0 … 1. `points` (ways, classes) and `offsets` (classes,): whole
    numbers of 1/65,536. Its gradient is that of the straight lines.
    """

    columns: Tensor
    starts: Tensor
    slopes: Tensor
    points: Tensor
    offsets: Tensor

    def __init__(self, ways: int, classes: int) -> None:
        super().__init__()
        self.register_buffer("columns", torch.zeros(ways, dtype=torch.int64))
        self.register_buffer("starts", torch.zeros(ways, dtype=torch.float64))
        self.register_buffer("slopes", torch.zeros(ways, dtype=torch.float64))
        self.register_buffer("points", torch.zeros(ways, classes, dtype=torch.float64))
        self.register_buffer("offsets", torch.zeros(classes, dtype=torch.float64))

    @classmethod
    def of(cls, card: Scorecard, grid: Grid) -> WholeScorecard:
        """A scorecard over the encoding of a grid.

        Categories have the points of their cell. The points of a number are those of each bin at
        the bin's middle, and lie on straight lines between.
        """
        ways: list[tuple[int, float, float]] = []  # column, start, slope
        points: list[Array] = []  # of each way, (classes,)
        offsets = card.offsets.astype(np.float64).copy()
        parts = zip(grid.encoding.blocks, grid.cells, card.points, card.weights, strict=True)
        for block, cells, table, weight in parts:
            first, mine = block.at.start, weight * table
            if not len(cells.low):
                if block.at.stop - first == 1:  # one column for two values
                    offsets += mine[:, 0]
                    ways.append((first, 0.0, 1.0))
                    points.append(mine[:, 1] - mine[:, 0])
                else:
                    ways += [(column, 0.0, 1.0) for column in range(first, block.at.stop)]
                    points += list(mine.T)
                continue
            middles, bins = (cells.low + cells.high) / 2, len(cells.low)
            slopes = 1 / np.maximum(np.diff(middles), 1e-9)
            offsets += mine[:, 0]
            ways += [(first, *way) for way in zip(middles[:-1], slopes, strict=True)]
            points += list(np.diff(mine[:, :bins], axis=1).T)
            if cells.count > bins:  # the column that says "missing" takes the number's points away
                resting = [np.interp(MISSING_VALUE, middles, own[:bins]) for own in mine]
                ways.append((first + 1, 0.0, 1.0))
                points.append(mine[:, bins] - np.array(resting))
        made = cls(len(ways), len(offsets))
        columns, starts, slopes = (np.array(each) for each in zip(*ways, strict=True))
        made.columns = torch.as_tensor(columns, dtype=torch.int64)
        made.starts, made.slopes = torch.as_tensor(starts), torch.as_tensor(slopes)
        made.points = torch.as_tensor(np.rint(WHOLE * np.stack(points)))
        made.offsets = torch.as_tensor(np.rint(WHOLE * offsets))
        made.check(grid.encoding.width)
        return made.eval()

    def check(self, width: int) -> None:
        """A `VeilError` unless it reads columns of rows of this width, and its sums are exact."""
        whole = self.points, self.offsets
        fits = bool(((self.columns >= 0) & (self.columns < width)).all())
        floats = self.starts, WHOLE * self.slopes, *whole
        finite = all(bool(each.isfinite().all()) for each in floats)
        exact = finite and all(torch.equal(each, each.round()) for each in whole)
        largest = WHOLE * (self.points.abs().sum(dim=0) + self.offsets.abs())
        if not (fits and exact and bool((largest < MOST).all())):
            raise VeilError("its scorecard is not one of whole numbers that add up exactly")

    def plus(self, log_share: Array) -> WholeScorecard:
        """The same with something added to the logit of each class, (classes,)."""
        found = WholeScorecard(*self.points.shape)
        found.load_state_dict(self.state_dict(), assign=True)
        found.offsets = self.offsets + torch.as_tensor(np.rint(WHOLE * log_share))
        found.check(int(self.columns.max()) + 1)
        return found.eval()

    def forward(self, rows: Tensor) -> Tensor:
        """Logits (rows, classes) in the kind of float of `rows`."""
        if torch.compiler.is_exporting() or len(rows) <= AT_A_TIME:
            return self._some(rows)
        return torch.cat([self._some(part) for part in rows.split(AT_A_TIME)])

    def _some(self, rows: Tensor) -> Tensor:
        """The same of as many rows as the caches of a processor hold."""
        ways = rows.double().index_select(1, self.columns)
        gone = nn.functional.hardtanh((ways - self.starts) * (WHOLE * self.slopes), 0.0, WHOLE)
        shares = gone.round()
        if gone.requires_grad:
            shares = gone + (shares - gone).detach()
        return ((shares @ self.points + self.offsets * WHOLE) / WHOLE**2).to(rows.dtype)

    def of_array(self, rows: Array) -> Array:
        """The same of an array, without torch: for a few rows that takes a fraction of the time."""
        columns, starts, slopes, points, offsets = (each.numpy() for each in self.buffers())
        gone = (rows.astype(np.float64)[:, columns] - starts) * (WHOLE * slopes)
        shares = np.rint(np.clip(gone, 0.0, WHOLE, out=gone), out=gone)
        found: Array = ((shares @ points + offsets * WHOLE) / WHOLE**2).astype(rows.dtype)
        return found


Surrogate = nn.Sequential | WholeScorecard
