"""From anywhere in the unit cube to the nearest legal row: what leaves the search is always legal.

One category for each categorical feature, whole numbers where the schema says so, inside the box
of the query's constraints. Vectorised over all rows and features at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from counterveil.encoding import MISSING_VALUE, Encoding
from counterveil.schema import Binary, Categorical, Numeric, Pixels
from counterveil.search.constraints import Box

_CLOSED = -torch.inf


class Snap:
    """The legal rows of one schema."""

    def __init__(self, encoding: Encoding, device: torch.device | None = None) -> None:
        steps = torch.zeros(encoding.width)  # grid points a unit; 0 is a continuum
        groups: list[range] = []
        flags: list[int] = []
        for block in encoding.blocks:
            feature = block.feature
            if isinstance(feature, Categorical):
                groups.append(range(block.start, block.stop))
            elif isinstance(feature, Numeric):
                steps[block.start] = (feature.upper - feature.lower) * feature.integer
                if feature.missing:
                    steps[block.start + 1] = 1
                    flags.append(block.start + 1)
            elif isinstance(feature, (Binary, Pixels)):
                steps[block.at] = 1 if isinstance(feature, Binary) else feature.levels
        self._gridded = (steps > 0).nonzero()[:, 0].to(device)
        self._steps = steps.to(device)[self._gridded]
        self._flags = torch.tensor(flags, dtype=torch.long, device=device)
        widest = max((len(group) for group in groups), default=0)
        self._groups = torch.full((len(groups), widest), encoding.width, device=device)
        for number, group in enumerate(groups):
            self._groups[number, : len(group)] = torch.tensor(list(group), device=device)
        real = self._groups < encoding.width
        self._categories = self._groups[real]
        self._group_of = real.nonzero()[:, 0]  # the group of each of the categories
        self._is_category = torch.zeros(encoding.width, dtype=torch.bool, device=device)
        self._is_category[self._categories] = True
        self._is_number = ~self._is_category
        self._is_number[self._gridded[self._steps == 1]] = False

    def __call__(self, points: Tensor, box: Box) -> Tensor:
        """The legal rows nearest to `points` inside `box`."""
        rows = box.project(points)
        if len(self._gridded):
            rows[:, self._gridded] = (rows[:, self._gridded] * self._steps).round() / self._steps
            rows = box.project(rows)  # exact bounds again where rounding was off by a float's width
        if len(self._groups):
            open_points = torch.where(box.upper > 0.5, points, _CLOSED)
            padded = torch.nn.functional.pad(open_points, (0, 1), value=_CLOSED)
            winner = padded[:, self._groups].argmax(dim=2, keepdim=True)
            chosen = self._groups.expand(len(rows), -1, -1).gather(2, winner)[:, :, 0]
            rows[:, self._categories] = 0
            rows.scatter_(1, chosen, 1.0)
        if len(self._flags):
            missing = rows[:, self._flags] > 0.5
            values = rows[:, self._flags - 1]
            rows[:, self._flags - 1] = torch.where(missing, MISSING_VALUE, values)
        return rows

    def best_move(
        self, rows: Tensor, slope: Tensor, box: Box, moved: Tensor, stride: float
    ) -> tuple[Tensor, Tensor]:
        """Legal `rows` with one feature each moved uphill: where `slope` promises the most.

        `moved` marks bits and categories that may not be moved again, so that nothing goes in
        circles; it is returned with the new ones. A number may move on.
        """
        reach = torch.full_like(rows, stride)
        reach[:, self._gridded] = torch.maximum(reach[:, self._gridded], 1 / self._steps)
        up, down = torch.minimum(box.upper - rows, reach), torch.minimum(rows - box.lower, reach)
        change = torch.where(slope > 0, up, -down)
        gain = slope * change
        if len(self._groups):
            members = torch.nn.functional.pad(slope * rows, (0, 1))[:, self._groups].sum(dim=2)
            now = torch.zeros_like(rows)
            now[:, self._categories] = members[:, self._group_of]
            is_open = (box.upper > 0.5) & (rows < 0.5)
            category_gain = torch.where(is_open, slope - now, -torch.inf)
            gain[:, self._categories] = category_gain[:, self._categories]
        if len(self._flags):  # a missing value is left to the latent search
            gain[:, self._flags] = -torch.inf
            gain[:, self._flags - 1] = torch.where(
                rows[:, self._flags] > 0.5, -torch.inf, gain[:, self._flags - 1]
            )
        gain = torch.where(moved | (gain <= 0), -torch.inf, gain)
        best, column = gain.max(dim=1)
        can = best.isfinite()
        number = torch.arange(len(rows), device=rows.device)[can]
        column = column[can]
        points = rows.clone()
        points[number, column] += change[number, column]
        if len(self._groups):
            points[number, column] = torch.where(
                self._is_category[column], 2.0, points[number, column]
            )
        moved = moved.clone()
        moved[number, column] = ~self._is_number[column]
        return self(points, box), moved

    def broken(self, rows: Tensor, box: Box) -> Tensor:
        """Which `rows` are not legal or leave their box: the post-condition of every answer."""
        slack = 1e-5
        wrong = (rows < box.lower - slack) | (rows > box.upper + slack)
        if len(self._gridded):
            scaled = rows[:, self._gridded] * self._steps
            off_grid = (scaled - scaled.round()).abs() > slack * self._steps.clamp(min=1)
            wrong[:, self._gridded] |= off_grid
        if len(self._flags):  # a missing value rests at 1/2, outside ranges and off every grid
            missing, values = rows[:, self._flags] > 0.5, rows[:, self._flags - 1]
            at_rest = missing & (values == MISSING_VALUE)
            wrong[:, self._flags - 1] = torch.where(missing, ~at_rest, wrong[:, self._flags - 1])
        wrong = wrong.any(dim=1)
        if len(self._groups):
            members = torch.nn.functional.pad(rows, (0, 1))[:, self._groups]
            wrong |= (members.sum(dim=2) != 1).any(dim=1) | (members.amax(dim=2) != 1).any(dim=1)
        return wrong | ~rows.isfinite().all(dim=1)
