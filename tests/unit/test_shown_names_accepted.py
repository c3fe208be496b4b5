"""What people call columns and values is accepted in queries and rules; errors offer it."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rows import random_rows

from counterveil import Explainer, Rules
from counterveil.encoding import Encoding
from counterveil.errors import DataError, RequestError, SchemaError
from counterveil.models import Rows
from counterveil.schema import Binary, Categorical, Label, Numeric, Schema
from counterveil.tables import carried, read_table

NAMED = Schema(
    label=Label(name="loan", classes=(0, 1), value_names={0: "refused", 1: "granted"}),
    features=(
        Numeric(name="income", lower=0, upper=2000, label="monthly income"),
        Numeric(name="children", lower=0, upper=9, integer=True, value_names={0: "none"}),
        Categorical(name="region", categories=(1, 2, 3), value_names={1: "north", 2: "south"}),
        Categorical(name="home", categories=("o", "r"), value_names={"o": "own", "r": "rent"}),
        Binary(name="member", values=("n", "y"), value_names={"y": "a member"}),
    ),
)
OWN = {"income": 1000.0, "children": 0, "region": 2, "home": "r", "member": "y"}
SHOWN = {
    "monthly income": "1000", "children": "none", "region": "south", "home": "rent",
    "member": "a member",
}  # fmt: skip


@pytest.mark.parametrize("kind", ["records", "frame", "objects", "file", "categories"])
def test_queries_may_have_the_names_of_people(kind, tmp_path):
    given = pd.DataFrame([SHOWN])
    if kind == "records":
        given = [SHOWN]
    elif kind == "objects":
        given = given.astype(object)
    elif kind == "categories":
        given = given.astype("category")
    elif kind == "file":
        given.assign(key="007").to_csv(tmp_path / "q.csv", index=False)
        given = tmp_path / "q.csv"
    rows = Rows.of_frame(given, Encoding(NAMED))
    assert rows.frame.to_dict("records") == [OWN]
    np.testing.assert_array_equal(rows.encoded, Encoding(NAMED).encode([OWN]))


def test_what_is_a_value_by_itself_stays_that_value():
    feature = Categorical(name="c", categories=("a", "b"), value_names={"a": "b", "b": "a"})
    schema = Schema(label=Label(name="y", classes=(0, 1)), features=(feature,))
    assert Rows.of_frame([{"c": "a"}, {"c": "b"}], Encoding(schema)).frame.c.tolist() == ["a", "b"]
    assert feature.value_called("a") == "a"
    number = Numeric(name="n", lower=0, upper=5, integer=True, value_names={0: "1", 1: "few"})
    assert Encoding(number_alone(number)).encode([{"n": "1"}, {"n": "few"}])[:, 0].tolist() == [
        0.2,
        0.2,
    ]


def number_alone(number):
    return Schema(label=Label(name="y", classes=(0, 1)), features=(number,))


def test_a_column_has_its_own_name_before_that_of_people(tmp_path):
    both = pd.DataFrame([{**SHOWN, "income": 500}])
    assert Encoding(NAMED).encode(both)[0, 0] == 0.25
    assert Encoding(NAMED).encode(both[both.columns[::-1]])[0, 0] == 0.25
    rows = Rows.of_frame([SHOWN, OWN, SHOWN], Encoding(NAMED))
    assert rows.frame.to_dict("records") == [OWN] * 3
    table = pd.DataFrame([{**SHOWN, "key": "x", "loan": 1}])
    assert list(carried(table, NAMED).columns) == ["key"]
    table.assign(key="007").to_csv(tmp_path / "q.csv", index=False)
    assert read_table(tmp_path / "q.csv", NAMED).key.tolist() == ["007"]
    assert NAMED.column_called("home") == "home"  # found once, and kept
    (home,) = (each for each in NAMED.features if each.name == "home")
    other = NAMED.model_copy(update={"features": (home.model_copy(update={"label": "a roof"}),)})
    assert other.column_called("a roof") == "home"


def test_rules_may_have_the_names_of_people():
    said = Rules(
        immutable=["monthly income"],
        direction={"children": "increase"},
        allowed={"region": ["south", 3], "home": ["own"], "children": ("none", 3)},
        costs={"monthly income": 2},
        steps={"monthly income": 10},
        relations=["children <= monthly income - 1", ("children", "<=", "monthly income")],
        together=[["monthly income", "children"]],
        transitions={"home": [("rent", "own")], "region": [("north", 2)]},
        may_change=["monthly income", "region"],
    ).of_table(NAMED)
    assert said == Rules(
        immutable=["income"], direction={"children": "increase"},
        allowed={"region": [2, 3], "home": ["o"], "children": (0, 3)}, costs={"income": 2},
        steps={"income": 10}, relations=said.relations, together=[["income", "children"]],
        transitions={"home": [("r", "o")], "region": [(1, 2)]}, may_change=["income", "region"],
    )  # fmt: skip
    assert [str(each) for each in said.relations_of(NAMED)] == [
        "children <= income - 1",
        "children <= income",
    ]
    said.tighten(NAMED)


def test_explain_takes_them_everywhere(schema, veil, model):
    names = {"rent": "a rented flat", "own": "a flat of one's own"}
    features = [
        each.model_copy(update={"label": "where you live", "value_names": tuple(names.items())})
        if each.name == "housing"
        else each
        for each in schema.features
    ]
    explainer = Explainer(
        replace(veil, schema=schema.model_copy(update={"features": tuple(features)})), model
    )
    queries = random_rows(schema, 4, seed=2)
    shown = queries.replace({"housing": names}).rename(columns={"housing": "where you live"})
    usual = explainer.explain(queries, immutable=["housing"], progress=False)
    called = explainer.explain(shown, immutable=["where you live"], progress=False)
    pd.testing.assert_frame_equal(usual.rows, called.rows)
    assert called.fixed == ("housing",)
    kept = {"housing": ["a rented flat"]}
    found = explainer.explain(shown, allowed=kept, may_change=["where you live", "income"])
    assert set(found.frame()["housing"]) <= {"rent", *queries["housing"]}
    one_each = explainer.explain(shown, rules=[Rules(allowed=kept)] * 4, progress=False)
    assert one_each.rules_of(0) == Rules(allowed={"housing": ["rent"]})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"region": "nort"}, "has: 1 (north), 2 (south), 3; did you mean 'north'?"),
        ({"home": "rnt"}, "not in the schema; it has: o (own), r (rent); did you mean 'rent'?"),
        ({"member": "amember"}, "it has: n, y (a member); did you mean 'a member'?"),
        ({"children": "none."}, "did you mean 'none'?"),
        ({"monthly income": "1,200"}, "not a number; write 1,200 as 1200, and 1.200,50 as 1200.5"),
        ({"monthly income": "1.200,50"}, "not a number; write 1,200 as 1200"),
        ({"monthly income": None}, "missing value; fill it in"),
        ({"monthly income": 1e6}, "outside the bounds 0 to 2000 of the schema; clip the value"),
        ({"children": 1.5}, "not a whole number; round it"),
        ({"member": None}, "cannot be missing: fill it in"),
    ],
)
def test_a_bad_cell_of_a_query_is_told_what_can_be_done(given, words):
    bad = [SHOWN, {**SHOWN, **given}]
    with pytest.raises(DataError) as refused:
        Encoding(NAMED).encode(bad)
    assert words in str(refused.value)
    assert str(refused.value).startswith("row 2, column ")
    assert not str(refused.value).endswith("in the schema")
    assert "widen" not in str(refused.value)
    assert words in Encoding(NAMED).bad_rows(bad)[1]


def test_of_private_rows_nothing_like_a_value_is_said():
    private = Encoding(NAMED, private=True)
    for given in ({"region": "nort"}, {"home": "rnt"}, {"member": "amember"}):
        with pytest.raises(DataError) as refused:
            private.encode([{**SHOWN, **given}])
        assert "did you mean" not in str(refused.value)
    with pytest.raises(DataError, match="category not in the schema; add it there or mend the row"):
        private.encode([{**SHOWN, "region": 9}])
    with pytest.raises(DataError, match="clip the value or widen the bounds"):
        private.encode([{**SHOWN, "monthly income": 1e6}])


def test_bad_rows_and_columns_have_offers_of_their_own():
    told = Encoding(NAMED).bad_rows([{**SHOWN, "home": "rnt"}, {**SHOWN, "home": "onw"}])
    assert "did you mean 'rent'" in told[0]
    assert "did you mean 'own'" in told[1]
    row = {name: value for name, value in OWN.items() if name != "region"}
    with pytest.raises(DataError, match="'region' is missing from the table; it has 'regoin'"):
        Encoding(NAMED).encode([{**row, "regoin": 2}])
    with pytest.raises(DataError, match=r"'region' is missing from the table; add it$"):
        Encoding(NAMED).encode([row])
    with pytest.raises(SchemaError, match="did you mean 'monthly income'"):
        NAMED.feature("monthly incom")


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"allowed": {"region": ["sout"]}}, r"no category 'sout'; it has: 1 \(north\), .* 'south'"),
        ({"transitions": {"home": [("rent", "onw")]}}, r"no value 'onw'; it has: o \(own\), r"),
        ({"immutable": ["monthly incom"]}, "did you mean 'monthly income'"),
        ({"direction": {"home": "increase"}}, "has no order; say in 'allowed' what it may become"),
    ],
)
def test_rules_that_fit_nothing_offer_names(rules, words):
    with pytest.raises(RequestError, match=words):
        Rules(**rules).of_table(NAMED).tighten(NAMED)
