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
        self._ladders_of_classes: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
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
        self._columns = self.is_number.nonzero()[:, 0].apply_(lambda at: self._at[at].start)
        known_ladders = [ladder for ladder in self._ladders if ladder is not None]
        self._side_by_side = _padded(known_ladders)
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
        return self._along(points, 1)

    def height(self, feature: int, values: Tensor) -> Tensor:
        """The same for values of one number, in the unit cube; of any shape."""
        ladder = self._ladders[feature]
        assert ladder is not None, "heights are of numbers"
        return _interpolated(values, ladder[0], ladder[2])

    def percentiles(self, points: Tensor) -> Tensor:
        """Of each number the share of people below it, (rows, features); 0 for other features."""
        return self._along(points, 0)

    def places(self, points: Tensor) -> Tensor:
        """Of each known number the share of people below it, (rows, features); NaN for the rest."""
        found = self.percentiles(points)
        for number in range(self.features):
            known = self.is_known(points, number) & self.is_number[number]
            found[~known, number] = torch.nan
        return found

    def standing(self, points: Tensor, targets: Tensor) -> Tensor:
        """The share of P~'s people of the target class below each number, (rows, features).

        NaN for other features.
        """
        found = torch.full((len(points), self.features), torch.nan)
        for number in self.is_number.nonzero()[:, 0].tolist():
            values = points[:, self._at[number].start]
            for goal in targets.unique().tolist():
                mine = targets == goal
                found[mine, number] = _interpolated(values[mine], *self._of_class(number, goal))
        return found

    def _of_class(self, number: int, goal: int) -> tuple[Tensor, Tensor]:
        """Places of a number and the share of people of a class up to them; computed once."""
        if (number, goal) not in self._ladders_of_classes:
            places, shares = self.population.percentiles(number, goal)
            self._ladders_of_classes[number, goal] = _tensor(places), _tensor(shares)
        return self._ladders_of_classes[number, goal]

    def _along(self, points: Tensor, side: int) -> Tensor:
        """Shares (side 0) or heights (side 1) of all numbers at once."""
        found = torch.zeros(len(points), self.features)
        if len(self._columns):
            values = points[:, self._columns].T.contiguous()
            places, below, heights = self._side_by_side
            found[:, self.is_number] = _interpolated(values, places, (below, heights)[side]).T
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
        below = torch.searchsorted(self._ranks[targets], density.contiguous()[:, None])
        return below[:, 0] / self._ranks.shape[1]

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


def _padded(ladders: list[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    """Ladders of all numbers side by side, (numbers, places); short ones end in places beyond 1."""
    longest = max((len(places) for places, *_ in ladders), default=0)
    sides = []
    for side, beyond in zip(range(3), (2.0, 1.0, 1.0), strict=True):
        rows = [
            torch.cat([ladder[side], torch.full((longest - len(ladder[side]),), beyond)])
            for ladder in ladders
        ]
        sides.append(torch.stack(rows) if rows else torch.zeros(0, 0))
    return sides[0], sides[1], sides[2]


def _interpolated(x: Tensor, places: Tensor, shares: Tensor) -> Tensor:
    """The share at each x, along straight lines between the places; middles of jumps at ties.

    `x`: of any shape for one ladder, (places,); (numbers, rows) for several, (numbers, places).
    """
    x = x.contiguous()
    left = torch.searchsorted(places, x)
    right = torch.searchsorted(places, x, right=True)
    last = places.shape[-1] - 1

    def at(values: Tensor, index: Tensor) -> Tensor:
        return values[index] if values.ndim == 1 else values.gather(1, index)

    one, two = (left - 1).clamp(0, last), left.clamp(max=last)
    start, low = at(places, one), at(shares, one)
    high = at(shares, two)
    gap = (at(places, two) - start).clamp(min=1e-12)
    between = low + (high - low) * ((x - start) / gap).clamp(0, 1)
    tied = (high + at(shares, (right - 1).clamp(0, last))) / 2
    return torch.where(right > left, tied, between)


def _tensor(values: object) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float32)
