"""Pairs of neighbouring tables that are as far apart as neighbours can be.

Each pair moves the exact sums by as much as their stated sensitivity allows, or touches a rule that
is easy to get wrong. The tables are tiny: the adversary knows all other records, so more of them
would not help it, and the noise does not depend on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from counterveil.curator.plan import Plan, make_plan
from counterveil.curator.table import PrivateTable
from counterveil.privacy import Budget
from counterveil.schema import Binary, Categorical, Feature, Label, Numeric, Pixels, Schema

CLASSES = ("no", "yes")
Record = dict[str, Any]


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
    return _replace_last("one feature", _schema(_letters("x")), _spread("x"), first, second)


def wide() -> Pair:
    """Eleven features, all of which change together with the class."""
    names = [f"x{number}" for number in range(11)]
    first = dict.fromkeys(names, "a") | {"label": "no"}
    second = dict.fromkeys(names, "c") | {"label": "yes"}
    schema = _schema(*map(_letters, names))
    return _replace_last("eleven features", schema, _spread(*names), first, second, order=1)


def pairs_of_features() -> Pair:
    """Order 2 on three features: single counts, the choice of a tree, and counts of pairs.

    The replaced record breaks a perfect dependence of x on z and makes one of y on z.
    """
    schema = _schema(_letters("x"), _letters("y"), Numeric(name="z", lower=0, upper=8))

    def record(x: str, y: str, z: float, label: str) -> Record:
        return {"x": x, "y": y, "z": z, "label": label}

    others = [
        record("abc"[row % 3], "abc"[row // 3 % 3], float(row % 3 * 3), CLASSES[row % 2])
        for row in range(12)
    ]
    first, second = record("a", "b", 0.0, "no"), record("c", "c", 8.0, "yes")
    return _replace_last("order 2", schema, others, first, second, order=2)


def persons() -> Pair:
    """One person with five records of which three are used; all of them move to another cell."""
    others = [record | {"who": f"p{number}"} for number, record in enumerate(_spread("x"))]
    first = [{"x": "a", "label": "no", "who": "q"}] * 5
    second = [{"x": "b", "label": "yes", "who": "q"}] * 5
    return Pair(
        "one person, three records",
        _schema(_letters("x")),
        pd.DataFrame(others + first),
        pd.DataFrame(others + second),
        unit_column="who",
        max_records=3,
    )


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
    row, column = np.indices((8, 8))
    chequered = 16 * ((row // 4 + column // 4) % 2).ravel()
    pixels = np.random.default_rng(0).integers(0, 17, (12, 64))
    labels = [CLASSES[number % 2] for number in range(12)]
    one, two = (
        pd.DataFrame(np.vstack([pixels, last]), columns=list(image.columns)).assign(
            label=[*labels, label]
        )
        for last, label in ((np.full(64, 16), "no"), (chequered, "yes"))
    )
    return Pair("images", _schema(image), one, two)


def last_of_its_class() -> Pair:
    """The replaced record is the only one of its class: without it, one class is left."""
    others = [record | {"label": "no"} for record in _spread("x")]
    first, second = {"x": "a", "label": "yes"}, {"x": "a", "label": "no"}
    return _replace_last("last of its class", _schema(_letters("x")), others, first, second)


def last_of_its_kind() -> Pair:
    """The replaced record is the only one that differs in a column: without it, a constant."""
    others = [record | {"y": "a"} for record in _spread("x")]
    first, second = {"x": "a", "y": "b", "label": "yes"}, {"x": "a", "y": "a", "label": "yes"}
    schema = _schema(_letters("x"), _letters("y"))
    return _replace_last("last of its kind", schema, others, first, second, order=1)


PURE_PAIRS = (one_feature, wide, pairs_of_features, persons, bits, crowded_bits, images)
APPROXIMATE_PAIRS = (wide, pairs_of_features, bits, images)  # are played with δ > 0, too


def _letters(name: str) -> Categorical:
    return Categorical(name=name, categories=("a", "b", "c"))


def _schema(*features: Feature) -> Schema:
    return Schema(name="audit", features=features, label=Label(name="label", classes=CLASSES))


def _spread(*names: str) -> list[Record]:
    """Twelve records over all cells of the named features and both classes."""
    return [
        dict.fromkeys(names, "abc"[row % 3]) | {"label": CLASSES[row // 3 % 2]} for row in range(12)
    ]


def _replace_last(
    name: str,
    schema: Schema,
    others: list[Record],
    first: Record,
    second: Record,
    order: int | None = None,
) -> Pair:
    """The other records with `first` after them in D, and with `second` after them in D'."""
    one, two = (pd.DataFrame([*others, last]) for last in (first, second))
    return Pair(name, schema, one, two, order)


def _bit_pair(name: str, others: list[set[int]], first: set[int], second: set[int]) -> Pair:
    """Records of 40 bits, each given by where its ones are.

    The replaced record comes before all others: whatever it disturbs, it disturbs for all of them.
    """

    def record(ones: set[int], label: str) -> Record:
        return {f"b{bit}": int(bit in ones) for bit in range(40)} | {"label": label}

    rest = [record(ones, CLASSES[number % 2]) for number, ones in enumerate(others)]
    replaced = record(first, "no"), record(second, "yes")
    one, two = (pd.DataFrame([record, *rest]) for record in replaced)
    return Pair(name, _schema(*(Binary(name=f"b{bit}") for bit in range(40))), one, two)
