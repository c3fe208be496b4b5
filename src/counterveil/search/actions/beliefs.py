"""What the noisy population says about rows, as tables to look up: all from P~ alone.

- **percentile** of a number among all people: the unit in which effort is counted;
- **plausibility**: log P~(row | class), and its rank among rows of P~ of that class.

Everything is a function of the veil: nothing here has seen the target model or a query.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from counterveil.encoding import Array
from counterveil.population import TreePopulation
from counterveil.schema.cells import NumberCells
from counterveil.search.constraints.bounds import linked_columns

SAMPLES = 4000  # rows of P~ of each class that ranks are counted among
RAREST = -7.0  # a cell or pair adds no less than this to a log-density
MOST_OF_ONE_VALUE = 0.1  # of all people, in the capped half of the unit of effort
APART = 4.0  # between the places of two numbers that stand in one line

PairTable = tuple[int, int, Array]


class Beliefs:
    """P~ of a mixed table for the search. Rows are encoded points, (rows, width), in float32.

    The cells of all features stand in one line; `starts` says where those of each feature begin.
    `alone`: the log-density of each cell, (classes, cells). `pairs`: two features and what their
    cells add together, (classes, cells of the one, cells of the other). `is_number`: (features,).
    `first_column`: of each feature in an encoded row. `follows`: of each link of the schema the
    source, the derived feature, and its cell for each cell of the source.
    """

    def __init__(self, population: TreePopulation, seed: int = 0) -> None:
        self.population, self.grid = population, population.grid
        blocks = self.grid.encoding.blocks
        self.classes, self.features = len(population.totals), len(self.grid.cells)
        self.starts = self.grid.starts
        self.first_column = np.array([block.start for block in blocks])
        self._flags = [-1 if block.missing_flag is None else block.missing_flag for block in blocks]
        self.is_number = np.array([isinstance(cells, NumberCells) for cells in self.grid.cells])
        self.numbers = np.flatnonzero(self.is_number)
        self._read_cells()
        alone, pairs = self._potentials()
        self.alone = np.concatenate(alone, axis=1)
        self.pairs = pairs
        both = [*pairs, *map(turned, pairs)]
        every = range(self.features)
        self._pairs_of = [[pair for pair in both if pair[0] == feature] for feature in every]
        self._lay_out_pairs()
        ladders = [_ladder(*population.percentiles(int(number))) for number in self.numbers]
        self._shares = Curves([(places, shares) for places, shares, _ in ladders])
        self._heights = Curves([(places, heights) for places, _, heights in ladders])
        self._curves_of_class: dict[int, Curves] = {}  # made when first asked for
        rng = np.random.default_rng(seed)
        density = []
        for goal in range(self.classes):
            rows, _ = population.sample(SAMPLES, rng, np.eye(self.classes)[goal])
            codes = self.codes(rows.astype(np.float32))
            density.append(self.log_density(codes, np.full(len(rows), goal)))
        self._ranks = np.sort(density, axis=1)  # (classes, samples)

    def _read_cells(self) -> None:
        """How `codes` finds the cell of each feature."""
        encoding = self.grid.encoding
        self._position = np.zeros((encoding.width, self.features), dtype=np.float32)
        edges = []
        for number, (block, cells) in enumerate(zip(encoding.blocks, self.grid.cells, strict=True)):
            if isinstance(cells, NumberCells):
                edges.append((cells.high + (cells.step / 2 or 1e-12)).astype(np.float32))
            elif block.feature.one_hot:
                self._position[block.at, number] = np.arange(block.stop - block.start)
            else:
                self._position[block.start, number] = 1
        self._bins = np.array([len(each) for each in edges], dtype=int)
        self._edges = _in_one_line(edges)
        self._first_edge = np.cumsum(self._bins) - self._bins

    def _potentials(self) -> tuple[list[Array], list[PairTable]]:
        """What the cells of features and of pairs add, with derived features in their sources."""
        known = self.population.potentials
        alone = [np.maximum(table, RAREST).astype(np.float32) for table in known.alone]
        pairs = [
            (i, j, np.maximum(table, RAREST).astype(np.float32)) for i, j, table in known.pairs
        ]
        names = [block.feature.name for block in self.grid.encoding.blocks]
        links = zip(linked_columns(self.grid.encoding), self.grid.schema.links, strict=True)
        self.follows: list[tuple[int, int, Array]] = []
        for columns, link in links:
            source, derived = names.index(link.source), names.index(link.derived)
            follows = np.zeros(self.grid.cells[source].count, dtype=int)
            codes = self.grid.cells[derived].codes(columns.table.numpy())
            follows[: len(codes)] = codes
            self.follows.append((source, derived, follows))
            alone[source] = alone[source] + alone[derived][:, follows]
            alone[derived] = np.zeros_like(alone[derived])
            pairs = [_following(pair, derived, source, follows) for pair in pairs]
        merged: dict[tuple[int, int], Array] = {}
        for one, two, table in pairs:
            if one == two:  # a source and what follows from it
                alone[one] = alone[one] + np.diagonal(table, axis1=1, axis2=2)
                continue
            *place, added = (one, two, table) if one < two else turned((one, two, table))
            merged[place[0], place[1]] = merged.get((place[0], place[1]), 0) + added
        return alone, [(one, two, table) for (one, two), table in merged.items()]

    def _lay_out_pairs(self) -> None:
        """All tables of pairs in one line, and how to find a value of each there."""
        tables = [table for *_, table in self.pairs]
        ends = np.cumsum([0, *(table.size for table in tables)])
        self._line_of_pairs = np.concatenate([*(table.ravel() for table in tables), []])
        self._line_of_pairs = self._line_of_pairs.astype(np.float32)
        self._pair_starts = ends[:-1]
        self._pair_steps = np.array([table[0].size for table in tables], dtype=np.intp)
        self._pair_rows = np.array([table.shape[2] for table in tables], dtype=np.intp)
        self.first_of_pair = np.array([one for one, *_ in self.pairs], dtype=np.intp)
        self.second_of_pair = np.array([two for _, two, _ in self.pairs], dtype=np.intp)

    def codes(self, points: Array) -> Array:
        """The cell of each feature, counted among its own, (rows, features)."""
        codes = np.rint(points @ self._position).astype(np.intp)
        if len(self.numbers):
            here = points[:, self.first_column[self.numbers]]
            place = np.searchsorted(self._edges, _apart(here)) - self._first_edge
            codes[:, self.numbers] = np.minimum(place, self._bins - 1)
        for number, bins in zip(self.numbers.tolist(), self._bins.tolist(), strict=True):
            flag = self._flags[number]
            if flag >= 0:
                codes[:, number] = np.where(points[:, flag] >= 0.5, bins, codes[:, number])
        return codes

    def heights(self, points: Array) -> Array:
        """How far up each number is, in the unit of effort, (rows, features); 0 for others."""
        return self._along(self._heights, points, 0.0)

    def height(self, feature: int, values: Array) -> Array:
        """The same for values of one number, in the unit cube; of any shape."""
        return self._heights.of_one(int(np.searchsorted(self.numbers, feature)), values)

    def percentiles(self, points: Array) -> Array:
        """Of each number the share of people below it, (rows, features); 0 for other features."""
        return self._along(self._shares, points, 0.0)

    def places(self, points: Array) -> Array:
        """Of each known number the share of people below it, (rows, features); NaN for the rest."""
        return np.where(self.is_number & self.known(points), self.percentiles(points), np.nan)

    def standing(self, points: Array, targets: Array) -> Array:
        """The share of P~'s people of the target class below each number, (rows, features).

        NaN for other features.
        """
        found = np.full((len(points), self.features), np.nan, dtype=np.float32)
        for goal in np.unique(targets).tolist():
            mine = targets == goal
            found[mine] = self._along(self._of_class(goal), points[mine], np.nan)
        return found

    def _of_class(self, goal: int) -> Curves:
        if goal not in self._curves_of_class:
            ladders = [self.population.percentiles(int(number), goal) for number in self.numbers]
            self._curves_of_class[goal] = Curves(ladders)
        return self._curves_of_class[goal]

    def _along(self, curves: Curves, points: Array, otherwise: float) -> Array:
        """The values of curves for all numbers; `otherwise` for all other features."""
        found = np.full((len(points), self.features), otherwise, dtype=np.float32)
        if len(self.numbers):
            found[:, self.numbers] = curves(points[:, self.first_column[self.numbers]])
        return found

    def judged(self, queries: Array, rows: Array, targets: Array) -> tuple[Array, Array]:
        """Effort and plausibility of answers, (rows,) each.

        Effort: Σ over the changed features of the difference of percentiles; any other changed
        feature, and a number that was missing, counts 1. Plausibility: the share of P~'s rows of
        the target class that are less likely.
        """
        codes, before = self.codes(rows), self.codes(queries)
        way = np.abs(self.percentiles(rows) - self.percentiles(queries))
        counted = self.known(queries) & self.known(rows) & self.is_number
        way = np.where(counted, way, codes != before)
        way[:, [derived for _, derived, _ in self.follows]] = 0.0
        return way.sum(axis=1), self.rank(self.log_density(codes, targets), targets)

    def known(self, points: Array) -> Array:
        """Which features are not missing, (rows, features); categories are always known."""
        found = np.ones((len(points), self.features), dtype=bool)
        for number in self.numbers.tolist():
            if self._flags[number] >= 0:
                found[:, number] = points[:, self._flags[number]] < 0.5
        return found

    def log_density(self, codes: Array, targets: Array) -> Array:
        """log P~(cells | target), (rows,)."""
        alone = self.alone[targets[:, None], codes + self.starts].sum(axis=1)
        return alone + self.pair_values(codes, targets).sum(axis=1)

    def pair_values(self, codes: Array, targets: Array) -> Array:
        """What the cells of each pair of features add together, (rows, pairs)."""
        place = self._pair_starts + targets[:, None] * self._pair_steps
        place += codes[:, self.first_of_pair] * self._pair_rows + codes[:, self.second_of_pair]
        return self._line_of_pairs[place]

    def density_of(self, feature: int, cell: Array, codes: Array, targets: Array) -> Array:
        """What cells of one feature add to the log-density of rows, (rows, cells each).

        `cell`: (rows, cells each). `codes`: the cells of the rows, (rows, features).
        """
        goals = targets[:, None]
        found = self.alone[goals, cell + self.starts[feature]]
        for _, other, table in self._pairs_of[feature]:
            found = found + table[goals, cell, codes[:, other, None]]
        return found

    def rank(self, density: Array, targets: Array) -> Array:
        """The share of P~'s rows of the target class that are less likely, (rows,)."""
        found = np.empty(len(density), dtype=np.float32)
        for goal in np.unique(targets).tolist():
            mine = targets == goal
            found[mine] = np.searchsorted(self._ranks[goal], density[mine])
        return found / self._ranks.shape[1]

    def floor(self, share: float) -> Array:
        """The log-density that so many of P~'s rows of each class stay below, (classes,)."""
        return self._ranks[:, int(share * (self._ranks.shape[1] - 1))]


class Curves:
    """Curves over the unit interval, one for each number: straight lines between places.

    At a place that stands twice the curve jumps, and its value there is the middle of the jump.
    Before the first place and after the last the curve is level.
    """

    def __init__(self, curves: Sequence[tuple[Array, Array]]) -> None:
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
        self._line = _in_one_line(places)
        self._places, self._values, self._middles = (
            np.concatenate([*rows, np.zeros(0)]) for rows in (places, values, middles)
        )
        gap = np.maximum(np.diff(self._places, append=0), 1e-12)
        self._slopes = np.diff(self._values, append=0) / gap

    def __call__(self, x: Array) -> Array:
        """The value of each curve at each x, (rows, curves)."""
        return self._at(x, _apart(x))

    def of_one(self, number: int, x: Array) -> Array:
        """The values of one curve, at x of any shape."""
        return self._at(x, x.astype(np.float64) + APART * number)

    def _at(self, x: Array, on_line: Array) -> Array:
        right = np.searchsorted(self._line, on_line)
        left = right - 1
        between = self._values[left] + self._slopes[left] * (x - self._places[left])
        found = np.where(self._line[right] == on_line, self._middles[right], between)
        return found.astype(np.float32)


def _in_one_line(places: Sequence[Array]) -> Array:
    """Places of several numbers, each from 0 to 1 and ascending, as one ascending line.

    Exact: float64 holds a float32 of the unit interval and the distance between two numbers.
    """
    moved = [each.astype(np.float64) + APART * number for number, each in enumerate(places)]
    return np.concatenate([*moved, np.empty(0)])


def _apart(values: Array) -> Array:
    """Where values of numbers, (rows, numbers), are in the line of `_in_one_line`."""
    return values + APART * np.arange(values.shape[1])


def turned(pair: PairTable) -> PairTable:
    """The same pair, the other feature first."""
    one, two, table = pair
    return two, one, table.swapaxes(1, 2)


def _following(pair: PairTable, derived: int, source: int, follows: Array) -> PairTable:
    """The table of a pair with the cells of a source in the place of those that follow from it."""
    one, two, table = pair
    if one == derived:
        one, table = source, table[:, follows]
    if two == derived:
        two, table = source, table[:, :, follows]
    return one, two, table


def _ladder(places: Array, shares: Array) -> tuple[Array, Array, Array]:
    """Places of a number, the share of people below each, and how far up it is for an effort.

    Half of the height is the share. The other half is the same where a single value that many
    people share counts as a tenth of them at most: with 9 of 10 people at 0, from 0 to any amount
    would be the same way.
    """
    rise = np.minimum(np.diff(shares, prepend=0.0), MOST_OF_ONE_VALUE)
    capped = np.cumsum(rise)
    return places, shares, (shares + capped / max(capped[-1], 1e-12)) / 2
