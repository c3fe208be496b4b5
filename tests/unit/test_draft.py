import datetime
from decimal import Decimal

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterveil.curator import Curator
from counterveil.curator.infer_schema import draft_schema, draft_what_fits
from counterveil.encoding import Encoding
from counterveil.errors import DataError
from counterveil.schema import Schema


def test_a_draft_fits_its_table_and_says_what_it_is(rows):
    schema = draft_schema(rows, "loan")
    assert schema.drafted
    assert "DRAFT" in schema.note
    Encoding(schema).encode(rows)
    Encoding(schema).labels(rows)
    kinds = {feature.name: feature.kind for feature in schema.features}
    assert kinds["age"] == "numeric"
    assert kinds["housing"] == "categorical"
    assert kinds["member"] == "binary"
    assert schema.feature("children").integer
    assert schema.feature("children").missing
    assert Schema.from_json(schema.to_json()) == schema
    veil = Curator(schema).release(rows, 1, epochs=1, progress=False)
    assert any("draft" in words for words in veil.statement.reasons)


def test_kinds_of_columns():
    frame = pd.DataFrame(
        {
            "bit": [0, 1, 0, 1],
            "flag": [True, False, True, False],
            "share": [0.1, 0.2, 0.3, None],
            "one_or_missing": [3, None, 3, 3],
            "y": [0, 1, 0, 1],
        }
    )
    schema = draft_schema(frame, "y")
    assert schema.feature("bit").values == (0, 1)
    assert schema.feature("flag").values == (False, True)
    assert schema.feature("share").missing
    assert schema.feature("one_or_missing").categories == (3,)
    assert schema.label.classes == (0, 1)
    Encoding(schema).encode(frame)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"age": 3}, "'age' is constant; leave it out with --exclude age"),
        ({"age": 3, "income": None}, "columns 'age', 'income' are constant; leave them out with"),
        ({"income": [2.5, None] * 300}, "'income' is constant"),
        ({"age": ["a b"] * 600, "income": 1}, "--exclude age --exclude income"),
        ({"loan": "granted"}, "one class only"),
        ({"loan": [0.5, 1.5] * 300}, "numbers with decimals"),
        ({"loan": [1.0, 2.0] * 300, "age": ["2020-01-31", "2021-02-28"] * 300}, "holds dates"),
        ({"age": [pd.Timestamp("2020-01-01"), pd.NaT] * 300}, "holds dates"),
        ({"age": [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)] * 300}, "holds dates"),
        ({"loan": pd.date_range("2020-01-01", periods=600)}, "label 'loan' holds dates"),
        ({"age": [1e300, 2.0] * 300}, "beyond 1e15"),
        ({"age": [float("inf"), 2.0] * 300}, "infinite"),
        ({"age": ["old", 2.0] * 300}, "mixes numbers and texts"),
        ({"age": [[1], [2]] * 300}, "something else than numbers"),
        ({"housing": [f"id {i}" for i in range(150)] + [None] * 450}, "different text in every"),
        ({"housing": [f"text {i}" for i in range(600)]}, "--exclude housing"),
        ({"loan": list(range(600))}, None),
        ({"loan": [None, *["a", "b"] * 299, "a"]}, "row 1, column 'loan': the label is missing"),
    ],
)
def test_tables_a_draft_refuses(rows, change, words):
    frame = rows.assign(**change)
    if words is None:
        assert len(draft_schema(frame, "loan").label.classes) == 600
        return
    with pytest.raises(DataError, match=words):
        draft_schema(frame, "loan")


def test_columns_that_are_not_there(rows):
    with pytest.raises(DataError, match="no column 'lone'"):
        draft_schema(rows, "lone")
    with pytest.raises(DataError, match="no column 'x'"):
        draft_schema(rows, "loan", exclude=["x"])
    with pytest.raises(DataError, match="empty"):
        draft_schema(rows.head(0), "loan")
    with pytest.raises(DataError, match="no column is left"):
        draft_schema(rows[["loan", "age"]], "loan", exclude=["age"])


def test_names_with_spaces_are_quoted(rows):
    with pytest.raises(DataError, match="--exclude 'a b'"):
        draft_schema(rows.rename(columns={"age": "a b"}).assign(**{"a b": 1}), "loan")
    with pytest.raises(DataError, match="column number 1 has no name"):
        draft_schema(rows.rename(columns={"age": 7}), "loan")


def constant(column):
    different = set(column.dropna())
    if len(different) == 1 and column.isna().any():
        (one,) = different
        return not isinstance(one, str) and float(one) % 1 != 0
    return len(different) < 2


def optional(values):
    return st.one_of(values, values, st.none())


COLUMNS = st.sampled_from(
    [
        st.booleans(),
        st.integers(0, 1),
        st.integers(-(10**15), 10**15),
        st.floats(-1e15, 1e15, allow_nan=False),
        st.decimals(-1000, 1000, places=2, allow_nan=False).map(Decimal),
        st.sampled_from(["a", "b", "[/b]", "ü", "1", "True"]),
        st.sampled_from([0.5, 1.0]),
    ]
)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_draft_fits_its_own_table(data):
    rows = data.draw(st.integers(2, 9))
    columns = {}
    for name in ("p", "q"):
        values = data.draw(COLUMNS)
        values = optional(values) if data.draw(st.booleans()) else values
        columns[name] = pd.Series(data.draw(st.lists(values, min_size=rows, max_size=rows)))
    frame = pd.DataFrame(columns).assign(y=[True, False] + [True] * (rows - 2))
    if constant(frame.p) or constant(frame.q):
        with pytest.raises(DataError, match="constant"):
            draft_schema(frame, "y")
        return
    schema = draft_schema(frame, "y")
    Encoding(schema).encode(frame)
    Encoding(schema).labels(frame)
    assert Schema.from_json(schema.to_json()) == schema


def test_what_cannot_be_a_feature_is_left_out_with_its_reason():
    frame = pd.DataFrame(
        {
            "number": range(20),
            "same": 1,
            "name": [f"person {number}" for number in range(20)],
            "day": "2026-01-01",
            "mixed": [1, "one"] * 10,
            "y": ["a", "b"] * 10,
        }
    )
    frame.loc[3, "day"] = "2026-01-02"
    draft = draft_what_fits(frame, "y")
    assert [feature.name for feature in draft.schema.features] == ["number"]
    assert draft.schema.drafted
    assert draft.left_out == {
        "same": "is constant",
        "name": "holds a different text in every row: an identifier?",
        "day": "holds dates",
        "mixed": "mixes numbers and texts",
    }
    assert draft.schema == draft_schema(frame, "y", exclude=list(draft.left_out))
    with pytest.raises(DataError, match="no column of the table can be a feature"):
        draft_what_fits(frame[["same", "y"]], "y")
