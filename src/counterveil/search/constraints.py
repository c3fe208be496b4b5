"""What an answer to a query may look like, as a box around it in the unit cube.

Immutable features, directions and allowed ranges become a lower and an upper bound for every
encoded number of every query. A category is open where its upper bound is 1. Two rules hold
without being asked for: a value that breaks no rule today may always stay, and no answer tells a
person to make a known value unknown.

What rules say whoever asks is worked out once for each Rules, as rows over the encoded numbers;
queries then only pick their row.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.encoding import Array, Block, Encoding
from counterveil.errors import RequestError
from counterveil.schema import Binary, Categorical, Numeric, Pixels
from counterveil.search.rules import AnyFeature, Rules

_SLACK = 1e-6  # of a grid step: what float arithmetic may be off by
ANY_NUMBER = 1 << 30  # of changes
ManyRules = Rules | Sequence[Rules] | None


@dataclass(frozen=True)
class Box:
    """Bounds of shape (queries, width); `own` holds the queries where linked features need them."""

    lower: Tensor
    upper: Tensor
    own: Tensor | None = None

    def project(self, points: Tensor) -> Tensor:
        """The nearest points of the box; a gradient flows where nothing was cut."""
        return torch.clamp(points, self.lower, self.upper)

    def rows(self, part: slice | Tensor) -> Box:
        """The boxes of some of the queries."""
        own = None if self.own is None else self.own[part]
        return Box(self.lower[part], self.upper[part], own)

    def to(self, device: torch.device) -> Box:
        own = None if self.own is None else self.own.to(device)
        return Box(self.lower.to(device), self.upper.to(device), own)


@dataclass(frozen=True)
class Tie:
    """A link of the schema in encoded columns; `table` has a row for each category of `source`."""

    source: slice
    derived: slice
    table: Tensor


def ties(encoding: Encoding) -> tuple[Tie, ...]:
    """The links of the schema."""
    found = []
    for link in encoding.schema.links:
        blocks = {block.feature.name: block for block in encoding.blocks}
        source, derived = blocks[link.source], blocks[link.derived]
        assert isinstance(source.feature, Categorical)
        values = [link.values[category] for category in source.feature.categories]
        known = slice(source.start, source.start + len(values))
        table = torch.tensor([_encoded(derived, value) for value in values], dtype=torch.float32)
        found.append(Tie(known, derived.at, table))
    return tuple(found)


def box_around(
    encoding: Encoding, queries: Array, rules: ManyRules = None, immutable: Collection[str] = ()
) -> Box:
    """The box of each query: the schema's rules, and tighter ones on top.

    `rules`: for all queries, or a sequence with one for each; names alone are immutable features.
    """
    own = torch.as_tensor(queries).to(torch.float32)
    distinct, which = group(rules, len(own), immutable)
    bounds = [_bounds(encoding, each) for each in distinct]
    marks = frozenset[int]().union(*(each.marks for each in bounds))
    if which is None:
        lower, upper, mark = (side.to(own.device) for side in bounds[0].rows)
    else:
        pick = torch.from_numpy(which).to(own.device)
        sides = zip(*(each.rows for each in bounds), strict=True)
        lower, upper, mark = (torch.stack(side).to(own.device)[pick] for side in sides)
    lower, upper = lower.expand_as(own), upper.expand_as(own)
    if marks & {_RISING, _FALLING}:
        lower, upper = _ahead(encoding, own, mark, lower, upper)
    if marks & {_FORWARD, _BACKWARD}:
        upper = _in_order(encoding, own, mark, upper)
    if marks & {_CLOSED, _FORWARD, _BACKWARD}:
        upper = torch.where(mark >= _CLOSED, torch.maximum(upper, own), upper)
    if _FIXED in marks:
        lower, upper = (torch.where(mark == _FIXED, own, side) for side in (lower, upper))
    whole = torch.contiguous_format
    lower, upper = lower.clone(memory_format=whole), upper.clone(memory_format=whole)
    if not encoding.schema.links:
        return Box(lower, upper)
    for tie in ties(encoding):
        _close_untied(tie, own, lower, upper)
    return Box(lower, upper, own)


def group(
    rules: ManyRules, count: int, immutable: Collection[str] = ()
) -> tuple[list[Rules], Array | None]:
    """The different Rules, and which of them each query has; None where there is but one."""
    if rules is None or isinstance(rules, Rules):
        return [(rules or _NONE).and_immutable(immutable)], None
    if not rules or not all(isinstance(each, Rules) for each in rules):
        raise RequestError("rules must be Rules, or a list of Rules with one for each query")
    if len(rules) != count:
        raise RequestError(f"rules: {len(rules)} of them for {count} queries; one for each")
    by_identity: dict[int, Any] = {id(each): each for each in rules}
    number: dict[Rules, int] = {}
    known = {
        key: number.setdefault(each.and_immutable(immutable), len(number))
        for key, each in by_identity.items()
    }
    which = np.fromiter((known[id(each)] for each in rules), np.int64, count)
    return [*number], which if len(number) > 1 else None


def obey(
    feature: Numeric, before: pd.Series[Any], after: pd.Series[Any], rules: ManyRules = None
) -> pd.Series[Any]:
    """Numbers of an answer exactly inside their rules: float arithmetic may be off by a hair."""
    distinct, which = group(rules, len(after))
    under: list[Any] = [each.tighten_feature(feature) for each in distinct]
    low, high = np.array([_range(each) for each in under]).T
    rising, falling = (
        np.array([each.direction == way for each in under]) for way in ("increase", "decrease")
    )
    if which is not None:
        low, high, rising, falling = (side[which] for side in (low, high, rising, falling))
    was, now = (side.to_numpy(np.float64, na_value=np.nan) for side in (before, after))
    kept = np.clip(now, low, high)
    kept = np.where((rising & (kept < was)) | (falling & (kept > was)), was, kept)
    off = (kept != now) & ~np.isnan(now)
    if not off.any():
        return after
    right = np.where(off, kept, 0.0)
    return after.where(~off, pd.Series(right.astype(np.int64) if feature.integer else right))


def column_costs(encoding: Encoding, rules: ManyRules, count: int) -> Tensor | None:
    """What a change costs, for each encoded column: (1, width) or (queries, width); None for 1."""
    distinct, which = group(rules, count)
    if not any(each.costs for each in distinct):
        return None
    costs = torch.ones(len(distinct), encoding.width)
    for number, each in enumerate(distinct):
        each.tighten(encoding.schema)
        for block in encoding.blocks:
            costs[number, block.at] = each.costs.get(block.feature.name, 1.0)
    return costs if which is None else costs[torch.from_numpy(which)]


def most_changes(rules: ManyRules, count: int) -> Tensor | None:
    """How many features may change, for each query; None where no rule says so."""
    distinct, which = group(rules, count)
    if all(each.max_changes is None for each in distinct):
        return None
    most = [each.max_changes or ANY_NUMBER for each in distinct]
    return torch.tensor(most)[torch.zeros(count, dtype=torch.long) if which is None else which]


@dataclass(frozen=True)
class _Bounds:
    """What rules say of every encoded number, whoever asks: lower, upper and mark."""

    rows: tuple[Tensor, Tensor, Tensor]
    marks: frozenset[int]


_NONE = Rules()
# Marks. From _CLOSED on: categories and missing values, where whoever is there may stay.
_FREE, _FIXED, _RISING, _FALLING, _CLOSED, _FORWARD, _BACKWARD = range(7)


@lru_cache(maxsize=32)
def _bounds(encoding: Encoding, rules: Rules) -> _Bounds:
    """Worked out for every feature of the schema; then again where rules tighten one."""
    if rules == _NONE:
        lower, mark = torch.zeros(encoding.width), torch.zeros(encoding.width, dtype=torch.int8)
        upper = torch.ones(encoding.width)
        before: tuple[Any, ...] = (None,) * len(encoding.blocks)
    else:
        lower, upper, mark = (side.clone() for side in _bounds(encoding, _NONE).rows)
        before = _NONE.tighten(encoding.schema)
    after = rules.tighten(encoding.schema)
    for block, old, feature in zip(encoding.blocks, before, after, strict=True):
        if feature != old:
            at = block.at
            lower[at], upper[at], mark[at] = _feature_bounds(feature)
    return _Bounds((lower, upper, mark), frozenset(mark.unique().tolist()))


def _feature_bounds(feature: AnyFeature) -> tuple[Tensor, Tensor, Tensor]:
    lower, upper = torch.zeros(feature.width), torch.ones(feature.width)
    mark = torch.full((feature.width,), _FREE, dtype=torch.int8)
    if isinstance(feature, Numeric):
        low, high = _range(feature, _SLACK)
        span = feature.upper - feature.lower
        lower[0], upper[0] = (low - feature.lower) / span, (high - feature.lower) / span
        upper[1:], mark[1:] = 0, _CLOSED
    if isinstance(feature, Categorical):
        allowed = feature.allowed or feature.categories
        known = len(feature.categories)
        upper[:known] = torch.tensor([category in allowed for category in feature.categories])
        upper[known:] = 0  # missing
        mark[upper == 0] = _CLOSED
        if feature.direction != "any":
            mark[:known] = _FORWARD if feature.direction == "increase" else _BACKWARD
    elif not isinstance(feature, Pixels) and feature.direction != "any":
        mark[0] = _RISING if feature.direction == "increase" else _FALLING
    if feature.immutable:
        mark[:] = _FIXED
    return lower, upper, mark


def _range(feature: Numeric, slack: float = 0.0) -> tuple[float, float]:
    low, high = feature.allowed or (feature.lower, feature.upper)
    return (math.ceil(low - slack), math.floor(high + slack)) if feature.integer else (low, high)


def _ahead(
    encoding: Encoding, own: Tensor, mark: Tensor, lower: Tensor, upper: Tensor
) -> tuple[Tensor, Tensor]:
    """Bounds of numbers and bits that only go one way; a missing number may become any."""
    known = torch.ones_like(own, dtype=torch.bool)
    for block in encoding.blocks:
        if isinstance(block.feature, Numeric) and block.feature.missing:
            known[:, block.start] = own[:, block.start + 1] < 0.5
    lower = torch.where((mark == _RISING) & known, torch.maximum(lower, own), lower)
    upper = torch.where((mark == _FALLING) & known, torch.minimum(upper, own), upper)
    nowhere = lower > upper  # the rules leave no other value: this one stays
    return torch.where(nowhere, own, lower), torch.where(nowhere, own, upper)


def _in_order(encoding: Encoding, own: Tensor, mark: Tensor, upper: Tensor) -> Tensor:
    """Ordered categories behind the query's are closed; to whom it is missing all are open."""
    upper, mark = upper.clone(), mark.expand_as(own)
    for block in encoding.blocks:
        if isinstance(block.feature, Categorical) and block.feature.ordered:
            at = slice(block.start, block.start + len(block.feature.categories))
            here = own[:, at]
            ahead = here.cumsum(dim=1) + 1 - here.sum(dim=1, keepdim=True)
            behind = here.flip(1).cumsum(dim=1).flip(1) + 1 - here.sum(dim=1, keepdim=True)
            upper[:, at] *= torch.where(mark[:, at] == _FORWARD, ahead, 1.0)
            upper[:, at] *= torch.where(mark[:, at] == _BACKWARD, behind, 1.0)
    return upper


def _close_untied(tie: Tie, own: Tensor, lower: Tensor, upper: Tensor) -> None:
    """Categories that would lead the derived feature out of its bounds; staying is always open."""
    table = tie.table.to(own.device)
    inside = table >= lower[:, None, tie.derived] - _SLACK
    inside &= table <= upper[:, None, tie.derived] + _SLACK
    upper[:, tie.source] *= inside.all(dim=2) | (own[:, tie.source] > 0.5)
    here = own[:, tie.derived]
    lower[:, tie.derived] = torch.minimum(lower[:, tie.derived], here)
    upper[:, tie.derived] = torch.maximum(upper[:, tie.derived], here)


def _encoded(block: Block, value: Any) -> list[float]:
    """A known value of a feature as encoded numbers."""
    feature = block.feature
    if isinstance(feature, Numeric):
        return [(value - feature.lower) / (feature.upper - feature.lower), 0.0][: feature.width]
    if isinstance(feature, Categorical):
        return [float(n == feature.categories.index(value)) for n in range(feature.width)]
    assert isinstance(feature, Binary)
    return [float(feature.values.index(value))]


def hold_columns(box: Box, columns: Tensor, queries: Tensor) -> Box:
    """The box where the marked columns must stay as near to the query's as they may be."""
    nearest = box.project(queries)
    return Box(
        torch.where(columns, nearest, box.lower),
        torch.where(columns, nearest, box.upper),
        box.own,
    )
