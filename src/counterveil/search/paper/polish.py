"""Polish: give back to the query what an answer does not need. Few changes, small changes.

Two ways back, as far as the model still accepts the row, which stays legal and inside its box:

- **give back**: whole parts (features, pixels) take the query's value again, as many at once as the
  model accepts, those first whose return costs little margin for the distance that it saves;
- **pull**: numbers that remain changed move towards the query's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from counterveil.search.constraints.bounds import SAME, Box
from counterveil.search.constraints.projection import Snap

OfRows = Callable[[Tensor, Tensor], Tensor]  # (rows, targets) -> something of each row
ROUNDS = 2  # of giving back
TRIED_SINGLY = 64  # changed parts of a row up to which each is tried by itself
LEVELS = 2  # how often the way of a number is split
SPLIT = 8  # places on the way that are tried at once
REFUSED = 1e6  # margin counted as lost where the model refuses the row without a part


@dataclass(frozen=True)
class Polish:
    """What answers are drawn back to, and what the model asks of them."""

    nearest_legal: Tensor  # of each query in its box, (queries, width); mostly the query itself
    targets: Tensor
    box: Box
    snap: Snap
    margin: OfRows  # how far the model accepts each row, from 0 on
    margin_gradient: OfRows  # the gradient of that margin or of a guide's, (rows, width)
    costs: Tensor | None = None  # of a change in each column, (queries, width)

    def __call__(self, accepted_rows: Tensor) -> Tensor:
        """`accepted_rows`, (queries, width), with as little changed as can be found."""
        rows = accepted_rows.clone()
        active = everyone = torch.arange(len(rows), device=rows.device)
        for _ in range(ROUNDS):
            active = self._give_back(active, rows)
            if not len(active):
                break
        if self._pull(everyone, rows):
            self._give_back(everyone, rows)
        return rows

    @cached_property
    def _start_is_accepted(self) -> Tensor:
        """Where the model accepts even what the rows are drawn back to."""
        return self.margin(self.nearest_legal, self.targets) >= 0

    def _give_back(self, indices: Tensor, all_rows: Tensor) -> Tensor:
        """Give back parts of the rows `indices`, in place; returns the indices that changed."""
        start, rows = self.nearest_legal[indices], all_rows[indices]
        costs = None if self.costs is None else self.costs[indices]
        saved = self.snap.squares_by_part(rows, start, costs)
        changed = saved > 0
        count = changed.sum(dim=1)
        # To give back the only changed part is to return to the start.
        able = (count > 1) | ((count == 1) & self._start_is_accepted[indices])
        if not bool(able.any()):
            return indices[:0]
        indices, rows, start = indices[able], rows[able], start[able]
        saved, changed, count = saved[able], changed[able], count[able]
        largest = int(count.max())
        lost = self._margin_lost(indices, rows, changed, singly=largest <= TRIED_SINGLY)
        order = torch.where(changed, lost / saved.clamp(min=1e-12), torch.inf)
        rank = order.argsort(dim=1).argsort(dim=1)
        rank = torch.where(changed, rank, self.snap.parts)
        given_back = self._longest_prefix(indices, rows, rank, largest)
        columns = (rank < given_back[:, None])[:, self.snap.part_of_column]
        all_rows[indices] = self._tied(torch.where(columns, start, rows), columns, indices)
        return indices[given_back > 0]

    def _tied(self, rows: Tensor, columns: Tensor, query: Tensor) -> Tensor:
        """`rows` of the queries `query`, in which marked columns were given back, with ties kept.

        Of a group that moves together all is given back.
        """
        if self.box.ties is None:
            return rows
        box = self.box.select(query)
        columns = box.with_groups(columns)
        return self.snap(torch.where(columns, self.nearest_legal[query], rows), box, columns)

    def _longest_prefix(self, indices: Tensor, rows: Tensor, rank: Tensor, largest: int) -> Tensor:
        """How many parts, in the order of their rank, the model lets go at once: (rows,)."""
        start = self.nearest_legal[indices]
        length = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
        unknown = largest  # a few lengths are tried at a time, then those between the last two
        while unknown > 0:
            step = -(-unknown // SPLIT)
            offsets = torch.arange(step, unknown + 1, step, device=rows.device)
            lengths = length[:, None] + offsets
            columns = (rank[:, None, :] < lengths[:, :, None])[:, :, self.snap.part_of_column]
            tried = torch.where(columns, start[:, None], rows[:, None])
            query = indices.repeat_interleave(len(offsets))
            legal = self._tied(tried.flatten(0, 1), columns.flatten(0, 1), query)
            accepted = self._accepted(legal.view_as(tried), indices)
            length = torch.maximum(length, torch.where(accepted, lengths, 0).amax(dim=1))
            unknown = step - 1
        return length

    def _accepted(self, tried: Tensor, indices: Tensor) -> Tensor:
        """Which of several rows for each query, (queries, tries, width), the model accepts."""
        tries = tried.shape[1]
        query = indices.repeat_interleave(tries)
        accepted = self.margin(tried.flatten(0, 1), self.targets[query]) >= 0
        if self.box.ties is not None:
            accepted &= self.box.select(query).ties_held(tried.flatten(0, 1))
        return accepted.unflatten(0, (-1, tries))

    def _margin_lost(self, indices: Tensor, rows: Tensor, changed: Tensor, singly: bool) -> Tensor:
        """Margin lost when a part is given back, (rows, parts): tried `singly`, or by gradient."""
        targets, start = self.targets[indices], self.nearest_legal[indices]
        lost = torch.zeros(changed.shape, device=rows.device)
        if not singly:
            lost_by_column = self.margin_gradient(rows, targets) * (rows - start)
            return lost.index_add_(1, self.snap.part_of_column, lost_by_column)
        row, part = changed.nonzero(as_tuple=True)
        columns = self.snap.part_of_column[None, :] == part[:, None]
        tried = self._tied(torch.where(columns, start[row], rows[row]), columns, indices[row])
        margins = self.margin(torch.cat([rows, tried]), torch.cat([targets, targets[row]]))
        before, after = margins.split([len(rows), len(tried)])
        difference = before[row] - after
        lost[row, part] = torch.where(after >= 0, difference, difference + REFUSED)
        return lost

    def _pull(self, indices: Tensor, all_rows: Tensor) -> bool:
        """Move numbers back in place, all, then the farthest alone; returns if any row changed."""
        how_many_away = (self._away(all_rows) > SAME).sum(dim=1)
        indices = indices[how_many_away > 0]
        before = all_rows[indices]
        if len(indices):
            self._move_back(indices, all_rows, self.snap.is_number.expand_as(before))
        several = indices[how_many_away[indices] > 1]
        if len(several):
            farthest = self._away(all_rows)[several].argmax(dim=1, keepdim=True)
            alone = torch.zeros_like(all_rows[several], dtype=torch.bool)
            self._move_back(several, all_rows, alone.scatter_(1, farthest, True))
        return bool((all_rows[indices] != before).any())

    def _away(self, rows: Tensor) -> Tensor:
        """How far each number is from the query's, (rows, width); 0 for all other columns."""
        return (rows - self.nearest_legal).abs() * self.snap.is_number

    def _on_the_way(self, indices: Tensor, rows: Tensor, way: Tensor, back: Tensor) -> Tensor:
        """Legal rows with shares `back`, (queries, tries), of the `way` of numbers gone back.

        `rows` and `way` are (queries, width), the result is (queries, tries, width).
        """
        if self.box.ties is not None:
            box = self.box.select(indices.repeat_interleave(back.shape[1]))
            tried = rows[:, None] - back[:, :, None] * way[:, None]
            return self.snap(tried.flatten(0, 1), box).unflatten(0, (-1, back.shape[1]))
        columns = self.snap.is_number.nonzero()[:, 0]
        lower, upper = (
            side[indices][:, None, columns] for side in (self.box.lower, self.box.upper)
        )
        here, moves = rows[:, None, columns], way[:, None, columns]
        legal = self.snap.numbers(here - back[:, :, None] * moves, columns, lower, upper)
        tried = rows[:, None].repeat(1, back.shape[1], 1)
        tried[:, :, columns] = torch.where(moves == 0, here, legal)
        return tried

    def _move_back(self, indices: Tensor, all_rows: Tensor, columns: Tensor) -> None:
        """Put the marked columns as near to the query's as the model accepts, in place.

        A few shares of the way are tried at once, and then a few between the last two.
        """
        rows = all_rows[indices]
        way = torch.where(columns, rows - self.nearest_legal[indices], 0.0)
        share = torch.ones(len(rows), 1, device=rows.device)
        kept, width = rows, 1.0
        grid = torch.arange(1, SPLIT, device=rows.device) / SPLIT
        everyone = torch.arange(len(rows), device=rows.device)
        for _ in range(LEVELS):
            # Ascending: the first share that is accepted is the nearest to the query.
            shares = share - width * (1 - grid)
            tried = self._on_the_way(indices, rows, way, 1 - shares)
            accepted = self._accepted(tried, indices)
            first = torch.where(accepted, 0, 1).argmin(dim=1)
            any_accepted = accepted.any(dim=1, keepdim=True)
            kept = torch.where(any_accepted, tried[everyone, first], kept)
            share = torch.where(any_accepted, shares.gather(1, first[:, None]), share)
            width /= SPLIT
        all_rows[indices] = kept
