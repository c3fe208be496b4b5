"""What an answer costs: J of `believable`, for the queries of one batch.

Three numbers say what a row costs but for the doubts of the committee, all in the unit of J:

    effort   of its changes, with the price of each;
    unusual  how far its log-density is below the floor, times its price; negative above;
    unsafe   how far f's margin is below a safe one, its square being the price; negative above.

The first two are sums over the changes and over pairs of them. Then
J = effort + max(unusual, 0) + max(unsafe, 0)² + doubt.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from counterveil.encoding import Array
from counterveil.search.actions.ground import Ground

MarginOf = Callable[[Array, Array], Array]  # (rows, targets) -> log-odds beyond acceptance


@dataclass(frozen=True)
class Asked:
    """The queries of a batch, with what is asked of their answers and what these cost.

    `queries`: (queries, width) in float32, legal and inside their bounds `lower` and `upper`.
    `costs`: of a change in each column, (queries, width). `max_changes`: how many features may
    change, (queries,).
    """

    ground: Ground
    margin: MarginOf
    queries: Array
    targets: Array
    lower: Array
    upper: Array
    costs: Array | None = None
    max_changes: Array | None = None

    @cached_property
    def codes(self) -> Array:
        """The cell of each feature of the queries, (queries, features)."""
        return self.ground.beliefs.codes(self.queries)

    @cached_property
    def cells(self) -> Array:
        """The same, among the cells of all features."""
        return self.codes + self.ground.beliefs.starts

    @cached_property
    def heights(self) -> Array:
        """How far up the numbers of the queries are, (queries, features)."""
        return self.ground.beliefs.heights(self.queries)

    @cached_property
    def known(self) -> Array:
        """Which features of the queries are not missing, (queries, features)."""
        return self.ground.beliefs.known(self.queries)

    @cached_property
    def alone(self) -> Array:
        """What the queries' own cells cost by their log-density, (queries, features)."""
        return self.ground.alone[self.targets[:, None], self.cells]

    @cached_property
    def pairs(self) -> Array:
        """The same for what the cells of each pair of features add together, (queries, pairs)."""
        values = self.ground.beliefs.pair_values(self.codes, self.targets)
        return np.float32(-self.ground.prices.implausible) * values

    @cached_property
    def unusual(self) -> Array:
        """Of the queries themselves, (queries,): nobody is asked for more than is usual."""
        prices = self.ground.prices
        floor = np.float32(prices.implausible) * self.ground.beliefs.floor(prices.floor)
        here = self.alone.sum(axis=1) + self.pairs.sum(axis=1)
        return np.maximum(here + floor[self.targets], 0)

    @cached_property
    def sums(self) -> Array:
        """What arrives at the committee's neurons, (queries, neurons)."""
        return self.ground.committee.sums(self.codes)

    @cached_property
    def boundary(self) -> float:
        """The `unsafe` of rows that f just accepts; it accepts those below."""
        return math.sqrt(self.ground.prices.refused) * self.ground.prices.safe

    def unsafe(self, rows: Array, query: Array) -> Array:
        """Of rows (rows, width), by asking f. `query`: whose each is."""
        scale = math.sqrt(self.ground.prices.refused) / self.ground.unit
        return self.boundary - scale * self.margin(rows, self.targets[query])

    def doubt(self, sums: Array, query: Array) -> Array:
        """What rows cost for the doubts of the committee, by what arrives at its neurons."""
        ground = self.ground
        members = ground.committee.margins(sums, self.targets[query]) / ground.committee_unit
        short = np.maximum(ground.prices.sure - members, 0).sum(axis=1)
        return ground.prices.unstable * (short / members.shape[1])

    def rows_after(self, query: Array, entries: Array) -> Array:
        """The rows of `query` after taking `entries` of the menu, (rows, entries each)."""
        menu, rows = self.ground.menu, self.queries.take(query, axis=0)
        for entry in entries.T:
            mask, points = menu.mask.take(entry, axis=0), menu.points.take(entry, axis=0)
            rows = np.where(mask, points, rows)
        return rows

    def sums_after(self, query: Array, entries: Array) -> Array:
        """What arrives at the committee's neurons after taking `entries`, (rows, neurons)."""
        ground, cells = self.ground, self.ground.committee.cells
        found = self.sums.take(query, axis=0)
        for entry in entries.T:
            feature = ground.menu.feature.take(entry)
            found += ground.sums.take(entry, axis=0)
            found -= cells.take(self.cells[query, feature], axis=0)
            for source, derived, _ in ground.beliefs.follows:
                moved = feature == source
                found[moved] -= cells[self.cells[query[moved], derived]]
        return found
