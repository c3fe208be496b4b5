"""What a notebook shows of veils, statements, schemas and plans."""

import re

import pytest

from counterveil.curator import Curator
from counterveil.pages import MOST_ROWS, notebook_table
from counterveil.privacy import Level, Statement
from counterveil.schema import Binary, Categorical, Label, Link, Numeric, Pixels, Schema

MARKUP = "<b>x</b>"


def words_of(html):
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


@pytest.fixture
def shown(veil, schema, rows):
    plan = Curator(schema).plan(rows, 0.5)
    objects = {"veil": veil, "statement": veil.statement, "schema": schema, "plan": plan}
    return {name: each._repr_html_() for name, each in objects.items()}


def test_every_view_is_a_small_table_without_colours_of_its_own(shown):
    for html in shown.values():
        assert html.count("<table") >= 1
        assert "color:inherit;background:transparent" in html
        assert not re.search(r"<(script|style|link|img)|class=|\bon\w+=", html)


def test_a_veil_says_what_it_is_and_promises(shown, veil):
    words = words_of(shown["veil"])
    assert "Veil of loans" in words
    assert veil.statement.headline in words
    assert "loan: refused, granted" in words
    assert veil.digest in words
    assert "not signed" in words or "unsigned" in words


def test_a_statement_lists_every_reading(shown, veil):
    words = words_of(shown["statement"])
    assert "one record; relation replace-one" in words
    for access in veil.statement.accesses:
        assert access.what in words
        assert access.spent in words
    nothing = Statement(level=Level.NONE, mechanism="paper", epsilon=1)._repr_html_()
    assert "Nothing is guaranteed." in nothing
    assert "protects" not in nothing


def test_a_schema_says_what_values_are_and_how_they_may_change(shown):
    words = words_of(shown["schema"])
    assert "age numeric 18 to 100, whole may increase" in words
    assert "debt numeric -5 to 5, or missing may change between -2.5 and 2.5" in words
    assert "housing categorical rent, own, free, or missing may change" in words
    assert "region categorical 1, 2, 3 never changes" in words
    assert "draft" not in words


def test_a_plan_gives_its_reasons_and_warnings(shown, schema, rows):
    plan = Curator(schema).plan(rows, 0.5)
    words = words_of(shown["plan"])
    assert plan.headline in words
    assert "600 rows or people" in words
    assert all(part in words for part in plan.reasons)
    assert all(part[1:] in words for part in plan.warnings)


def test_everything_is_escaped():
    schema = Schema(
        name=MARKUP,
        drafted=True,
        label=Label(name=f"{MARKUP} y", classes=(MARKUP, "no")),
        features=(
            Categorical(name="c", categories=(MARKUP, "b"), allowed=("b",)),
            Numeric(name=MARKUP, lower=0, upper=1e6, step=1000),
            Binary(name="d"),
            Pixels(name="p", height=2, breadth=2),
        ),
        links=(Link(source="c", derived="d", values={MARKUP: 0, "b": 1}),),
    )
    html = schema._repr_html_()
    assert MARKUP not in html
    assert "&lt;b&gt;x&lt;/b&gt;" in html
    words = words_of(html)
    assert "looked at the data" in words
    assert "may change to b" in words
    assert "0 to 1,000,000 may change in steps of 1,000" in words
    assert "c → d" in words
    assert MARKUP not in notebook_table(MARKUP, [(MARKUP, MARKUP)], warning=MARKUP)


def test_long_tables_are_cut():
    html = notebook_table("t", [], headings=("a",), rows=[(i,) for i in range(MOST_ROWS + 5)])
    assert html.count("<tr") == MOST_ROWS + 1
    assert "… and 5 more" in html
