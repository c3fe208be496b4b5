"""Relations between two numbers that every answer keeps: a <= b, or a == b, in original units.

A relation says nothing of a row in which one of the two is missing. It must hold in the answer,
whether or not it holds in the query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, NoReturn

from counterveil.errors import RequestError
from counterveil.schema import Feature

SIGNS = ("<=", "==")


class Relation(NamedTuple):
    """The number `left` is at most the number `right`; or both are equal."""

    left: str
    sign: Literal["<=", "=="]
    right: str

    def __str__(self) -> str:
        return f"{self.left} {self.sign} {self.right}"

    @classmethod
    def of(cls, given: Any) -> Relation:
        """A relation of a list such as ["rent", "<=", "income"]."""
        is_list = isinstance(given, (list, tuple)) and len(given) == 3
        if not is_list or not all(isinstance(part, str) for part in given):
            _refuse('each must be a list such as ["rent", "<=", "income"]')
        left, sign, right = given
        if sign not in SIGNS:
            _refuse(f"{left!r} {sign} {right!r}: the sign must be <= or ==; name the smaller first")
        if left == right:
            _refuse(f"{left!r} is compared with itself; name two features")
        return cls(left, sign, right)


def check_relations(relations: Sequence[Relation], features: Mapping[str, Feature]) -> None:
    """A RequestError where a relation is not between numbers, or where no row could keep all."""
    for relation in relations:
        for name in (relation.left, relation.right):
            if not features[name].is_one_number:
                _refuse(f"{relation}: {name!r} is no number; relations are between numbers")
    for equal in equal_names(relations):
        steps = {features[name].step for name in equal}
        if len(steps) > 1:
            _refuse(f"{' == '.join(equal)}: give all of them the same step, or none")
    names = {name for each in relations for name in (each.left, each.right)}
    ranges = {name: _range(features[name]) for name in names}
    for _ in range(len(relations) + 1):  # a chain of relations is as long as that at most
        for relation in relations:
            pairs = [(relation.left, relation.right)]
            pairs += [(relation.right, relation.left)] if relation.sign == "==" else []
            for lower, upper in pairs:
                (low, high), (least, most) = ranges[lower], ranges[upper]
                ranges[lower], ranges[upper] = (low, min(high, most)), (max(least, low), most)
                if low > most:
                    words = f"{lower!r} is at least {low:g} and {upper!r} at most {most:g}"
                    _refuse(f"{relation} can never hold, because {words}; change one of the rules")


def equal_names(relations: Sequence[Relation]) -> list[tuple[str, ...]]:
    """The sets of features that relations make equal: each is at most each other one.

    >>> equal_names([Relation("a", "<=", "b"), Relation("b", "==", "c")])
    [('b', 'c')]
    """
    pairs = [(each.left, each.right) for each in relations]
    pairs += [(each.right, each.left) for each in relations if each.sign == "=="]
    above = {name: {name} for pair in pairs for name in pair}
    for _ in above:
        for lower, upper in pairs:
            above[lower] |= above[upper]
    classes = {tuple(sorted(two for two in above[one] if one in above[two])) for one in above}
    return sorted(each for each in classes if len(each) > 1)


def _range(feature: Feature) -> tuple[float, float]:
    """Where the number of an answer lies; what stays may lie outside what is allowed."""
    allowed = None if feature.immutable else feature.allowed_range()
    return allowed or feature.number_range or (0.0, 0.0)


def _refuse(words: str) -> NoReturn:
    raise RequestError(f"relations: {words}")
