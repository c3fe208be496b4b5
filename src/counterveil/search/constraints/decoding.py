"""Encoded answers as rows in original units: every cell legal and exactly inside its rules.

Steps, relations, groups and the limit on changes are checked once more on rows as they are given
out (`Given`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from counterveil.encoding import Array, Encoding, without_float_noise
from counterveil.schema import Feature, Schema
from counterveil.schema.columns import array_of, arrays_of, numbers_of
from counterveil.schema.numeric import SLACK
from counterveil.search.constraints.bounds import SAME, ManyRules, distinct_rules
from counterveil.search.constraints.rules import Rules

RELATION_TOLERANCE = 1e-6  # of two ranges: what rounding may have put between two numbers
FEW = 4  # changed features up to which they are decoded one by one


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
        numbers = range(places.start, places.stop)
        changed = moved[:, at].T if len(numbers) > 1 else moved[:, at].any(axis=1)[None]
        for place, after, here in zip(numbers, decoded, changed, strict=True):
            told = without_float_noise(feature, array_of(after))
            told = clip_to_rules(feature, cells[place], told, rules)
            cells[place] = _where(here, told, cells[place])
    _relate_exactly(encoding, queries, cells, rules)
    return cells


def _relate_exactly(
    encoding: Encoding, queries: Sequence[Any], cells: list[Any], rules: ManyRules
) -> None:
    """Put changed numbers, in place, exactly where relations want them that miss by rounding.

    Only numbers of a continuum can miss: whole ones and multiples of a step are exact.
    """
    given = [rules] if isinstance(rules, Rules) else rules or ()
    if not any(each.relations for each in given):
        return
    distinct, which = distinct_rules(rules, len(queries[0]))
    blocks = {block.feature.name: block for block in encoding.blocks}
    for number, each in enumerate(distinct):
        for relation in each.relations_of(encoding.schema):
            mine = np.flatnonzero(which == number)
            pair = [blocks[name] for name in (relation.left, relation.right)]
            one, two = (numbers_of(cells[block.places.start])[0][mine] for block in pair)
            spans = [np.ptp(block.feature.number_range or (0, 0)) for block in pair]
            near = np.abs(one - two - relation.offset) <= RELATION_TOLERANCE * sum(spans)
            off, more = near & ~relation.holds(one, two), relation.offset
            for block, own, other in ((pair[0], one, two + more), (pair[1], two, one - more)):
                feature, place = block.feature, block.places.start
                exact = feature.is_whole or feature.step or each.steps.get(feature.name)
                free = off & (own != numbers_of(queries[place])[0][mine]) & (not exact)
                if free.any():
                    cells[place] = cells[place].copy()
                    cells[place][mine[free]] = _shortest(other[free]) if more else other[free]
                    off &= ~free


def _shortest(values: Array) -> Array:
    """Sums without the digits that adding floats leaves: 0.3, not 0.30000000000000004."""
    return np.array([float(f"{value:.13g}") for value in values.tolist()])


def clip_to_rules(feature: Feature, before: Any, after: Any, rules: ManyRules = None) -> Any:
    """Decoded answers `after` exactly inside their rules, where `before` are the queries' cells.

    Both are plain arrays. Only numbers need it: float arithmetic may leave them off by a hair.
    Numbers with a step become its multiples. What has not changed stays, wherever it is.
    """
    allowed, whole_range = feature.allowed_range(), feature.number_range
    if allowed is None or whole_range is None:
        return after
    ways = {feature.direction, feature.better}
    if rules is None and ways == {"any"} and feature.step is None and allowed == whole_range:
        return after
    distinct, which = distinct_rules(rules, len(after))
    under = [each.tighten_feature(feature) for each in distinct]
    ends = [each.allowed_range() or allowed for each in under]
    directions = np.array([each.direction for each in under])[which]
    rising, falling = directions == "increase", directions == "decrease"
    was, now = numbers_of(before)[0], numbers_of(after)[0]
    kept = np.clip(now, *np.array(ends)[which].T)
    for number, (each, own_ends) in enumerate(zip(under, ends, strict=True)):
        if each.step is not None:
            mine = which == number
            kept[mine] = _multiples(now[mine], each.step, own_ends)
    is_own = np.abs(now - was) <= SAME * (whole_range[1] - whole_range[0])
    kept = np.where(is_own | (rising & (kept < was)) | (falling & (kept > was)), was, kept)
    off = (kept != now) & ~np.isnan(now)
    if off.any():
        after = after.copy()
        after[off] = kept[off].astype(np.int64) if feature.is_whole else kept[off]
    return after


def _multiples(values: Array, step: float, ends: tuple[float, float]) -> Array:
    """The multiples of a step nearest to `values` between two ends, as they are written."""
    least, most = math.ceil(ends[0] / step - SLACK), math.floor(ends[1] / step + SLACK)
    return np.round(np.clip(np.rint(values / step), least, most) * step, decimals(step))


def as_people_write(schema: Schema, rows: pd.DataFrame) -> pd.DataFrame:
    """Invented rows with numbers as people write them, inside their bounds.

    Those are multiples of a step, and have three digits otherwise; more where the bounds are close.
    """
    derived = {link.derived for link in schema.links}
    rounded = {}
    for feature in schema.features:
        if not feature.is_one_number or feature.name in derived:
            continue
        column, (low, high) = rows[feature.name], feature.number_range or (0.0, 1.0)
        step = getattr(feature, "step", None)

        def written(number: float, low: float = low, high: float = high) -> float:
            size = min(abs(number), high - low) or 1.0
            return float(np.clip(round(number, 2 - math.floor(math.log10(size))), low, high))

        numbers = numbers_of(array_of(column))[0]
        known = ~np.isnan(numbers)
        if step:
            numbers[known] = _multiples(numbers[known], step, (low, high))
        else:
            numbers[known] = [written(each) for each in numbers[known].tolist()]
        rounded[feature.name] = pd.Series(numbers, column.index).astype(column.dtype)
    return rows.assign(**rounded)


def decimals(step: float) -> int:
    """How many digits after the point a step has, as it is written."""
    exponent = Decimal(repr(step)).as_tuple().exponent
    return max(-exponent, 0) if isinstance(exponent, int) else 0


def _where(changed: Array, after: Any, before: Any) -> Any:
    """Cells of two arrays: `after` where changed, else `before`."""
    if changed.all():
        return after
    if isinstance(after.dtype, np.dtype) and after.dtype == before.dtype:
        return np.where(changed, after, before)
    return array_of(pd.Series(after).where(changed, pd.Series(before)))


@dataclass(frozen=True)
class Given:
    """Answers as they are given out, beside their queries: columns as plain arrays.

    `changed`: which features differ, (answers, features).
    """

    encoding: Encoding
    queries: Sequence[Any]
    answers: Sequence[Any]
    changed: Array

    def keep(self, rules: ManyRules) -> Array:
        """Which answers keep steps, relations, groups and the limit on changes, (answers,).

        Bounds, directions and what must stay are checked by `Snap.broken`.
        """
        distinct, which = distinct_rules(rules, len(self.changed))
        kept = [self._keep(each) for each in distinct]
        return np.array(kept)[which, np.arange(len(self.changed))]

    def _keep(self, rules: Rules) -> Array:
        schema, kept = self.encoding.schema, np.ones(len(self.changed), dtype=bool)
        places = {feature.name: place for place, feature in enumerate(schema.features)}
        if rules.max_changes is not None:
            derived = {link.derived for link in schema.links}
            counted = [feature.name not in derived for feature in schema.features]
            kept &= self.changed[:, counted].sum(axis=1) <= rules.max_changes
        for place, feature in enumerate(schema.features):
            step = rules.steps.get(feature.name, feature.step)
            if step is not None:
                values = self._numbers(self.answers, place)
                off = np.abs(values - np.rint(values / step) * step)
                is_off = off > 1e-9 * np.maximum(np.abs(values), step)
                kept &= ~(self.changed[:, place] & is_off)
        for relation in rules.relations_of(schema):
            pair = places[relation.left], places[relation.right]
            one, two = (self._numbers(self.answers, place) for place in pair)
            kept &= relation.holds(one, two) | np.isnan(one) | np.isnan(two)
        for group in rules.together:
            kept &= self._moves_together([places[name] for name in group])
        for group in rules.only_one:
            kept &= self.changed[:, [places[name] for name in group]].sum(axis=1) <= 1
        return kept

    def _moves_together(self, group: list[int]) -> Array:
        """Whether none of a group of features changed, or all that the query has, the same way."""
        blocks = [self.encoding.blocks[place] for place in group]
        known = [pd.notna(self.queries[block.places.start]) for block in blocks]
        is_member: Array = np.array(known).T
        changed = self.changed[:, group] & is_member
        ways = [np.zeros(len(changed))]
        for place, block, member in zip(group, blocks, is_member.T, strict=True):
            if block.feature.is_one_number:
                way = self._numbers(self.answers, place) - self._numbers(self.queries, place)
                ways.append(np.where(member, np.sign(way), 0.0))
        one_way = ~((np.max(ways, axis=0) > 0) & (np.min(ways, axis=0) < 0))
        return ~changed.any(axis=1) | ((changed | ~is_member).all(axis=1) & one_way)

    def _numbers(self, cells: Sequence[Any], place: int) -> Array:
        """The numbers of a feature, NaN where missing, (answers,)."""
        return numbers_of(cells[self.encoding.blocks[place].places.start])[0]
