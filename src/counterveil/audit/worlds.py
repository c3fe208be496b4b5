"""Pairs of neighbouring tables that are as far apart as neighbours can be.

Each pair is built to reach the sensitivity of what is measured from it, or to touch a rule that is
easy to get wrong. Both tables are tiny: fewer other records do not help the adversary, who knows
them all, and the noise does not depend on them.
"""

from __future__ import annotations

from dataclasses import dataclass
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

    @property
    def tables(self) -> tuple[PrivateTable, PrivateTable]:
        """Both tables behind glass, as a release would hold them."""
        return self._behind_glass(self.one), self._behind_glass(self.two)

    def plan(self, budget: Budget) -> Plan:
        """The plan of a release; the same for both tables, for it reads public numbers only."""
        records = self.max_records if self.unit_column else 1
        return make_plan(self.schema, len(self.one), budget, records=records, order=self.order)

    def _behind_glass(self, private_frame: pd.DataFrame) -> PrivateTable:
        return PrivateTable(
            private_frame,
            self.schema,
            unit_column=self.unit_column,
            max_records=self.max_records,
        )


def one_feature() -> Pair:
    """The worst pair: one table of counts, in which one moves from a cell to another."""
    return _replace_last("one feature", _schema(_letters("x")), _spread("x"),
                         {"x": "a", "label": "no"}, {"x": "b", "label": "yes"})  # fmt: skip


def wide() -> Pair:
    """Eleven features, all of which change together with the class."""
    names = [f"x{number}" for number in range(11)]
    schema = _schema(*(_letters(name) for name in names))
    first, second = (dict.fromkeys(names, cell) for cell in ("a", "c"))
    return _replace_last("eleven features", schema, _spread(*names),
                         first | {"label": "no"}, second | {"label": "yes"}, order=1)  # fmt: skip


def pairs_of_features() -> Pair:
    """Order 2 on three features: single counts, the choice of a tree, and counts of pairs.

    The replaced record breaks a perfect dependence of x on z and makes one of y on z.
    """
    features = _letters("x"), _letters("y"), Numeric(name="z", lower=0, upper=8)
    others = [
        {"x": "abc"[row % 3], "y": "abc"[row // 3 % 3], "z": float(row % 3 * 3),
         "label": CLASSES[row % 2]}
        for row in range(12)
    ]  # fmt: skip
    return _replace_last(
        "order 2", _schema(*features), others, {"x": "a", "y": "b", "z": 0.0, "label": "no"},
        {"x": "c", "y": "c", "z": 8.0, "label": "yes"}, order=2,
    )  # fmt: skip


def persons() -> Pair:
    """One person with five records of which three are used; all of them move to another cell."""
    others = [record | {"who": f"p{number}"} for number, record in enumerate(_spread("x"))]
    first, second = ([{"x": cell, "label": label, "who": "q"}] * 5
                     for cell, label in (("a", "no"), ("b", "yes")))  # fmt: skip
    return Pair("one person, three records", _schema(_letters("x")), pd.DataFrame(others + first),
                pd.DataFrame(others + second), unit_column="who", max_records=3)  # fmt: skip


def bits() -> Pair:
    """A set of bits with as many ones as are kept, and another without a one in common."""
    return _bit_pair("bits", [{0, 20}, {3, 21}, {30}, {7, 8}] * 3, {0, 1, 2, 3}, {10, 11, 12, 13})


def crowded_bits() -> Pair:
    """Every other record has more ones than are kept; the replaced one has, or has not.

    What is kept of a record must depend on this record alone, or all the others move with it.
    """
    others = [set(range(start, start + 20)) for start in (0, 4, 8, 12, 16, 20)] * 60
    return _bit_pair("crowded bits", others, set(), set(range(40)))


def images() -> Pair:
    """A white image of one class, and a chequered one of the other."""
    image = Pixels(name="p", height=8, breadth=8, levels=16)
    rng = np.random.default_rng(0)
    columns = np.arange(64).reshape(8, 8)
    chequered = 16 * ((columns // 8 // 4 + columns % 8 // 4) % 2).ravel()
    pixels = rng.integers(0, 17, (12, 64))
    labels = [CLASSES[row % 2] for row in range(12)]
    one, two = (
        pd.DataFrame(np.vstack([pixels, last]), columns=list(image.columns)).assign(
            label=[*labels, label]
        )
        for last, label in ((np.full(64, 16), "no"), (chequered, "yes"))
    )
    return Pair("images", _schema(image), one, two)


def last_of_its_class() -> Pair:
    """The replaced record is the only one of its class: without it one class is left."""
    others = [record | {"label": "no"} for record in _spread("x")]
    return _replace_last("last of its class", _schema(_letters("x")), others,
                         {"x": "a", "label": "yes"}, {"x": "a", "label": "no"})  # fmt: skip


def last_of_its_kind() -> Pair:
    """The replaced record is the only one that differs in a column: without it, a constant."""
    others = [record | {"y": "a"} for record in _spread("x")]
    return _replace_last("last of its kind", _schema(_letters("x"), _letters("y")), others,
                         {"x": "a", "y": "b", "label": "yes"},
                         {"x": "a", "y": "a", "label": "yes"}, order=1)  # fmt: skip


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
    return Pair(
        name, schema, pd.DataFrame([*others, first]), pd.DataFrame([*others, second]), order=order
    )


def _bit_pair(name: str, others: list[set[int]], first: set[int], second: set[int]) -> Pair:
    """The replaced record comes first: whatever it disturbs, it disturbs for all the others."""
    features = tuple(Binary(name=f"b{bit}") for bit in range(40))

    def record(ones: set[int], label: str) -> Record:
        return {f"b{bit}": int(bit in ones) for bit in range(40)} | {"label": label}

    rest = [record(ones, CLASSES[number % 2]) for number, ones in enumerate(others)]
    return Pair(
        name,
        _schema(*features),
        pd.DataFrame([record(first, "no"), *rest]),
        pd.DataFrame([record(second, "yes"), *rest]),
    )
