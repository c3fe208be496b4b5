import json

import pytest

from counterveil.errors import SchemaError
from counterveil.schema import Binary, Categorical, Label, Link, Numeric, Pixels, Schema

LABEL = {"name": "y", "classes": ["a", "b"]}
AGE = {"kind": "numeric", "name": "age", "lower": 0, "upper": 9}
KIND = {"kind": "categorical", "name": "c", "categories": ["x", "z"]}


def test_json_round_trip_and_families(schema, tmp_path):
    with pytest.raises(SchemaError, match="no schema at"):
        Schema.load(tmp_path / "s.json")
    schema.save(tmp_path / "s.json")
    assert Schema.load(tmp_path / "s.json") == schema
    assert schema.to_json() == Schema.from_json(schema.to_json()).to_json()

    def family(*features):
        return Schema(features=features, label=Label(name="y", classes=(0, 1))).family

    pixels = Pixels(name="p", height=2, breadth=3)
    assert family(pixels) == "image"
    assert family(Binary(name="b"), Binary(name="c")) == "binary"
    assert family(Binary(name="b"), pixels) == "mixed"
    assert pixels.columns == ("p0", "p1", "p2", "p3", "p4", "p5")
    with pytest.raises(SchemaError, match="'age': lower: Field required"):
        Numeric(name="age", upper=3)
    assert Categorical(name="c", categories=("x",), missing=True).width == 2


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
        ({"features": [{**KIND, "categories": ["x"]}]}, "at least 2"),
        ({"features": [{**KIND, "categories": ["x", "x"]}]}, "twice"),
        ({"features": [{**KIND, "direction": "increase"}]}, "'ordered': true"),
        ({"features": [{**KIND, "allowed": ["w"]}]}, "unknown category"),
        ({"label": {"name": "y", "classes": ["a"]}}, "at least 2"),
        ({"version": 2}, "version must be 1"),
        ({"colour": "red"}, "colour: unknown field"),
    ],
)
def test_contradictions_are_said_in_one_line(change, words):
    content = {"version": 1, "label": LABEL, "features": [AGE], **change}
    with pytest.raises(SchemaError, match=words) as caught:
        Schema.from_json(json.dumps(content))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", b"\xff\xfe"])
def test_what_is_not_a_schema(text):
    with pytest.raises(SchemaError):
        Schema.from_json(text)


DEGREE = {"kind": "categorical", "name": "degree", "categories": ["low", "high"], "missing": True}
LINK = {"source": "degree", "derived": "age", "values": {"low": 3, "high": 5.5}}
AGAIN = {"source": "c", "derived": "degree", "values": [[1, "low"], [2, "high"]]}


def test_links_in_json():
    features = (
        Categorical(name="degree", categories=("low", "high")),
        Categorical(name="code", categories=(1, 2)),
        Categorical(name="flag", categories=(False, True)),
        Numeric(name="years", lower=0, upper=9, integer=True),
    )
    links = (
        Link(source="degree", derived="years", values={"low": 3, "high": 5}),
        Link(source="code", derived="flag", values={1: False, 2: True}),
    )
    schema = Schema(features=features, label=Label(name="y", classes=(0, 1)), links=links)
    content = json.loads(schema.to_json())["links"]
    assert content[0]["values"] == {"low": 3, "high": 5}
    assert content[1]["values"] == [[1, False], [2, True]]
    again = Schema.from_json(schema.to_json())
    assert again == schema
    assert hash(again) == hash(schema)
    assert "links" not in Schema(features=features, label=schema.label).to_json()


@pytest.mark.parametrize(
    ("links", "words"),
    [
        ([{**LINK, "source": "degre"}], "'degre' -> 'age': no feature 'degre'"),
        ([{**LINK, "derived": "agee"}], "no feature 'agee'"),
        ([{**LINK, "source": "b"}], "the source must be categorical"),
        ([{**LINK, "derived": "p"}], "pixels cannot be derived"),
        ([{**LINK, "values": {"low": 3}}], "every category of the source"),
        ([{**LINK, "values": {"low": 3, "high": 5, "top": 6}}], "every category of the source"),
        ([{**LINK, "values": {"low": 3, "high": 10}}], "10 is no legal value of 'age'"),
        ([{**LINK, "values": {"low": 3, "high": "5"}}], "'5' is no legal value of 'age'"),
        ([{**LINK, "values": {"low": 3, "high": True}}], "True is no legal value of 'age'"),
        ([{**LINK, "derived": "b", "values": {"low": 0, "high": 2}}], "2 is no legal value of 'b'"),
        ([{**LINK, "derived": "c", "values": {"low": 1, "high": 2}}], "2 is no legal value of 'c'"),
        ([{**LINK, "values": [["low", 3], ["high"]]}], "values: Input should be"),
        ([LINK, LINK], "a feature is derived once"),
        ([LINK, AGAIN], "from one that is not"),
        ([{**LINK, "colour": "red"}], "colour: unknown field"),
    ],
)
def test_links_that_contradict_the_schema(links, words):
    features = [
        AGE, DEGREE, {"kind": "binary", "name": "b"},
        {"kind": "categorical", "name": "c", "categories": [1, 2], "allowed": [1]},
        {"kind": "pixels", "name": "p", "height": 1, "breadth": 1},
    ]  # fmt: skip
    with pytest.raises(SchemaError, match=words) as caught:
        Schema.from_json(json.dumps({"label": LABEL, "features": features, "links": links}))
    assert "\n" not in str(caught.value)


def test_levels_of_pixels_are_bounded():
    Pixels(name="p", height=2, breadth=2, levels=65535)
    with pytest.raises(SchemaError, match="levels"):
        Pixels(name="p", height=2, breadth=2, levels=65536)
