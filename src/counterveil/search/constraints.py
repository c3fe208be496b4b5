"""What an answer to a query may look like, as a box around it in the unit cube.

Immutable features, directions and allowed ranges become a lower and an upper bound for every
encoded column of every query. A category is open where its upper bound is 1. Two rules hold
without being asked for: a value that breaks no rule today may always stay, and no answer tells a
person to make a known value unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.encoding import Array, Encoding
from counterveil.errors import RequestError
from counterveil.schema import Feature
from counterveil.schema.columns import array_of, arrays_of
from counterveil.schema.features import SLACK
from counterveil.schema.kind import Mark
from counterveil.search.rules import Rules

SAME = 1e-6  # differences up to this in the unit cube are no change
ANY_NUMBER = 1 << 30  # of changes
FEW = 4  # changed features up to which they are decoded one by one
NO_RULES = Rules()
ManyRules = Rules | Sequence[Rules] | None


@dataclass(frozen=True)
class Box:
    """Bounds of shape (queries, width); `queries`, encoded, only where features are linked."""

    lower: Tensor
    upper: Tensor
    queries: Tensor | None = None

    def project(self, points: Tensor) -> Tensor:
        """The nearest points of the box; a gradient flows where nothing was cut."""
        return torch.clamp(points, self.lower, self.upper)

    def select(self, part: slice | Tensor) -> Box:
        """The boxes of some of the queries."""
        return self._map(lambda side: side[part])

    def to(self, device: torch.device) -> Box:
        """The same on another device."""
        return self._map(lambda side: side.to(device))

    def _map(self, change: Callable[[Tensor], Tensor]) -> Box:
        queries = None if self.queries is None else change(self.queries)
        return Box(change(self.lower), change(self.upper), queries)

    def holding(self, columns: Tensor, queries: Tensor) -> Box:
        """The box where marked `columns`, (queries, width), stay as near to `queries` as may be."""
        nearest = self.project(queries)
        lower = torch.where(columns, nearest, self.lower)
        return Box(lower, torch.where(columns, nearest, self.upper), self.queries)


@dataclass(frozen=True)
class LinkedColumns:
    """A link of the schema, by encoded columns."""

    source: slice  # the categories of the source
    derived: slice
    table: Tensor  # the encoded derived value of each category, (categories, derived columns)

    def derived_columns(self, rows: Tensor, box: Box) -> Tensor:
        """The derived columns by the table; where the source did not move, the query's own."""
        source = rows[:, self.source]
        moved = source.sum(dim=1, keepdim=True)  # 0 where the source is missing
        kept = rows[:, self.derived]
        if box.queries is not None:
            moved = moved - (source * box.queries[:, self.source]).sum(dim=1, keepdim=True)
            kept = box.queries[:, self.derived]
        return torch.where(moved > 0.5, self.table[source.argmax(dim=1)], kept)

    def gain(self, rows: Tensor, gradient: Tensor, box: Box) -> Tensor:
        """What the derived feature adds to the gain of moving the source to each category."""
        uphill = gradient[:, self.derived]
        after = uphill @ self.table.T
        if box.queries is not None:
            back = (uphill * box.queries[:, self.derived]).sum(dim=1, keepdim=True)
            after = torch.where(box.queries[:, self.source] > 0.5, back, after)
        return after - (uphill * rows[:, self.derived]).sum(dim=1, keepdim=True)

    def close_categories(self, queries: Tensor, lower: Tensor, upper: Tensor) -> None:
        """Close, in place, categories that would lead the derived feature out of its bounds.

        The query's own category stays open, and its own derived value is put inside the bounds.
        """
        table = self.table.to(queries.device)
        inside = table >= lower[:, None, self.derived] - SLACK
        inside &= table <= upper[:, None, self.derived] + SLACK
        upper[:, self.source] *= inside.all(dim=2) | (queries[:, self.source] > 0.5)
        own = queries[:, self.derived]
        lower[:, self.derived] = torch.minimum(lower[:, self.derived], own)
        upper[:, self.derived] = torch.maximum(upper[:, self.derived], own)


def linked_columns(encoding: Encoding, device: torch.device | None = None) -> list[LinkedColumns]:
    """The links of the schema."""
    blocks = {block.feature.name: block for block in encoding.blocks}
    found = []
    for link in encoding.schema.links:
        source, derived = blocks[link.source], blocks[link.derived]
        values = [link.values[category] for category in source.feature.values or ()]
        encoded = [derived.feature.encode_value(value) for value in values]
        table = torch.tensor(encoded, dtype=torch.float32, device=device)
        found.append(LinkedColumns(source.categories, derived.at, table))
    return found


def box_around(
    encoding: Encoding, queries: Array, rules: ManyRules = None, immutable: Collection[str] = ()
) -> Box:
    """The box of each encoded query (queries, width): the schema's rules, and tighter ones on top.

    `rules`: for all queries, or a sequence with one for each. `immutable`: names of features that
    must stay as well.
    """
    own = torch.as_tensor(queries).to(torch.float32)
    distinct, which = distinct_rules(rules, len(own), immutable)
    *sides, marks_of = zip(*(_common_bounds(encoding, each) for each in distinct), strict=True)
    present: set[int] = set().union(*marks_of)
    lower, upper, marks = (_of_each(side, which).to(own.device) for side in sides)
    if present & {Mark.INCREASING, Mark.DECREASING}:
        lower, upper = _one_way_bounds(encoding, own, marks, lower, upper)
    if present & {Mark.FORWARD, Mark.BACKWARD}:
        upper = _ordered_categories(encoding, own, marks, upper)
    if present & {Mark.CLOSED, Mark.FORWARD, Mark.BACKWARD}:
        upper = torch.where(marks >= Mark.CLOSED, torch.maximum(upper, own), upper)
    if Mark.FIXED in present:
        is_fixed = marks == Mark.FIXED
        lower, upper = (torch.where(is_fixed, own, side) for side in (lower, upper))
    if not encoding.schema.links:
        return Box(lower, upper)
    for link in linked_columns(encoding):
        link.close_categories(own, lower, upper)
    return Box(lower, upper, own)


def _of_each(sides: Sequence[Tensor], which: Tensor) -> Tensor:
    """For each query one of the `sides`, (width,) each, by its number: (queries, width)."""
    return sides[0].repeat(len(which), 1) if len(sides) == 1 else torch.stack(list(sides))[which]


def distinct_rules(
    rules: ManyRules, count: int, immutable: Collection[str] = ()
) -> tuple[list[Rules], Tensor]:
    """The different Rules, and which of them each query has: their numbers, (queries,)."""
    if rules is None or isinstance(rules, Rules):
        return [(rules or NO_RULES).and_immutable(immutable)], torch.zeros(count, dtype=torch.long)
    if not rules or not all(isinstance(each, Rules) for each in rules):
        raise RequestError("rules must be Rules, or a list of Rules with one for each query")
    if len(rules) != count:
        raise RequestError(f"rules: {len(rules)} of them for {count} queries; one for each")
    place: dict[Rules, int] = {}
    which = torch.tensor([place.setdefault(each, len(place)) for each in rules])
    return [each.and_immutable(immutable) for each in place], which


def column_costs(encoding: Encoding, rules: ManyRules, count: int) -> Tensor | None:
    """What a change costs, for each query and encoded column, (queries, width); None for 1."""
    distinct, which = distinct_rules(rules, count)
    if not any(each.costs for each in distinct):
        return None
    costs = torch.ones(len(distinct), encoding.width)
    for number, each in enumerate(distinct):
        each.tighten(encoding.schema)
        for block in encoding.blocks:
            costs[number, block.at] = each.costs.get(block.feature.name, 1.0)
    return costs[which]


def max_changes_of(rules: ManyRules, count: int) -> Tensor | None:
    """How many features may change, for each query; None where no rule says so."""
    distinct, which = distinct_rules(rules, count)
    if all(each.max_changes is None for each in distinct):
        return None
    limits = [min(each.max_changes or ANY_NUMBER, ANY_NUMBER) for each in distinct]
    return torch.tensor(limits)[which]


def decode_answers(
    encoding: Encoding, frame: pd.DataFrame, points: Array, found: Array, rules: ManyRules
) -> pd.DataFrame:
    """Encoded answers `found` to the queries `frame`, whose encoding is `points`, as rows.

    Every cell is legal and inside the rules; cells that did not move are exactly the query's own.
    """
    return encoding.frame(decode_cells(encoding, arrays_of(frame), points, found, rules))


def decode_cells(
    encoding: Encoding, queries: Sequence[Any], points: Array, found: Array, rules: ManyRules
) -> list[Any]:
    """The same for the columns of the queries as plain arrays, in the schema's order."""
    moved = np.abs(found - points) >= SAME
    ever, cells = moved.any(axis=0), list(queries)
    blocks = [block for block in encoding.blocks if ever[block.at].any()]
    whole = arrays_of(encoding.decode(found)) if len(blocks) > FEW else None
    for feature, places, at, *_ in blocks:
        decoded = feature.decode(found[:, at]) if whole is None else whole[places]
        several = places.stop - places.start > 1
        changed = moved[:, at].T if several else moved[:, at].any(axis=1)[None]
        for place, after, here in zip(
            range(places.start, places.stop), decoded, changed, strict=True
        ):
            told = _without_float_noise(feature, array_of(after))
            if is_bound(feature, rules):
                told = clip_to_rules(feature, pd.Series(cells[place]), pd.Series(told), rules)
            cells[place] = _where(here, array_of(told), cells[place])
    return cells


def _without_float_noise(feature: Feature, values: Any) -> Any:
    """Decoded numbers to the decimal place of a ten-millionth of their span, at least.

    The search computes in floats of seven digits: what comes after is no part of an answer.
    """
    bounds = feature.number_range
    if bounds is None or feature.is_whole:
        return values
    digits = 7 - math.ceil(math.log10(bounds[1] - bounds[0]))
    return np.round(values, digits) if -300 < digits < 300 else values


def is_bound(feature: Feature, rules: ManyRules) -> bool:
    """Whether rules may say where the numbers of a feature have to be; others have none."""
    numbers = feature.allowed_range()
    if numbers is None:
        return False
    return rules is not None or feature.direction != "any" or numbers != feature.number_range


def clip_to_rules(
    feature: Feature, before: pd.Series[Any], after: pd.Series[Any], rules: ManyRules = None
) -> pd.Series[Any]:
    """Decoded answers `after` exactly inside their rules, where `before` are the queries' cells.

    Only numbers need it: float arithmetic may leave them off by a hair.
    """
    if not is_bound(feature, rules):
        return after
    distinct, which = distinct_rules(rules, len(after))
    under = [each.tighten_feature(feature) for each in distinct]
    low, high = np.array([each.allowed_range() for each in under])[which.numpy()].T
    directions = np.array([each.direction for each in under])[which.numpy()]
    rising, falling = directions == "increase", directions == "decrease"
    was, now = (side.to_numpy(np.float64, na_value=np.nan) for side in (before, after))
    kept = np.clip(now, low, high)
    kept = np.where((rising & (kept < was)) | (falling & (kept > was)), was, kept)
    off = (kept != now) & ~np.isnan(now)
    if not off.any():
        return after
    right = np.where(off, kept, 0.0)
    return after.where(~off, pd.Series(right.astype(np.int64) if feature.is_whole else right))


@lru_cache(maxsize=32)
def _common_bounds(encoding: Encoding, rules: Rules) -> tuple[Tensor, Tensor, Tensor, set[int]]:
    """Bounds and Mark of every encoded column, whoever asks, and the marks that are present."""
    bounds = [feature.bounds() for feature in rules.tighten(encoding.schema)]
    lower = torch.tensor([each for one in bounds for each in one.lower], dtype=torch.float32)
    upper = torch.tensor([each for one in bounds for each in one.upper], dtype=torch.float32)
    marks = [each for one in bounds for each in one.marks]
    return lower, upper, torch.tensor(marks, dtype=torch.int8), {*marks}


def _one_way_bounds(
    encoding: Encoding, own: Tensor, marks: Tensor, lower: Tensor, upper: Tensor
) -> tuple[Tensor, Tensor]:
    """Bounds of numbers and bits that only go one way; a missing number may become any."""
    known = torch.ones_like(own, dtype=torch.bool)
    for block in encoding.blocks:
        if block.missing_flag is not None:
            known[:, block.start] = own[:, block.missing_flag] < 0.5
    lower = torch.where((marks == Mark.INCREASING) & known, torch.maximum(lower, own), lower)
    upper = torch.where((marks == Mark.DECREASING) & known, torch.minimum(upper, own), upper)
    nowhere = lower > upper  # the rules leave no other value: this one stays
    return torch.where(nowhere, own, lower), torch.where(nowhere, own, upper)


def _ordered_categories(encoding: Encoding, own: Tensor, marks: Tensor, upper: Tensor) -> Tensor:
    """Upper bounds with the categories behind the query's closed; all open where it is missing."""
    upper = upper.clone()
    for block in encoding.blocks:
        if block.feature.one_hot and block.feature.ordered:
            at = block.categories
            here = own[:, at]
            missing = 1 - here.sum(dim=1, keepdim=True)
            ahead = here.cumsum(dim=1) + missing
            behind = here.flip(1).cumsum(dim=1).flip(1) + missing
            upper[:, at] *= torch.where(marks[:, at] == Mark.FORWARD, ahead, 1.0)
            upper[:, at] *= torch.where(marks[:, at] == Mark.BACKWARD, behind, 1.0)
    return upper


def _where(changed: Array, after: Any, before: Any) -> Any:
    """Cells of two arrays: `after` where changed, else `before`."""
    if changed.all():
        return after
    if isinstance(after.dtype, np.dtype) and after.dtype == before.dtype:
        return np.where(changed, after, before)
    return array_of(pd.Series(after).where(changed, pd.Series(before)))
