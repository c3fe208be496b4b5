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


def test_each_view_says_what_matters(shown, veil, schema, rows):
    plan = Curator(schema).plan(rows, 0.5)
    accesses = [part for each in veil.statement.accesses for part in (each.what, each.spent)]
    told = {
        "veil": ("Veil of loans", veil.statement.headline, "loan: refused, granted", veil.digest,
                 "unsigned"),
        "statement": ("one record; relation replace-one", *accesses),
        "schema": ("age numeric 18 to 100, whole may increase",
                   "debt numeric -5 to 5, or missing may change between -2.5 and 2.5",
                   "housing categorical rent, own, free, or missing may change",
                   "region categorical 1, 2, 3 never changes"),
        "plan": (plan.headline, "600 rows or people", *plan.reasons,
                 *(part[1:] for part in plan.warnings)),
    }  # fmt: skip
    for name, parts in told.items():
        for part in parts:
            assert part in words_of(shown[name])
    assert "draft" not in words_of(shown["schema"])
    nothing = Statement(level=Level.NONE, mechanism="paper", epsilon=1)._repr_html_()
    assert "Nothing is guaranteed." in nothing
    assert "protects" not in nothing


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
