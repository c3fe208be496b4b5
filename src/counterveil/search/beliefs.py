"""What the noisy population says about rows, as tables to look up: all from P~ alone.

- **percentile** of a number among all people: the unit in which effort is counted;
- **plausibility**: log P~(row | class), and its rank among rows of P~ of that class.

Everything is a function of the veil: nothing here has seen the target model or a query.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from counterveil.encoding import Array
from counterveil.population import TreePopulation
from counterveil.schema.cells import BitCells, NumberCells
from counterveil.search.constraints import linked_columns

SAMPLES = 4000  # rows of P~ of each class that ranks are counted among
RAREST = -7.0  # a cell or pair adds no less than this to a log-density
MOST_OF_ONE_VALUE = 0.1  # of all people, in the capped half of the unit of effort


PairTable = tuple[int, int, Tensor]


class Beliefs:
    """P~ of a mixed table for the search. Rows are encoded points, (rows, width).

    `classes`, `features`: how many. `alone`: for each feature the log-density of its cells,
    (classes, cells); `pairs`: of two features, (classes, cells, cells). `is_number`: (features,).
    `first_column`: of each feature in an encoded row.
    """

    def __init__(self, population: TreePopulation, seed: int = 0) -> None:
        self.population, self.grid = population, population.grid
        encoding = self.grid.encoding
        self.classes, self.features = len(population.totals), len(self.grid.cells)
        self._at = [slice(block.start, block.stop) for block in encoding.blocks]
        self._edges = [
            torch.as_tensor(cells.high + (cells.step / 2 or 1e-12), dtype=torch.float32)
            if isinstance(cells, NumberCells)
            else None
            for cells in self.grid.cells
        ]
        self._missing = [block.missing_flag for block in encoding.blocks]
        self._is_bit = [isinstance(cells, BitCells) for cells in self.grid.cells]
        self._ladders = [
            _ladder(*population.percentiles(at)) if isinstance(cells, NumberCells) else None
            for at, cells in enumerate(self.grid.cells)
        ]
        known = population.potentials
        self.alone = [_tensor(table).clamp(min=RAREST) for table in known.alone]
        self.pairs = [(i, j, _tensor(table).clamp(min=RAREST)) for i, j, table in known.pairs]
        self._merge_links()
        rng = np.random.default_rng(seed)
        density = []
        for number in range(self.classes):
            rows, _ = population.sample(SAMPLES, rng, np.eye(self.classes)[number])
            codes = self.codes(_tensor(rows))
            density.append(self.log_density(codes, torch.full((len(rows),), number)))
        self._ranks = torch.stack(density).sort(dim=1).values  # (classes, samples)
        self.is_number = torch.tensor([ladder is not None for ladder in self._ladders])
        self.first_column = [at.start for at in self._at]

    def _merge_links(self) -> None:
        """A derived feature follows its source: what its cells add is added to the source's."""
        names = [block.feature.name for block in self.grid.encoding.blocks]
        self._derived = [names.index(link.derived) for link in self.grid.schema.links]
        for columns, link in zip(
            linked_columns(self.grid.encoding), self.grid.schema.links, strict=True
        ):
            source, derived = names.index(link.source), names.index(link.derived)
            follows = torch.zeros(self.grid.cells[source].count, dtype=torch.long)
            codes = self.grid.cells[derived].codes(columns.table.numpy())
            follows[: len(codes)] = torch.as_tensor(codes)
            self.alone[source] = self.alone[source] + self.alone[derived][:, follows]
            self.alone[derived] = torch.zeros_like(self.alone[derived])
            own = [pair for pair in self.pairs if {source, derived} == {*pair[:2]}]
            for one, _, table in own:
                by_source = table if one == source else table.transpose(1, 2)
                added = by_source[:, torch.arange(len(follows)), follows]
                self.alone[source] = self.alone[source] + added
            self.pairs = [
                _following(pair, derived, source, follows)
                for pair in self.pairs
                if {source, derived} != {*pair[:2]}
            ]

    def codes(self, points: Tensor) -> Tensor:
        """The cell of each feature, (rows, features)."""
        found = []
        for at, edges, flag, is_bit in zip(
            self._at, self._edges, self._missing, self._is_bit, strict=True
        ):
            if edges is None:
                own = points[:, at]
                found.append((own[:, 0] >= 0.5).long() if is_bit else own.argmax(dim=1))
                continue
            code = torch.searchsorted(edges, points[:, at.start].contiguous())
            code = code.clamp(max=len(edges) - 1)
            if flag is not None:
                code = torch.where(points[:, flag] >= 0.5, len(edges), code)
            found.append(code)
        return torch.stack(found, dim=1)

    def heights(self, points: Tensor) -> Tensor:
        """How far up each number is, in the unit of effort, (rows, features); 0 for others."""
        return self._along(points, 2)

    def height(self, feature: int, values: Tensor) -> Tensor:
        """The same for values of one number, in the unit cube; of any shape."""
        ladder = self._ladders[feature]
        assert ladder is not None, "heights are of numbers"
        return _interpolated(values, ladder[0], ladder[2])

    def percentiles(self, points: Tensor) -> Tensor:
        """Of each number the share of people below it, (rows, features); 0 for other features."""
        return self._along(points, 1)

    def standing(self, points: Tensor, targets: Tensor) -> Tensor:
        """The share of P~'s people of the target class below each number, (rows, features).

        NaN for other features.
        """
        found = torch.full((len(points), self.features), torch.nan)
        for number in self.is_number.nonzero()[:, 0].tolist():
            values = points[:, self._at[number].start]
            for goal in targets.unique().tolist():
                mine = targets == goal
                places, shares = map(_tensor, self.population.percentiles(number, goal))
                found[mine, number] = _interpolated(values[mine], places, shares)
        return found

    def seen(self, points: Tensor) -> Tensor:
        """Rows as the committee sees them: encoded, and how far up each number is."""
        return torch.cat([points, self.heights(points)[:, self.is_number]], dim=1)

    def _along(self, points: Tensor, side: int) -> Tensor:
        found = torch.zeros(len(points), self.features)
        for number, (at, ladder) in enumerate(zip(self._at, self._ladders, strict=True)):
            if ladder is not None:
                found[:, number] = _interpolated(points[:, at.start], ladder[0], ladder[side])
        return found

    def judged(self, queries: Tensor, rows: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Effort and plausibility of answers, (rows,) each.

        Effort: Σ over the changed features of the difference of percentiles; any other changed
        feature, and a number that was missing, counts 1. Plausibility: the share of P~'s rows of
        the target class that are less likely.
        """
        codes, before = self.codes(rows), self.codes(queries)
        way = (self.percentiles(rows) - self.percentiles(queries)).abs()
        for number in range(self.features):
            known = self.is_known(queries, number) & self.is_known(rows, number)
            counted = known & self.is_number[number]
            other = (codes[:, number] != before[:, number]).float()
            way[:, number] = torch.where(counted, way[:, number], other)
        way[:, self._derived] = 0.0  # they follow their source
        rank = self.rank(self.log_density(codes, targets), targets)
        return way.sum(dim=1), rank

    def is_known(self, points: Tensor, feature: int) -> Tensor:
        """Where a feature is not missing, (rows,)."""
        flag = self._missing[feature]
        return torch.ones(len(points), dtype=torch.bool) if flag is None else points[:, flag] < 0.5

    def log_density(self, codes: Tensor, targets: Tensor) -> Tensor:
        """log P~(cells | target), (rows,)."""
        found = torch.zeros(len(codes))
        for number, table in enumerate(self.alone):
            found += table[targets, codes[:, number]]
        for one, two, table in self.pairs:
            found += table[targets, codes[:, one], codes[:, two]]
        return found

    def rank(self, density: Tensor, targets: Tensor) -> Tensor:
        """The share of P~'s rows of the target class that are less likely, (rows,)."""
        below = torch.searchsorted(self._ranks[targets], density.contiguous()[:, None])[:, 0].float()
        return below / self._ranks.shape[1]

    def floor(self, share: float) -> Tensor:
        """The log-density that so many of P~'s rows of each class stay below, (classes,)."""
        return self._ranks[:, int(share * (self._ranks.shape[1] - 1))]


def _following(pair: PairTable, derived: int, source: int, follows: Tensor) -> PairTable:
    """The table of a pair with the cells of a source in the place of those that follow from it."""
    one, two, table = pair
    if one == derived:
        return source, two, table[:, follows]
    return (one, source, table[:, :, follows]) if two == derived else pair


def _ladder(places: Array, shares: Array) -> tuple[Tensor, Tensor, Tensor]:
    """Places of a number, the share of people below each, and how far up it is for an effort.

    Half of the height is the share. The other half is the same where a single value that many
    people share counts as a tenth of them at most: with 9 of 10 people at 0, from 0 to any amount
    would be the same way.
    """
    rise = np.minimum(np.diff(shares, prepend=0.0), MOST_OF_ONE_VALUE)
    capped = np.cumsum(rise)
    both = (shares + capped / max(capped[-1], 1e-12)) / 2
    return _tensor(places), _tensor(shares), _tensor(both)


def _interpolated(x: Tensor, places: Tensor, shares: Tensor) -> Tensor:
    """The share at each x, along straight lines between the places; middles of jumps at ties."""
    left = torch.searchsorted(places, x.contiguous(), right=False)
    right = torch.searchsorted(places, x.contiguous(), right=True)
    last = len(places) - 1
    one, two = (left - 1).clamp(0, last), left.clamp(0, last)
    gap = (places[two] - places[one]).clamp(min=1e-12)
    between = shares[one] + (shares[two] - shares[one]) * ((x - places[one]) / gap).clamp(0, 1)
    tied = (shares[left.clamp(0, last)] + shares[(right - 1).clamp(0, last)]) / 2
    return torch.where(right > left, tied, between)


def _tensor(values: object) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float32)
