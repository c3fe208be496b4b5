"""Rules of one query: what this person can act on, besides what the schema says of everybody.

Rules only ever tighten the schema: what is immutable in either stays, allowed values must be
allowed by both, and opposite directions leave a feature where it is.

>>> rules = Rules(immutable=["sex"], direction={"age": "increase"}, allowed={"hours": (20, 40)})
>>> rules == Rules.of_mapping({"immutable": ["sex"], "direction": {"age": "increase"},
...                            "allowed": {"hours": [20, 40]}})
True
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NoReturn

from counterveil.errors import RequestError
from counterveil.hints import did_you_mean, named
from counterveil.schema import Category, Direction, Feature, Schema
from counterveil.schema.kind import Rule

DIRECTIONS = ("any", "increase", "decrease")
LARGEST = 1e300  # of a number: a larger one is none for the computer
COSTS = 1e-6, 1e6  # the least and the most that a change may cost
STAYS = Rule(immutable=True)


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
            if any(type(value) is int and abs(value) > LARGEST for value in allowed):
                _refuse("allowed", f"{name!r}: a number is too large; use one up to 1e15")
        for name, cost in self.costs.items():
            is_number = isinstance(cost, (int, float)) and not isinstance(cost, bool)
            if not is_number or not COSTS[0] <= cost <= COSTS[1]:
                _refuse("costs", f"{name!r} must be a positive number from 1e-6 to 1e6")
        limit = self.max_changes
        is_count = isinstance(limit, int) and not isinstance(limit, bool) and limit >= 1
        if limit is not None and not is_count:
            _refuse("max_changes", "must be a whole number from 1")
        object.__setattr__(self, "immutable", frozenset(self.immutable))

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        """Equal for rules that ask the same."""
        return (
            self.immutable,
            frozenset((name, way) for name, way in self.direction.items() if way != "any"),
            frozenset((name, tuple(allowed)) for name, allowed in self.allowed.items()),
            self.max_changes,
            frozenset(self.costs.items()),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rules) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @classmethod
    def of_mapping(cls, content: Any) -> Rules:
        """The rules of a JSON file."""
        if not isinstance(content, Mapping):
            raise RequestError("rules must be a JSON object with immutable, direction, allowed, …")
        known = [each.name for each in fields(cls)]
        for name in content:
            if name not in known:
                meant = did_you_mean(name, known)
                raise RequestError(f"rules: no rule {name!r}; there are: {named(known)}{meant}")
        return cls(**content)

    def and_immutable(self, names: Collection[str]) -> Rules:
        """These rules, with more features that must stay."""
        if isinstance(names, str):
            _refuse("immutable", "must be a list of feature names")
        return replace(self, immutable={*self.immutable, *names}) if names else self

    def tighten(self, schema: Schema) -> tuple[Feature, ...]:
        """The schema's features under these rules as well; an error where they do not fit."""
        features = {feature.name: feature for feature in schema.features}
        for rule in ("immutable", "direction", "allowed", "costs"):
            for name in getattr(self, rule):
                if name not in features:
                    meant = did_you_mean(name, features)
                    _refuse(rule, f"no feature {name!r}; the schema has: {named(features)}{meant}")
        for name in {*self.immutable, *self.direction, *self.allowed}:
            features[name] = self.tighten_feature(features[name])
        for link in schema.links:
            if features[link.derived].immutable:
                features[link.source] = features[link.source].tightened(STAYS)
        for link in schema.links:
            if features[link.source].immutable:
                features[link.derived] = features[link.derived].tightened(STAYS)
        return tuple(features.values())

    def tighten_feature(self, feature: Feature) -> Feature:
        """One feature under these rules as well."""
        name = feature.name
        direction, allowed = self.direction.get(name, "any"), self.allowed.get(name)
        return feature.tightened(Rule(name in self.immutable, direction, allowed))


def _refuse(rule: str, words: str) -> NoReturn:
    raise RequestError(f"{rule}: {words}")


def _are(values: Any, kinds: type | tuple[type, ...]) -> bool:
    return isinstance(values, Collection) and all(isinstance(value, kinds) for value in values)
