"""What goes along with a change: bills follow a limit, a month follows the month before.

A change by itself may leave a row that contradicts itself. So features that go together with those
an answer has moved follow, one at a time, as long as the row gains more in plausibility than the
change costs; what follows from another change costs little (see `costs.py`). The model is asked
about every row on the way.
"""

from __future__ import annotations

import torch
from torch import Tensor

from counterveil.search.actions.actions import Actions
from counterveil.search.actions.costs import BatchCosts
from counterveil.search.actions.seen import Seen

MOST = 6  # features that follow
WORTH = 0.02  # of J, that a change must save


def follow(costs: BatchCosts, actions: Actions, seen: Seen, rows: Tensor, query: Tensor) -> None:
    """Let features follow in `rows` (rows, width) of the queries `query`, noted in `seen`."""
    people, prices, menu = costs.context.people, costs.context.prices, actions.menu
    if people is None or prices is None or not people.has_links:
        return
    moved = actions.changed(rows, query)
    for turn in range(MOST + 1):
        if not len(rows):
            return
        effort, implausibility = costs.terms(rows, query)
        seen.ask(costs, rows, query, effort + implausibility.clamp(min=0))
        if turn == MOST:
            return
        cells, goals, entry_cell = (
            people.cells(rows),
            costs.targets[query],
            costs.context.of_entries[2],
        )
        follows = people.follows(moved)[:, menu.feature]  # (rows, entries)
        field, own = people.field(cells, goals), cells[:, menu.feature]
        more = people.alone[goals[:, None], entry_cell] + field[:, entry_cell]
        more -= people.alone[goals[:, None], own] + field.gather(1, own)
        now = implausibility[:, None]
        saved = now.clamp(min=0) - (now - prices.implausible * more).clamp(min=0)
        price = costs.entry_effort[query] * (1 - follows) - saved
        open_ = actions.is_open[query] & (follows > 0) & ~moved[:, menu.feature]
        best, entry = price.masked_fill_(~open_, torch.inf).min(dim=1)
        at = (best < -WORTH).nonzero()[:, 0]
        query, entry, moved = query[at], entry[at], moved[at] | actions.moved(entry[at])
        rows, fine = actions.lawful(actions.take(rows[at], query, entry), query, moved)
        rows, query, moved = rows[fine], query[fine], moved[fine]
