"""Whether a row keeps rules: said once more, in plain Python, with nothing of the product's search.

Rows are records in original units, None for a missing value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from counterveil.schema import Feature, Schema

Record = dict[str, Any]
NO_RULES: dict[str, Any] = {"immutable": [], "direction": {}, "allowed": {}, "steps": {}}


def violations(schema: Schema, rules: dict[str, Any], query: Record, row: Record) -> list[str]:
    """The rules that the answer `row` breaks, named; none for an answer that may be given out.

    `rules`: as a JSON file has them.
    """
    changed = {name for name in query if query[name] != row[name]}
    return [
        *_of_features(schema, rules, query, row, changed),
        *_of_several(schema, rules, query, row, changed),
    ]


def _of_features(
    schema: Schema, rules: dict[str, Any], query: Record, row: Record, changed: set[str]
) -> Iterator[str]:
    source_of = {link.derived: link for link in schema.links}
    for feature in schema.features:
        name, before, after = feature.name, query[feature.name], row[feature.name]
        if not is_legal(feature, after):
            yield f"illegal value of {name}"
            continue
        if name in source_of:
            link = source_of[name]
            moved = link.source in changed and row[link.source] is not None
            if after != (link.values[row[link.source]] if moved else before):
                yield f"link of {name}"
        if name not in changed:
            continue
        if after is None:
            yield f"{name} made unknown"
            continue
        if feature.immutable or name in rules["immutable"]:
            yield f"immutable {name}"
        for limits in (getattr(feature, "allowed", None), rules["allowed"].get(name)):
            if limits is not None and not _is_allowed(feature, after, limits):
                yield f"allowed {name}"
        ways = {feature.direction, rules["direction"].get(name, feature.better)}
        way = 0 if before is None else _place(feature, after) - _place(feature, before)
        if ("increase" in ways and way < 0) or ("decrease" in ways and way > 0):
            yield f"direction of {name}"
        for step in (feature.step, rules["steps"].get(name)):
            if step is not None and not math.isclose(
                after, round(after / step) * step, rel_tol=1e-9, abs_tol=1e-9 * step
            ):
                yield f"step of {name}"


def _of_several(
    schema: Schema, rules: dict[str, Any], query: Record, row: Record, changed: set[str]
) -> Iterator[str]:
    linked = {name: {name} for name in query}
    for link in schema.links:
        linked[link.source].add(link.derived)
        linked[link.derived].add(link.source)
    free = rules.get("may_change")
    if free is not None and any(not linked[name] & set(free) for name in changed):
        yield "may_change"
    derived = {link.derived for link in schema.links}
    if len(changed - derived) > (rules.get("max_changes") or len(query)):
        yield "max_changes"
    for left, sign, right, *more in rules.get("relations", ()):
        one, two, offset = row[left], row[right], more[0] if more else 0
        if one is None or two is None:
            continue
        two += offset
        if (one > two if sign == "<=" else one != two) and not (offset and math.isclose(one, two)):
            yield f"{left} {sign} {right} + {offset}"
    numbers = {feature.name for feature in schema.features if feature.is_one_number}
    for group in rules.get("together", ()):
        members = {name for name in group if query[name] is not None}
        moved = members & changed
        ways = {row[name] > query[name] for name in moved & numbers if row[name] is not None}
        if moved and (moved != members or len(ways) > 1):
            yield f"together {', '.join(group)}"
    for name, pairs in rules.get("transitions", {}).items():
        if name in changed and query[name] is not None and [query[name], row[name]] not in pairs:
            yield f"transition of {name}"
    for group in rules.get("only_one", ()):
        if len(changed & set(group)) > 1:
            yield f"only one of {', '.join(group)}"


def is_legal(feature: Feature, value: Any) -> bool:
    """Whether a row may have the value at all."""
    if value is None:
        return feature.missing
    if feature.values is not None:
        return value in feature.values
    low, high = feature.number_range or (0.0, 0.0)
    is_number = isinstance(value, (int, float)) and math.isfinite(value)
    return is_number and low <= value <= high and (not feature.is_whole or value == int(value))


def _is_allowed(feature: Feature, value: Any, limits: Any) -> bool:
    return value in limits if feature.values is not None else limits[0] <= value <= limits[1]


def _place(feature: Feature, value: Any) -> float:
    return value if feature.values is None else feature.values.index(value)
