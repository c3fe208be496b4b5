"""Rules of one query: what this person can act on, besides what the schema says of everybody.

Rules only ever tighten the schema: what is immutable in either stays, allowed values must be
allowed by both, and opposite directions leave a feature where it is. Only what is `good` for the
person gives way, to a direction that is asked for. docs/rules.md says what each rule means.

>>> rules = Rules(immutable=["sex"], direction={"age": "increase"}, allowed={"hours": (20, 40)})
>>> rules == Rules.of_mapping({"immutable": ["sex"], "direction": {"age": "increase"},
...                            "allowed": {"hours": [20, 40]}})
True
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import Any, NoReturn, TypedDict

import numpy as np

from counterveil.errors import RequestError
from counterveil.hints import did_you_mean, named
from counterveil.schema import Category, Direction, Feature, Schema
from counterveil.schema.kind import Rule
from counterveil.search.constraints.relations import Relation, check_relations

DIRECTIONS = ("any", "increase", "decrease")
LARGEST = 1e300  # of a number: a larger one is none for the computer
LIMITS = {  # the least and the most that a number of a rule may be
    "costs": (1e-6, 1e6, "from 1e-6 to 1e6"),
    "steps": (1e-9, 1e15, "from 1e-9 to 1e15"),
}
STAYS = Rule(immutable=True)


class RuleChoices(TypedDict, total=False):
    """The rules that may be given as keywords of `Explainer.explain`: see `Rules`."""

    direction: Mapping[str, Direction]
    allowed: Mapping[str, Sequence[Category | float]]
    max_changes: int | None
    costs: Mapping[str, float]
    steps: Mapping[str, float]
    relations: Collection[Sequence[str | float] | str]
    together: Collection[Collection[str]]
    only_one: Collection[Collection[str]]
    transitions: Mapping[str, Collection[Sequence[Category]]]
    may_change: Collection[str] | None


@dataclass(frozen=True, eq=False)
class Rules:
    """What may change, how far and how dearly.

    - `immutable`: features that must stay.
    - `direction`: "increase", "decrease" or "any" for numbers, binaries and ordered categories.
      What is said here takes the place of what the schema says is `good` for the person.
    - `allowed`: a range (low, high) of a number, or a list of categories, that an answer may move
      to.
    - `max_changes`: how many features may change at most.
    - `costs`: how dear a change of a feature is; 1 where nothing is said.
    - `steps`: a number that changes becomes a multiple of its step.
    - `relations`: lists such as ("rent", "<=", "income"), ("a", "<=", "b", 1) for a <= b + 1, or
      texts such as "a == b - 1", that hold in every answer.
    - `together`: groups of features; if one changes, all change, and the numbers all in the same
      direction.
    - `only_one`: groups of features of which at most one changes.
    - `transitions`: pairs (from, to) of values of a category or binary feature: who has the first
      may stay, or go to the second; who has a value that no pair begins with stays.
    - `may_change`: the only features that may change; None for all.

    A rule that is None says nothing.
    """

    immutable: Collection[str] = ()
    direction: Mapping[str, Direction] = field(default_factory=dict)
    allowed: Mapping[str, Sequence[Category | float]] = field(default_factory=dict)
    max_changes: int | None = None
    costs: Mapping[str, float] = field(default_factory=dict)
    steps: Mapping[str, float] = field(default_factory=dict)
    relations: Collection[Sequence[str | float] | str] = ()
    together: Collection[Collection[str]] = ()
    only_one: Collection[Collection[str]] = ()
    transitions: Mapping[str, Collection[Sequence[Category]]] = field(default_factory=dict)
    may_change: Collection[str] | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            if getattr(self, each.name) is None and each.default is not None:
                made = each.default_factory
                object.__setattr__(self, each.name, each.default if made is MISSING else made())
        for name in ("immutable", "may_change"):
            names = getattr(self, name)
            if names is not None and (isinstance(names, str) or not _are(names, str)):
                _refuse(name, "must be a list of feature names")
        for name in ("direction", "allowed", "costs", "steps", "transitions"):
            if not isinstance(getattr(self, name), Mapping):
                _refuse(name, "must say something for each feature that it names")
            plain = {each: _plain(value) for each, value in getattr(self, name).items()}
            object.__setattr__(self, name, plain)
        self._check_values()
        object.__setattr__(self, "immutable", frozenset(self.immutable))
        if self.may_change is not None:
            object.__setattr__(self, "may_change", frozenset(self.may_change))
        object.__setattr__(self, "relations", _relations(self.relations))
        for name in ("together", "only_one"):
            object.__setattr__(self, name, _groups(name, getattr(self, name)))
        moves = {name: _pairs(name, pairs) for name, pairs in self.transitions.items()}
        object.__setattr__(self, "transitions", moves)
        self._check_groups()

    def _check_values(self) -> None:
        """That what is said of each feature has the right type."""
        for name, direction in self.direction.items():
            if not isinstance(direction, str) or direction not in DIRECTIONS:
                _refuse("direction", f"{name!r} must be any, increase or decrease")
        for name, allowed in self.allowed.items():
            if not _is_list(allowed) or not _are(allowed, (int, float, str)):
                _refuse("allowed", f"{name!r} must be a range [low, high] or a list of categories")
            if any(type(value) is int and abs(value) > LARGEST for value in allowed):
                _refuse("allowed", f"{name!r}: a number is too large; use one up to 1e15")
        for rule, (least, most, limits) in LIMITS.items():
            for name, number in getattr(self, rule).items():
                is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
                if not is_number or not least <= number <= most:
                    _refuse(rule, f"{name!r} must be a positive number {limits}")
        limit = self.max_changes
        is_count = isinstance(limit, int) and not isinstance(limit, bool) and limit >= 1
        if limit is not None and not is_count:
            _refuse("max_changes", "must be a whole number from 1")
        if self.may_change is not None and not self.may_change:
            _refuse("may_change", "names no feature; name those that may change")

    def _check_groups(self) -> None:
        """That no group asks the opposite of another."""
        seen: set[str] = set()
        for group in self.together:
            for name in group:
                if name in seen:
                    _refuse("together", f"{name!r} is in two groups; make them one")
            seen.update(group)
            for single in self.only_one:
                both = [name for name in single if name in group]
                if len(both) > 1:
                    _refuse("only_one", f"{named(both)} must change together; leave one out")

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        """Equal for rules that ask the same."""
        return (
            self.immutable,
            frozenset(self.direction.items()),
            frozenset((name, tuple(allowed)) for name, allowed in self.allowed.items()),
            self.max_changes,
            frozenset(self.costs.items()),
            frozenset(self.steps.items()),
            self.relations,
            self.together,
            self.only_one,
            frozenset((name, frozenset(pairs)) for name, pairs in self.transitions.items()),
            self.may_change,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rules) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def relations_of(self, schema: Schema) -> tuple[Relation, ...]:
        """The relations between features of a schema."""
        called, every = schema.column_called, schema.features
        names = [name for each in every for name in (each.name, each.label) if name]
        found: dict[Relation, None] = {}
        for each in self.relations:
            read: Any = Relation.of_text(each, names) if isinstance(each, str) else each
            found[replace(read, left=called(read.left), right=called(read.right))] = None
        return tuple(found)

    def of_table(self, schema: Schema) -> Rules:
        """These rules with the names and values of the table in the place of what people say."""
        if not schema.names:
            return self
        called = schema.column_called
        value_of = {feature.name: feature.value_called for feature in schema.features}

        def own(name: str, said: Any) -> Any:
            if isinstance(said, (list, tuple, set, frozenset)):
                return type(said)(own(name, each) for each in said)
            return value_of.get(called(name), _plain)(said)

        def columns(names: Collection[str] | None) -> Any:
            return names if names is None else [called(name) for name in names]

        def by_column(said: Mapping[str, Any]) -> dict[str, Any]:
            return {called(name): each for name, each in said.items()}

        def with_values(said: Mapping[str, Any]) -> dict[str, Any]:
            return {called(name): own(name, each) for name, each in said.items()}

        return replace(
            self,
            immutable=columns(self.immutable),
            direction=by_column(self.direction),
            allowed=with_values(self.allowed),
            costs=by_column(self.costs),
            steps=by_column(self.steps),
            together=[columns(group) for group in self.together],
            only_one=[columns(group) for group in self.only_one],
            transitions=with_values(self.transitions),
            may_change=columns(self.may_change),
        )

    @classmethod
    def of_mapping(cls, content: Any) -> Rules:
        """The rules of a JSON file."""
        if not isinstance(content, Mapping):
            raise RequestError("rules must be a JSON object with immutable, allowed, steps, …")
        known = [each.name for each in fields(cls)]
        for name in content:
            if name not in known:
                meant = did_you_mean(name, known)
                raise RequestError(f"rules: no rule {name!r}; there are: {named(known)}{meant}")
        return cls(**content)

    def to_dict(self, schema: Schema) -> dict[str, Any]:
        """The rules as a JSON file has them, relations as lists; only what says something."""
        content = {each.name: _as_json(getattr(self, each.name)) for each in fields(self)}
        relations = ((e.left, e.sign, e.right, e.offset) for e in self.relations_of(schema))
        content["relations"] = [list(each) for each in relations]
        return {name: said for name, said in content.items() if said not in (None, [], {})}

    def and_immutable(self, names: Collection[str]) -> Rules:
        """These rules, with more features that must stay."""
        if isinstance(names, str):
            _refuse("immutable", "must be a list of feature names")
        return _and_immutable(self, frozenset(names)) if names else self

    def tighten(self, schema: Schema) -> tuple[Feature, ...]:
        """The schema's features under these rules as well; an error where they do not fit."""
        features = {feature.name: feature for feature in schema.features}
        named_by = ("immutable", "direction", "allowed", "costs", "steps", "transitions")
        for rule in (*named_by, "may_change"):
            self._check_names(rule, getattr(self, rule) or (), features)
        relations = self.relations_of(schema)
        for each in relations:
            self._check_names("relations", (each.left, each.right), features)
        said = {*self.immutable, *self.direction, *self.allowed, *self.steps}
        for name, feature in features.items():
            if name in said or feature.better != "any":
                features[name] = self.tighten_feature(feature)
        self._check_followers(schema, features)
        for name, pairs in self.transitions.items():
            _check_transitions(features[name], pairs)
        for name in self.held(schema):
            features[name] = features[name].tightened(STAYS)
        for link in schema.links * 2:  # what one holds back holds all of its source
            if features[link.derived].immutable or features[link.source].immutable:
                for name in (link.source, link.derived):
                    features[name] = features[name].tightened(STAYS)
        check_relations(relations, features)
        return tuple(features.values())

    def held(self, schema: Schema) -> set[str]:
        """The features that must stay: `immutable` ones, and those that `may_change` leaves out.

        What is linked with a feature that may change may change, too.
        """
        if self.may_change is None:
            return set(self.immutable)
        free = set(self.may_change)
        for link in schema.links * 2:  # a source links all that follow it
            names = {link.source, link.derived}
            free |= names if free & names else set()
        return {feature.name for feature in schema.features} - free | set(self.immutable)

    def _check_followers(self, schema: Schema, features: Mapping[str, Feature]) -> None:
        """That the rules which move features by themselves name none that follows a source."""
        source_of = {link.derived: link.source for link in schema.links}
        for name in self.steps:
            if name in source_of:
                _refuse("steps", f"{name!r} follows {source_of[name]!r}; leave its step out")
        groups = {"together": self.together, "only_one": self.only_one}
        for rule, group in ((rule, group) for rule, some in groups.items() for group in some):
            self._check_names(rule, group, features)
            for name in group:
                if name in source_of:
                    _refuse(rule, f"{name!r} follows {source_of[name]!r}; name that one")
                if len(features[name].columns) > 1:
                    _refuse(rule, f"{name!r} are pixels; they can only be immutable")

    @staticmethod
    def _check_names(rule: str, names: Collection[str], features: Mapping[str, Feature]) -> None:
        for name in names:
            if name not in features:
                called = [*features, *(each.label for each in features.values() if each.label)]
                there = f"the schema has: {named(features)}{did_you_mean(name, called)}"
                _refuse(rule, f"no feature {name!r}; {there}")

    def tighten_feature(self, feature: Feature) -> Feature:
        """One feature under these rules as well."""
        name = feature.name
        direction, allowed = self.direction.get(name, feature.better), self.allowed.get(name)
        step = self.steps.get(name)
        return feature.tightened(Rule(name in self.immutable, direction, allowed, step))


@lru_cache(maxsize=32)
def _and_immutable(rules: Rules, names: frozenset[str]) -> Rules:
    """Checked once: whoever asks about one row after the other gives the same names each time."""
    return replace(rules, immutable={*rules.immutable, *names})


def _refuse(rule: str, words: str) -> NoReturn:
    raise RequestError(f"{rule}: {words}")


def _plain(value: Any) -> Any:
    """Numbers of numpy, as they come out of a table, as plain ones; lists of them, too."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return type(value)(each.item() if isinstance(each, np.generic) else each for each in value)
    return value


def _as_json(value: Any) -> Any:
    """A rule as plain values; what has no order is sorted."""
    if isinstance(value, Mapping):
        return {name: _as_json(said) for name, said in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(each) for each in value]
    return sorted(value, key=str) if isinstance(value, (set, frozenset)) else value


def _are(values: Any, kinds: type | tuple[type, ...]) -> bool:
    return isinstance(values, Collection) and all(isinstance(value, kinds) for value in values)


def _is_list(given: Any) -> bool:
    return isinstance(given, Collection) and not isinstance(given, (str, Mapping))


def _relations(given: Any) -> tuple[Relation | str, ...]:
    """Relations; those that are texts as they are, until a schema says which names they hold."""
    if not _is_list(given):
        _refuse("relations", 'must be a list of lists such as ["rent", "<=", "income"]')
    kept = (str, Relation)
    read = (each if isinstance(each, kept) else Relation.of(each) for each in given)
    return tuple(dict.fromkeys(read))


def _groups(rule: str, given: Any) -> tuple[tuple[str, ...], ...]:
    """The groups of a rule, each with its names in the given order."""
    if not _is_list(given):
        _refuse(rule, "must be a list of groups, each a list of feature names")
    groups = []
    for group in given:
        if not _is_list(group) or not _are(group, str):
            _refuse(rule, "each group must be a list of feature names")
        names = tuple(dict.fromkeys(group))
        if len(names) < 2:
            _refuse(rule, f"the group {named(names)} needs two features or more")
        groups.append(names)
    return tuple(dict.fromkeys(groups))


def _pairs(name: str, given: Any) -> tuple[tuple[Category, Category], ...]:
    """The transitions of a feature."""
    pairs: list[Any] = [_plain(pair) for pair in given] if _is_list(given) else [None]
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not _are(pair, (str, int)):
            _refuse("transitions", f'{name!r} must be a list of pairs such as ["from", "to"]')
    return tuple(dict.fromkeys((before, after) for before, after in pairs))


def _check_transitions(feature: Feature, pairs: Collection[Sequence[Category]]) -> None:
    """That the values of transitions are those of the feature."""
    if feature.values is None:
        kind = "are pixels" if len(feature.columns) > 1 else "is a number"
        words = f"{feature.name!r} {kind}; transitions are between listed values"
        _refuse("transitions", f"{words}: use steps, allowed or direction")
    for value in (each for pair in pairs for each in pair):
        if value not in feature.values:
            _refuse("transitions", f"{feature.name!r} has no value {value!r}{feature.offer(value)}")
