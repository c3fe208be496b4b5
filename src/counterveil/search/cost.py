"""What an answer costs: J of `search.believable`, for the queries of one batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from counterveil.encoding import Array
from counterveil.search.ground import Ground

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
    def pair_values(self) -> Array:
        """What the queries' cells of each pair of features add to the log-density."""
        return self.ground.beliefs.pair_values(self.codes, self.targets)

    @cached_property
    def density(self) -> Array:
        """log P~(query | target), (queries,)."""
        alone = self.ground.beliefs.alone[self.targets[:, None], self.cells]
        return alone.sum(axis=1) + self.pair_values.sum(axis=1)

    @cached_property
    def floor(self) -> Array:
        """The log-density below which an answer costs: the query's own, or P~'s if higher."""
        share = self.ground.prices.floor
        return np.maximum(self.density, self.ground.beliefs.floor(share)[self.targets])

    @cached_property
    def sums(self) -> Array:
        """What arrives at the committee's neurons, (queries, neurons)."""
        return self.ground.committee.sums(self.codes)

    def shortfall(self, density: Array, query: Array) -> Array:
        """What rows of these log-densities cost for being unusual; `query`: whose each is."""
        return self.ground.prices.implausible * np.maximum(self.floor[query] - density, 0)

    def unsafe(self, margin: Array) -> Array:
        """What rows cost for being near to f's boundary, by their margins."""
        prices = self.ground.prices
        short = np.maximum(prices.safe - margin / self.ground.unit, 0)
        return prices.refused * short * short

    def doubt(self, sums: Array, query: Array) -> Array:
        """What rows cost for the doubts of the committee, by what arrives at its neurons."""
        ground = self.ground
        members = ground.committee.margins(sums, self.targets[query]) / ground.committee_unit
        return ground.prices.unstable * np.maximum(ground.prices.sure - members, 0).mean(axis=1)

    def rows_after(self, query: Array, entries: Array) -> Array:
        """The rows of `query` after taking `entries` of the menu, (rows, entries each)."""
        menu = self.ground.menu
        rows = self.queries[query]
        for entry in entries.T:
            rows = np.where(menu.mask[entry], menu.points[entry], rows)
        return rows

    def sums_after(self, query: Array, entries: Array) -> Array:
        """What arrives at the committee's neurons after taking `entries`, (rows, neurons)."""
        ground, cells = self.ground, self.ground.committee.cells
        found = self.sums[query]
        for entry in entries.T:
            feature = ground.menu.feature[entry]
            found = found + ground.sums[entry] - cells[self.cells[query, feature]]
            for source, derived, _ in ground.beliefs.follows:
                moved = feature == source
                found[moved] -= cells[self.cells[query[moved], derived]]
        return found
