"""The last step: answers give back what they do not need, and their numbers are set finely.

Of every answer all changed numbers are looked at: a few other values of each are tried, and for the
nearest answers of all together; the model is asked about every row that would be cheaper, and the
cheapest is kept; so again from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from counterveil.search.actions.actions import Actions
from counterveil.search.actions.costs import BatchCosts
from counterveil.search.actions.seen import Seen, least_of_each
from counterveil.search.constraints.bounds import SAME

AT_ONCE = 1 << 20  # rows that are looked at together
# What is tried in each pass: places up and down the list of values of a believable answer; shares
# of the way back to the query for the nearest.
BELIEVABLE = ((-8, -5, -3, -2, -1, 1, 2, 3, 5, 8), (-2, -1, 1, 2))
NEAREST = tuple(tuple(step / 8**power for step in range(1, 9)) for power in (1, 1, 2, 2, 3))


@dataclass(frozen=True)
class Shrink:
    """Makes answers cheaper; `seen` counts the rows that the model is asked about."""

    costs: BatchCosts
    actions: Actions
    seen: Seen

    def __call__(self, rows: Tensor, query: Tensor, cost: Tensor) -> tuple[Tensor, Tensor]:
        """Cheaper answers and their costs; `rows` (rows, width) are accepted, `query` whose."""
        rows, cost = rows.clone(), cost.clone()
        at = torch.arange(len(rows), device=rows.device)
        believable = self.costs.believable
        for steps in BELIEVABLE if believable else NEAREST:
            changed = self.actions.changed(rows[at], query[at])
            numbers = changed & self.actions.menu.number_features
            tried, place = self._tries(rows[at], query[at], numbers, steps)
            if not len(place):
                break
            better = self._replace(rows, cost, tried, at[place], changed[place], query)
            if believable:  # a single number is where it is cheapest now
                at = at[better[at] & (numbers.sum(dim=1) > 1)]
        return rows, cost

    def give_back(self, rows: Tensor, query: Tensor, cost: Tensor) -> tuple[Tensor, Tensor]:
        """Answers without the changes that they do not need, and their costs."""
        rows, cost = rows.clone(), cost.clone()
        changed = self.actions.changed(rows, query)
        rank = changed.cumsum(dim=1) * changed
        for turn in range(1, int(rank.amax()) + 1):
            at = (rank == turn).any(dim=1).nonzero()[:, 0]
            feature = (rank[at] == turn).int().argmax(dim=1)
            columns = self._columns(feature)
            tried = torch.where(columns, self.costs.queries[query[at]], rows[at])
            moved = self.actions.changed(tried, query[at])
            self._replace(rows, cost, tried, at, moved, query)
        return rows, cost

    def exchange(self, rows: Tensor, query: Tensor, cost: Tensor) -> tuple[Tensor, Tensor]:
        """Answers with one changed category less and another action in its place, if cheaper.

        For the nearest answers a category is a long way, and numbers may do without it.
        """
        rows, cost = rows.clone(), cost.clone()
        changed = self.actions.changed(rows, query) & ~self.actions.menu.number_features
        at, feature = changed.nonzero(as_tuple=True)
        size = max(1, AT_ONCE // max(1, len(self.actions.menu)))
        for some, category in zip(at.split(size), feature.split(size), strict=True):
            whose, columns = query[some], self._columns(category)
            back = torch.where(columns, self.costs.queries[whose], rows[some])
            of, entry = self.actions.is_open[whose].nonzero(as_tuple=True)
            tried = self.actions.take(back[of], whose[of], entry)
            moved = self.actions.changed(tried, whose[of])
            self._replace(rows, cost, tried, some[of], moved, query)
        return rows, cost

    def _columns(self, feature: Tensor) -> Tensor:
        mask = one_hot(feature, self.actions.features).bool()
        return self.actions.projection.columns_of_features(mask)

    def _tries(
        self, rows: Tensor, query: Tensor, numbers: Tensor, steps: Sequence[float]
    ) -> tuple[Tensor, Tensor]:
        """Rows with other values of changed `numbers`, (tries, width), and of which row each is.

        `numbers`: (rows, features). For the nearest answers all of a row also move together.
        """
        row, feature = numbers.nonzero(as_tuple=True)
        column, tries = self.actions.menu.first_column[feature], len(steps)
        values = self._values(rows, query, row, feature, steps)  # (numbers, tries)
        tried = rows[row][:, None].repeat(1, tries, 1)
        at = column[:, None, None].expand(-1, tries, 1)
        tried.scatter_(2, at, values[:, :, None])
        if self.costs.believable:
            return tried.flatten(0, 1), row.repeat_interleave(tries)
        together = rows[:, None].repeat(1, tries, 1)
        together.transpose(1, 2)[row, column] = values
        several = (numbers.sum(dim=1) > 1).nonzero()[:, 0]
        tried, row = torch.cat([together[several], tried]), torch.cat([several, row])
        return tried.flatten(0, 1), row.repeat_interleave(tries)

    def _values(
        self, rows: Tensor, query: Tensor, row: Tensor, feature: Tensor, steps: Sequence[float]
    ) -> Tensor:
        """Legal values to try for each number, (numbers, tries).

        `row`, `feature`: where the numbers are, (numbers,).
        """
        column, box = self.actions.menu.first_column[feature], self.costs.batch.box
        whose, now = query[row], rows[row, column][:, None]
        own = self.costs.queries[whose, column][:, None]
        by = torch.tensor(steps, device=rows.device)
        if self.costs.believable:
            fine = self.costs.context.menu.fine[feature]
            place = torch.searchsorted(fine, now) + by
            values = fine.gather(1, place.clamp_(0, fine.shape[1] - 1))
        else:
            values = now - (now - own) * by
        lower, upper = (side[whose, column][:, None] for side in (box.lower, box.upper))
        values = self.actions.projection.numbers(values, column[:, None], lower, upper)
        return torch.where((values - own).abs() <= SAME, own, values)  # what is given out: the same

    def _replace(
        self, rows: Tensor, cost: Tensor, tried: Tensor, at: Tensor, moved: Tensor, query: Tensor
    ) -> Tensor:
        """Put the cheapest of `tried` rows into their places `at`, in place, if it is cheaper.

        `moved`: features of `tried` that the search has moved, (tried, features). Returns which
        rows are cheaper now, (rows,).
        """
        whose = query[at]
        tried, fine = self.actions.lawful(tried, whose, moved)
        effort, implausibility = self.costs.terms(tried, whose)
        least = effort + implausibility.clamp_(min=0)
        fine &= (least < cost[at]) & (effort > 0)
        asked = fine.nonzero()[:, 0]
        if not len(asked):
            return torch.zeros_like(cost, dtype=torch.bool)
        at, whose, tried = at[asked], whose[asked], tried[asked]
        margin = self.costs.margin(tried, whose)
        found = self.costs.of_accepted(tried, whose, least[asked], margin)
        self.seen.count(whose)
        best, wins = least_of_each(cost, at, found)
        rows[at[wins]] = tried[wins]
        better = best < cost
        cost.copy_(best)
        return better
