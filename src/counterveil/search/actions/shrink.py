"""The last step: answers give back what they do not need, and numbers move back to the query's.

Of every answer all changed numbers are looked at, each by itself and all together: a few values
between the query's own and the answer's are tried, the model is asked about each, and the cheapest
row is kept; so again with the row that is left.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from counterveil.search.actions.actions import Actions
from counterveil.search.actions.beam import Seen
from counterveil.search.actions.costs import BatchCosts
from counterveil.search.constraints.bounds import SAME

TRIES = 8  # values of a number at a time
BELIEVABLE = (1, 1)  # passes: of the way back, a step is the share TRIES to the power of minus this
NEAREST = (1, 1, 2, 2, 3)
ALONG = (0.3, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0)  # of the way that a linear model would need


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
        if not self.costs.believable:
            self._replace(rows, cost, at, *self._along_slopes(rows, query), query)
        for power in BELIEVABLE if self.costs.believable else NEAREST:
            changed = self.actions.changed(rows[at], query[at]) & self.actions.menu.number_features
            several = changed.sum(dim=1)
            at, changed = at[several > 0], changed[several > 0]
            if not len(at):
                break
            tried, moved = self._tries(rows[at], query[at], changed, power)
            better = self._replace(rows, cost, at, tried, moved, query)
            if self.costs.believable:  # a single number is where it is cheapest now
                at = at[better & (several[several > 0] > 1)]
        return rows, cost

    def _along_slopes(self, rows: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        """Rows with the categories of answers and all numbers a little moved, (rows, tries, width).

        Numbers go in proportion to what they gain, as far as a linear model would need, and a bit
        less or more. And which features are changed then.
        """
        is_number, slope = self.actions.projection.is_number, self.costs.slope[query]
        start = torch.where(is_number, self.costs.queries[query], rows)
        short = (-self.costs.margin(start, query)).clamp_(min=0)
        self.seen.count(query)
        way = short / slope.square().sum(dim=1).clamp_(min=1e-12)
        tries = torch.tensor(ALONG, device=rows.device)
        numbers = start[:, None] + (way[:, None] * tries)[:, :, None] * slope[:, None]
        box = self.costs.batch.box.select(query.repeat_interleave(len(ALONG)))
        tried = self.actions.projection(numbers.flatten(0, 1), box).unflatten(0, (-1, len(ALONG)))
        return tried, self.actions.changed(tried[:, -1], query)

    def give_back(self, rows: Tensor, query: Tensor, cost: Tensor) -> tuple[Tensor, Tensor]:
        """Answers without the changes that they do not need, and their costs."""
        rows, cost = rows.clone(), cost.clone()
        changed = self.actions.changed(rows, query)
        rank = changed.cumsum(dim=1) * changed
        for turn in range(1, int(rank.amax()) + 1):
            at = (rank == turn).any(dim=1).nonzero()[:, 0]
            feature = (rank[at] == turn).int().argmax(dim=1)
            mask = one_hot(feature, self.actions.features).bool()
            columns = self.actions.projection.columns_of_features(mask)
            tried = torch.where(columns, self.costs.queries[query[at]], rows[at])
            moved = self.actions.changed(tried, query[at])
            self._replace(rows, cost, at, tried[:, None], moved, query)
        return rows, cost

    def _tries(
        self, rows: Tensor, query: Tensor, changed: Tensor, power: int
    ) -> tuple[Tensor, Tensor]:
        """Rows with changed numbers moved back, (rows, tries, width), and what changed in `rows`.

        `changed`: the numbers that differ from the query's, (rows, features).
        """
        features = changed.any(dim=0).nonzero()[:, 0]
        columns = self.actions.menu.first_column[features]
        own, now = self.costs.queries[query][:, columns], rows[:, columns]
        values = self._values(features, columns, own, now, query, power)  # (rows, tries, numbers)
        moves = changed[:, features]
        several = [torch.where(moves[:, None], values, now[:, None])]
        if len(features) > 1:
            one = torch.eye(len(features), dtype=torch.bool, device=rows.device)
            each = torch.where(
                (one & moves[:, None])[:, :, None], values[:, None], now[:, None, None]
            )
            several.append(each.flatten(1, 2))
        numbers = torch.cat(several, dim=1)
        tried = rows[:, None].repeat(1, numbers.shape[1], 1)
        tried[:, :, columns] = numbers
        return tried, self.actions.changed(rows, query)

    def _values(
        self,
        features: Tensor,
        columns: Tensor,
        own: Tensor,
        now: Tensor,
        query: Tensor,
        power: int,
    ) -> Tensor:
        """Legal values of numbers on the way back, (rows, tries, numbers).

        `own`, `now`: of the query and of the answer, (rows, numbers).
        """
        steps = torch.arange(1, TRIES + 1, device=own.device)
        if self.costs.believable:
            fine = self.costs.context.menu.fine[features]
            both = torch.cat([own, now]).T.contiguous()  # (numbers, 2 · rows)
            place = torch.searchsorted(fine, both).clamp_(max=fine.shape[1] - 1)
            start, here = place.chunk(2, dim=1)
            back = ((here - start)[..., None] * steps / TRIES).round().long()
            values = fine.gather(1, (here[..., None] - back).flatten(1)).view(back.shape)
            values = values.movedim(0, 2)
        else:
            share = steps / TRIES**power
            values = now[:, None] - (now - own)[:, None] * share[:, None]
        box = self.costs.batch.box
        lower, upper = (side[query][:, None, columns] for side in (box.lower, box.upper))
        divisions = self.actions.projection.divisions[columns]
        return (
            (values.clamp(lower, upper) * divisions).round_().div_(divisions).clamp_(lower, upper)
        )

    def _replace(
        self,
        rows: Tensor,
        cost: Tensor,
        at: Tensor,
        tried: Tensor,
        moved: Tensor,
        query: Tensor,
    ) -> Tensor:
        """Put the cheapest of `tried`, (at, tries, width), in the place of rows, if it is cheaper.

        `moved`: features that the search has moved, (at, features). Returns where it was, (at,).
        """
        count, tries, _ = tried.shape
        whose = query[at].repeat_interleave(tries)
        flat, fine = self.actions.lawful(
            tried.flatten(0, 1), whose, moved.repeat_interleave(tries, dim=0)
        )
        effort, implausibility = self.costs.terms(flat, whose)
        least = effort + implausibility.clamp_(min=0)
        may_win = fine & (least < cost[at].repeat_interleave(tries))
        may_win &= ((flat - self.costs.queries[whose]).abs() > SAME).any(dim=1)
        asked = may_win.nonzero()[:, 0]
        if not len(asked):
            return torch.zeros(count, dtype=torch.bool, device=at.device)
        found, some = torch.full_like(least, torch.inf), flat[asked]
        margin = self.costs.margin(some, whose[asked])
        found[asked] = self.costs.of_accepted(some, whose[asked], least[asked], margin)
        self.seen.count(whose[asked])
        best, place = found.view(count, tries).min(dim=1)
        better = best < cost[at]
        chosen = flat.view(count, tries, -1)[better, place[better]]
        rows[at[better]], cost[at[better]] = chosen, best[better]
        return better
