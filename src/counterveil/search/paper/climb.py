"""Climb: change one feature after the other to whatever value the model likes best.

The last resort of the search for the nearest. It follows no gradient, so it finds its way where a
model is flat between steps, and what a dozen features add up to is found for sure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from counterveil.networks import numbers_at_once
from counterveil.search.paper.scan import ONE_OF_MANY, Scan

PLACES = 24  # of a number that are tried, from its lower to its upper bound
GAINS = 1e-6  # log-odds: less is no gain
MOST_CHANGES = 12  # nobody could follow more


@dataclass(frozen=True)
class Climb:
    """For queries of a batch that nothing else has found an answer to.

    `single`: what single features may do. `margin`: how far the model is beyond what is asked of
    rows, given the query of each: (rows, width) and (rows,) to (rows,); accepted from 0 on.
    `most_changes`: how many features may change, (queries,); None for any number.
    """

    single: Scan
    margin: Callable[[Tensor, Tensor], Tensor]
    most_changes: Tensor | None = None

    def __call__(self) -> Tensor:
        """Legal rows, (queries, width): as far as the model could be brought."""
        rows = self.single.start.clone()
        everyone = torch.arange(len(rows), device=rows.device)
        reached = self.margin(rows, everyone)
        going = reached < 0
        for change in range(1, MOST_CHANGES + 1):
            if self.most_changes is not None:
                going &= self.most_changes >= change
            before = reached.clone()
            for query in everyone[going].split(self._at_once):
                self._step(rows, reached, query)
            going &= (reached > before + GAINS) & (reached < 0)
            if not bool(going.any()):
                break
        return rows

    @property
    def _at_once(self) -> int:
        width = max(1, self.single.start.shape[1])
        tried = width + PLACES * int(self.single.snap.is_number.sum())
        return max(1, numbers_at_once(self.single.start.device) // (width * tried))

    def _step(self, rows: Tensor, reached: Tensor, queries: Tensor) -> None:
        """The best single change of each of `queries`, in place."""
        query, column, value = self._candidates(rows, queries)
        if not len(query):
            return
        points = rows[query]
        points[torch.arange(len(query), device=query.device), column] = value
        tried = self.single.snap(points, self.single.box.select(query))
        margins = self.margin(tried, query)
        best = reached.clone().scatter_reduce_(0, query, margins, "amax")
        winner = (margins == best[query]) & (margins > reached[query])
        rows[query[winner]] = tried[winner]
        reached[queries] = best[queries]

    def _candidates(self, rows: Tensor, queries: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Whose they are, the column that changes, and its value: (candidates,) each.

        Features that have changed already stay.
        """
        single, box = self.single, self.single.box.select(queries)
        here, start = rows[queries], single.start[queries]
        changed = single.snap.squares_by_part(here, start)[:, single.snap.part_of_column] > 0
        categories, bits = single.listed
        closed = changed | single.missing[queries]
        open_ones = categories & (here < 0.5) & (box.upper > 0.5) & ~changed
        open_bits = bits & (box.upper > box.lower) & ~closed
        numbers = single.snap.is_number & (box.upper > box.lower) & ~closed
        row, column = open_ones.nonzero(as_tuple=True)
        bit_row, bit = open_bits.nonzero(as_tuple=True)
        number_row, number = numbers.nonzero(as_tuple=True)
        low, high = box.lower[number_row, number], box.upper[number_row, number]
        shares = torch.arange(PLACES + 1, device=rows.device) / PLACES
        places = low[:, None] + (high - low)[:, None] * shares
        chosen = torch.full((len(row),), ONE_OF_MANY, device=rows.device)
        values = [chosen, 1 - here[bit_row, bit], places.flatten()]
        whose = [row, bit_row, number_row.repeat_interleave(PLACES + 1)]
        columns = [column, bit, number.repeat_interleave(PLACES + 1)]
        return queries[torch.cat(whose)], torch.cat(columns), torch.cat(values)
