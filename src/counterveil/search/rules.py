"""Rules of one query: what this person can act on, besides what the schema says of everybody.

Rules only ever tighten the schema: what is immutable in either stays, allowed values must be
allowed by both, and opposite directions leave a feature where it is.

>>> rules = Rules(immutable=["sex"], direction={"age": "increase"}, allowed={"hours": (20, 40)})
>>> rules == Rules.of_mapping({"immutable": ["sex"], "direction": {"age": "increase"},
...                            "allowed": {"hours": [20, 40]}})
True
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NoReturn

from counterveil.errors import RequestError
from counterveil.schema import Binary, Categorical, Category, Direction, Numeric, Pixels, Schema

AnyFeature = Numeric | Categorical | Binary | Pixels
DIRECTIONS = ("any", "increase", "decrease")


@dataclass(frozen=True, eq=False)
class Rules:
    """What may change, how far and how dearly.

    `immutable`: features that must stay. `direction`: "increase", "decrease" or "any" for numbers,
    binaries and ordered categories. `allowed`: a range (low, high) of a number, or a list of
    categories, that an answer may move to. `max_changes`: how many features may change at most.
    `costs`: how dear a change of a feature is; 1 where nothing is said.
    """

    immutable: Collection[str] = ()
    direction: Mapping[str, Direction] = field(default_factory=dict)
    allowed: Mapping[str, Sequence[Category | float]] = field(default_factory=dict)
    max_changes: int | None = None
    costs: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.immutable, str) or not _are(self.immutable, str):
            _refuse("immutable", "must be a list of feature names")
        for name in ("direction", "allowed", "costs"):
            if not isinstance(getattr(self, name), Mapping):
                _refuse(name, "must say something for each feature that it names")
            object.__setattr__(self, name, dict(getattr(self, name)))
        for name, direction in self.direction.items():
            if not isinstance(direction, str) or direction not in DIRECTIONS:
                _refuse("direction", f"{name!r} must be any, increase or decrease")
        for name, allowed in self.allowed.items():
            if isinstance(allowed, (str, Mapping)) or not _are(allowed, (int, float, str)):
                _refuse("allowed", f"{name!r} must be a range [low, high] or a list of categories")
        for name, cost in self.costs.items():
            if not _is_number(cost) or cost <= 0:
                _refuse("costs", f"{name!r} must be a positive number")
        most = self.max_changes
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
            _refuse("max_changes", "must be a whole number from 1")
        object.__setattr__(self, "immutable", frozenset(self.immutable))
        key = self._make_key()
        object.__setattr__(self, "_key", key)
        object.__setattr__(self, "_hash", hash(key))

    def _make_key(self) -> tuple[Any, ...]:
        return (
            self.immutable,
            frozenset((name, way) for name, way in self.direction.items() if way != "any"),
            frozenset((name, tuple(allowed)) for name, allowed in self.allowed.items()),
            self.max_changes,
            frozenset(self.costs.items()),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rules) and self.__dict__["_key"] == other.__dict__["_key"]

    def __hash__(self) -> int:
        return int(self.__dict__["_hash"])

    @classmethod
    def of_mapping(cls, content: Any) -> Rules:
        """The rules of a JSON file."""
        if not isinstance(content, Mapping):
            raise RequestError("rules must be a JSON object with immutable, direction, allowed, …")
        known = [each.name for each in fields(cls)]
        for name in content:
            if name not in known:
                raise RequestError(f"rules: no rule {name!r}; there are: {', '.join(known)}")
        return cls(**content)

    def and_immutable(self, names: Collection[str]) -> Rules:
        """These rules, with more features that must stay."""
        if isinstance(names, str):
            _refuse("immutable", "must be a list of feature names")
        return replace(self, immutable={*self.immutable, *names}) if names else self

    def tighten(self, schema: Schema) -> tuple[AnyFeature, ...]:
        """The schema's features under these rules as well; an error where they do not fit."""
        features = {feature.name: feature for feature in schema.features}
        for rule in ("immutable", "direction", "allowed", "costs"):
            for name in getattr(self, rule):
                if name not in features:
                    known = ", ".join([*features][:12])
                    _refuse(rule, f"no feature {name!r}; the schema has: {known}")
        for name in {*self.immutable, *self.direction, *self.allowed}:
            features[name] = self.tighten_feature(features[name])
        for link in schema.links:
            if features[link.derived].immutable:
                features[link.source] = _frozen(features[link.source])
        for link in schema.links:
            if features[link.source].immutable:
                features[link.derived] = _frozen(features[link.derived])
        return tuple(features.values())

    def tighten_feature(self, feature: AnyFeature) -> AnyFeature:
        """One feature under these rules as well."""
        name = feature.name
        changes: dict[str, Any] = {}
        if name in self.immutable:
            changes["immutable"] = True
        direction = self.direction.get(name, "any")
        if name in self.allowed:
            if isinstance(feature, Pixels):
                _refuse("allowed", f"{name!r} are pixels; they can only be immutable")
            if isinstance(feature, Numeric):
                changes["allowed"] = _range(feature, self.allowed[name])
            elif isinstance(feature, Categorical):
                changes["allowed"] = _categories(feature, self.allowed[name])
            else:
                only = _bit_direction(feature, self.allowed[name])
                opposite = {only, direction} == {"increase", "decrease"}
                changes["immutable"] = changes.get("immutable", feature.immutable) or opposite
                direction = only if direction == "any" else direction
        if direction != "any":
            if isinstance(feature, Pixels):
                _refuse("direction", f"{name!r} are pixels; they can only be immutable")
            if isinstance(feature, Categorical) and not feature.ordered:
                _refuse("direction", f"{name!r} has no order; 'ordered': true in the schema")
            if feature.direction == "any":
                changes["direction"] = direction
            elif feature.direction != direction:
                changes["immutable"] = True
        return feature.model_copy(update=changes) if changes else feature


def _refuse(rule: str, words: str) -> NoReturn:
    raise RequestError(f"{rule}: {words}")


def _frozen(feature: AnyFeature) -> AnyFeature:
    return feature if feature.immutable else feature.model_copy(update={"immutable": True})


def _are(values: Any, kinds: type | tuple[type, ...]) -> bool:
    return isinstance(values, Collection) and all(isinstance(value, kinds) for value in values)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _range(feature: Numeric, asked: Collection[Any]) -> tuple[float, float]:
    """What a rule and the schema both allow."""
    name = feature.name
    if isinstance(asked, (set, frozenset)) or len(asked) != 2 or not all(map(_is_number, asked)):
        _refuse("allowed", f"{name!r} is a number; a range [low, high] was expected")
    low, high = asked
    if low > high or (feature.integer and math.ceil(low) > math.floor(high)):
        _refuse("allowed", f"{name!r}: the range {low:g} to {high:g} is empty")
    if low < feature.lower or high > feature.upper:
        bounds = f"{feature.lower:g} to {feature.upper:g}"
        _refuse("allowed", f"{name!r}: {low:g} to {high:g} is outside the bounds {bounds}")
    if feature.allowed is not None:
        low, high = max(low, feature.allowed[0]), min(high, feature.allowed[1])
        if low > high or (feature.integer and math.ceil(low) > math.floor(high)):
            lowest, highest = feature.allowed
            _refuse("allowed", f"{name!r}: the schema allows {lowest:g} to {highest:g} only")
    return float(low), float(high)


def _categories(feature: Categorical, asked: Collection[Any]) -> tuple[Category, ...]:
    _check_categories(feature.name, feature.categories, asked)
    usual = feature.allowed or feature.categories
    kept = tuple(category for category in usual if category in asked)
    if not kept:
        words = ", ".join(str(category) for category in usual[:12])
        _refuse("allowed", f"{feature.name!r}: the schema allows only: {words}")
    return kept


def _bit_direction(feature: Binary, asked: Collection[Any]) -> Direction:
    """A bit that may only move to one of its values only moves in one direction."""
    _check_categories(feature.name, feature.values, asked)
    no, yes = (value in asked for value in feature.values)
    return "any" if no and yes else "increase" if yes else "decrease"


def _check_categories(name: str, known: tuple[Category, ...], asked: Collection[Any]) -> None:
    if not asked:
        _refuse("allowed", f"{name!r}: the list is empty; make the feature immutable")
    for category in asked:
        if category not in known:
            words = ", ".join(str(each) for each in known[:12])
            _refuse("allowed", f"{name!r} has no category {category!r}; it has: {words}")
