import json

import pytest

from counterveil.errors import SchemaError
from counterveil.schema import Binary, Categorical, Label, Numeric, Pixels, Schema

LABEL = {"name": "y", "classes": ["a", "b"]}
AGE = {"kind": "numeric", "name": "age", "lower": 0, "upper": 9}


def test_json_round_trip(schema, tmp_path):
    schema.save(tmp_path / "s.json")
    assert Schema.load(tmp_path / "s.json") == schema
    assert schema.to_json() == Schema.from_json(schema.to_json()).to_json()


def test_families():
    def family(*features):
        return Schema(features=features, label=Label(name="y", classes=(0, 1))).family

    pixels = Pixels(name="p", height=2, breadth=3)
    assert family(pixels) == "image"
    assert family(Binary(name="b"), Binary(name="c")) == "binary"
    assert family(Binary(name="b"), pixels) == "mixed"
    assert pixels.columns == ("p0", "p1", "p2", "p3", "p4", "p5")


def test_feature_by_name(schema):
    assert schema.feature("age").kind == "numeric"
    with pytest.raises(SchemaError, match="no feature 'agee'"):
        schema.feature("agee")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"features": []}, "at least 1 item"),
        ({"features": [AGE, AGE]}, "'age' is named twice"),
        ({"features": [{**AGE, "name": "y"}]}, "'y' is named twice"),
        ({"features": [{**AGE, "upper": 0}]}, "lower equals upper"),
        ({"features": [{**AGE, "upper": -1}]}, "lower must be below upper"),
        ({"features": [{**AGE, "upper": float("nan")}]}, "finite"),
        ({"features": [{**AGE, "uper": 1}]}, "'age': uper: unknown field"),
        ({"features": [{**AGE, "kind": "number"}]}, "'kind' must be"),
        ({"features": [{**AGE, "integer": True, "upper": 9.5}]}, "whole numbers"),
        ({"features": [{**AGE, "allowed": [3, 12]}]}, "within the bounds"),
        ({"features": [{**AGE, "integer": True, "allowed": [3.2, 3.8]}]}, "no whole number"),
        ({"features": [{"kind": "categorical", "name": "c", "categories": ["x"]}]}, "at least 2"),
        ({"features": [{"kind": "categorical", "name": "c", "categories": ["x", "x"]}]}, "twice"),
        (
            {"features": [{"kind": "categorical", "name": "c", "categories": ["x", "z"],
                           "direction": "increase"}]},
            "'ordered': true",
        ),
        (
            {"features": [{"kind": "categorical", "name": "c", "categories": ["x", "z"],
                           "allowed": ["w"]}]},
            "unknown category",
        ),
        ({"label": {"name": "y", "classes": ["a"]}}, "at least 2"),
        ({"version": 2}, "version must be 1"),
        ({"colour": "red"}, "colour: unknown field"),
    ],
)  # fmt: skip
def test_contradictions_are_said_in_one_line(change, words):
    content = {"version": 1, "label": LABEL, "features": [AGE], **change}
    with pytest.raises(SchemaError, match=words) as caught:
        Schema.from_json(json.dumps(content))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", b"\xff\xfe"])
def test_what_is_not_a_schema(text):
    with pytest.raises(SchemaError):
        Schema.from_json(text)


def test_a_missing_file(tmp_path):
    with pytest.raises(SchemaError, match="no schema at"):
        Schema.load(tmp_path / "nowhere.json")


def test_features_validate_when_built_by_hand():
    with pytest.raises(SchemaError, match="'age': lower: Field required"):
        Numeric(name="age", upper=3)
    assert Categorical(name="c", categories=("x",), missing=True).width == 2
