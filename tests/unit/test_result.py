"""Explanations as a person and a machine read them."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from counterveil.errors import RequestError
from counterveil.privacy import Level, Statement
from counterveil.report import explanation_table, explanations_page, statement_panel
from counterveil.schema import Binary, Categorical, Label, Numeric, Schema
from counterveil.search.result import Explanations, show, show_both

SCHEMA = Schema(
    name="people",
    label=Label(name="y", classes=("no", "yes")),
    features=(
        Numeric(name="age", lower=0, upper=100, integer=True),
        Numeric(name="income", lower=0, upper=1e5),
        Numeric(name="debt", lower=0, upper=1, missing=True),
    ),
)
STATEMENT = Statement(level=Level.NONE, mechanism="paper", epsilon=1)


def explanations(queries, rows, schema=SCHEMA):
    count = len(queries)
    return Explanations(
        schema=schema,
        statement=STATEMENT,
        queries=pd.DataFrame(queries),
        rows=pd.DataFrame(rows),
        status=np.array(["found"] * count),
        predicted=np.zeros(count, dtype=int),
        target=np.ones(count, dtype=int),
        probability=np.full(count, 0.75),
        distance=np.full(count, 0.1),
        changed=np.ones(count, dtype=int),
        iterations=1,
    )


@pytest.fixture
def result():
    before = [{"age": 30, "income": 1049.6, "debt": None}, {"age": 40, "income": 7.0, "debt": 0.1}]
    after = [{"age": 31, "income": 1050.4, "debt": None}, {"age": 40, "income": 8.0, "debt": 0.1}]
    return explanations(before, after)


def test_whole_numbers_stay_whole(result):
    (column, before, after), *_ = result.changes_of(0)
    assert (column, before, after) == ("age", 30, 31)
    assert isinstance(before, int)
    floats = replace(result, queries=result.queries.astype(float), rows=result.rows.astype(float))
    assert json.dumps(floats.changes_of(0)[0]) == '["age", 30, 31]'
    assert "age were 31 instead of 30" in floats.text(0)


def test_different_values_never_read_the_same(result):
    assert "income were 1,050.4 instead of 1,049.6" in result.text(0)
    hair = float(np.nextafter(123456.0, 2e5))
    for pair in ((1049.6, 1050.4), (12345.4, 12345.6), (1e-12, 1.0000001e-12), (0.3, 0.1 + 0.2),
                 (123456.0, hair), ("1", 1), (None, "unknown")):  # fmt: skip
        texts = show_both(*pair)
        assert texts[0] != texts[1]
    assert show(12345.4) == "12,345"
    assert show(True) == "True"
    assert show(None) == "unknown"


def test_missing_values_are_unknown_on_the_page(result):
    assert result.kept_of(0) == [("debt", None)]
    assert "debt unknown" in explanations_page(result)
    assert "nan" not in explanations_page(result)


@pytest.mark.parametrize("number", [-1, 2])
def test_no_such_query(result, number):
    with pytest.raises(RequestError, match="numbered from 0 to 1"):
        result.changes_of(number)


CLASHING = ("status", "distance", "target", "query", "predicted", "probability")


def clashing():
    features = [Categorical(name=name, categories=("a", "b")) for name in CLASHING]
    features.append(Binary(name="counterveil_status"))
    schema = SCHEMA.model_copy(update={"features": tuple(features)})
    row = dict.fromkeys(CLASHING, "a") | {"counterveil_status": 1}
    return explanations([row], [row | {"status": "b"}], schema)


@pytest.mark.parametrize("kind", ["csv", "parquet", "json"])
def test_columns_called_like_those_of_the_summary(kind, tmp_path):
    path = tmp_path / f"cf.{kind}"
    clashing().save(path)
    read = {"csv": pd.read_csv, "parquet": pd.read_parquet, "json": pd.read_json}[kind]
    table = read(path)
    assert table.status.tolist() == ["b"]
    assert table.counterveil_counterveil_status.tolist() == ["found"]
    assert table.counterveil_distance.tolist() == [0.1]
    assert table.changed_features.tolist() == [1]
    assert table.columns.is_unique


def test_files_keep_every_digit(result, tmp_path):
    exact = 0.1 + 0.2 + 1e-16
    exactly = replace(result, rows=result.rows.assign(income=[exact, 1e-300]))
    exactly.save(tmp_path / "cf.json")
    found = json.loads((tmp_path / "cf.json").read_text())
    assert [row["income"] for row in found] == [exact, 1e-300]
    assert found[0]["debt"] is None
    assert isinstance(found[0]["age"], int)
    exactly.save(tmp_path / "cf.csv")
    table = pd.read_csv(tmp_path / "cf.csv")
    assert table.income.tolist() == [exact, 1e-300]
    with pytest.raises(RequestError, match="name the file"):
        result.save(tmp_path / "cf.doc")


def test_markup_in_names_and_statements_is_plain_text(capsys):
    odd = "[/b] [red]x[/red] \x1b[31m :smile:"
    features = (Categorical(name=odd, categories=("[b]", "[/b]")),)
    schema = SCHEMA.model_copy(update={"features": features})
    result = explanations([{odd: "[b]"}], [{odd: "[/b]"}], schema)
    console = Console(width=200)
    console.print(explanation_table(result, 0))
    console.print(statement_panel(STATEMENT.model_copy(update={"mechanism": odd})))
    shown = capsys.readouterr().out
    for words in ("[/b] [red]x[/red]", ":smile:", "[b]"):
        assert words in shown
    assert "\x1b" not in shown
