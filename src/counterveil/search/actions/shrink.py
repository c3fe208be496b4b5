"""The last step: answers give back what they do not need, and numbers move back to the query's.

One feature of every answer after the other: a few values between the query's own and the answer's
are tried, the model is asked about each, and the cheapest row is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from counterveil.search.actions.actions import Actions
from counterveil.search.actions.beam import Seen
from counterveil.search.actions.costs import BatchCosts
from counterveil.search.constraints.bounds import SAME

TRIES = 8  # values of a number at a time
ROUNDS = 3  # of tries between the last two, for the nearest answers


@dataclass(frozen=True)
class Shrink:
    """Makes answers cheaper; `seen` counts the rows that the model is asked about."""

    costs: BatchCosts
    actions: Actions
    seen: Seen

    def __call__(self, rows: Tensor, query: Tensor, cost: Tensor) -> tuple[Tensor, Tensor]:
        """Cheaper answers and their costs; `rows` (rows, width) are accepted, `query` whose."""
        rounds = 1 if self.costs.believable else ROUNDS
        for number in range(rounds):
            before = cost
            rows, cost = self._numbers(rows, query, cost)
            if number and bool((cost > 0.999 * before).all()):
                break
        return rows, cost

    def give_back(self, rows: Tensor, query: Tensor, cost: Tensor) -> tuple[Tensor, Tensor]:
        """Answers without the changes that they do not need, and their costs."""
        changed = self.actions.changed(rows, query)
        for feature, who in _in_turn(changed):
            columns = self._columns(feature)
            tried = torch.where(columns, self.costs.queries[query[who]], rows[who])
            moved = self.actions.changed(tried, query[who])
            rows, cost = self._cheapest(rows, cost, tried[:, None], moved, query, who)
        return rows, cost

    def _columns(self, feature: Tensor) -> Tensor:
        projection = self.actions.projection
        mask = torch.nn.functional.one_hot(feature, self.actions.features).bool()
        return projection.columns_of_features(mask)

    def _numbers(self, rows: Tensor, query: Tensor, cost: Tensor) -> tuple[Tensor, Tensor]:
        """Every changed number in turn, as near to the query's as is cheapest."""
        changed = self.actions.changed(rows, query) & self.actions.menu.number_features
        for feature, who in _in_turn(changed):
            whose, column = query[who], self.actions.menu.first_column[feature]
            now = rows[who].gather(1, column[:, None])[:, 0]
            own = self.costs.queries[whose].gather(1, column[:, None])[:, 0]
            values = self._values(feature, column, own, now, whose)
            tried = rows[who][:, None].repeat(1, values.shape[1], 1)
            tried.scatter_(
                2, column[:, None, None].expand(-1, values.shape[1], 1), values[..., None]
            )
            moved = self.actions.changed(rows[who], whose)
            rows, cost = self._cheapest(rows, cost, tried, moved, query, who)
        return rows, cost

    def _values(
        self, feature: Tensor, column: Tensor, own: Tensor, now: Tensor, query: Tensor
    ) -> Tensor:
        """Legal values of a number between the query's and the answer's, (rows, tries)."""
        lower = self.costs.batch.box.lower[query].gather(1, column[:, None])
        upper = self.costs.batch.box.upper[query].gather(1, column[:, None])
        steps = torch.arange(TRIES, device=own.device)
        if self.costs.believable:
            fine = self.costs.context.menu.fine[feature]
            here = torch.searchsorted(fine, now[:, None]).clamp(max=fine.shape[1] - 1)
            start = torch.searchsorted(fine, own[:, None]).clamp(max=fine.shape[1] - 1)
            place = start + ((here - start) * steps / TRIES).round().long()
            values = fine.gather(1, place)
        else:
            values = own[:, None] + (now - own)[:, None] * steps / TRIES
        projection = self.actions.projection
        divisions = projection.divisions[column][:, None]
        legal = (values.clamp(lower, upper) * divisions).round() / divisions
        return legal.clamp(lower, upper)

    def _cheapest(
        self,
        rows: Tensor,
        cost: Tensor,
        tried: Tensor,
        moved: Tensor,
        query: Tensor,
        who: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The rows, those of `who` replaced by the cheapest of `tried`, (who, tries, width)."""
        count, tries, _ = tried.shape
        whose = query[who].repeat_interleave(tries)
        flat, fine = self.actions.lawful(
            tried.flatten(0, 1), whose, moved.repeat_interleave(tries, dim=0)
        )
        effort, implausibility = self.costs.terms(flat, whose)
        least = effort + implausibility.clamp(min=0)
        may_win = fine & (least < cost[who].repeat_interleave(tries))
        differs = ((flat - self.costs.queries[whose]).abs() > SAME).any(dim=1)
        at = (may_win & differs).nonzero()[:, 0]
        if not len(at):
            return rows, cost
        found, margin = torch.full_like(least, torch.inf), self.costs.margin(flat[at], whose[at])
        found[at] = self.costs.of_accepted(flat[at], whose[at], least[at], margin)
        self.seen.count(whose[at])
        best, place = found.reshape(count, tries).min(dim=1)
        better = best < cost[who]
        rows, cost = rows.clone(), cost.clone()
        flat = flat.reshape(count, tries, -1)
        rows[who[better]] = flat[better, place[better]]
        cost[who[better]] = best[better]
        return rows, cost


def _in_turn(changed: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The first changed feature of each row, then the second, and so on, with the rows that have.

    `changed`: (rows, features).
    """
    rank = changed.cumsum(dim=1) * changed
    found = []
    for turn in range(1, int(rank.amax()) + 1 if rank.numel() else 1):
        who = (rank == turn).any(dim=1).nonzero()[:, 0]
        found.append(((rank[who] == turn).int().argmax(dim=1), who))
    return found
