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
from counterveil.schema.columns import arrays_of
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
    lower, upper, marks = (torch.stack(side)[which].to(own.device) for side in sides)
    if present & {Mark.INCREASING, Mark.DECREASING}:
        lower, upper = _one_way_bounds(encoding, own, marks, lower, upper)
    if present & {Mark.FORWARD, Mark.BACKWARD}:
        upper = _ordered_categories(encoding, own, marks, upper)
    if present & {Mark.CLOSED, Mark.FORWARD, Mark.BACKWARD}:
        upper = torch.where(marks >= Mark.CLOSED, torch.maximum(upper, own), upper)
    if Mark.FIXED in present:
        lower, upper = (torch.where(marks == Mark.FIXED, own, side) for side in (lower, upper))
    if not encoding.schema.links:
        return Box(lower, upper)
    for link in linked_columns(encoding):
        link.close_categories(own, lower, upper)
    return Box(lower, upper, own)


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
    moved = np.abs(found - points) >= SAME
    ever = moved.any(axis=0)
    if not ever.any():
        return frame
    blocks = [block for block in encoding.blocks if ever[block.at].any()]
    whole = encoding.decode(found) if len(blocks) > FEW else None
    columns: dict[str, Any] = {}
    for block in blocks:
        feature, names = block.feature, block.feature.columns
        if whole is None:
            decoded = feature.decode(found[:, block.at])
        else:
            decoded = [whole[name] for name in names]
        changed = moved[:, block.at] if len(names) > 1 else moved[:, block.at].any(axis=1)[:, None]
        for name, after, here in zip(names, decoded, changed.T, strict=True):
            told = pd.Series(_without_float_noise(feature, after))
            exact = clip_to_rules(feature, frame[name], told, rules)
            columns[name] = exact if here.all() else _where(here, exact, frame[name])
    if len(columns) > FEW:
        return pd.DataFrame(dict(zip(frame.columns, arrays_of(frame), strict=True)) | columns)
    rows = frame.copy(deep=False)
    for name, after in columns.items():
        rows.isetitem(list(frame.columns).index(name), after)
    return rows


def _without_float_noise(feature: Feature, values: Any) -> Any:
    """Decoded numbers to the decimal place of a ten-millionth of their span, at least.

    The search computes in floats of seven digits: what comes after is no part of an answer.
    """
    bounds = feature.number_range
    if bounds is None or feature.is_whole:
        return values
    digits = 7 - math.ceil(math.log10(bounds[1] - bounds[0]))
    return np.round(values, digits) if -300 < digits < 300 else values


def clip_to_rules(
    feature: Feature, before: pd.Series[Any], after: pd.Series[Any], rules: ManyRules = None
) -> pd.Series[Any]:
    """Decoded answers `after` exactly inside their rules, where `before` are the queries' cells.

    Only numbers need it: float arithmetic may leave them off by a hair.
    """
    free = feature.direction == "any" and feature.allowed_range() == feature.number_range
    if feature.allowed_range() is None or (rules is None and free):
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


def _where(changed: Array, after: pd.Series[Any], before: pd.Series[Any]) -> pd.Series[Any]:
    if isinstance(after.dtype, np.dtype) and after.dtype == before.dtype:
        return pd.Series(np.where(changed, after.to_numpy(), before.to_numpy()))
    return after.where(changed, before)
