"""Scan: change one feature alone, and see whether the model accepts a smaller change.

A search that follows gradients and gives back whole features may overlook that a little more of one
feature would have done. Every number is moved either way, by shares of the distance of the answer
so far, and then between the last two shares; every category and bit is tried that would be nearer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from counterveil.encoding import Encoding
from counterveil.networks import numbers_at_once
from counterveil.search.constraints.bounds import SAME, Box
from counterveil.search.constraints.projection import Snap

STEPS = 96  # of the whole way of a number: a shorter way has fewer
LEAST_STEPS = 8  # of any way, and of the step before the first accepted one
ROUNDS = 3
CLEARLY = 1e-6  # of a squared distance: less is no gain
ONE_OF_MANY = 2.0  # beyond the unit cube: the category that a legal row then has


@dataclass(frozen=True)
class Scan:
    """What single features may do for a batch of queries.

    `start`: the legal row nearest to each query, (queries, width). `accepts`: which of some rows
    the model accepts, given the query of each: (rows, width) and (rows,) to bool (rows,).
    """

    encoding: Encoding
    snap: Snap
    start: Tensor
    box: Box
    accepts: Callable[[Tensor, Tensor], Tensor]
    costs: Tensor | None = None

    def __call__(self, rows: Tensor, accepted: Tensor) -> tuple[Tensor, Tensor]:
        """`rows`, or a change of one feature that is nearer; and where there is any answer."""
        best = torch.where(accepted, self._squares(rows, slice(None)), torch.inf)
        nearest = rows.clone()
        tried = 2 * int(self.snap.is_number.sum()) * STEPS // 4  # a query; most ways are short
        size = max(1, numbers_at_once(rows.device) // max(1, tried * self.start.shape[1]))
        for part in torch.arange(len(rows), device=rows.device).split(size):
            self._try_listed(part, best, nearest)
            self._try_numbers(part, best, nearest)
        return nearest, best.isfinite()

    @cached_property
    def listed(self) -> tuple[Tensor, Tensor]:
        """Which columns are categories, and which are bits of their own."""
        categories = torch.zeros(self.encoding.width, dtype=torch.bool)
        bits = ~self.snap.is_number.cpu()
        derived = {link.derived for link in self.encoding.schema.links}
        for block in self.encoding.blocks:
            if block.feature.one_hot:
                categories[block.categories] = block.feature.name not in derived
            if block.feature.one_hot or block.feature.name in derived:
                bits[block.at] = False
            if block.missing_flag is not None:
                bits[block.missing_flag] = False
        return categories.to(self.start.device), bits.to(self.start.device)

    @cached_property
    def missing(self) -> Tensor:
        """Which numbers of each query are missing, (queries, width): they stay so."""
        flags = [b.missing_flag for b in self.encoding.blocks if b.missing_flag is not None]
        missing = torch.zeros_like(self.start, dtype=torch.bool)
        missing[:, [flag - 1 for flag in flags]] = self.start[:, flags] > 0.5
        return missing

    def _try_listed(self, part: Tensor, best: Tensor, nearest: Tensor) -> None:
        """Every category and bit of the queries `part` that would be nearer, in place."""
        start, upper, lower = self.start[part], self.box.upper[part], self.box.lower[part]
        categories, bits = self.listed
        cost = self._costs(part)
        length = torch.where(categories, 2.0, 1.0) * cost
        other = (categories & (start < 0.5) & (upper > 0.5)) | (bits & (upper > lower))
        row, column = (other & (length < best[part, None])).nonzero(as_tuple=True)
        values = torch.where(categories[column], ONE_OF_MANY, 1 - start[row, column])
        query = part[row]
        points = self.start[query]
        points[torch.arange(len(query), device=query.device), column] = values
        self._keep_nearer_rows(points, query, best, nearest)

    def _try_numbers(self, part: Tensor, best: Tensor, nearest: Tensor) -> None:
        """Every number of the queries `part`, up and down, in place."""
        columns = self.snap.is_number.nonzero()[:, 0]
        start, cost = self.start[part][:, columns], self._costs(part)[:, columns]
        room = torch.stack(
            [self.box.upper[part][:, columns] - start, start - self.box.lower[part][:, columns]]
        )
        reach = (best[part, None] / cost).sqrt()
        high = torch.where(self.missing[part][:, columns], 0.0, torch.minimum(room, reach))
        low = torch.zeros_like(high)
        for turn in range(ROUNDS):
            reach = (best[part, None] / cost).sqrt()
            side, row, number = ((high - low > SAME) & (low < reach)).nonzero(as_tuple=True)
            if not len(row):
                return
            near, far = low[side, row, number], high[side, row, number]
            steps = (far * STEPS).ceil().clamp(min=LEAST_STEPS) if turn == 0 else LEAST_STEPS
            step = (far - near) / steps
            ways = near[:, None] + step[:, None] * self._counted(step, far - near)
            sign = torch.where(side == 0, 1.0, -1.0)
            place = torch.round(ways * self.snap.divisions[columns[number], None])
            fine = place > torch.nn.functional.pad(place, (1, 0))[:, :-1]  # no place twice
            fine &= ways < far[:, None] + step[:, None] / 2
            way, _ = fine.nonzero(as_tuple=True)
            query, column = part[row[way]], columns[number[way]]
            value = self.start[query, column] + sign[way] * ways[fine]
            fine[fine.clone()] = self._keep_nearer_values(query, column, value, best, nearest)
            first = torch.where(fine, 0, 1).argmin(dim=1)
            stop = ways.gather(1, first[:, None])[:, 0]
            high[side, row, number] = torch.where(fine.any(dim=1), stop, 0.0)
            low[side, row, number] = stop - step

    @staticmethod
    def _counted(step: Tensor, way: Tensor) -> Tensor:
        """1, 2, … up to the most steps of any way."""
        return torch.arange(1, int((way / step).round().max()) + 1, device=step.device)

    def _keep_nearer_values(
        self, query: Tensor, column: Tensor, value: Tensor, best: Tensor, nearest: Tensor
    ) -> Tensor:
        """Which `value` of a number in `column` is nearer and accepted, made legal: (values,).

        `best` and `nearest` change in place. No other column changes unless features are tied.
        """

        def rows_at(chosen: Tensor | slice) -> Tensor:
            rows = self.start[query[chosen]]
            rows[torch.arange(len(rows), device=rows.device), column[chosen]] = value[chosen]
            return rows

        if self.box.ties is not None:
            return self._keep_nearer_rows(rows_at(slice(None)), query, best, nearest)
        lower, upper = self.box.lower[query, column], self.box.upper[query, column]
        value = self.snap.numbers(value, column, lower, upper)
        square = (value - self.start[query, column]) ** 2
        square = torch.where(square > SAME**2, square, 0.0)
        square = square if self.costs is None else square * self.costs[query, column]
        return self._keep_nearer(query, square, rows_at, best, nearest)

    def _keep_nearer_rows(
        self, points: Tensor, query: Tensor, best: Tensor, nearest: Tensor
    ) -> Tensor:
        """The same of whole `points`, (points, width)."""
        box = self.box.select(query)
        rows = self.snap(points, box)
        squares = self._squares(rows, query)
        if box.ties is not None:
            squares = torch.where(box.ties_held(rows), squares, torch.inf)
        return self._keep_nearer(query, squares, rows.__getitem__, best, nearest)

    def _keep_nearer(
        self,
        query: Tensor,
        squares: Tensor,
        rows_at: Callable[[Tensor], Tensor],
        best: Tensor,
        nearest: Tensor,
    ) -> Tensor:
        """Which changes, of these squared lengths, are nearer and accepted: (changes,).

        `rows_at`: the legal rows of some of them. Of those equally near the last is kept.
        """
        fine = squares < best[query] * (1 - CLEARLY)
        chosen = fine.nonzero()[:, 0]
        if len(chosen):
            fine[chosen] = self.accepts(rows_at(chosen), query[chosen])
        squares = torch.where(fine, squares, torch.inf)
        best.scatter_reduce_(0, query, squares, "amin")
        nearest_of = (fine & (squares == best[query])).nonzero()[:, 0]
        last = torch.full(best.shape, -1, device=best.device)
        last.scatter_reduce_(0, query[nearest_of], nearest_of, "amax")
        kept = last[last >= 0]
        nearest[query[kept]] = rows_at(kept)
        return fine

    def _squares(self, rows: Tensor, query: Tensor | slice) -> Tensor:
        costs = None if self.costs is None else self.costs[query]
        return self.snap.squares_by_part(rows, self.start[query], costs).sum(dim=1)

    def _costs(self, part: Tensor) -> Tensor:
        return torch.ones_like(self.start[part]) if self.costs is None else self.costs[part]
