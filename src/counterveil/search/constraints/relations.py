"""Relations between two numbers that every answer keeps: a <= b + 1, or a == b, in original units.

A relation says nothing of a row in which one of the two is missing. It must hold in the answer,
whether or not it holds in the query.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, NoReturn

import numpy as np

from counterveil.encoding import Array
from counterveil.errors import RequestError
from counterveil.schema import Feature

SIGNS = ("<=", "==")
LARGEST_OFFSET = 1e15
OFFSET_TOLERANCE = 1e-11  # of the numbers: what adding an offset may be off by
SHAPE = 'a list such as ["rent", "<=", "income"] or ["rent", "<=", "income", -100], or a text'
LONGEST = 1000  # letters of a text
NUMBER = r"\d++\.?\d*+(?:[eE][+-]?\d++)?"
TEXT = r"({})(<=|==|>=|=|<|>)\s*+({})" + rf"(?:([+-])\s*+({NUMBER}))?"  # read in linear time


@dataclass(frozen=True)
class Relation:
    """The number `left` is at most the number `right` and `offset`; or both are equal."""

    left: str
    sign: Literal["<=", "=="]
    right: str
    offset: float = 0.0

    @property
    def parts(self) -> list[str | float]:
        """The list that it is read from: ["rent", "<=", "income", -100.0]."""
        return [self.left, self.sign, self.right, self.offset]

    def __str__(self) -> str:
        return self.in_words(self.left, self.right)

    def in_words(self, left: str, right: str) -> str:
        """The relation with other names for its features: "rent <= income - 100"."""
        more = f" {'-' if self.offset < 0 else '+'} {abs(self.offset):.15g}" if self.offset else ""
        return f"{left} {self.sign} {right}{more}"

    @classmethod
    def of(cls, given: Any) -> Relation:
        """A relation of a list such as ["rent", "<=", "income", -100]."""
        is_list = isinstance(given, (list, tuple)) and len(given) in {3, 4}
        if not is_list or not all(isinstance(part, str) for part in given[:3]):
            _refuse(f"each must be {SHAPE}")
        left, sign, right = given[:3]
        offset = given[3] if len(given) == 4 else 0.0
        is_number = isinstance(offset, (int, float, np.number)) and not isinstance(offset, bool)
        if not is_number or not abs(offset) <= LARGEST_OFFSET:
            _refuse(f"{left!r} {sign} {right!r}: the offset must be a number up to 1e15")
        if sign not in SIGNS:
            _refuse(f"{left!r} {sign} {right!r}: the sign must be <= or ==; name the smaller first")
        if left == right:
            _refuse(f"{left!r} is compared with itself; name two features")
        return cls(left, sign, right, float(offset))

    @classmethod
    def of_text(cls, text: str, names: Collection[str] = ()) -> Relation:
        """A relation of a text such as "rent <= income - 100" between features of these `names`.

        Names may hold spaces, hyphens and digits: the longest that fit are meant.

        >>> Relation.of_text("net-pay <= net-2", ["net", "net-2", "net-pay"])
        Relation(left='net-pay', sign='<=', right='net-2', offset=0.0)
        """
        if len(text) > LONGEST:
            _refuse(f"a text may have at most {LONGEST} letters; write {SHAPE}")
        known = {name.strip(): name for name in names}
        some = "|".join(map(re.escape, sorted(known, key=len, reverse=True))) or r"(?!)"
        pairs = [rf"(?:{some})\s*+"] * 2, ["[^<=>]++", ".+?"]
        tried = (re.fullmatch(TEXT.format(*pair), text.strip(), re.DOTALL) for pair in pairs)
        found = next(filter(None, tried), None)
        if found is None:
            _refuse(f"{text!r} is not understood; write {SHAPE} such as 'rent <= income - 100'")
        left, sign, right, minus, number = (part and part.strip() for part in found.groups())
        left, right = known.get(left, left), known.get(right, right)
        if right not in names and re.fullmatch(rf"[+-]?{NUMBER}", right):
            _refuse(f"{text!r} compares with a number; use 'allowed' for that")
        return cls.of([left, sign, right, float(f"{minus or ''}{number or 0}")])

    def holds(self, one: Array, two: Array) -> Array:
        """Where numbers keep it, but for what adding the offset rounds; not where one is NaN."""
        off = OFFSET_TOLERANCE if self.offset else 0.0
        slack = off * (np.abs(one) + np.abs(two) + abs(self.offset))
        gap = one - (two + self.offset)
        return np.asarray(np.abs(gap) <= slack if self.sign == "==" else gap <= slack)


def pairs_of(relations: Sequence[Relation]) -> list[tuple[str, str, float]]:
    """Relations as (a, b, offset), each of which says that a is at most b + offset."""
    there = [(each.left, each.right, each.offset) for each in relations]
    equal = [each for each in relations if each.sign == "=="]
    return there + [(each.right, each.left, -each.offset) for each in equal]


def check_relations(relations: Sequence[Relation], features: Mapping[str, Feature]) -> None:
    """A RequestError where a relation is not between numbers, or where no row could keep all."""
    for relation in relations:
        for name in (relation.left, relation.right):
            if not features[name].is_one_number:
                _refuse(f"{relation}: {name!r} is no number; relations are between numbers")
    most = _tightest(relations)
    if around := {name for name in most if most[name][name] < -OFFSET_TOLERANCE}:
        told = [str(each) for each in relations if {each.left, each.right} <= around]
        _refuse(f"{' and '.join(told)} can never hold together; change one of them")
    for equal in equal_shifts(relations):
        _check_steps([features[name] for name in equal], [*equal.values()])
    _check_ranges(relations, features)


def _check_steps(features: Sequence[Feature], shifts: Sequence[float]) -> None:
    """Refuse features that must be equal, but for `shifts`, if their steps never meet."""
    names = " and ".join(feature.name for feature in features)
    if len({feature.step for feature in features}) > 1:
        _refuse(f"{names} must be equal: give all of them the same step, or none")
    on_grid = [pair for pair in zip(map(grid_of, features), shifts, strict=True) if pair[0] > 0]
    for step, shift in on_grid:
        times = (shift - on_grid[0][1]) / step
        if abs(times - round(times)) > 1e-9:
            _refuse(f"{names}: the offset must be a multiple of {step:g}, as the numbers are")


def _check_ranges(relations: Sequence[Relation], features: Mapping[str, Feature]) -> None:
    """Refuse relations that the bounds of the schema rule out. What is allowed does not: the own
    value of a query may stay outside of it."""
    pairs = pairs_of(relations)
    names = {name for pair in pairs for name in pair[:2]}
    ranges = {name: features[name].number_range or (0.0, 0.0) for name in names}
    for _ in names:  # a chain of relations is as long as that at most
        for lower, upper, offset in pairs:
            (low, high), (least, most) = ranges[lower], ranges[upper]
            ranges[lower] = low, min(high, most + offset)
            ranges[upper] = max(least, low - offset), most
            if low > most + offset:
                words = f"{lower!r} is at least {low:g} and {upper!r} at most {most:g}"
                mine = [each for each in relations if {each.left, each.right} == {lower, upper}]
                _refuse(f"{mine[0]} can never hold, because {words}")


def grid_of(feature: Feature) -> float:
    """What the values of a number are multiples of; 0 for a continuum."""
    return feature.step or float(feature.is_whole)


def equal_shifts(relations: Sequence[Relation]) -> list[dict[str, float]]:
    """The sets of features that relations make equal, but for what each has more than the first.

    >>> equal_shifts([Relation("a", "<=", "b"), Relation("c", "==", "b", 2.0)])
    [{'b': 0.0, 'c': 2.0}]
    """
    most = _tightest(relations)
    found: dict[str, dict[str, float]] = {}
    for name in sorted(most):
        for first in [*found, name]:
            there, back = most[name][first], most[first][name]
            if math.isfinite(there + back) and math.isclose(there, -back, abs_tol=OFFSET_TOLERANCE):
                found.setdefault(first, {})[name] = there
                break
    return [each for each in found.values() if len(each) > 1]


def _tightest(relations: Sequence[Relation]) -> dict[str, dict[str, float]]:
    """What relations say of each pair (a, b): the least number that a - b is at most."""
    pairs = pairs_of(relations)
    names = dict.fromkeys(name for pair in pairs for name in pair[:2])
    most = {one: {two: 0.0 if one == two else math.inf for two in names} for one in names}
    for lower, upper, offset in pairs:
        most[lower][upper] = min(most[lower][upper], offset)
    for middle, one, two in product(names, repeat=3):
        most[one][two] = min(most[one][two], most[one][middle] + most[middle][two])
    return most


def _refuse(words: str) -> NoReturn:
    raise RequestError(f"relations: {words}")
