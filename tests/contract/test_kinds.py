"""Every kind of feature answers every member, and nobody else asks which kind a feature is."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import counterveil
from counterveil.encoding import Encoding
from counterveil.errors import RequestError, SchemaError
from counterveil.schema import Binary, Categorical, Label, Numeric, Pixels, Schema
from counterveil.schema.columns import BadCellError, arrays_of
from counterveil.schema.kind import Mark

FEATURES = (
    Numeric(name="n", lower=-2, upper=3),
    Numeric(name="n", lower=0, upper=9, integer=True, missing=True, direction="increase"),
    Numeric(name="n", lower=0, upper=9, missing=True, allowed=(2, 4)),
    Categorical(name="c", categories=("a", "b", "c")),
    Categorical(name="c", categories=(3, 1, 2), missing=True, allowed=(1, 2)),
    Categorical(name="c", categories=("a", 1, "1"), ordered=True, direction="decrease"),
    Binary(name="b"),
    Binary(name="b", values=("no", "yes"), direction="decrease", immutable=True),
    Binary(name="b", values=(True, False)),
    Pixels(name="p", height=2, breadth=3, levels=4),
    Pixels(name="p", height=1, breadth=1, levels=1, immutable=True),
)
each_kind = pytest.mark.parametrize("feature", FEATURES, ids=lambda f: f"{f.kind}-{f.width}")


def legal_points(feature, count=200):
    """Encoded numbers (rows, width) of legal rows, missing values among them."""
    rng = np.random.default_rng(0)
    if feature.values is not None:
        codes = rng.integers(0, len(feature.values) + feature.missing, count)
        return np.eye(feature.width)[codes] if feature.one_hot else codes[:, None].astype(float)
    steps = np.minimum(feature.divisions, 1e6)
    points = np.round(rng.random((count, feature.width)) * steps) / steps
    if feature.missing:
        points[points[:, 1] == 1, 0] = 0.5
    return points


def encoded(feature, columns):
    out = np.zeros((len(columns[0]), feature.width))
    feature.encode(columns, out)
    return out


def table_of(feature, points):
    frame = pd.DataFrame(dict(zip(feature.columns, feature.decode(points), strict=True)))
    assert list(frame.columns) == list(feature.columns)
    return frame


@each_kind
def test_rows_and_values_survive_and_illegal_cells_do_not(feature):
    points = legal_points(feature)
    frame = table_of(feature, points)
    np.testing.assert_allclose(encoded(feature, arrays_of(frame)), points, atol=1e-12)
    schema = Schema(features=(feature,), label=Label(name="y", classes=(0, 1)))
    np.testing.assert_array_equal(
        Encoding(schema).encode(frame), encoded(feature, arrays_of(frame))
    )
    wrong = frame.astype(object)
    wrong.iloc[7, 0] = -77
    with pytest.raises(BadCellError) as caught:
        encoded(feature, arrays_of(wrong))
    assert (caught.value.rows, caught.value.column) == ([7], feature.columns[0])
    if feature.kind == "pixels":
        with pytest.raises(SchemaError, match="no single value"):
            feature.encode_value(1)
        with pytest.raises(RequestError, match="no grid"):
            feature.cells(8)
    for value in feature.values or ((2.0, 3.0) if feature.kind == "numeric" else ()):
        column = pd.Series([value], dtype=object if isinstance(value, str) else None)
        table = encoded(feature, arrays_of(pd.DataFrame({feature.name: column})))
        assert feature.encode_value(value) == table[0].tolist()


@each_kind
def test_bounds_contain_exactly_what_answers_may_be(feature):
    """A free column is open to a known value if the feature allows it, and to no other."""
    lower, upper, marks = feature.bounds()
    if feature.immutable:
        assert set(marks) == {Mark.FIXED}
        return
    points = legal_points(feature)
    inside = ((points >= np.array(lower) - 1e-9) & (points <= np.array(upper) + 1e-9)).all(axis=1)
    column = feature.decode(points)[0]
    for value, is_inside in zip(column, inside, strict=True):
        if feature.kind == "pixels":
            assert is_inside
        else:
            known = value is not None and not pd.isna(value)
            assert is_inside == (known and feature.allows(value))
    assert (Mark.CLOSED in marks) <= (feature.missing or not all(upper))


def test_nobody_else_asks_which_kind_a_feature_is():
    root = Path(counterveil.__file__).parent
    asks = re.compile(r"isinstance\([^)]*\b(Numeric|Categorical|Binary|Pixels)\b|feature\.kind\b")
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).as_posix() in {"schema/schema.py", "schema/features.py"}:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = asks.search(line) and "pd.Categorical" not in line
            assert not found, f"{path.name}, line {number}: {line.strip()}"
