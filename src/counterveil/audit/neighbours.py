"""Pairs of neighbouring tables that are as far apart as neighbours can be.

Each pair moves the exact sums by as much as their stated sensitivity allows, or touches a rule that
is easy to get wrong. The tables are tiny: the adversary knows all other records, so more of them
would not help it, and the noise does not depend on them.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from counterveil.curator.plan import Plan, make_plan
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array
from counterveil.privacy import Budget
from counterveil.schema import Binary, Categorical, Feature, Label, Numeric, Pixels, Schema

CLASSES = ("no", "yes")
Record = dict[str, Any]
Records = list[Record]


@dataclass(frozen=True)
class Pair:
    """Two tables, D (`one`) and D' (`two`), of the same length, that differ in one unit."""

    name: str
    schema: Schema
    one: pd.DataFrame
    two: pd.DataFrame
    order: int | None = None
    unit_column: str | None = None
    max_records: int = 1

    @cached_property
    def tables(self) -> tuple[PrivateTable, PrivateTable]:
        """D and D' as a release reads them."""
        units: Any = {"unit_column": self.unit_column, "max_records": self.max_records}
        one, two = (PrivateTable(frame, self.schema, **units) for frame in (self.one, self.two))
        return one, two

    def plan(self, budget: Budget) -> Plan:
        """The plan of a release. It reads public numbers only, so it is the same for D and D'."""
        records = self.max_records if self.unit_column else 1
        return make_plan(self.schema, len(self.one), budget, records=records, order=self.order)


def one_feature() -> Pair:
    """The worst pair: a single table of counts, in which one record moves to another cell."""
    first, second = {"x": "a", "label": "no"}, {"x": "b", "label": "yes"}
    return _pair("one feature", [_letters("x")], _spread("x"), [first], [second])


def wide() -> Pair:
    """Eleven features, all of which change together with the class."""
    names = [f"x{number}" for number in range(11)]
    first = dict.fromkeys(names, "a") | {"label": "no"}
    second = dict.fromkeys(names, "c") | {"label": "yes"}
    features = [_letters(name) for name in names]
    return _pair("eleven features", features, _spread(*names), [first], [second], order=1)


def pairs_of_features() -> Pair:
    """Order 2 on three features: single counts, the choice of a tree, and counts of pairs.

    The replaced record breaks a perfect dependence of x on z and makes one of y on z.
    """

    def record(x: str, y: str, z: float, label: str) -> Record:
        return {"x": x, "y": y, "z": z, "label": label}

    features = [_letters("x"), _letters("y"), Numeric(name="z", lower=0, upper=8)]
    others = [
        record("abc"[row % 3], "abc"[row // 3 % 3], float(row % 3 * 3), CLASSES[row % 2])
        for row in range(12)
    ]
    first, second = record("a", "b", 0.0, "no"), record("c", "c", 8.0, "yes")
    return _pair("order 2", features, others, [first], [second], order=2)


def persons() -> Pair:
    """One person with five records of which three are used; all of them move to another cell."""
    others = [record | {"who": f"p{number}"} for number, record in enumerate(_spread("x"))]
    first = [{"x": "a", "label": "no", "who": "q"}] * 5
    second = [{"x": "b", "label": "yes", "who": "q"}] * 5
    name, units = "one person, three records", {"unit_column": "who", "max_records": 3}
    return _pair(name, [_letters("x")], others, first, second, **units)


def bits() -> Pair:
    """A set of bits with as many ones as are kept, and another without a one in common."""
    return _bit_pair("bits", [{0, 20}, {3, 21}, {30}, {7, 8}] * 3, {0, 1, 2, 3}, {10, 11, 12, 13})


def crowded_bits() -> Pair:
    """All other records have more ones than are kept; the replaced one has none, or all of them.

    What is kept of a record must depend on this record alone, or all the others move with it.
    """
    others = [set(range(start, start + 20)) for start in (0, 4, 8, 12, 16, 20)] * 60
    return _bit_pair("crowded bits", others, set(), set(range(40)))


def images() -> Pair:
    """A white image of one class, and a chequered one of the other."""
    image = Pixels(name="p", height=8, breadth=8, levels=16)

    def record(pixels: Array, label: str) -> Record:
        return dict(zip(image.columns, pixels.tolist(), strict=True)) | {"label": label}

    row, column = np.indices((8, 8))
    chequered = 16 * ((row // 4 + column // 4) % 2).ravel()
    noise = np.random.default_rng(0).integers(0, 17, (12, 64))
    others = [record(pixels, CLASSES[number % 2]) for number, pixels in enumerate(noise)]
    first, second = record(np.full(64, 16), "no"), record(chequered, "yes")
    return _pair("images", [image], others, [first], [second])


def last_of_its_class() -> Pair:
    """The replaced record is the only one of its class: without it, one class is left."""
    others = [record | {"label": "no"} for record in _spread("x")]
    first, second = {"x": "a", "label": "yes"}, {"x": "a", "label": "no"}
    return _pair("last of its class", [_letters("x")], others, [first], [second])


def last_of_its_kind() -> Pair:
    """The replaced record is the only one that differs in a column: without it, a constant."""
    others = [record | {"y": "a"} for record in _spread("x")]
    first, second = {"x": "a", "y": "b", "label": "yes"}, {"x": "a", "y": "a", "label": "yes"}
    features = [_letters("x"), _letters("y")]
    return _pair("last of its kind", features, others, [first], [second], order=1)


PURE_PAIRS = (one_feature, wide, pairs_of_features, persons, bits, crowded_bits, images)
APPROXIMATE_PAIRS = (wide, pairs_of_features, bits, images)  # are played with δ > 0, too


def _letters(name: str) -> Feature:
    return Categorical(name=name, categories=("a", "b", "c"))


def _spread(*names: str) -> Records:
    """Twelve records over all cells of the named features and both classes."""
    return [
        dict.fromkeys(names, "abc"[row % 3]) | {"label": CLASSES[row // 3 % 2]} for row in range(12)
    ]


def schema_of(*features: Feature) -> Schema:
    """A schema of these features and of the two `CLASSES`."""
    return Schema(name="audit", features=features, label=Label(name="label", classes=CLASSES))


def _pair(
    name: str, features: list[Feature], others: Records, first: Records, second: Records, **how: Any
) -> Pair:
    """The other records with `first` after them in D, and with `second` after them in D'."""
    one, two = pd.DataFrame(others + first), pd.DataFrame(others + second)
    return Pair(name, schema_of(*features), one, two, **how)


def _bit_pair(name: str, others: list[set[int]], first: set[int], second: set[int]) -> Pair:
    """Records of 40 bits, each given by where its ones are.

    The replaced record comes before all others: whatever it disturbs, it disturbs for all of them.
    """

    def record(ones: set[int], label: str) -> Record:
        return {f"b{bit}": int(bit in ones) for bit in range(40)} | {"label": label}

    features: list[Feature] = [Binary(name=f"b{bit}") for bit in range(40)]
    rest = [record(ones, CLASSES[number % 2]) for number, ones in enumerate(others)]
    return _pair(name, features, [], [record(first, "no"), *rest], [record(second, "yes"), *rest])
