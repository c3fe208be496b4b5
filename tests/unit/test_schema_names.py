"""What people call columns and values: checked in the schema, used wherever people read."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from rows import random_rows

from counterveil.errors import SchemaError
from counterveil.report import explanation_table
from counterveil.schema import Binary, Categorical, Label, Numeric, Pixels, Schema
from counterveil.search.results import wording
from counterveil.terminal import out
from results import explanations

NAMES = {
    "income": {"label": "monthly income"},
    "children": {"label": "number of children", "value_names": {0: "none", "1": "one"}},
    "housing": {"label": "where you live", "value_names": {"own": "your own flat, or a house"}},
    "region": {"label": "part of the country", "value_names": {"1": "north", 2: "south"}},
    "member": {"value_names": [["no", "not a member"], ["yes", "a member"]]},
}


@pytest.fixture(scope="module")
def named(schema):
    content = json.loads(schema.to_json())
    content["label"] |= {"label": "decision", "value_names": {"granted": "yes, granted"}}
    for feature in content["features"]:
        feature.update(NAMES.get(feature["name"], {}))
    return Schema.from_json(json.dumps(content))


@pytest.fixture(scope="module")
def result(named):
    queries = random_rows(named, 3, seed=1)
    before = queries.assign(income=1.0, housing="rent", children=0, region=1, member="no")
    after = before.assign(income=7.5, housing="own", children=1, region=2, member="yes")
    columns = list(named.columns)
    status = np.array(["found", "not_found", "already"], dtype=object)
    rows = after[columns].where(pd.Series(status == "found"), before[columns])
    return explanations(
        named, before[columns], rows, status=status, predicted=np.array([0, 0, 1]),
        probability=np.array([0.9, 0.2, 0.8]),
    )  # fmt: skip


def test_names_survive_the_file(named, tmp_path):
    named.save(tmp_path / "named.json")
    again = Schema.load(tmp_path / "named.json")
    assert again == named
    assert again.feature("region").value_names == ((1, "north"), (2, "south"))
    assert again.feature("children").value_names == ((0, "none"), (1, "one"))
    assert again.shown_name("income") == "monthly income"
    assert again.shown_name("age") == "age"
    assert again.shown_value("region", "2") == "south"
    assert again.shown_value("region", 2.0) == "south"
    assert again.shown_value("region", 3) == 3
    assert again.shown_value("children", None) is None
    assert again.label.class_called("yes, granted") == "granted"
    assert again.label.class_called("refused") == "refused"


def test_a_schema_without_names_is_written_as_before(schema):
    text = schema.to_json()
    assert "label" not in text.replace('"label": {', "")
    assert "value_names" not in text
    assert json.loads(text)["label"] == {"name": "loan", "classes": ["refused", "granted"]}
    assert schema.names == {}


def test_two_values_that_are_written_alike_are_told_apart():
    feature = Categorical(name="c", categories=(2, "2", "x"), value_names=[(2, "two")])
    label = Label(name="y", classes=(0, 1))
    again = Schema.from_json(Schema(features=(feature,), label=label).to_json()).features[0]
    assert again.value_names == ((2, "two"),)
    assert again.shown_value("2") == "2"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"label": 3}, "'c': label: Input should be a valid string"),
        ({"label": "a\nb"}, "'c': label: a text holds the control character U+000A"),
        ({"label": "x" * 201}, "'c': label: a text has more than 200 characters"),
        ({"label": "  "}, "'c': label: a name is empty"),
        ({"value_names": {"d": "dee"}}, "'c': value_names: no value 'd'; it has: a, b"),
        ({"value_names": {"a": "one", "b": "one"}}, "two values would be called 'one'"),
        ({"value_names": {"a": "b"}}, "two values would be called 'b'"),
        ({"value_names": {"a": ""}}, "'c': value_names: a name is empty"),
        ({"value_names": {"a": 3}}, "value_names: the names of values must be texts"),
        ({"value_names": ["a"]}, "value_names: must give a name for each value that it names"),
        ({"value_names": 7}, "value_names: must give a name for each value that it names"),
        ({"value_names": [["a", "one"], ["a", "two"]]}, "value_names: 'a' is named twice"),
        ({"value_name": {"a": "one"}}, "unknown field; check its spelling"),
    ],
)
def test_wrong_names_are_refused_in_one_line(given, words):
    with pytest.raises(SchemaError) as caught:
        Categorical(name="c", categories=("a", "b"), **given)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_belong_to_whole_values_and_are_unlike():
    Numeric(name="n", lower=0, upper=5, integer=True, value_names={0: "none"})
    with pytest.raises(SchemaError, match="no value 9"):
        Numeric(name="n", lower=0, upper=5, integer=True, value_names={9: "nine"})
    with pytest.raises(SchemaError, match="only whole numbers, categories and binary values"):
        Numeric(name="n", lower=0, upper=5, value_names={1: "one"})
    with pytest.raises(SchemaError, match="no value 3"):
        Pixels(name="p", height=1, breadth=2, value_names={3: "three"})
    label = Label(name="y", classes=(0, 1), label="decision")
    one = Binary(name="a", label="member")
    for other in (Binary(name="member"), Binary(name="b", label="member")):
        with pytest.raises(SchemaError, match="two columns would be called 'member'"):
            Schema(features=(one, other), label=label)
    with pytest.raises(SchemaError, match="two columns would be called 'decision'"):
        Schema(features=(Binary(name="a", label="decision"),), label=label)


def test_what_is_said_has_names(result):
    told = result.text(0)
    assert told.startswith("The model says refused. It would say yes, granted (90% sure) if ")
    assert "monthly income were 7.5 instead of 1" in told
    assert "number of children were one instead of none" in told
    assert "where you live were “your own flat, or a house” instead of rent" in told
    assert "part of the country were south instead of north" in told
    assert "member were a member instead of not a member" in told
    assert result.text(1).startswith("The model says refused. No way to yes, granted was found")
    assert result.text(2) == "The model already says yes, granted; nothing needs to change."
    assert set(result.summary()["target"]) == {"yes, granted"}
    page = result.to_html()
    rows = re.findall(r"<tr><td>(.*?)</td><td>(.*?)</td><td><b>(.*?)</b></td></tr>", page)
    assert ("monthly income", "1", "7.5") in rows
    assert ("part of the country", "north", "south") in rows
    assert "yes, granted" in page
    with out.capture() as captured:
        out.print(explanation_table(result, 0))
    assert "part of the country" in captured.get()
    assert "yes, granted" in captured.get()
    pytest.importorskip("matplotlib")
    words = [text.get_text() for text in result.plot(0).axes[0].texts]
    assert {"yes, granted", "monthly income", "south", "one"} <= set(words)


def test_frames_and_files_keep_the_names_of_the_table(result, tmp_path):
    assert list(result.frame().columns) == list(result.schema.columns)
    assert set(result.changes()["column"]) == {"income", "children", "housing", "region", "member"}
    content = result.to_dict()
    first = content["explanations"][0]
    assert (first["predicted"], first["target"]) == ("refused", "granted")
    assert {"column": "region", "from": 1, "to": 2} in first["changes"]
    assert content["names"]["loan"] == {
        "label": "decision",
        "value_names": {"granted": "yes, granted"},
    }
    assert content["names"]["income"] == {"label": "monthly income"}
    assert "age" not in content["names"]
    json.dumps(content)
    result.save(tmp_path / "x.csv")
    table = pd.read_csv(tmp_path / "x.csv")
    assert set(table["target"]) == {"granted"}
    assert set(table["housing"]) == {"rent", "own"}


def test_what_has_a_comma_is_quoted_in_a_sentence(schema):
    said = wording.condition(schema, [("housing", "rent, or so", "own"), ("income", 1.0, 25_000.0)])
    assert said == "housing were own instead of “rent, or so” and income were 25,000 instead of 1"
