"""What an answer to a query may look like, as a box around it in the unit cube.

Immutable features, directions and allowed ranges become a lower and an upper bound for every
encoded column of every query. A category is open where its upper bound is 1. Ties (`coupled.py`)
pick rows inside these bounds. Two rules hold without being asked for: the query's own value may
always stay, and no answer tells a person to make a known value unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from counterveil.encoding import Array, Encoding
from counterveil.errors import RequestError
from counterveil.schema import Feature, Schema
from counterveil.schema.kind import Mark
from counterveil.schema.numeric import SLACK
from counterveil.search.constraints.coupled import Ties, ties_of
from counterveil.search.constraints.coupled_numbers import SAME, Sides
from counterveil.search.constraints.rules import Rules

__all__ = ["SAME", "Box", "ManyRules", "box_around", "column_costs", "max_changes_of"]

ANY_NUMBER = 1 << 30  # of changes
NO_RULES = Rules()
ManyRules = Rules | Sequence[Rules] | None


@dataclass(frozen=True)
class Box:
    """What answers to a batch of queries may look like.

    `lower`, `upper`: bounds that what changes must keep, for every encoded column, (queries,
    width). `queries`: encoded; only where features are linked or tied, or numbers may stay outside.
    `ties`: only where rules ask for any. `stays`: where the query's own value lies outside of the
    bounds and may stay, (queries, width); None where it nowhere does.
    """

    lower: Tensor
    upper: Tensor
    queries: Tensor | None = None
    ties: Ties | None = None
    stays: Tensor | None = None

    def project(self, points: Tensor) -> Tensor:
        """The nearest points inside the bounds; a gradient flows where nothing was cut."""
        return torch.clamp(points, self.lower, self.upper)

    def select(self, part: slice | Tensor) -> Box:
        numbers = part.cpu().numpy() if isinstance(part, Tensor) else part
        return self._map(lambda side: side[part], self.ties and self.ties.select(numbers))

    def to(self, device: torch.device) -> Box:
        """The same on another device; ties stay on the CPU."""
        return self._map(lambda side: side.to(device), self.ties)

    def _map(self, change: Callable[[Tensor], Tensor], ties: Ties | None) -> Box:
        """The box with other tensors, and with ties only where there are any."""
        ties = ties if ties and ties.arrays["is_tied"].any() else None
        sides = (self.lower, self.upper, self.queries, self.stays)
        lower, upper, queries, stays = (None if each is None else change(each) for each in sides)
        return Box(lower, upper, queries, ties, stays)  # type: ignore[arg-type]

    def own(self, queries: Tensor) -> Tensor:
        """What each query's own row may keep of itself: the nearest values that are legal."""
        inside = self.project(queries)
        return inside if self.stays is None else torch.where(self.stays, queries, inside)

    def holding(self, columns: Tensor, queries: Tensor) -> Box:
        """The box where marked `columns`, (queries, width), stay as near to `queries` as may be."""
        own = self.own(queries)
        lower, upper = (torch.where(columns, own, each) for each in (self.lower, self.upper))
        stays = None if self.stays is None else self.stays & ~columns
        return replace(self, lower=lower, upper=upper, stays=stays)

    def settle(self, rows: Tensor, pinned: Tensor | None = None) -> Tensor:
        """Legal rows nearby that keep the ties of their queries, where there are any.

        `pinned`: columns that keep their values where that is possible, (queries, width).
        """
        return rows if self.ties is None else self.ties.settle(rows, self.sides, pinned)

    def with_groups(self, columns: Tensor) -> Tensor:
        """A mask of columns, (queries, width), with all of a group that it has a column of."""
        return columns if self.ties is None else self.ties.with_groups(columns)

    def ties_held(self, rows: Tensor) -> Tensor:
        """Which rows keep the ties of their queries, (queries,)."""
        if self.ties is None:
            return torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        return self.ties.held(rows, self.sides)

    @property
    def can_be_kept(self) -> Tensor:
        """For which queries any row keeps the ties, (queries,), as far as is known beforehand."""
        if self.ties is None:
            return torch.ones(len(self.lower), dtype=torch.bool)
        return torch.from_numpy(self.ties.arrays["possible"])

    @property
    def sides(self) -> Sides:
        """Bounds, the queries, and what may stay outside: what ties compare with."""
        assert self.queries is not None, "ties compare with the queries"
        stays = torch.zeros_like(self.lower, dtype=torch.bool) if self.stays is None else self.stays
        sides = (self.lower, self.upper, self.queries, stays)
        return Sides(*(each.detach().cpu().numpy() for each in sides))


@dataclass(frozen=True)
class LinkedColumns:
    """A link of the schema, by encoded columns."""

    source: slice  # the categories of the source
    derived: slice
    table: Tensor  # the encoded derived value of each category, (categories, derived columns)
    missing: int | None  # the column that says that the source is missing

    def derived_columns(self, rows: Tensor, box: Box) -> Tensor:
        """The derived columns by the table; where the source did not move, the query's own."""
        source = rows[:, self.source]
        moved = source.sum(dim=1, keepdim=True)  # 0 where the source is missing
        kept = rows[:, self.derived]
        if box.queries is not None:
            moved = moved - (source * box.queries[:, self.source]).sum(dim=1, keepdim=True)
            kept = box.queries[:, self.derived]
        return torch.where(moved > 0.5, self.table[source.argmax(dim=1)], kept)

    def with_category(self, rows: Tensor, box: Box, place: int) -> Tensor:
        """The rows with the source at a category where that is open, and what follows."""
        column, moved = self.source.start + place, rows.clone()
        moved[:, self.source] = 0.0
        moved[:, column] = 1.0
        if self.missing is not None:
            moved[:, self.missing] = 0.0
        moved[:, self.derived] = self.table.to(rows)[place]
        return torch.where(box.upper[:, column, None] > 0.5, moved, rows)

    def gain(self, rows: Tensor, gradient: Tensor, box: Box) -> Tensor:
        """What the derived feature adds to the gain of moving the source to each category."""
        uphill = gradient[:, self.derived]
        after = uphill @ self.table.T
        if box.queries is not None:
            back = (uphill * box.queries[:, self.derived]).sum(dim=1, keepdim=True)
            after = torch.where(box.queries[:, self.source] > 0.5, back, after)
        return after - (uphill * rows[:, self.derived]).sum(dim=1, keepdim=True)

    def gain_of_missing(self, rows: Tensor, gradient: Tensor, box: Box) -> Tensor:
        """The same for a source that goes missing again: the query's own derived value is back."""
        if box.queries is None:
            return torch.zeros_like(rows[:, 0])
        way = box.queries[:, self.derived] - rows[:, self.derived]
        return (gradient[:, self.derived] * way).sum(dim=1)

    def close_categories(self, queries: Array, lower: Array, upper: Array) -> None:
        """Close, in place, categories that would lead the derived feature out of its bounds.

        The query's own category stays open, and its own derived value is put inside the bounds.
        """
        table = self.table.cpu().numpy()
        inside = table >= lower[:, None, self.derived] - SLACK
        inside &= table <= upper[:, None, self.derived] + SLACK
        upper[:, self.source] *= inside.all(axis=2) | (queries[:, self.source] > 0.5)
        own = queries[:, self.derived]
        lower[:, self.derived] = np.minimum(lower[:, self.derived], own)
        upper[:, self.derived] = np.maximum(upper[:, self.derived], own)


def linked_columns(encoding: Encoding, device: torch.device | None = None) -> list[LinkedColumns]:
    """The links of the schema."""
    blocks = {block.feature.name: block for block in encoding.blocks}
    found = []
    for link in encoding.schema.links:
        source, derived = blocks[link.source], blocks[link.derived]
        values = [link.values[category] for category in source.feature.values or ()]
        encoded = [derived.feature.encode_value(value) for value in values]
        table = torch.tensor(encoded, dtype=torch.float32, device=device)
        missing = source.stop - 1 if source.feature.missing else None
        found.append(LinkedColumns(source.categories, derived.at, table, missing))
    return found


def box_around(
    encoding: Encoding, queries: Array, rules: ManyRules = None, immutable: Collection[str] = ()
) -> Box:
    """The box of each encoded query (queries, width): the schema's rules, and tighter ones on top.

    `rules`: for all queries, or a sequence with one for each. `immutable`: names of features that
    must stay as well.
    """
    own = queries.astype(np.float32)
    distinct, which = distinct_rules(rules, len(own), immutable)
    found = [_common_bounds(encoding, each) for each in distinct]
    present: set[int] = set().union(*(each.present for each in found))
    common = ([each.lower, each.upper, each.marks] for each in found)
    lower, upper, marks = (np.stack(sides)[which] for sides in zip(*common, strict=True))
    if present & {Mark.INCREASING, Mark.DECREASING}:
        lower, upper = _one_way_bounds(encoding, own, marks, lower, upper)
    if present & {Mark.FORWARD, Mark.BACKWARD}:
        upper = _ordered_categories(encoding, own, marks, upper)
    if present & {Mark.CLOSED, Mark.FORWARD, Mark.BACKWARD}:
        upper = np.where(marks >= Mark.CLOSED, np.maximum(upper, own), upper)
    if Mark.FIXED in present:
        is_fixed = marks == Mark.FIXED
        lower, upper = (np.where(is_fixed, own, side) for side in (lower, upper))
    for number, each in enumerate(distinct):
        if each.transitions:
            _close_transitions(encoding, each, which == number, own, (lower, upper))
    links = linked_columns(encoding)
    for link in links:
        link.close_categories(own, lower, upper)
    stays = ((own < lower) | (own > upper)) & _known(encoding, own)
    is_tied, may_stay = any(each.is_tied for each in found), bool(stays.any())
    asked = torch.from_numpy(own)
    box = Box(
        torch.from_numpy(lower),
        torch.from_numpy(upper),
        queries=asked if links or is_tied or may_stay else None,
        stays=torch.from_numpy(stays) if may_stay else None,
    )
    if not is_tied:
        return box
    under = [each.features for each in found]
    ties = ties_of(encoding, distinct, under, which, queries.astype(np.float64))
    starts = [box.own(asked)]
    for link in links:
        starts += [link.with_category(starts[0], box, place) for place in range(len(link.table))]
    return replace(box, ties=ties.with_feasibility(starts, box.sides))


def bounds_of_good(encoding: Encoding, queries: Tensor) -> Box | None:
    """The box of what is no worse for the person, whatever the rules are; None for any row."""
    free = _with_good_alone(encoding)
    return None if free is None else box_around(free, queries.cpu().numpy()).to(queries.device)


@lru_cache(maxsize=32)
def _with_good_alone(encoding: Encoding) -> Encoding | None:
    """The encoding of a schema with no rules but what is good; None where it does not say."""
    every = encoding.schema.features
    if all(each.better == "any" for each in every):
        return None
    lifted: dict[str, Any] = {"immutable": False, "direction": "any", "allowed": None, "step": None}
    features = tuple(
        each.model_copy(update={k: v for k, v in lifted.items() if k in type(each).model_fields})
        for each in every
    )
    return Encoding(encoding.schema.model_copy(update={"features": features, "links": ()}))


def distinct_rules(
    rules: ManyRules, count: int, immutable: Collection[str] = ()
) -> tuple[list[Rules], Array]:
    """The different Rules, and which of them each query has: their numbers, (queries,)."""
    if rules is None or isinstance(rules, Rules):
        return [(rules or NO_RULES).and_immutable(immutable)], np.zeros(count, dtype=np.intp)
    if not rules or not all(isinstance(each, Rules) for each in rules):
        raise RequestError("rules must be Rules, or a list of Rules with one for each query")
    if len(rules) != count:
        raise RequestError(f"rules: {len(rules)} of them for {count} queries; one for each")
    place: dict[Rules, int] = {}
    which = np.array([place.setdefault(each, len(place)) for each in rules])
    return [each.and_immutable(immutable) for each in place], which


def of_table(
    rules: ManyRules, immutable: Collection[str], schema: Schema
) -> tuple[ManyRules, Collection[str]]:
    """The same rules, with the names and values of the table in place of what people call them."""
    if schema.names and isinstance(immutable, Collection) and not isinstance(immutable, str):
        immutable = [schema.column_called(name) for name in immutable]
    if isinstance(rules, Rules):
        rules = rules.of_table(schema)
    elif schema.names and isinstance(rules, list) and all(isinstance(e, Rules) for e in rules):
        own = {each: each.of_table(schema) for each in rules}
        rules = [own[each] for each in rules]
    return rules, immutable


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


class _CommonBounds(NamedTuple):
    """Bounds and Mark of every encoded column, whoever asks; and the features under the rules."""

    lower: Array
    upper: Array
    marks: Array
    present: set[int]  # the marks that are there
    features: tuple[Feature, ...]
    is_tied: bool  # whether the rules tie features, or have steps


@lru_cache(maxsize=32)
def _common_bounds(encoding: Encoding, rules: Rules) -> _CommonBounds:
    features = rules.tighten(encoding.schema)
    lower, upper, marks = (
        [each for one in side for each in one]
        for side in zip(*(feature.bounds() for feature in features), strict=True)
    )
    low, high = (np.array(side, dtype=np.float32) for side in (lower, upper))
    groups = bool(rules.relations or rules.together or rules.only_one)
    is_tied = groups or any(each.step for each in features)
    return _CommonBounds(low, high, np.array(marks, dtype=np.int8), {*marks}, features, is_tied)


def _one_way_bounds(
    encoding: Encoding, own: Array, marks: Array, lower: Array, upper: Array
) -> tuple[Array, Array]:
    """Bounds of numbers and bits that only go one way; a missing number may become any."""
    known = _known(encoding, own)
    lower = np.where((marks == Mark.INCREASING) & known, np.maximum(lower, own), lower)
    upper = np.where((marks == Mark.DECREASING) & known, np.minimum(upper, own), upper)
    nowhere = lower > upper  # the rules leave no other value: this one stays
    return np.where(nowhere, own, lower), np.where(nowhere, own, upper)


def _known(encoding: Encoding, own: Array) -> Array:
    """Where no number is that is missing, (queries, width)."""
    known = np.ones_like(own, dtype=bool)
    for block in encoding.blocks:
        if block.missing_flag is not None:
            known[:, block.start] = own[:, block.missing_flag] < 0.5
    return known


def _ordered_categories(encoding: Encoding, own: Array, marks: Array, upper: Array) -> Array:
    """Upper bounds with the categories behind the query's closed; all open where it is missing."""
    upper = upper.copy()
    for block in encoding.blocks:
        if block.feature.one_hot and block.feature.ordered:
            at = block.categories
            here = own[:, at]
            missing = 1 - here.sum(axis=1, keepdims=True)
            ahead = here.cumsum(axis=1) + missing
            behind = here[:, ::-1].cumsum(axis=1)[:, ::-1] + missing
            upper[:, at] *= np.where(marks[:, at] == Mark.FORWARD, ahead, np.float32(1))
            upper[:, at] *= np.where(marks[:, at] == Mark.BACKWARD, behind, np.float32(1))
    return upper


def _close_transitions(
    encoding: Encoding, rules: Rules, mine: Array, own: Array, sides: tuple[Array, Array]
) -> None:
    """Close, in place, values that transitions do not lead to, for the queries that are `mine`.

    Where the value is missing, it may become any.
    """
    lower, upper = sides
    for block in encoding.blocks:
        pairs = rules.transitions.get(block.feature.name)
        if pairs is None:
            continue
        values = list(block.feature.values or ())
        leads = np.eye(len(values), dtype=np.float32)
        for before, after in pairs:
            leads[values.index(before), values.index(after)] = 1
        if block.feature.one_hot:
            here = own[mine, block.categories]
            is_open = np.maximum(here @ leads, 1 - here.sum(1, keepdims=True))
            upper[mine, block.categories] *= is_open
        else:
            there = leads[own[mine, block.start].astype(np.intp)]
            lower[mine, block.start] = np.maximum(lower[mine, block.start], 1 - there[:, 0])
            upper[mine, block.start] = np.minimum(upper[mine, block.start], there[:, 1])
