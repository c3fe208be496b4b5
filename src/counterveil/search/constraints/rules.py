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
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Annotated, Any, NoReturn, Self

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    StrictFloat,
    StrictInt,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from counterveil.errors import RequestError
from counterveil.hints import did_you_mean, named
from counterveil.options import Must, Options
from counterveil.schema import Category, Direction, Feature, Schema
from counterveil.schema.kind import Rule
from counterveil.search.constraints.relations import Relation, check_relations

MOST_RELATIONS = 1000
LARGEST = 1e300  # of a number: a larger one is none for the computer
STAYS = Rule(immutable=True)


def _sized(groups: Collection[Collection[str]], info: ValidationInfo) -> tuple[Any, ...]:
    """Groups with their names in the given order, each once."""
    found = tuple(dict.fromkeys(tuple(dict.fromkeys(group)) for group in groups))
    for group in found:
        if len(group) < 2:
            _refuse(info.field_name, f"the group {named(group)} needs two features or more")
    return found


def _of_a_computer(allowed: Mapping[str, Any]) -> Any:
    for name, values in allowed.items():
        if any(type(value) is int and abs(value) > LARGEST for value in values):
            _refuse("allowed", f"{name!r}: a number is too large; use one up to 1e15")
    return allowed


def _for_each(words: str, read_as: Any) -> Must:
    """That a rule must say something of each feature that it names, and what."""
    every = ": must say something for each feature that it names"
    return Must(every, f": {{}} must be {words}", dict[str, read_as])


def _numbers(least: float, most: float, limits: str) -> Must:
    """The same of numbers within limits."""
    whole = Annotated[StrictInt, Field(ge=1, le=int(most))]
    number = whole | Annotated[StrictFloat, Field(ge=least, le=most)]
    return _for_each(f"a positive number {limits}", number)


def _once(relations: Collection[Any]) -> tuple[Any, ...]:
    found = tuple(dict.fromkeys(relations))
    if len(found) > MOST_RELATIONS:
        _refuse("relations", f"there may be at most {MOST_RELATIONS}")
    return found


def _hashable(said: Any) -> Any:
    if not isinstance(said, dict):
        return said
    return frozenset((n, tuple(e) if isinstance(e, list) else e) for n, e in said.items())


def _relation(given: Any) -> Relation | str:
    """A relation; one that is a text as it is, until a schema says which names it holds."""
    return given if isinstance(given, (str, Relation)) else Relation.of(given)


Names = Annotated[
    Collection[str],
    Must(": must be a list of feature names", read_as=frozenset[str]),
    PlainSerializer(sorted, when_used="json"),
    WithJsonSchema({"type": "array", "items": {"type": "string"}}),
]
Groups = Annotated[
    Collection[Collection[str]],
    Must(
        ": must be a list of groups, each a list of feature names",
        ": each group must be a list of feature names",
        tuple[tuple[str, ...], ...],
    ),
    AfterValidator(_sized),
]
Directions = Annotated[Mapping[str, Direction], _for_each("any, increase or decrease", Direction)]
Allowed = Annotated[
    Mapping[str, Sequence[Category | float]],
    _for_each("a range [low, high] or a list of categories", list[Category | StrictFloat]),
    AfterValidator(_of_a_computer),
]
Relations = Annotated[
    Collection[Sequence[str | float] | str],
    Must(
        ': must be a list of lists such as ["rent", "<=", "income"]',
        read_as=tuple[
            Annotated[
                Any,
                PlainValidator(_relation),
                PlainSerializer(lambda each: each if isinstance(each, str) else each.parts),
                WithJsonSchema({"type": ["string", "array"], "minItems": 3, "maxItems": 4}),
            ],
            ...,
        ],
    ),
    AfterValidator(_once),
]
Transitions = Annotated[
    Mapping[str, Collection[Sequence[Category]]],
    _for_each('a list of pairs such as ["from", "to"]', tuple[tuple[Category, Category], ...]),
]
Costs = Annotated[Mapping[str, float], _numbers(1e-6, 1e6, "from 1e-6 to 1e6")]
Steps = Annotated[Mapping[str, float], _numbers(1e-9, 1e15, "from 1e-9 to 1e15")]
Limit = Annotated[StrictInt, Field(ge=1), Must(": must be a whole number from 1")]


class Rules(Options):
    """What may change, how far and how dearly. A rule that is None says nothing."""

    what = "rule"
    immutable: Names = frozenset()
    """Features that must stay."""
    direction: Directions = Field(default_factory=dict)
    """ "increase", "decrease" or "any" for numbers, binaries and ordered categories. What is said
    here takes the place of what the schema says is `good` for the person."""
    allowed: Allowed = Field(default_factory=dict)
    """A range (low, high) of a number, or a list of categories, that an answer may move to."""
    max_changes: Limit | None = None
    """How many features may change at most."""
    costs: Costs = Field(default_factory=dict)
    """How dear a change of a feature is; 1 where nothing is said."""
    steps: Steps = Field(default_factory=dict)
    """A number that changes becomes a multiple of its step."""
    relations: Relations = ()
    """Lists such as ("rent", "<=", "income"), ("a", "<=", "b", 1) for a <= b + 1, or texts such as
    "a == b - 1", that hold in every answer."""
    together: Groups = ()
    """Groups of features; if one changes, all change, and the numbers all in the same direction."""
    only_one: Groups = ()
    """Groups of features of which at most one changes."""
    transitions: Transitions = Field(default_factory=dict)
    """Pairs (from, to) of values of a category or binary feature: who has the first may stay, or go
    to the second; who has a value that no pair begins with stays."""
    may_change: Names | None = None
    """The only features that may change; None for all."""

    @model_validator(mode="after")
    def _check_groups(self) -> Self:
        """That something may change, and that no group asks the opposite of another."""
        if self.may_change is not None and not self.may_change:
            _refuse("may_change", "names no feature; name those that may change")
        group_of: dict[str, int] = {}
        for number, group in enumerate(self.together):
            for name in group:
                if group_of.setdefault(name, number) != number:
                    _refuse("together", f"{name!r} is in two groups; make them one")
        for single in self.only_one:
            both: dict[int, list[str]] = {}
            for name in filter(group_of.__contains__, single):
                both.setdefault(group_of[name], []).append(name)
            for names in both.values():
                if len(names) > 1:
                    _refuse("only_one", f"{named(names)} must change together; leave one out")
        return self

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        """Equal for rules that ask the same."""
        moves = frozenset((name, frozenset(pairs)) for name, pairs in self.transitions.items())
        return moves, *(_hashable(each) for name, each in self if name != "transitions")

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
            if isinstance(said, (list, tuple)):
                return [own(name, each) for each in said]
            return value_of.get(called(name), lambda value: value)(said)

        found = dict(self)
        for rule, said in found.items():
            if rule in {"immutable", "may_change"} and said is not None:
                found[rule] = [called(name) for name in said]
            elif rule in {"together", "only_one"}:
                found[rule] = [[called(name) for name in group] for group in said]
            elif rule in {"allowed", "transitions"}:
                found[rule] = {called(name): own(name, each) for name, each in said.items()}
            elif isinstance(said, dict):
                found[rule] = {called(name): each for name, each in said.items()}
        return Rules(**found)

    @classmethod
    def of_mapping(cls, content: Any) -> Rules:
        """The rules of a JSON file."""
        return cls.model_validate(content)

    def to_dict(self, schema: Schema) -> dict[str, Any]:
        """The rules as a JSON file has them, relations as lists; only what says something."""
        content = self.model_dump(mode="json", exclude_defaults=True)
        if self.relations:
            content["relations"] = [each.parts for each in self.relations_of(schema)]
        return content

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
        for name in sorted(names) if isinstance(names, frozenset) else names:
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
    return Rules(**{**dict(rules), "immutable": names.union(rules.immutable)})


def _refuse(rule: str | None, words: str) -> NoReturn:
    raise RequestError(f"{rule}: {words}")


def _check_transitions(feature: Feature, pairs: Collection[Sequence[Category]]) -> None:
    if feature.values is None:
        kind = "are pixels" if len(feature.columns) > 1 else "is a number"
        words = f"{feature.name!r} {kind}; transitions are between listed values"
        _refuse("transitions", f"{words}: use steps, allowed or direction")
    for value in (each for pair in pairs for each in pair):
        if value not in feature.values:
            _refuse("transitions", f"{feature.name!r} has no value {value!r}{feature.offer(value)}")
