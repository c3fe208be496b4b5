"""What the noisy population P~ says about rows, as tensors to look up on any device.

- **percentile** of a number among all people, and the effort scale built on it;
- **log-density** log P~(row | class), as a sum over cells and pairs of cells;
- **plausibility**: the share of P~'s rows of that class that are less usual, where values that do
  not go together count more than rare values.

Everything is a function of the veil: nothing here has seen the target model or a query.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from counterveil.encoding import Array
from counterveil.population import MixedPopulation
from counterveil.population.shares import SureShares
from counterveil.schema.cells import NumberCells
from counterveil.search.constraints.bounds import linked_columns

SAMPLES = 4000  # rows of P~ of each class that ranks are counted among
RAREST = -7.0  # no cell by itself has a log-share of people below this
MOST_OF_ONE_VALUE = 0.1  # of all people, in the capped half of the effort scale
USUAL, FARTHEST = 0.05, 0.005  # of all people beyond a number: not far out, as far as it counts
MIDDLE = (0.1, 0.9)  # percentiles between which the spread of a number is measured
APART = 4.0  # between the places of two numbers that stand in one line
TOGETHER = 4.0  # times what goes together counts in plausibility
LINKED = 0.4  # correlation from which one feature follows another
MOST_LINKS = 128  # pairs of features that are looked at for that

# Places of a number and the share of people below each, where people are not known.
EVENLY = np.array([0.0, 1.0]), np.array([0.0, 1.0])

PairTable = tuple[int, int, Array]


class People:
    """P~ of a mixed table for the search. Rows are encoded points, (rows, width), in float32.

    The cells of all features stand in one line; `starts` says where those of each feature begin,
    (features,). `alone`: the log-density of each cell, (classes, cells). `beside`: what two cells
    add together, (classes · cells, cells), None where no features depend on each other.
    `is_number`: (features,). `first_column`: of each feature in an encoded row. `spread`: of each
    number between its 10th and 90th percentile, in the unit cube, (features,). `derived`: features
    that follow from others by links of the schema; what they add is in the tables of their source.
    """

    def __init__(self, population: MixedPopulation, device: torch.device | None = None) -> None:
        self.population, self.grid, self.device = population, population.grid, device
        blocks = self.grid.encoding.blocks
        self.classes, self.features = len(population.totals), len(self.grid.cells)
        self.starts = self._tensor(self.grid.starts)
        self.first_column = self._tensor([block.start for block in blocks])
        is_number = [isinstance(cells, NumberCells) for cells in self.grid.cells]
        self.is_number, self._numbers = self._tensor(is_number), np.flatnonzero(is_number)
        self.numbers = self._tensor(self._numbers)
        self._flagged = [
            (number, block.missing_flag)
            for number, block in enumerate(blocks)
            if is_number[number] and block.missing_flag is not None
        ]
        self._read_cells()
        self._read_density()
        self._read_links()
        self.sure_shares = SureShares(population)
        ladders = [population.percentiles(int(number)) for number in self._numbers]
        if not self.veil_knows:
            ladders = [EVENLY for _ in ladders]
        self._shares = Curves(ladders, device)
        self._scales = Curves([(places, _scale(shares)) for places, shares in ladders], device)
        self._tails = Curves([(places, _tail(shares)) for places, shares in ladders], device)
        self.spread = torch.ones(self.features, device=device)
        for number, (places, shares) in zip(self._numbers.tolist(), ladders, strict=True):
            low, high = np.interp(MIDDLE, shares, places)
            whole = max(places[-1] - places[0], 1e-6)
            self.spread[number] = float(max(high - low, 0.05 * whole))
        rng, density, usual = np.random.default_rng(0), [], []
        for goal in range(self.classes):
            rows, _ = population.sample(SAMPLES, rng, np.eye(self.classes)[goal])
            cells = self.cells(torch.as_tensor(rows, dtype=torch.float32, device=device))
            goals = torch.full((len(rows),), goal, device=device)
            density.append(self.log_density(cells, goals))
            usual.append(self._usual(cells, goals, density[-1]))
        self._densities, self._ranks = (  # (classes, samples)
            torch.stack(each).sort(dim=1).values for each in (density, usual)
        )

    def _tensor(self, values: object, dtype: torch.dtype | None = None) -> Tensor:
        return torch.as_tensor(np.asarray(values), dtype=dtype, device=self.device)

    def _read_cells(self) -> None:
        """How `cells` finds the cell of each feature."""
        encoding = self.grid.encoding
        position = np.zeros((encoding.width, self.features), dtype=np.float32)
        edges = []
        for number, (block, cells) in enumerate(zip(encoding.blocks, self.grid.cells, strict=True)):
            if isinstance(cells, NumberCells):
                edges.append((cells.high + (cells.step / 2 or 1e-12)).astype(np.float32))
            elif block.feature.one_hot:
                position[block.at, number] = np.arange(block.stop - block.start)
            else:
                position[block.start, number] = 1
        bins = np.array([len(each) for each in edges], dtype=int)
        starts = self.grid.starts[self._numbers]
        self._position = self._tensor(position)
        self._start = self._tensor(self.grid.starts, torch.float32)
        self._last_bin = self._tensor(starts + bins - 1)
        self._edges = self._tensor(_in_one_line(edges), torch.float64)
        self._first_edge = self._tensor(np.cumsum(bins) - bins - starts)
        self._missing = dict(zip(self._numbers.tolist(), (starts + bins).tolist(), strict=True))
        self._number_columns = self.first_column[self.numbers]
        self._apart = APART * torch.arange(len(bins), dtype=torch.float64, device=self.device)

    def _read_density(self) -> None:
        """Tables of cells and of pairs of cells, with derived features in their sources."""
        known = self.population.potentials_from(RAREST)
        alone = [table.astype(np.float32) for table in known.alone]
        pairs: list[PairTable] = [(i, j, table.astype(np.float32)) for i, j, table in known.pairs]
        singles = [np.asarray(table) for table in self.population.singles_from(RAREST)]
        names = [block.feature.name for block in self.grid.encoding.blocks]
        links = zip(linked_columns(self.grid.encoding), self.grid.schema.links, strict=True)
        derived_ones = []
        for columns, link in links:
            source, derived = names.index(link.source), names.index(link.derived)
            derived_ones.append(derived)
            follows = np.zeros(self.grid.cells[source].count, dtype=int)
            codes = self.grid.cells[derived].codes(columns.table.numpy())
            follows[: len(codes)] = codes
            alone[source] = alone[source] + alone[derived][:, follows]
            alone[derived] = np.zeros_like(alone[derived])
            singles[source] = singles[source] + singles[derived][:, follows]
            singles[derived] = np.zeros_like(singles[derived])
            pairs = [_following(pair, derived, source, follows) for pair in pairs]
        width, starts = self.grid.width, self.grid.starts
        beside = np.zeros((self.classes, width, width), np.float32) if pairs else None
        for one, two, table in pairs:
            if one == two:  # a source and what follows from it
                alone[one] = alone[one] + np.diagonal(table, axis1=1, axis2=2)
                continue
            first = slice(starts[one], starts[one] + table.shape[1])
            second = slice(starts[two], starts[two] + table.shape[2])
            assert beside is not None
            beside[:, first, second] += table
            beside[:, second, first] += table.swapaxes(1, 2)
        self.alone = self._tensor(np.concatenate(alone, axis=1))
        self._singles = self._tensor(np.concatenate(singles, axis=1), torch.float32)
        self.beside = None if beside is None else self._tensor(beside.reshape(-1, width))
        depend = sorted({(min(pair[:2]), max(pair[:2])) for pair in pairs if pair[0] != pair[1]})
        self._first, self._second = self._tensor(np.array(depend, dtype=int).reshape(-1, 2).T)
        is_derived = np.isin(np.arange(self.features), derived_ones)
        self.derived, self.has_derived = self._tensor(is_derived), bool(derived_ones)

    def _read_links(self) -> None:
        """Which features go together so strongly that one follows the other, and how far."""
        links = np.zeros((self.features, self.features))
        if self.population.copula is not None:
            links = np.triu(self.population.copula.links**2, 1)
            links[:, self.derived.cpu().numpy()] = links[self.derived.cpu().numpy()] = 0.0
        one, two = np.nonzero(links >= LINKED**2)
        order = np.argsort(-links[one, two], kind="stable")[:MOST_LINKS]
        one, two = one[order], two[order]
        self.has_links = bool(len(one))
        self._one, self._two = self._tensor(one), self._tensor(two)
        self._follows = self._tensor(links[one, two], torch.float32)
        both = np.zeros_like(links)
        both[one, two] = both[two, one] = links[one, two]
        self._linked = self._tensor(both, torch.float32)

    def follows(self, moved: Tensor) -> Tensor:
        """How far each feature follows from one that is `moved`, 0 to 1, (rows, features) both."""
        return (moved[:, :, None] * self._linked).amax(dim=1)

    def following(self, effort: Tensor, changed: Tensor) -> Tensor:
        """How far each changed feature follows from a changed one of more effort, (rows, features).

        `effort`: of each feature, (rows, features); `changed`: whether it counts.
        """
        found = torch.zeros_like(effort)
        both = (changed[:, self._one] & changed[:, self._two]) * self._follows
        first = effort[:, self._one] < effort[:, self._two]  # the smaller one follows
        column = torch.where(first, self._one, self._two)
        return found.scatter_reduce_(1, column, both, "amax")

    def cells(self, points: Tensor) -> Tensor:
        """The cell of each feature in the line of all cells, (rows, features)."""
        cells = torch.addmm(self._start, points, self._position).round_().long()
        if len(self._numbers):
            here = points[:, self._number_columns] + self._apart
            place = torch.searchsorted(self._edges, here) - self._first_edge
            cells[:, self.numbers] = torch.minimum(place, self._last_bin)
        for number, flag in self._flagged:
            missing = points[:, flag] >= 0.5
            cells[:, number] = torch.where(missing, self._missing[number], cells[:, number])
        return cells

    def effort_scale(self, points: Tensor) -> Tensor:
        """How far up each number is in the unit of effort, (rows, features); 0 for others."""
        return self._along(self._scales, points, 0.0)

    def tail(self, points: Tensor) -> Tensor:
        """How far out each number is, 0 where it is not, (rows, features); 0 for others."""
        return self._along(self._tails, points, 0.0)

    def percentile(self, points: Tensor) -> Tensor:
        """The share of people below each known number, (rows, features); NaN for the rest."""
        found = self._along(self._shares, points, torch.nan)
        return torch.where(self.known(points), found, torch.nan)

    @property
    def veil_knows(self) -> bool:
        """Whether P~ is more than noise; else numbers are compared by their size alone."""
        return self.sure_shares.veil_knows

    @property
    def knows_pairs(self) -> bool:
        """Whether P~ knows which values go together, where there are several features."""
        return self.features == 1 or self.population.copula is not None

    def _along(self, curves: Curves, points: Tensor, otherwise: float) -> Tensor:
        """The values of curves for all numbers; `otherwise` for all other features."""
        found = torch.full((len(points), self.features), otherwise, device=points.device)
        if len(self._numbers):
            found[:, self.numbers] = curves(points[:, self._number_columns])
        return found

    def known(self, points: Tensor) -> Tensor:
        """Which features are not missing, (rows, features); categories are always known."""
        found = torch.ones(len(points), self.features, dtype=torch.bool, device=points.device)
        for number, flag in self._flagged:
            found[:, number] = points[:, flag] < 0.5
        return found

    def log_density(self, cells: Tensor, targets: Tensor) -> Tensor:
        """log P~(cells | target), (rows,), of the cells of each feature, (rows, features)."""
        found = self.alone[targets[:, None], cells].sum(dim=1)
        if self.beside is not None:
            width = self.grid.width
            place = cells[:, self._first] + targets[:, None] * width
            found += self.beside.view(-1)[place.mul_(width).add_(cells[:, self._second])].sum(dim=1)
        return found

    def field(self, cells: Tensor, targets: Tensor) -> Tensor:
        """What each cell of any feature adds beside the cells of a row, (rows, cells)."""
        assert self.beside is not None, "features depend on each other"
        of_class = cells + targets[:, None] * self.grid.width
        return torch.nn.functional.embedding_bag(of_class, self.beside, mode="sum")

    def plausibility(self, cells: Tensor, targets: Tensor) -> Tensor:
        """The share of P~'s rows of the target class that are less usual, (rows,).

        `cells`: of each feature, (rows, features).
        """
        usual = self._usual(cells, targets, self.log_density(cells, targets))
        found = torch.empty_like(usual)
        for goal in targets.unique().tolist():
            mine = targets == goal
            found[mine] = torch.searchsorted(self._ranks[goal], usual[mine]).to(usual)
        return found / self._ranks.shape[1]

    def _usual(self, cells: Tensor, targets: Tensor, density: Tensor) -> Tensor:
        """How usual rows are, (rows,); `density` is their log-density.

        Σ log P~(cell | class) + TOGETHER·(log P~(row | class) − Σ log P~(cell | class)): the second
        part is how much more often these values come together than by chance. A contradiction is
        noticed before a rare value is.
        """
        by_chance = self._singles[targets[:, None], cells].sum(dim=1)
        return by_chance + TOGETHER * (density - by_chance)

    def floor(self, share: float) -> Tensor:
        """The log-density that so many of P~'s rows of each class stay below, (classes,)."""
        return self._densities[:, int(share * (self._densities.shape[1] - 1))]


class Curves:
    """Curves over the unit interval, one for each number: straight lines between places.

    At a place that stands twice the curve jumps, and its value there is the middle of the jump.
    Before the first place and after the last the curve is level.
    """

    def __init__(
        self, curves: Sequence[tuple[Array, Array]], device: torch.device | None = None
    ) -> None:
        places: list[Array] = []
        values: list[Array] = []
        middles: list[Array] = []
        for place, value in curves:
            near = np.asarray(place, dtype=np.float32).astype(np.float64)
            first, last = (np.searchsorted(near, near, side=side) for side in ("left", "right"))
            middle = (value[first] + value[last - 1]) / 2
            places.append(np.concatenate([[-1.0], near, [2.0]]))
            for rows, one in ((values, value), (middles, middle)):
                rows.append(np.concatenate([one[:1], one, one[-1:]]))
        flat = [np.concatenate([*rows, np.zeros(0)]) for rows in (places, values, middles)]
        gap = np.maximum(np.diff(flat[0], append=0), 1e-12)
        slopes = np.diff(flat[1], append=0) / gap
        self._apart = APART * torch.arange(len(curves), dtype=torch.float64, device=device)
        self._line, self._places, self._values, self._middles, self._slopes = (
            torch.as_tensor(each, dtype=torch.float64, device=device)
            for each in (_in_one_line(places), *flat, slopes)
        )

    def __call__(self, x: Tensor) -> Tensor:
        """The value of each curve at each x, (rows, curves)."""
        on_line = x + self._apart
        right = torch.searchsorted(self._line, on_line)
        left = right - 1
        between = self._values[left] + self._slopes[left] * (x - self._places[left])
        found = torch.where(self._line[right] == on_line, self._middles[right], between)
        return found.float()


def _in_one_line(places: Sequence[Array]) -> Array:
    """Places of several numbers, each from 0 to 1 and ascending, as one ascending line.

    Exact: float64 holds a float32 of the unit interval and the distance between two numbers.
    """
    moved = [each.astype(np.float64) + APART * number for number, each in enumerate(places)]
    return np.concatenate([*moved, np.empty(0)])


def _following(pair: PairTable, derived: int, source: int, follows: Array) -> PairTable:
    """The table of a pair with the cells of a source in the place of those that follow from it."""
    one, two, table = pair
    if one == derived:
        one, table = source, table[:, follows]
    if two == derived:
        two, table = source, table[:, :, follows]
    return one, two, table


def _scale(shares: Array) -> Array:
    """How far up the places of a number are for an effort, by the share of people below each.

    Half of it is the share. The other half is the same where a single value that many people share
    counts as a tenth of them at most: with 9 of 10 people at 0, from 0 to any amount would be the
    same way.
    """
    capped = np.cumsum(np.minimum(np.diff(shares, prepend=0.0), MOST_OF_ONE_VALUE))
    return (shares + capped / max(capped[-1], 1e-12)) / 2


def _tail(shares: Array) -> Array:
    """How far out the places of a number are, by the share of people below each.

    0 where a twentieth of them is farther out, and 1 more each time that it is e times fewer.
    """
    beyond = np.minimum(shares, 1 - shares)
    return np.log(USUAL / np.clip(beyond, FARTHEST, USUAL))
