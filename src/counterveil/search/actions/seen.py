"""What a search has found for each query so far."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from counterveil.search.actions.costs import BatchCosts


@dataclass
class Seen:
    """What was found for each query so far.

    `rows`, `cost`: the cheapest accepted row, (queries, width) and (queries,); the cost is infinite
    without one. `surest`, `margin`: the row with the largest margin of those without an answer.
    `asked`: rows that the model was asked about. `accepted`: where several answers are wanted, all
    accepted rows: query, row, cost.
    """

    rows: Tensor
    cost: Tensor
    surest: Tensor
    margin: Tensor
    asked: Tensor
    several: bool = False
    accepted: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)

    @classmethod
    def nothing(cls, queries: Tensor, margin: Tensor, several: bool) -> Seen:
        """Nothing was found yet, and the model was asked about the queries alone."""
        never = torch.full_like(margin, torch.inf)
        asked = torch.ones(len(queries), dtype=torch.long, device=queries.device)
        return cls(queries.clone(), never, queries.clone(), margin.clone(), asked, several)

    def ask(self, costs: BatchCosts, rows: Tensor, query: Tensor, least: Tensor) -> Tensor:
        """Ask the model about rows that cost at least so much; their margins, (rows,)."""
        margin = costs.margin(rows, query)
        self.count(query)
        self.accept(rows, query, costs.of_accepted(rows, query, least, margin))
        return margin

    def count(self, query: Tensor) -> None:
        self.asked.index_add_(0, query, torch.ones_like(query))

    def accept(self, rows: Tensor, query: Tensor, cost: Tensor) -> None:
        """Take note of rows (rows, width), whose they are and what they cost."""
        fine = cost.isfinite().nonzero()[:, 0]
        if not len(fine):
            return
        rows, query, cost = rows[fine], query[fine], cost[fine]
        if self.several:
            self.accepted.append((query, rows, cost))
        self.cost, better = least_of_each(self.cost, query, cost)
        self.rows[query[better]] = rows[better]

    def look(self, rows: Tensor, query: Tensor, margin: Tensor) -> None:
        """Keep the surest of rows (rows, width) by their margins."""
        least, better = least_of_each(-self.margin, query, -margin)
        self.surest[query[better]] = rows[better]
        self.margin = -least

    @property
    def answered(self) -> Tensor:
        return self.cost.isfinite()


def least_of_each(so_far: Tensor, query: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """The least value of each query, (queries,), and the numbers of rows that have a new least one.

    `so_far`: (queries,); `value`: of rows, (rows,), `query`: whose they are. Of rows with the same
    value the first counts: two that are written into one place at once would be mixed.
    """
    least = so_far.scatter_reduce(0, query, value, "amin")
    at = ((value == least[query]) & (value < so_far[query])).nonzero()[:, 0]
    first = query.new_full((len(so_far),), len(value))
    first.scatter_reduce_(0, query[at], at, "amin")
    return least, first[first < len(value)]
