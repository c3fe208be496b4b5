"""Explanations as a person and a machine read them."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import results
from counterveil.cli.inspect import statement_panel
from counterveil.errors import RequestError
from counterveil.report import explanation_table
from counterveil.schema import Binary, Categorical, Label, Numeric, Pixels, Schema
from counterveil.search.results.refusals import NO_FURTHER
from counterveil.search.results.wording import show, show_both
from results import STATEMENT

SCHEMA = Schema(
    name="people",
    label=Label(name="y", classes=("no", "yes")),
    features=(
        Numeric(name="age", lower=0, upper=100, integer=True),
        Numeric(name="income", lower=0, upper=1e5),
        Numeric(name="debt", lower=0, upper=1, missing=True),
    ),
)


def explanations(queries, rows, schema=SCHEMA, **more):
    return results.explanations(schema, queries, rows, **more)


@pytest.fixture
def result():
    before = [{"age": 30, "income": 1049.6, "debt": None}, {"age": 40, "income": 7.0, "debt": 0.1}]
    after = [{"age": 31, "income": 1050.4, "debt": None}, {"age": 40, "income": 8.0, "debt": 0.1}]
    return explanations(before, after)


def test_values_in_words(result):
    (column, before, after), *_ = result.changes_of(0)
    assert (column, before, after) == ("age", 30, 31)
    assert isinstance(before, int)
    floats = replace(result, queries=result.queries.astype(float), rows=result.rows.astype(float))
    assert json.dumps(floats.changes_of(0)[0]) == '["age", 30, 31]'
    assert "age were 31 instead of 30" in floats.text(0)
    assert "income were 1,050.4 instead of 1,049.6" in result.text(0)
    hair = float(np.nextafter(123456.0, 2e5))
    for pair in (
        (1049.6, 1050.4),
        (12345.4, 12345.6),
        (1e-12, 1.0000001e-12),
        (0.3, 0.1 + 0.2),
        (123456.0, hair),
        ("1", 1),
        (None, "unknown"),
    ):
        texts = show_both(*pair)
        assert texts[0] != texts[1]
    assert show(12345.4) == "12,345"
    assert show_both(2463.75, 2302.75) == ("2,464", "2,302.75")  # what is to be reached, in full
    assert show_both(40.0, 60.0) == ("40", "60")
    assert show(True) == "True"
    assert show(None) == "unknown"
    assert result.kept_of(0) == [("debt", None)]
    assert "debt unknown" in result.to_html()
    assert "nan" not in result.to_html()


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


def test_markup_in_names_and_statements_is_plain_text(capsys):
    odd = "[/b] [red]x[/red] \x1b[31m :smile:"
    feature = Categorical(name="x", categories=("[b]", "[/b]")).model_copy(update={"name": odd})
    schema = SCHEMA.model_copy(update={"features": (feature,)})
    result = explanations([{odd: "[b]"}], [{odd: "[/b]"}], schema)
    console = Console(width=200)
    console.print(explanation_table(result, 0))
    console.print(statement_panel(STATEMENT.model_copy(update={"mechanism": odd})))
    shown = capsys.readouterr().out
    for words in ("[/b] [red]x[/red]", ":smile:", "[b]"):
        assert words in shown
    assert "\x1b" not in shown


@pytest.fixture
def several():
    """Three answers a query: two of them, none, none needed, one."""
    row = {"age": 30, "income": 0.0, "debt": 0.5}
    found = {0: {"age": 40}, 1: {"income": 1e4}, 9: {"debt": 0.7}}
    status = np.array(["not_found"] * 12, dtype=object)
    status[[*found]], status[6:9] = "found", "already"
    reason = np.where(status == "not_found", NO_FURTHER, "").astype(object)
    reason[3] = "nothing that may change matters"
    return explanations(
        [row] * 12, [row | found.get(at, {}) for at in range(12)], k=3, status=status,
        reason=reason, distance=np.arange(12) / 10,
    )  # fmt: skip


def test_queries_are_counted_not_answers(several, result):
    assert len(several) == 4
    assert several.found.tolist() == [0, 3]
    assert (several.answers, several.flip_ratio) == (3, pytest.approx(2 / 3))
    assert several.mean_distance == pytest.approx((0.0 + 0.9) / 2)
    assert several.headline == (
        "4 queries: 2 found with 3 answers, 1 not found, 1 already of the target class; "
        "mean distance 0.45"
    )
    assert several.diversity == pytest.approx(np.hypot(0.1, 0.1))
    assert np.isnan(result.diversity)
    assert np.isnan(several.only([1, 3]).diversity)
    assert np.isnan(several.only([2]).diversity)


def test_tables_say_which_answer(several, result):
    assert several.frame().index.tolist() == [(0, 1), (0, 2), (3, 1)]
    assert several.frame().index.names == ["query", "answer"]
    assert several.frame().age.tolist() == [40, 30, 30]
    summary = several.summary()
    assert summary["query"].tolist() == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert summary["answer"].tolist() == [1, 2, 3] * 4
    assert summary["reason"][3] == "nothing that may change matters"
    assert several.changes().iloc[:, :5].to_numpy().tolist() == [
        [1, 1, "age", 30, 40],
        [1, 2, "income", 0.0, 1e4],
        [4, 1, "debt", 0.5, 0.7],
    ]
    assert several.changes_of(0, 1) == [("income", 0.0, 1e4)]
    assert several.kept_of(3) == [("age", 30), ("income", 0.0)]
    with pytest.raises(RequestError, match="no answer at position 3; positions are 0 to 2"):
        several.changes_of(0, 3)
    assert result.frame().index.tolist() == [0, 1]
    assert "answer" not in result.summary()
    assert "reason" not in result.summary()
    told = ["query", "column", "from", "to", "low", "high", "values"]
    assert result.changes().columns.tolist() == told
    assert set(result.to_dict()["explanations"][0]).isdisjoint({"answer", "reason"})
    levels = pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["shop", "day"])
    shops = replace(several, index=levels).frame().index
    assert shops.names == ["shop", "day", "answer"]
    assert shops.tolist() == [("a", 1, 1), ("a", 1, 2), ("b", 2, 1)]


def test_a_query_is_asked_for_by_its_position(several):
    for name in ("k1", 1.0, len(several)):
        with pytest.raises(RequestError, match="positions are 0 to"):
            several.text(name)


def test_some_of_the_queries_keep_all_their_answers(several):
    some = several.only([3, 0])
    assert len(some) == 2
    assert some.valid.tolist() == [True, False, False, True, True, False]
    assert some.reason.tolist() == ["", NO_FURTHER, NO_FURTHER, "", "", NO_FURTHER]
    assert some.changes_of(1, 1) == [("income", 0.0, 1e4)]
    assert len(several.only([])) == 0


def test_reasons_and_alternatives_in_words(result, several):
    assert several.text(1).endswith("No way to yes was found: nothing that may change matters.")
    assert several.text(0, 2).endswith(f"No other way to yes was found: {NO_FURTHER}.")
    assert "already says yes" in several.text(2)
    status = np.array(["not_found", "found"])
    assert replace(result, status=status).text(0).endswith("was found within the rules.")
    assert several.explain(0) == (
        "The model says no. It would say yes\n"
        "  (1) if age were 40 instead of 30 (75% sure).\n"
        "  (2) Or: if income were 10,000 instead of 0 (75% sure)."
    )
    assert several.explain(1) == several.text(1)
    first, second = several.explain().split("\n\n")
    assert first == f"Query 1: {several.explain(0)}"
    assert second == f"Query 4: {several.text(3)}"
    assert result.explain(1) == result.text(1)
    assert several.only([1]).explain() == "1 query: 0 found with 0 answers, 1 not found."
    with pytest.raises(RequestError, match="no query at position 4"):
        several.explain(4)


def test_answers_for_machines(several, tmp_path):
    content = json.loads(json.dumps(several.to_dict()))
    assert (content["answers"], content["diversity"]) == (3, pytest.approx(np.hypot(0.1, 0.1)))
    second = content["explanations"][1]
    assert (second["query"], second["answer"]) == (1, 2)
    assert second["changes"] == [{"column": "income", "from": 0.0, "to": 1e4}]
    for kind, read in (("csv", pd.read_csv), ("parquet", pd.read_parquet), ("json", pd.read_json)):
        several.save(tmp_path / f"cf.{kind}")
        table = read(tmp_path / f"cf.{kind}")
        assert table["answer"].tolist() == [1, 2, 3] * 4
        assert table["reason"][3] == "nothing that may change matters"
        assert table["income"].tolist() == several.rows["income"].tolist()


def test_one_card_a_query(several, tmp_path):
    page = several.to_html()
    assert page.startswith("<!doctype html>")
    assert "http" not in page.replace("http://www.w3.org", "")
    assert page.count("<article") == 3
    assert page.count('<section class="answer"') == 3
    assert "or answer 2" in page
    assert "nothing that may change matters" in page
    assert "unchanged in all of them: debt 0.5" in page
    assert page.index("of the target class already") > page.rindex("</article>")
    assert "queries 3" not in page
    assert "query 3" in page
    short = several.only([2, 2, 1, 0]).to_html(most=1)
    assert short.count("<article") == 1
    assert "The first 1 of 2." in short
    assert "queries 1, 2" in short
    assert "nan" not in several.only([2]).to_html()
    several.save(tmp_path / "cf.html")
    assert (tmp_path / "cf.html").read_text(encoding="utf-8") == several.to_html()
    with pytest.raises(RequestError, match=r"name the file .csv, .parquet, .json, .xlsx or .html"):
        several.save(tmp_path / "cf.pdf")
    image = Pixels(name="p", height=2, breadth=2)
    schema = SCHEMA.model_copy(update={"features": (image,)})
    row = dict.fromkeys(image.columns, 0)
    page = explanations([row], [row | {"p1": 9}], schema).to_html()
    assert "1 of 4 pixels were different" in page
    assert "<td>p1" not in page
    assert "unchanged" not in page


def test_terminal_shows_every_answer(several, capsys):
    Console(width=120).print(explanation_table(several, 0))
    shown = capsys.readouterr().out
    assert "query 1, answer 1: no → yes" in shown
    assert "query 1, answer 2: no → yes" in shown
    assert "answer 3" not in shown


FORMULAS = ("=1+1", "+1", "-1", "@sum", "\tx", "plain")


def with_formulas():
    feature = Categorical(name="=cmd", categories=FORMULAS)
    schema = SCHEMA.model_copy(update={"features": (feature, *SCHEMA.features[1:2])})
    rows = [{"=cmd": text, "income": -1.5} for text in FORMULAS]
    return explanations(rows, rows, schema)


def test_a_csv_holds_no_formulas(tmp_path):
    path = tmp_path / "cf.csv"
    with_formulas().save(path)
    table = pd.read_csv(path)
    assert table["'=cmd"].tolist() == ["'=1+1", "'+1", "'-1", "'@sum", "'\tx", "plain"]
    assert table["income"].tolist() == [-1.5] * 6
    with_formulas().save(path, escape=False)
    assert pd.read_csv(path)["=cmd"].tolist() == list(FORMULAS)
    for kind, read in (("parquet", pd.read_parquet), ("json", pd.read_json)):
        with_formulas().save(tmp_path / f"cf.{kind}")
        assert read(tmp_path / f"cf.{kind}")["=cmd"].tolist() == list(FORMULAS)


def test_a_notebook_shows_the_promise_and_the_first_answers():
    label = Label(name="y", classes=("no", "<b>yes</b>"))
    schema = SCHEMA.model_copy(update={"label": label})
    before = [{"age": 30, "income": 100.0, "debt": 0.5}] * 12
    after = [{"age": 31, "income": 100.0, "debt": 0.5}] * 12
    shown = explanations(before, after, schema)._repr_html_()
    assert "12 queries: 12 found" in shown
    assert STATEMENT.headline in shown
    assert shown.count("<li") == 10
    assert "and 2 more" in shown
    assert "&lt;b&gt;yes" in shown
    assert "<b>yes" not in shown
