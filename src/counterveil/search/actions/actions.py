"""The actions of each query: what the rules leave of the menu, and the rows that they lead to.

An action sets one feature to a value of the menu. Where rules couple features (relations, groups
that move together, steps), the row after it is brought to a row nearby that keeps them, so that an
action may move several features; rows that keep the rules nowhere nearby are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from counterveil.encoding import Encoding
from counterveil.search.actions.menu import Menu
from counterveil.search.batch import QueryBatch
from counterveil.search.constraints.bounds import SAME, bounds_of_good
from counterveil.search.constraints.projection import Snap


@dataclass(frozen=True)
class Actions:
    """What the queries of a batch may do.

    `value`: what each entry puts into its column, (queries, entries), or (entries,) where that is
    the menu's own value. `is_open`: which entries a query may take and does not have already,
    (queries, entries).
    """

    menu: Menu
    batch: QueryBatch
    projection: Snap
    value: Tensor
    is_open: Tensor

    @classmethod
    def of(cls, menu: Menu, batch: QueryBatch, projection: Snap, *, offered: bool) -> Actions:
        """The `offered` actions of each query, or all of them.

        All are more: a number of the menu beyond the bounds of a query stands for the bound itself.
        """
        lower, upper = batch.box.lower, batch.box.upper
        low, high, now = (each[:, menu.column] for each in (lower, upper, batch.queries))
        value = menu.value
        if not offered:
            fits = menu.is_number & (low <= high)
            value = torch.where(fits, value.expand_as(now).clamp(low, high), value)
        elsewhere = (batch.queries > SAME).float() @ menu.blank_columns > 0  # a missing value, too
        is_open = (value >= low - SAME) & (value <= high + SAME)
        is_open &= (lower > SAME).float() @ menu.blank_columns == 0  # nothing else is held
        is_open &= ((value - now).abs() > SAME) | elsewhere
        if offered:
            is_open &= menu.offered
        elif len(menu):  # bounds that several entries stand for are taken once
            again = torch.zeros_like(is_open)
            same = (menu.column[1:] == menu.column[:-1]) & menu.is_number[1:]
            again[:, 1:] = (value[:, 1:] == value[:, :-1]) & same
            is_open &= ~again
        return cls(menu, batch, projection, value, is_open)

    def closed(self, encoding: Encoding) -> Actions:
        """The entries that rules close to each query, as if they were open; values as listed.

        What is worse for the person stays closed: nobody is told that it would help.
        """
        menu, now = self.menu, self.batch.queries[:, self.menu.column]
        differs = (menu.value - now).abs() > SAME
        good = bounds_of_good(encoding, self.batch.queries)
        if good is not None:
            differs &= menu.value >= good.lower[:, menu.column] - SAME
            differs &= menu.value <= good.upper[:, menu.column] + SAME
        if bool(menu.offered.any()):
            differs &= menu.offered
        return replace(self, value=menu.value, is_open=differs & ~self.is_open)

    @property
    def features(self) -> int:
        return len(self.menu.first_column)

    def moved(self, entry: Tensor) -> Tensor:
        """The features that entries, (…), move by themselves, as a mask, (…, features)."""
        return one_hot(self.menu.feature[entry], self.features).bool()

    @property
    def is_coupled(self) -> bool:
        return self.batch.box.ties is not None

    def take(self, rows: Tensor, query: Tensor, entry: Tensor) -> Tensor:
        """Rows (rows, width) of the queries `query` after taking `entry` each; rules aside."""
        menu = self.menu
        if self.value is menu.value:  # as listed
            return torch.where(menu.mask[entry], menu.points[entry], rows)
        unit, value = menu.unit[entry], self.value[query, entry]
        points = torch.where(menu.is_number[entry][:, None], unit * value[:, None], unit)
        return torch.where(menu.mask[entry], points, rows)

    def lawful(self, rows: Tensor, query: Tensor, moved: Tensor) -> tuple[Tensor, Tensor]:
        """Rows nearby that keep the coupled rules and the limit on changes, and where there are.

        `moved`: features that the search has moved itself, and which keep their values where that
        is possible, (rows, features).
        """
        fine = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        if self.is_coupled:
            box = self.batch.box.select(query)
            pinned = self.projection.columns_of_features(moved)
            rows = self.projection(rows, box, pinned)
            fine &= box.ties_held(rows)
        if self.is_coupled or self.batch.max_changes is not None:
            changes = self.changed(rows, query).sum(dim=1)
            fine &= changes > 0
            if self.batch.max_changes is not None:
                fine &= changes <= self.batch.max_changes[query]
        return rows, fine

    def changed(self, rows: Tensor, query: Tensor) -> Tensor:
        """Which features differ from the query's, (rows, features); linked ones by their source."""
        changed = self.projection.changed_features(rows, self.batch.queries[query])
        missing = self.features - changed.shape[1]  # derived ones at the end
        return torch.nn.functional.pad(changed, (0, missing)) if missing else changed
