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
        self._categories = self._groups[self._groups < encoding.width]

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
