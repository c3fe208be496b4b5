"""Every cell has a place that depends on that cell and the schema alone, whatever its column."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from counterveil.encoding import Encoding
from counterveil.schema import Binary, Categorical, Label, Numeric, Pixels, Schema

NASTY = [
    None, float("nan"), pd.NA, pd.NaT, "", " ", "x", "7", " 7", "07", "7.0", 7, 7.0, np.int64(7),
    True, False, "true", "False", 0, 1, "0", "1", -1, 1e308, -1e308, float("inf"), float("-inf"),
    "inf", "nan", 10**400, -(10**400), 10**5000, Decimal("1"), Decimal("NaN"), Decimal("Infinity"),
    1 + 2j, b"1", [1, 2], {"a": 1}, (1,), np.array([1, 2]), object(),
    datetime.date(2020, 1, 1), pd.Timestamp("2020-01-01"), "1_0", "١", "\ud800", "\x00",
    "a" * 10_000,
    0.5, "0.5", np.float32(0.1), np.bool_(True), "1e400", 2**63, -(2**63) - 1,
]  # fmt: skip
FEATURES = {
    "number": Numeric(name="c", lower=-5, upper=5),
    "whole": Numeric(name="c", lower=0, upper=9, integer=True),
    "maybe": Numeric(name="c", lower=0, upper=9, missing=True),
    "texts": Categorical(name="c", categories=("x", "7", "1")),
    "integers": Categorical(name="c", categories=(0, 1, 7)),
    "logical": Categorical(name="c", categories=(False, True)),
    "both": Categorical(name="c", categories=("x", 1)),
    "open": Categorical(name="c", categories=("x", "y"), missing=True),
    "bit": Binary(name="c"),
    "yes": Binary(name="c", values=("x", "7")),
    "pixel": Pixels(name="c", height=1, breadth=1, levels=9),
}


def _encoding(name):
    return Encoding(Schema(features=(FEATURES[name],), label=Label(name="y", classes=(0, 1))))


@pytest.mark.parametrize("name", FEATURES)
def test_any_cell_has_a_legal_place_that_no_other_cell_changes(name):
    encoding = _encoding(name)
    column = encoding.schema.columns[0]

    def encode(cells):
        series = pd.Series([*cells, None], dtype=object)[:-1]  # as it is, whatever it holds
        return encoding.encode(pd.DataFrame({column: series}), strict=False)

    together = encode(NASTY)
    assert np.isfinite(together).all()
    assert ((together >= 0) & (together <= 1)).all()
    encoding.encode(encoding.decode(together))  # a legal row
    for place, cell in enumerate(NASTY):
        assert (encode([cell])[0] == together[place]).all(), repr(cell)[:40]
        np.testing.assert_array_equal(encode(["x", cell])[1], together[place])


@pytest.mark.parametrize("name", FEATURES)
def test_the_type_of_a_column_does_not_matter(name):
    encoding = _encoding(name)
    column = encoding.schema.columns[0]

    def encode(cells, dtype):
        return encoding.encode(pd.DataFrame({column: pd.Series(cells, dtype=dtype)}), strict=False)

    numbers = [0, 1, 7, 20]
    expected = encode(numbers, object)
    for dtype in (np.int64, np.float64, "Int64", "Float64", np.float32, "int64[pyarrow]"):
        np.testing.assert_array_equal(encode(numbers, dtype), expected)
    texts = [str(number) for number in numbers]
    for dtype in (object, "string", "category", "string[pyarrow]"):
        np.testing.assert_array_equal(encode(texts, dtype), expected)
    expected = encode([True, False], object)
    for dtype in ("bool", "boolean", "bool[pyarrow]", "category"):
        np.testing.assert_array_equal(encode([True, False], dtype), expected)


def test_texts_written_otherwise_are_other_texts():
    encoding = _encoding("texts")
    codes = encoding.encode(pd.DataFrame({"c": ["7", "1", "x"]})).argmax(axis=1)
    assert codes.tolist() == [1, 2, 0]
    assert encoding.encode(pd.DataFrame({"c": [7, 1.0, True]}), strict=False).argmax(
        axis=1
    ).tolist() == [1, 2, 0]
    with pytest.raises(Exception, match="category not in the schema"):
        encoding.encode(pd.DataFrame({"c": ["07"]}))


def test_labels_that_are_not_in_the_set_have_no_class():
    encoding = _encoding("number")
    labels = encoding.labels(pd.DataFrame({"y": [0, "1", 2, None]}), strict=False)
    assert labels.tolist() == [0, 1, -1, -1]
