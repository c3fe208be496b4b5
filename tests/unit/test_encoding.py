import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterveil.encoding import Encoding
from counterveil.errors import DataError
from counterveil.schema import Binary, Categorical, Label, Numeric, Pixels, Schema


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
        ("age", 17, "outside the bounds 18 to 100"), ("age", 20.5, "not a whole number"),
        ("age", np.nan, "missing value"), ("age", np.inf, "outside the bounds"),
        ("income", "plenty", "not a number"), ("housing", "castle", "category not in the schema"),
        ("degree", None, "missing value"), ("region", 4, "category not in the schema"),
        ("region", "1st", "category not in the schema"),
        ("member", "maybe", "neither of the two values"), ("member", None, "missing value"),
    ],
)  # fmt: skip
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
    with pytest.raises(DataError, match="columns 'age' and 1 more are missing"):
        encoding.encode(rows.drop(columns=["age", "region"]))
    twice = pd.concat([rows, rows[["age"]]], axis=1)
    with pytest.raises(DataError, match=r"columns 1 and \d+ of the table have the same name"):
        encoding.encode(twice)
    with pytest.raises(DataError, match="expected a table"):
        encoding.encode(3)


@given(data=st.data())
def test_the_first_bad_feature_is_named_with_its_first_bad_row(data):
    features = (
        Numeric(name="n", lower=0, upper=9, integer=True),
        Binary(name="b"),
        Categorical(name="c", categories=("u", "v"), missing=True),
        Binary(name="t", values=("no", "yes")),
        Binary(name="f", values=(False, True)),
        Pixels(name="p", height=1, breadth=2, levels=4),
        Numeric(name="m", lower=-1, upper=1, missing=True),
    )
    encoding = Encoding(Schema(features=features, label=Label(name="y", classes=(0, 1))))
    good = {"n": 3, "b": 1, "c": "u", "t": "no", "f": True, "p0": 4, "p1": 0, "m": 0.5}
    bad = {"n": 10, "b": 2, "c": "w", "t": "", "f": None, "p0": 5, "p1": 0.5, "m": -2.0}
    frame = pd.DataFrame([good] * 4)
    wrong = data.draw(st.sets(st.tuples(st.integers(0, 3), st.sampled_from(list(good)))))
    for row, column in wrong:
        frame[column] = frame[column].astype(object if column in "ctf" else float)
        frame.loc[row, column] = bad[column]
    extra = frame.assign(y=0)[["y", *reversed(frame.columns)]].set_index(pd.Index([9, 7, 5, 3]))
    if not wrong:
        np.testing.assert_array_equal(encoding.encode(extra), encoding.encode(frame))
        return
    first = next(f for f in features if any(column in f.columns for _, column in wrong))
    row, column = min((row, column) for row, column in wrong if column in first.columns)
    for table in (frame, extra, encoding.pick(extra)):
        with pytest.raises(DataError, match=f"^row {row + 1}, column '{column}': "):
            encoding.encode(table)
        with pytest.raises(DataError, match=f"^row {row + 101}, column '{column}': "):
            encoding.encode(table, np.arange(100, 104))


def test_pick_keeps_types_and_is_a_copy(schema, rows):
    encoding = Encoding(schema)
    for table in (rows, rows[list(schema.columns)].iloc[::-1]):
        for _ in range(2):
            picked = encoding.pick(table)
            expected = table[list(schema.columns)].reset_index(drop=True)
            pd.testing.assert_frame_equal(picked, expected, check_index_type="exact")
            picked.loc[0, "age"] = 99
            picked.columns.name = "changed"
            picked = picked.drop(columns="age")
            assert table.age.iloc[0] == expected.age[0]
            assert encoding.pick(table).columns.name is None
            with pytest.raises(DataError, match="column 'age' is missing"):
                encoding.encode(picked)


def test_decode_gives_the_same_types_for_one_row_and_for_many(schema, rows):
    encoding = Encoding(schema)
    full = rows.dropna()
    many = encoding.decode(encoding.encode(full))
    one = encoding.decode(encoding.encode(full.head(1)))
    assert one.dtypes.tolist() == many.dtypes.tolist()
    assert one.dtypes["children"] == "Int64"
    gaps = encoding.decode(encoding.encode(rows))["children"]
    assert gaps.dtype == "Int64"
    assert gaps.equals(rows["children"])
    assert one.dtypes["age"] == "int64"
    assert one.dtypes["housing"] == full.dtypes["degree"]
    pd.testing.assert_frame_equal(one, many.head(1))
    assert encoding.decode(np.empty((0, schema.width))).shape == (0, 8)
    single = encoding.encode(full).astype(np.float32)
    assert encoding.decode(single).dtypes["income"] == np.float32
