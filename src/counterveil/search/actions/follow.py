"""What goes along with a change: bills follow a limit, a month follows the month before.

A change by itself may leave a row that contradicts itself. So features that go together with those
an answer has moved follow, one at a time, as long as the row gains more in plausibility than the
change costs; what follows from another change costs little (see `costs.py`). The model is asked
about every row on the way.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from counterveil.search.actions.actions import Actions
from counterveil.search.actions.costs import BatchCosts
from counterveil.search.actions.seen import Seen

MOST = 6  # features that follow
WORTH = 0.02  # of J, that a change must save


@dataclass(frozen=True)
class Follow:
    """Takes note in `seen` of rows in which further features follow."""

    costs: BatchCosts
    actions: Actions
    seen: Seen

    def __call__(self, rows: Tensor, query: Tensor) -> None:
        """Let features follow in `rows` (rows, width) of the queries `query`, (rows,)."""
        people, context = self.costs.context.people, self.costs.context
        if people is None or not people.has_links or not len(rows):
            return
        menu, prices = self.actions.menu, context.prices
        assert prices is not None
        moved = self.actions.changed(rows, query)
        for turn in range(MOST + 1):
            cells, goals = people.cells(rows), self.costs.targets[query]
            effort, implausibility = self.costs.terms(rows, query)
            least = effort + implausibility.clamp(min=0)
            margin = self.costs.margin(rows, query)
            self.seen.count(query)
            self.seen.accept(rows, query, self.costs.of_accepted(rows, query, least, margin))
            if turn == MOST:
                return
            follows = people.follows(moved)[:, menu.feature]  # (rows, entries)
            field, own = people.field(cells, goals), cells[:, menu.feature]
            more = people.alone[goals[:, None], context.entry_cell] + field[:, context.entry_cell]
            more -= people.alone[goals[:, None], own] + field.gather(1, own)
            now = implausibility[:, None]
            saved = now.clamp(min=0) - (now - prices.implausible * more).clamp(min=0)
            price = self.costs.entry_effort[query] * (1 - follows) - saved
            open_ = self.actions.is_open[query] & (follows > 0) & ~moved[:, menu.feature]
            best, entry = price.masked_fill_(~open_, torch.inf).min(dim=1)
            at = (best < -WORTH).nonzero()[:, 0]
            if not len(at):
                return
            query, entry = query[at], entry[at]
            moved = moved[at] | (
                menu.feature[entry][:, None] == torch.arange(moved.shape[1]).to(entry)
            )
            rows, fine = self.actions.lawful(
                self.actions.take(rows[at], query, entry), query, moved
            )
            rows, query, moved = rows[fine], query[fine], moved[fine]
            if not len(rows):
                return
