"""Polish: give back to the query what an answer does not need. Few changes, small changes.

Two ways back, both taken only as far as the judge still accepts the row, which stays legal and
inside its box at every step:

- **give back**: whole parts (features, pixels) take the query's value again, in the order of how
  little the judge minds for the distance it saves, as many at once as it will bear;
- **pull**: numbers that remain changed move towards the query's.

Vectorised over the batch; rows with nothing left to give drop out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from counterveil.search.constraints import SAME, Box
from counterveil.search.snap import Snap

Gap = Callable[[Tensor, Tensor], Tensor]
ROUNDS = 2
EXACT = 64  # changed parts a row up to which each is tried by itself
LEVELS = 2  # how often the way of a number is split
SPLIT = 8  # places that are tried at once


@dataclass(frozen=True)
class Polishing:
    """What is asked of answers, and where they are drawn back to.

    `home`: the legal row of each box that is nearest to its query: mostly the query itself.
    `gap(points, targets)`: by how much the judge is for the target class; an answer stands from 0
    on. `slope(points, targets)`: the gradient of it, or of a guide's. `costs`: of each column.
    """

    home: Tensor
    targets: Tensor
    box: Box
    snap: Snap
    gap: Gap
    slope: Gap
    costs: Tensor | None = None

    def __call__(self, rows: Tensor, rounds: int = ROUNDS) -> Tensor:
        """`rows`, which the judge accepts, with as little changed as can be found."""
        rows = rows.clone()
        active = torch.arange(len(rows), device=rows.device)
        for _ in range(rounds):
            active = self._give_back(active, rows)
            if not len(active):
                break
        everyone = torch.arange(len(rows), device=rows.device)
        if bool(self._pull(everyone, rows)):
            self._give_back(everyone, rows)
        return rows

    @cached_property
    def _home_stands(self) -> Tensor:
        """Where the judge accepts even what the rows are drawn back to."""
        return self.gap(self.home, self.targets) >= 0

    def _give_back(self, numbers: Tensor, everything: Tensor) -> Tensor:
        """As many parts given back as the judge will bear, in the rows `numbers`; which changed."""
        home, rows = self.home[numbers], everything[numbers]
        saved = self.snap.squares_by_part(rows, home, self._costs(numbers))
        changed = saved > 0
        count = changed.sum(dim=1)
        # To give back the last part is to go home.
        can = (count > 1) | ((count == 1) & self._home_stands[numbers])
        able = int(can.sum())
        if able == 0:
            return numbers[:0]
        if able < len(can):
            numbers, rows, home = numbers[can], rows[can], home[can]
            saved, changed, count = saved[can], changed[can], count[can]
        most = int(count.max())
        harm = self._harm(numbers, rows, home, changed, exact=most <= EXACT)
        order = torch.where(changed, harm / saved.clamp(min=1e-12), torch.inf)
        rank = order.argsort(dim=1).argsort(dim=1)
        rank = torch.where(changed, rank, self.snap.parts)
        least = self._longest_prefix(numbers, rows, home, rank, most)
        given = (rank < least[:, None])[:, self.snap.part_of_column]
        everything[numbers] = torch.where(given, home, rows)
        return numbers[least > 0]

    def _longest_prefix(
        self, numbers: Tensor, rows: Tensor, home: Tensor, rank: Tensor, most: int
    ) -> Tensor:
        """How many parts, in order of rank, the judge lets go at once.

        Looked for among a few lengths at a time, and then between the last two.
        """
        low = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
        gap = most
        while gap > 0:
            step = -(-gap // SPLIT)
            tries = range(step, gap + 1, step)
            lengths = low[:, None] + torch.tensor([*tries], device=rows.device)
            given = (rank[:, None, :] < lengths[:, :, None])[:, :, self.snap.part_of_column]
            stands = self._stand(torch.where(given, home[:, None], rows[:, None]), numbers)
            low = torch.maximum(low, torch.where(stands, lengths, 0).amax(dim=1))
            gap = step - 1
        return low

    def _stand(self, tried: Tensor, numbers: Tensor) -> Tensor:
        """Which of several rows for each query the judge accepts: (queries, tries)."""
        count = tried.shape[1]
        targets = self.targets[numbers].repeat_interleave(count)
        return (self.gap(tried.flatten(0, 1), targets) >= 0).unflatten(0, (-1, count))

    def _harm(
        self, numbers: Tensor, rows: Tensor, home: Tensor, changed: Tensor, *, exact: bool
    ) -> Tensor:
        """How much of the gap is lost when a part is given back: by trying, or to first order."""
        targets = self.targets[numbers]
        harm = torch.zeros(changed.shape, device=rows.device)
        if not exact:
            lost_by_column = self.slope(rows, targets) * (rows - home)
            return harm.index_add_(1, self.snap.part_of_column, lost_by_column)
        row, part = changed.nonzero(as_tuple=True)
        given = self.snap.part_of_column[None, :] == part[:, None]
        tried = torch.where(given, home[row], rows[row])
        gaps = self.gap(torch.cat([rows, tried]), torch.cat([targets, targets[row]]))
        now, gap = gaps.split([len(rows), len(tried)])
        lost = now[row] - gap
        # What the judge refuses by itself comes last.
        harm[row, part] = torch.where(gap >= 0, lost, lost + 1e6)
        return harm

    def _pull(self, numbers: Tensor, everything: Tensor) -> Tensor:
        """Numbers moved towards the query's: all together, then the largest change by itself.

        Says whether any row changed.
        """
        far = self._far(everything)
        far_count = (far > SAME).sum(dim=1)
        numbers = numbers[far_count > 0]
        before = everything[numbers]
        if len(numbers):
            self._nearer(numbers, everything, self.snap.is_number.expand_as(before))
        several = numbers[far_count[numbers] > 1]
        if len(several):
            largest = self._far(everything)[several].argmax(dim=1, keepdim=True)
            only = torch.zeros_like(everything[several], dtype=torch.bool)
            self._nearer(several, everything, only.scatter_(1, largest, True))
        return (everything[numbers] != before).any()

    def _far(self, rows: Tensor) -> Tensor:
        return (rows - self.home).abs() * self.snap.is_number

    def _nearer(self, numbers: Tensor, everything: Tensor, columns: Tensor) -> None:
        """The marked columns as near to the query's as the judge will bear.

        A few shares of the way are tried at once, and then a few between the last two.
        """
        rows = everything[numbers]
        way = torch.where(columns, rows - self.home[numbers], 0.0)
        share = torch.ones(len(rows), 1, device=rows.device)
        kept, width = rows, 1.0
        grid = torch.arange(1, SPLIT, device=rows.device) / SPLIT
        box = self.box.select(numbers.repeat_interleave(SPLIT - 1))
        everyone = torch.arange(len(rows), device=rows.device)
        for _ in range(LEVELS):
            shares = share - width * (1 - grid)  # ascending: the first that stands is the nearest
            tried = rows[:, None] - (1 - shares)[:, :, None] * way[:, None]
            tried = self.snap(tried.flatten(0, 1), box).unflatten(0, (-1, SPLIT - 1))
            stands = self._stand(tried, numbers)
            first = torch.where(stands, 0, 1).argmin(dim=1)
            any_stands = stands.any(dim=1, keepdim=True)
            kept = torch.where(any_stands, tried[everyone, first], kept)
            share = torch.where(any_stands, shares.gather(1, first[:, None]), share)
            width /= SPLIT
        everything[numbers] = kept

    def _costs(self, numbers: Tensor) -> Tensor | None:
        costs = self.costs
        return costs if costs is None or len(costs) == 1 else costs[numbers]
