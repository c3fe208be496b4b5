import pandas as pd
import pytest

from counterveil.curator import Curator
from counterveil.curator.draft import draft_schema
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
    assert any("draft" in words for words in veil.statement.exclusions)


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
        ({"loan": "granted"}, "one class only"),
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
