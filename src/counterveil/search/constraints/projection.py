"""From anywhere in the unit cube to the nearest legal row: what leaves the search is always legal.

One category for each categorical feature, whole numbers where the schema says so, numbers at their
steps, linked features together, inside the box of the query's constraints, and with its relations
and groups kept where that is possible; all rows and features at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from counterveil.encoding import MISSING_VALUE, Encoding
from counterveil.search.constraints.bounds import SAME, Box, linked_columns

SLACK = 1e-5  # what a legal row may be off by, in the unit cube
SHORT = 0.05  # moves below this do not count as shorter
_FAR, _FARTHER = 1e30, 3e38  # a point is at most this far out; a closed category is farther
_PADDING = 4  # categorical features are looked at together up to this ratio of their widths


class Snap:
    """The legal rows of one schema. Rows are (rows, width) tensors in the unit cube.

    `part_of_column`: which of the `parts` each encoded column belongs to; parts are the smallest
    things that can be given back to the query by themselves: a feature with all its columns,
    features that are linked together, a pixel. `feature_of_part` says which feature changes with a
    part; of linked ones the source. `is_number`: the columns with numbers that may move by
    themselves. `divisions`: how many legal values a column has on its way from 0 to 1.
    """

    def __init__(self, encoding: Encoding, device: torch.device | None = None) -> None:
        blocks = encoding.blocks
        groups = [range(b.start, b.stop) for b in blocks if b.feature.one_hot]
        columns = [column for group in groups for column in group]
        group_of = [number for number, group in enumerate(groups) for _ in group]
        flags = [b.missing_flag for b in blocks if b.missing_flag is not None]
        divisions = [each for b in blocks for each in b.feature.divisions]
        self.divisions = torch.tensor(divisions, device=device)
        self._flags, self._categories, self._group_of = (
            torch.tensor(each, dtype=torch.long, device=device)
            for each in (flags, columns, group_of)
        )
        self._values = self._flags - 1  # the columns of the numbers that may be missing
        self._half = torch.tensor(MISSING_VALUE, device=device)
        self._group_count = len(groups)
        self._choices = tuple(_choices(groups, device))
        self._links = linked_columns(encoding, device)
        self._is_category = torch.zeros(encoding.width, dtype=torch.bool, device=device)
        self._is_category[self._categories] = True
        self._not_category = (~self._is_category).float()
        self.is_number = self.divisions != 1
        for link in self._links:
            self.is_number[link.derived] = False
        part_of_column, feature_of_part = _parts(encoding)
        self.parts = len(feature_of_part)
        self.part_of_column = torch.tensor(part_of_column, device=device)
        self.feature_of_part = torch.tensor(feature_of_part, device=device)

    def __call__(self, points: Tensor, box: Box, pinned: Tensor | None = None) -> Tensor:
        """The legal rows nearest to `points` inside `box`, that keep its ties where there are any.

        `pinned`: columns that ties should leave where they are, (rows, width).
        """
        rows = box.project(points)
        rows.mul_(self.divisions).round_().div_(self.divisions)
        # Exact bounds again where rounding was off by a float's width.
        rows.clamp_(box.lower, box.upper)
        if box.stays is not None and box.queries is not None:
            own = box.queries
            is_nearer = box.stays & ((points - own).abs() < (points - rows).abs())
            rows = torch.where(is_nearer, own, rows)
        if self._choices:
            # Arithmetic instead of a mask: comparing is what costs here.
            far = points.clamp(-_FAR, _FAR).add_(box.upper - 1, alpha=_FARTHER)
            rows.mul_(self._not_category)
            for columns, starts, shape in self._choices:
                highest = far.index_select(1, columns).unflatten(1, shape).max(dim=2).indices
                rows.scatter_(1, columns.take(highest.add_(starts)), 1.0)
        if len(self._flags):
            missing = rows.index_select(1, self._flags)
            values = torch.lerp(rows.index_select(1, self._values), self._half.to(rows), missing)
            rows.index_copy_(1, self._values, values)
        rows = self._with_links(rows, box)
        return rows if box.ties is None else self._with_links(box.settle(rows, pinned), box)

    def numbers(self, values: Tensor, columns: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        """The legal `values` nearest to those given, of numbers in encoded `columns`, in bounds.

        All shapes fit each other. For numbers that are there, that change and that no tie holds:
        what calling this object makes of them, without the other columns of a row.
        """
        divisions = self.divisions[columns]
        legal = values.clamp(lower, upper).mul_(divisions).round_().div_(divisions)
        return legal.clamp_(lower, upper)

    def _with_links(self, rows: Tensor, box: Box) -> Tensor:
        """The rows, changed in place: what is derived follows its source."""
        for link in self._links:
            rows[:, link.derived] = link.derived_columns(rows, box)
        return rows

    def best_move(
        self,
        rows: Tensor,
        gradient: Tensor,
        box: Box,
        moved: Tensor,
        stride: float,
        costs: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Legal `rows` with one feature each moved to where `gradient` promises most for the way.

        `moved` marks bits and categories that may not be moved again, and numbers that ties hold
        back; it is returned with the new ones. A number moves by at most `stride`. `costs`, (rows,
        width), multiply the distance.
        """
        reach = (1 / self.divisions).clamp(min=stride)
        up, down = torch.minimum(box.upper - rows, reach), torch.minimum(rows - box.lower, reach)
        change = torch.where(gradient > 0, up, -down)
        if box.stays is not None:  # what leaves its place outside comes inside at once
            change = torch.where(box.stays, box.project(rows + change) - rows, change)
        gain = gradient * change
        if self._choices:
            categories = self._categories
            now = self._sum_in_groups((gradient * rows)[:, categories])[:, self._group_of]
            is_open = ((box.upper > 0.5) & (rows < 0.5))[:, categories]
            gain[:, categories] = torch.where(is_open, gradient[:, categories] - now, -torch.inf)
        if len(self._flags):  # a missing value is left to the latent search
            gain[:, self._flags] = -torch.inf
            gain[:, self._values] = torch.where(
                rows[:, self._flags] > 0.5, -torch.inf, gain[:, self._values]
            )
        for link in self._links:
            gain[:, link.source] += link.gain(rows, gradient, box)
            if link.missing is not None:
                gain[:, link.missing] += link.gain_of_missing(rows, gradient, box)
            gain[:, link.derived] = -torch.inf
        length = torch.where(self._is_category, math.sqrt(2), change.abs().clamp(min=SHORT))
        length = length if costs is None else length * costs
        gain = torch.where(moved | (gain <= 0), -torch.inf, gain / length)
        best, column = gain.max(dim=1)
        can = best.isfinite()
        row, column = torch.arange(len(rows), device=rows.device)[can], column[can]
        points = rows.clone()
        points[row, column] += change[row, column]
        points[row, column] = torch.where(self._is_category[column], 2.0, points[row, column])
        moved = moved.clone()
        moved[row, column] = ~self.is_number[column]
        if box.ties is None:
            return self(points, box), moved
        pinned = torch.zeros_like(moved)  # all columns of the feature that has moved
        pinned[row] = self.part_of_column[None, :] == self.part_of_column[column][:, None]
        after = self(points, box, pinned)
        moved[row, column] |= (after == rows)[row].all(dim=1)  # ties have undone the move
        return after, moved

    def broken(self, rows: Tensor, box: Box) -> Tensor:
        """Which `rows` are not legal or leave their box: the post-condition of every answer.

        It shares nothing with the way in which rows are made legal. Whether ties hold is asked of
        the box itself, for there may be no row that keeps them.
        """
        device = self.divisions.device
        here, bounds = rows.to(device), box.to(device)
        scaled = here * self.divisions
        wrong = (scaled - scaled.round()).abs() / self.divisions.clamp(min=1)
        outside = torch.maximum(bounds.lower - here, here - bounds.upper)
        if bounds.stays is not None and bounds.queries is not None:
            is_own = bounds.stays & ((here - bounds.queries).abs() <= SLACK)
            outside = torch.where(is_own, 0.0, outside)
        wrong = torch.maximum(wrong, outside)
        # A missing value rests at 1/2, outside ranges and off every grid.
        missing, unrest = here[:, self._flags] > 0.5, (here[:, self._values] - self._half).abs()
        wrong[:, self._values] = torch.where(missing, unrest, wrong[:, self._values])
        for link in self._links:
            followed = link.derived_columns(here, bounds)
            wrong[:, link.derived] += (here[:, link.derived] - followed).abs()
        fine = wrong.amax(dim=1) <= SLACK  # a NaN is not
        fine &= (self._sum_in_groups(here[:, self._categories]) - 1).abs().sum(dim=1) <= SLACK
        return ~fine.to(rows.device)

    def squares_by_part(self, rows: Tensor, queries: Tensor, costs: Tensor | None = None) -> Tensor:
        """Squared distance of rows and queries by part, at the columns' costs: (rows, parts)."""
        square = (rows - queries) ** 2
        square = torch.where(square > SAME**2, square, 0.0)
        if costs is not None:
            square = square * costs
        by_part = torch.zeros(len(rows), self.parts, device=rows.device)
        return by_part.index_add_(1, self.part_of_column, square)

    def changed_features(self, rows: Tensor, queries: Tensor) -> Tensor:
        """Which features differ between rows and queries: a mask (rows, features)."""
        parts = self.squares_by_part(rows, queries) > 0
        features = int(self.feature_of_part.max()) + 1
        if features == self.parts:
            return parts
        counts = torch.zeros(len(rows), features, device=rows.device)
        return counts.index_add_(1, self.feature_of_part, parts.float()) > 0

    def columns_of_features(self, features: Tensor) -> Tensor:
        """A mask of features (rows, features) as a mask of encoded columns (rows, width)."""
        return features[:, self.feature_of_part[self.part_of_column]]

    def _sum_in_groups(self, members: Tensor) -> Tensor:
        """Sums over the categories of each feature: (rows, categories) to (rows, features)."""
        empty = members.new_zeros(len(members), self._group_count)
        return empty.index_add_(1, self._group_of, members)


def _choices(
    groups: list[range], device: torch.device | None
) -> Iterator[tuple[Tensor, Tensor, tuple[int, int]]]:
    """Categorical features of about one size; the smaller are filled up with their first column.

    For each such set: the columns, all in one line; where each feature starts in it; and how many
    features there are and columns of each.
    """
    left = sorted(groups, key=len)
    while left:
        together = [group for group in left if len(group) <= _PADDING * len(left[0])]
        left = left[len(together) :]
        widest = len(together[-1])
        padded = [[*group, *[group[0]] * (widest - len(group))] for group in together]
        columns = torch.tensor(padded, device=device).flatten()
        starts = torch.arange(len(together), device=device) * widest
        yield columns, starts, (len(together), widest)


def _parts(encoding: Encoding) -> tuple[list[int], list[int]]:
    """The part of each encoded column, and the feature of each part."""
    source_of = {link.derived: link.source for link in encoding.schema.links}
    feature_called = {block.feature.name: i for i, block in enumerate(encoding.blocks)}
    part_of_column: list[tuple[str, int]] = []  # by feature and, of an image, by pixel
    for block in encoding.blocks:
        name = source_of.get(block.feature.name, block.feature.name)
        is_image = len(block.feature.columns) > 1
        pixels = range(block.feature.width) if is_image else [0] * block.feature.width
        part_of_column += [(name, pixel) for pixel in pixels]
    parts = {part: number for number, part in enumerate(dict.fromkeys(part_of_column))}
    return [parts[part] for part in part_of_column], [feature_called[name] for name, _ in parts]
