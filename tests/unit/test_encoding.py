import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import random_rows

from counterveil.encoding import Encoding
from counterveil.errors import DataError
from counterveil.schema import Binary, Categorical, Label, Numeric, Pixels, Schema


def assert_same_rows(left: pd.DataFrame, right: pd.DataFrame) -> None:
    for column in right.columns:
        a, b = left[column], right[column]
        empty = b.isna().to_numpy()
        assert (a.isna().to_numpy() == empty).all(), column
        if pd.api.types.is_float_dtype(b):
            np.testing.assert_allclose(a[~empty].astype(float), b[~empty].astype(float))
        else:
            assert (a[~empty] == b[~empty]).all(), column


def test_round_trip_of_every_kind(schema, rows):
    encoding = Encoding(schema)
    points = encoding.encode(rows)
    assert points.shape == (600, schema.width)
    assert points.min() >= 0
    assert points.max() <= 1
    assert_same_rows(encoding.decode(points), rows.drop(columns="loan"))


@given(
    lower=st.floats(-1e9, 1e9),
    span=st.floats(1e-3, 1e9),
    share=st.lists(st.floats(0, 1), min_size=1, max_size=20),
)
def test_numbers_survive(lower, span, share):
    feature = Numeric(name="x", lower=lower, upper=lower + span)
    schema = Schema(features=(feature,), label=Label(name="y", classes=(0, 1)))
    values = np.clip(lower + np.array(share) * span, feature.lower, feature.upper)
    decoded = Encoding(schema).decode(Encoding(schema).encode(pd.DataFrame({"x": values})))
    np.testing.assert_allclose(decoded.x, values, atol=1e-9 * span, rtol=1e-9)


@given(st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=30))
def test_categories_survive(values):
    feature = Categorical(name="c", categories=("a", "b"), missing=True)
    schema = Schema(features=(feature,), label=Label(name="y", classes=(0, 1)))
    encoding = Encoding(schema)
    points = encoding.encode(pd.DataFrame({"c": pd.Series(values, dtype=object)}))
    assert (points.sum(axis=1) == 1).all()
    decoded = encoding.decode(points)["c"]
    assert [None if pd.isna(value) else value for value in decoded] == values


def test_pixels_take_arrays_of_images():
    schema = Schema(
        features=(Pixels(name="p", height=2, breadth=2, levels=4),),
        label=Label(name="y", classes=(0, 1)),
    )
    images = np.arange(8).reshape(2, 2, 2) % 5
    encoding = Encoding(schema)
    assert encoding.encode(images).tolist()[0] == [0, 0.25, 0.5, 0.75]
    assert (encoding.decode(encoding.encode(images)).to_numpy() == images.reshape(2, 4)).all()
    with pytest.raises(DataError, match=r"row 2, column 'p1': pixels are whole"):
        encoding.encode(np.array([[0, 1, 2, 3], [0, 9, 0, 0]]))
    with pytest.raises(DataError, match="needs 4 columns"):
        encoding.encode(np.zeros((3, 5)))


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("age", 17, "outside the bounds 18 to 100"),
        ("age", 20.5, "not a whole number"),
        ("age", np.nan, "missing value"),
        ("age", np.inf, "outside the bounds"),
        ("income", "plenty", "not a number"),
        ("housing", "castle", "category not in the schema"),
        ("degree", None, "missing value"),
        ("region", 4, "category not in the schema"),
        ("region", "1st", "category not in the schema"),
        ("member", "maybe", "neither of the two values"),
        ("member", None, "missing value"),
    ],
)
def test_illegal_values_name_row_and_column_but_not_the_value(schema, rows, column, value, words):
    frame = rows.astype(object)
    frame.loc[4, column] = value
    with pytest.raises(DataError, match=words) as caught:
        Encoding(schema).encode(frame)
    message = str(caught.value)
    assert message.startswith(f"row 5, column '{column}':")
    assert "\n" not in message
    assert str(value) not in message.replace("missing value", "").split(":", 1)[1] or value is None


def test_labels(schema, rows):
    encoding = Encoding(schema)
    assert set(encoding.labels(rows)) == {0, 1}
    for value, words in (("perhaps", "not one of the label classes"), (None, "label is missing")):
        frame = rows.copy()
        frame.loc[2, "loan"] = value
        with pytest.raises(DataError, match=f"row 3, column 'loan': .*{words}"):
            encoding.labels(frame)
    with pytest.raises(DataError, match="label column 'loan' is missing"):
        encoding.labels(rows.drop(columns="loan"))


def test_tables_that_do_not_fit(schema, rows):
    encoding = Encoding(schema)
    with pytest.raises(DataError, match="empty"):
        encoding.encode(rows.head(0))
    with pytest.raises(DataError, match="column 'age' and 1 more is missing"):
        encoding.encode(rows.drop(columns=["age", "region"]))
    twice = pd.concat([rows, rows[["age"]]], axis=1)
    with pytest.raises(DataError, match="'age' appears twice"):
        encoding.encode(twice)
    with pytest.raises(DataError, match="expected a table"):
        encoding.encode(3)


def test_arrow_and_row_order_do_not_matter(schema):
    rows = random_rows(schema, 20).sample(frac=1, random_state=0)
    expected = Encoding(schema).encode(rows)
    arrow = pa.Table.from_pandas(rows, preserve_index=False)
    np.testing.assert_array_equal(Encoding(schema).encode(arrow), expected)


def test_numbers_true_and_text_are_not_confused():
    schema = Schema(
        features=(Binary(name="flag", values=(False, True)), Binary(name="bit")),
        label=Label(name="y", classes=(0, 1)),
    )
    points = Encoding(schema).encode(pd.DataFrame({"flag": [True, False], "bit": [1.0, 0.0]}))
    assert points.tolist() == [[1, 1], [0, 0]]
    with pytest.raises(DataError, match="row 1, column 'flag'"):
        Encoding(schema).encode(pd.DataFrame({"flag": ["True"], "bit": [1]}))
