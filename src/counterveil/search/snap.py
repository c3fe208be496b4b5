"""From anywhere in the unit cube to the nearest legal row: what leaves the search is always legal.

One category for each categorical feature, whole numbers where the schema says so, linked features
together, inside the box of the query's constraints. Vectorised over all rows and features at once,
without a decision that waits for a value: it compiles as one piece.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from counterveil.encoding import MISSING_VALUE, Encoding
from counterveil.schema import Binary, Categorical, Numeric, Pixels
from counterveil.search.constraints import Box, Tie, ties

SHORT = 0.05  # moves below this do not count as shorter
_CONTINUUM = 2.0**100  # steps a unit: rounding to them changes no float that matters
_FAR, _FARTHER = 1e30, 3e38  # a point is at most this far out; a closed category is farther
_PADDING = 4  # groups are looked at together up to this ratio of their sizes


class Snap:
    """The legal rows of one schema.

    `part_of_column`: which of the `parts` each column belongs to; parts are the smallest things
    that can be given back to the query by themselves: a feature with all its columns, features
    that are linked together, a pixel. `feature_of_part` says which feature changes with a part; of
    linked ones the source. `is_number`: the columns with numbers that may move by themselves.
    """

    def __init__(self, encoding: Encoding, device: torch.device | None = None) -> None:
        steps = torch.full((encoding.width,), _CONTINUUM)  # grid points a unit
        groups: list[range] = []
        flags: list[int] = []
        for block in encoding.blocks:
            feature = block.feature
            if isinstance(feature, Categorical):
                steps[block.at] = 1
                groups.append(range(block.start, block.stop))
            elif isinstance(feature, Numeric):
                if feature.integer:
                    steps[block.start] = feature.upper - feature.lower
                if feature.missing:
                    steps[block.start + 1] = 1
                    flags.append(block.start + 1)
            elif isinstance(feature, (Binary, Pixels)):
                steps[block.at] = 1 if isinstance(feature, Binary) else feature.levels
        columns = [column for group in groups for column in group]
        group_of = [number for number, group in enumerate(groups) for _ in group]
        self._steps = steps.to(device)
        self._flags = torch.tensor(flags, dtype=torch.long, device=device)
        self._values = self._flags - 1
        self._half = torch.tensor(MISSING_VALUE, device=device)
        self._categories = torch.tensor(columns, dtype=torch.long, device=device)
        self._group_of = torch.tensor(group_of, dtype=torch.long, device=device)
        self._group_count = len(groups)
        self._contests = tuple(_contests(groups, device))
        self._ties = tuple(
            Tie(tie.source, tie.derived, tie.table.to(device)) for tie in ties(encoding)
        )
        self._is_category = torch.zeros(encoding.width, dtype=torch.bool, device=device)
        self._is_category[self._categories] = True
        self._not_category = (~self._is_category).float()
        self.is_number = self._steps != 1
        for tie in self._ties:
            self.is_number[tie.derived] = False
        part_of_column, feature_of_part = _parts(encoding)
        self.parts = len(feature_of_part)
        self.part_of_column = torch.tensor(part_of_column, device=device)
        self.feature_of_part = torch.tensor(feature_of_part, device=device)

    def __call__(self, points: Tensor, box: Box) -> Tensor:
        """The legal rows nearest to `points` inside `box`."""
        rows = box.project(points)
        rows.mul_(self._steps).round_().div_(self._steps)
        # Exact bounds again where rounding was off by a float's width.
        rows.clamp_(box.lower, box.upper)
        if self._contests:
            # Arithmetic instead of a mask: comparing is what costs here.
            far = points.clamp(-_FAR, _FAR).add_(box.upper - 1, alpha=_FARTHER)
            rows.mul_(self._not_category)
            for contest in self._contests:
                rows.scatter_(1, contest.winners(far), 1.0)
        if len(self._flags):
            missing = rows.index_select(1, self._flags)
            values = torch.lerp(rows.index_select(1, self._values), self._half.to(rows), missing)
            rows.index_copy_(1, self._values, values)
        for tie in self._ties:
            rows[:, tie.derived] = _tied(tie, rows, box)
        return rows

    def best_move(
        self, rows: Tensor, slope: Tensor, box: Box, moved: Tensor, stride: float,
        costs: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Legal `rows` with one feature each moved uphill: where `slope` promises the most for the
        distance.

        `moved` marks bits and categories that may not be moved again, so that nothing goes in
        circles; it is returned with the new ones. A number may move on.
        """
        reach = (1 / self._steps).clamp(min=stride)
        up, down = torch.minimum(box.upper - rows, reach), torch.minimum(rows - box.lower, reach)
        change = torch.where(slope > 0, up, -down)
        gain = slope * change
        if self._contests:
            categories = self._categories
            now = self._in_groups((slope * rows)[:, categories])[:, self._group_of]
            is_open = ((box.upper > 0.5) & (rows < 0.5))[:, categories]
            gain[:, categories] = torch.where(is_open, slope[:, categories] - now, -torch.inf)
        if len(self._flags):  # a missing value is left to the latent search
            gain[:, self._flags] = -torch.inf
            gain[:, self._values] = torch.where(
                rows[:, self._flags] > 0.5, -torch.inf, gain[:, self._values]
            )
        for tie in self._ties:
            gain[:, tie.source] += _tied_gain(tie, rows, slope, box)
        for tie in self._ties:
            gain[:, tie.derived] = -torch.inf
        length = torch.where(self._is_category, math.sqrt(2), change.abs().clamp(min=SHORT))
        length = length if costs is None else length * costs
        gain = torch.where(moved | (gain <= 0), -torch.inf, gain / length)
        best, column = gain.max(dim=1)
        can = best.isfinite()
        number = torch.arange(len(rows), device=rows.device)[can]
        column = column[can]
        points = rows.clone()
        points[number, column] += change[number, column]
        points[number, column] = torch.where(self._is_category[column], 2.0, points[number, column])
        moved = moved.clone()
        moved[number, column] = ~self.is_number[column]
        return self(points, box), moved

    def broken(self, rows: Tensor, box: Box) -> Tensor:
        """Which `rows` are not legal or leave their box: the post-condition of every answer."""
        slack = 1e-5
        scaled = rows * self._steps
        off_grid = (scaled - scaled.round()).abs_().div_(self._steps.clamp(min=1))
        wrong = torch.maximum(torch.maximum(box.lower - rows, rows - box.upper), off_grid)
        if len(self._flags):  # a missing value rests at 1/2, outside ranges and off every grid
            missing, values = rows[:, self._flags] > 0.5, rows[:, self._values]
            unrest = (values - MISSING_VALUE).abs() / MISSING_VALUE
            wrong[:, self._values] = torch.where(missing, unrest, wrong[:, self._values])
        fine = wrong.amax(dim=1) <= slack  # a NaN is not
        if self._contests:
            members = rows.index_select(1, self._categories)
            fine &= (members * (1 - members)).abs_().amax(dim=1) == 0
            fine &= (self._in_groups(members) == 1).all(dim=1)
        for tie in self._ties:
            fine &= (rows[:, tie.derived] - _tied(tie, rows, box)).abs().amax(dim=1) <= slack
        return ~fine

    def _in_groups(self, members: Tensor) -> Tensor:
        """Sums over the categories of each feature."""
        empty = members.new_zeros(len(members), self._group_count)
        return empty.index_add_(1, self._group_of, members)


@dataclass(frozen=True)
class _Contest:
    """Categorical features of about one size; the smaller are filled up with their first column."""

    columns: Tensor
    starts: Tensor
    shape: tuple[int, int]

    def winners(self, points: Tensor) -> Tensor:
        """For each feature the column with the highest number, the first of equals."""
        drawn = points.index_select(1, self.columns).unflatten(1, self.shape)
        return self.columns.take(drawn.max(dim=2).indices.add_(self.starts))


def _contests(groups: list[range], device: torch.device | None) -> list[_Contest]:
    left = sorted(groups, key=len)
    found = []
    while left:
        together = [group for group in left if len(group) <= _PADDING * len(left[0])]
        left = left[len(together) :]
        widest = len(together[-1])
        padded = [[*group, *[group[0]] * (widest - len(group))] for group in together]
        columns = torch.tensor(padded, device=device).flatten()
        starts = torch.arange(len(together), device=device) * widest
        found.append(_Contest(columns, starts, (len(together), widest)))
    return found


def _tied(tie: Tie, rows: Tensor, box: Box) -> Tensor:
    """The derived columns: by the table, or the query's own where the source did not move."""
    source = rows[:, tie.source]
    moved = source.sum(dim=1, keepdim=True)  # 0 where the source is missing
    kept = rows[:, tie.derived]
    if box.own is not None:
        moved = moved - (source * box.own[:, tie.source]).sum(dim=1, keepdim=True)
        kept = box.own[:, tie.derived]
    return torch.where(moved > 0.5, tie.table[source.argmax(dim=1)], kept)


def _tied_gain(tie: Tie, rows: Tensor, slope: Tensor, box: Box) -> Tensor:
    """What the derived feature adds to the gain of moving the source to each category."""
    uphill = slope[:, tie.derived]
    after = uphill @ tie.table.T
    if box.own is not None:
        at_home = (uphill * box.own[:, tie.derived]).sum(dim=1, keepdim=True)
        after = torch.where(box.own[:, tie.source] > 0.5, at_home, after)
    return after - (uphill * rows[:, tie.derived]).sum(dim=1, keepdim=True)


def _parts(encoding: Encoding) -> tuple[list[int], list[int]]:
    """The part of each column, and the feature of each part."""
    source_of = {link.derived: link.source for link in encoding.schema.links}
    part_of: dict[str, int] = {}
    of_column: list[int] = []
    feature_of: list[int] = []
    for number, block in enumerate(encoding.blocks):
        name = source_of.get(block.feature.name, block.feature.name)
        if isinstance(block.feature, Pixels):
            of_column.extend(range(len(feature_of), len(feature_of) + block.feature.width))
            feature_of.extend([number] * block.feature.width)
            continue
        if name not in part_of:
            part_of[name] = len(feature_of)
            feature_of.append(number)
        if name == block.feature.name:
            feature_of[part_of[name]] = number
        of_column.extend([part_of[name]] * block.feature.width)
    return of_column, feature_of
