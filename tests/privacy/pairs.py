"""Neighbouring tables of any kind, as strategies of Hypothesis: schema, rows, people, and a change.

Cells may not fit the schema, labels may be unknown, people have as many records as they like at any
places, and the person in the other's place has another number of them.
"""

import math

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from counterveil.audit.pair import Pair
from counterveil.privacy import Budget
from counterveil.schema import Binary, Categorical, Label, Numeric, Pixels, Schema

ODD = [None, "", "?", "nowhere", "1e3", " 1", math.nan, math.inf, -1e9, 1e18, True, 2.5, "7"]
LABELS = ("no", "yes", 3, 4)
NOBODY = [None, "", math.nan]


@st.composite
def numbers(draw, name):
    lower = draw(st.sampled_from([0, -5, -1_000_000]))
    upper = lower + draw(st.sampled_from([1, 8, 400, 2_000_000]))
    whole, missing = draw(st.booleans()), draw(st.booleans())
    return Numeric(name=name, lower=lower, upper=upper, integer=whole, missing=missing)


@st.composite
def categories(draw, name):
    values = draw(st.sampled_from([("a", "b"), ("a", "b", "c"), (1, 2, 30), ("07", "7", "é")]))
    return Categorical(name=name, categories=values, missing=draw(st.booleans()))


@st.composite
def binaries(draw, name):
    return Binary(name=name, values=draw(st.sampled_from([(0, 1), ("n", "y")])))


@st.composite
def features_of(draw, family):
    if family == "image":
        side, levels = draw(st.sampled_from([4, 6])), draw(st.sampled_from([1, 16, 255]))
        return (Pixels(name="p", height=side, breadth=side, levels=levels),)
    if family == "binary":
        return tuple(Binary(name=f"b{at}") for at in range(draw(st.sampled_from([3, 30]))))
    kinds = draw(st.lists(st.sampled_from([numbers, categories, binaries]), min_size=1, max_size=4))
    made = [draw(kind(f"x{at}")) for at, kind in enumerate(kinds)]
    return tuple(
        made if {each.kind for each in made} != {"binary"} else [*made, draw(numbers("z"))]
    )


@st.composite
def schemas(draw, families=("mixed", "mixed", "mixed", "binary", "image")):
    features = draw(features_of(draw(st.sampled_from(families))))
    classes = LABELS[: draw(st.integers(2, 4))]
    return Schema(name="drawn", features=features, label=Label(name="label", classes=classes))


def cells(feature):
    """Legal cells of each column of a feature."""
    if isinstance(feature, Numeric):
        within = {"min_value": feature.lower, "max_value": feature.upper}
        ends = st.sampled_from([feature.lower, feature.upper])
        return [ends | (st.integers(**within) if feature.integer else st.floats(**within))]
    if isinstance(feature, Pixels):
        return [st.integers(0, feature.levels)] * feature.width
    return [st.sampled_from(feature.values)]


@st.composite
def rows(draw, schema, least, most):
    """Rows of a schema; in one column of some tables there is anything at all."""
    columns = [cell for feature in schema.features for cell in cells(feature)]
    columns.append(st.sampled_from(schema.label.classes))
    for at in draw(st.sets(st.integers(0, len(columns) - 1), max_size=2)):
        columns[at] = columns[at] | st.sampled_from(ODD)
    if len(columns) < 20:
        return draw(st.lists(st.tuples(*columns), min_size=least, max_size=most))
    # So many cells are drawn by dice.
    dice = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    tops = [getattr(feature, "levels", 1) for feature in schema.features] * len(columns)
    count, share = draw(st.integers(least, most)), draw(st.sampled_from([0.1, 0.5, 1.0]))
    drawn = dice.integers(0, np.array(tops[: len(columns) - 1]) + 1, (count, len(columns) - 1))
    drawn = drawn * (dice.random(drawn.shape) < share)
    made = [[*row, draw(columns[-1])] for row in drawn.tolist()]
    if made and draw(st.booleans()):
        made[0][0] = draw(st.sampled_from(ODD))
    return [tuple(row) for row in made]


def placed(draw, others, own):
    """The other rows in their order, and the person's own among them at any places."""
    made = list(others)
    for row in own:
        made.insert(draw(st.integers(0, len(made))), row)
    return made


@st.composite
def pairs(draw, **families):
    """D and D': one record replaced, or all of one person's by another person's."""
    schema = draw(schemas(**families))
    names = [*schema.columns, schema.label.name]
    others = draw(rows(schema, 1, 14)) * draw(st.sampled_from([1, 1, 1, 7]))
    if draw(st.booleans()):
        place = draw(st.integers(0, len(others)))
        first, second = draw(rows(schema, 2, 2))
        tables = [[*others[:place], own, *others[place:]] for own in (first, second)]
        units = {}
    else:
        who = st.sampled_from([1, "01", 2, 3, "p", "P", 4.0, *NOBODY])
        others = [(*row, draw(who)) for row in others]
        tables = [
            placed(draw, others, [(*row, name) for row in draw(rows(schema, 1, 6))])
            for name in (77, "Bob")
        ]
        names.append("who")
        units = {"unit_column": "who", "max_records": draw(st.sampled_from([1, 2, 4]))}
    in_parts = draw(st.sampled_from([False, False, False, True]))
    one, two = (pd.DataFrame(table, columns=names, dtype=object) for table in tables)
    if in_parts:  # in a file a column is of one kind
        one, two = (frame.astype(str) for frame in (one, two))
    order, planned = (
        draw(st.sampled_from([None, 1, 2])),
        draw(st.sampled_from([None, 10**4, 10**7])),
    )
    frequencies = schema.family == "image" and draw(st.booleans())
    return Pair(
        "drawn", schema, one, two, order, **units, planned=planned,
        by_frequencies=frequencies, in_parts=in_parts,
    )  # fmt: skip


budgets = st.builds(Budget, st.sampled_from([0.05, 1.0, 4.0]), st.sampled_from([0.0, 1e-6, 0.01]))
batches = st.sampled_from([1, 2, 3, 5, 8, 9, 50_000])  # rows that are read, or summed, together
