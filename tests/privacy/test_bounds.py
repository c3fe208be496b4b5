"""Private bounds of numbers: their sensitivity, their charge, and what a veil then states."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from counterveil.audit.functional import Instrument
from counterveil.cli import app
from counterveil.curator import Curator
from counterveil.curator.bounds import CELLS, EDGES, bounds_from, cells_of, measure_bounds
from counterveil.curator.infer_schema import draft_schema
from counterveil.curator.table import PrivateTable
from counterveil.errors import RequestError, VeilError
from counterveil.privacy import Budget, Level
from counterveil.privacy.ledger import Ledger, OverdrawnError
from counterveil.privacy.recipe import Training
from counterveil.privacy.record import noise_variance
from counterveil.schema import Label, Numeric, Schema

NAMES = ("x", "z")
SCHEMA = Schema(
    name="loans",
    drafted=True,
    features=tuple(Numeric(name=name, lower=0, upper=1) for name in NAMES),
    label=Label(name="y", classes=("no", "yes")),
)
TINY = Training(50, 1, 50, 1e-3, (3,), 1)
CELL = st.one_of(
    st.sampled_from([0, -0.0, 1, -1, 0.5, 1e300, -1e300, math.inf, None, "", "much", "7", True]),
    st.floats(allow_nan=True),
    st.integers(-(10**20), 10**20),
)
ROW = st.tuples(CELL, CELL, st.sampled_from(["no", "yes", "perhaps", None]))


def counts(rows, **units):
    heard = Instrument()
    frame = pd.DataFrame(rows, columns=["x", "z", "y", "who"], dtype=object)
    measure_bounds(PrivateTable(frame, SCHEMA, **units), NAMES, Budget(1.0), heard)
    return heard.exact[0], heard.answers[0].sensitivity


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(ROW, min_size=2, max_size=8), new=ROW, at=st.integers(0, 7))
def test_replacing_a_record_moves_counts_by_at_most_what_is_stated(rows, new, at):
    one = [(*row, number) for number, row in enumerate(rows)]
    two = [(*new, number) if number == at % len(one) else row for number, row in enumerate(one)]
    three = [two[at % len(one)]] + [row for row in one if row[3] != at % len(one)]
    (before, stated), (after, _), (moved, _) = counts(one), counts(two), counts(three)
    assert np.abs(before - after).sum() <= stated.l1 == 4
    assert np.square(before - after).sum() <= stated.l2**2
    assert np.array_equal(after, moved)
    assert before.sum() == 2 * len(one)


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(ROW, min_size=2, max_size=6), new=st.lists(ROW, min_size=1, max_size=5))
def test_so_does_replacing_a_person(rows, new):
    others = [(*row, f"p{number % 3}") for number, row in enumerate(rows)]
    units = {"unit_column": "who", "max_records": 2}
    one, stated = counts([*others, *[(1, 1, "no", "me")] * 3], **units)
    two, _ = counts([*[(*row, "you") for row in new], *others], **units)
    assert np.abs(one - two).sum() <= stated.l1 == 8
    assert np.square(one - two).sum() <= stated.l2**2


def test_every_number_has_a_cell_and_the_stated_sensitivity_is_attained():
    assert (np.diff(EDGES) > 0).all()
    some = np.array([0, -0.0, 1e-3, 0.99e-3, 17, 17.5, -17, 1e300, -1e300, np.inf, np.nan])
    cells = cells_of(some)
    whole = cells < CELLS
    assert whole.tolist() == [True, True, False, False, True, False, True, True, True, True, True]
    assert EDGES[cells[4]] == 15
    assert EDGES[cells[5] - CELLS] == 15
    assert cells[0] == cells[1]
    assert cells[-1] == CELLS - 1
    assert max(cells) < 2 * CELLS
    one, stated = counts([(1, 1, "no", 1), (5, 5, "no", 2)])
    two, _ = counts([(1, 1, "no", 1), (700, "", None, 2)])
    assert np.abs(one - two).sum() == stated.l1


def rows_of(count=4000):
    dice = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": dice.integers(18, 80, count),
            "income": dice.lognormal(8, 0.5, count).round(2),
            "debt": np.where(dice.random(count) < 0.3, np.nan, -dice.gamma(2, 500, count)),
            "y": dice.choice(["no", "yes"], count),
        }
    )


def test_bounds_are_around_the_people():
    frame = rows_of()
    schema = Curator(draft_schema(frame, "y").schema).bounds(frame, 1.0)
    age, income, debt = schema.features
    assert (age.integer, age.missing, income.integer, debt.missing) == (True, False, False, True)
    for feature in schema.features:
        cells = frame[feature.name].dropna()
        assert ((cells >= feature.lower) & (cells <= feature.upper)).mean() > 0.95
        assert feature.upper - feature.lower < 6 * (cells.max() - cells.min())
        ends = {feature.lower, feature.upper}
        assert ends <= set(EDGES) | {math.ceil(each) for each in EDGES if abs(each) < 100}
    assert schema.unreviewed == ("y",)
    assert schema.measured.epsilon == 1.0


def test_where_nothing_stands_out_the_mark_stays():
    noise, draws = np.random.default_rng(0), 300
    variance = noise_variance("discrete Laplace", 40.0)
    found = [
        bounds_from(np.rint(noise.laplace(0, 40.0, (2, CELLS))).astype(np.int64), variance)
        for _ in range(draws)
    ]
    assert sum(each is not None for each in found) < draws / 10
    frame = rows_of(20)
    schema = Curator(draft_schema(frame, "y").schema).bounds(frame, 0.01)
    assert {"age", "income"} & set(schema.unreviewed)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows_of().assign(person=np.arange(4000) // 2).to_csv("rows.csv", index=False)
    draft = draft_schema(rows_of(), "y", name="loans").schema
    draft.model_copy(update={"drafted": ("age", "income", "debt")}).save("draft.json")
    Ledger("ledger.db").open_account("loans", Budget(1.0))
    return tmp_path


def said(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_bounds_are_paid_for_and_a_veil_states_both(folder):
    words = ("schema", "bounds", "draft.json", "--data", "rows.csv", "--ledger", "ledger.db")
    done = said(*words, "--epsilon", 0.3, "--out", "schema.json")
    assert done.exit_code == 0, done.output
    schema = Schema.load("schema.json")
    assert (schema.drafted, schema.measured.epsilon) == (False, 0.3)
    (charge,) = Ledger("ledger.db").entries("loans")
    assert (charge.state, charge.epsilon) == ("released", 0.3)
    for delta in (0.0, 1e-6):
        curator = Curator(schema)
        veil = curator.release("rows.csv", 0.5, delta, training=TINY, progress=False)
        assert (veil.statement.epsilon, veil.statement.level) == (0.8, Level.EXPLAINER)
        assert veil.statement.accesses[0].what == "bounds of numbers in the schema"
        assert veil.statement.accesses[1:] == veil.record.accesses
        assert "exp(0.8)" in veil.statement.text()
        if delta == 0:
            assert veil.statement.loss_tail(0.79) == 1
            assert veil.statement.loss_tail(0.8) == 0
        for cheaper in ({"epsilon": 0.5}, {"accesses": veil.record.accesses}):
            forged = veil.statement.model_copy(update=cheaper)
            with pytest.raises(VeilError):
                replace(veil, statement=forged).save("forged.veil")
    left = said(*words, "--epsilon", 0.8, "--out", "again.json")
    assert isinstance(left.exception, OverdrawnError)
    assert not (folder / "again.json").exists()


def test_bounds_and_release_may_each_have_a_delta(folder):
    schema = Curator(Schema.load("draft.json")).bounds("rows.csv", 0.3, 1e-7)
    for delta, sum_of_both in ((0.0, 1e-7), (1e-6, 1.1e-6)):
        veil = Curator(schema).release("rows.csv", 0.5, delta, training=TINY, progress=False)
        assert (veil.statement.epsilon, veil.statement.delta) == (0.8, sum_of_both)
        assert veil.statement.loss_tail(0.8 + math.log(2)) >= 2 * sum_of_both * (1 - 1e-9)


def test_bounds_for_another_unit_do_not_add_up(folder):
    units = {"unit_column": "person", "max_records": 2}
    made = Curator(Schema.load("draft.json"), **units).bounds("rows.csv", 0.3)
    assert (made.measured.unit, made.measured.max_records) == ("person", 2)
    for other in ({}, {**units, "max_records": 1}, {**units, "unit_column": "age"}):
        with pytest.raises(RequestError, match="measured for one person by 'person' with at most"):
            Curator(made, **other).release("rows.csv", 0.5, training=TINY, progress=False)
    veil = Curator(made, **units).release("rows.csv", 0.5, training=TINY, progress=False)
    forged = {**json.loads(made.to_json())["measured"], "max_records": 1}
    schema = Schema(**{**dict(made), "measured": forged})
    with pytest.raises(VeilError, match="another unit"):
        replace(veil, schema=schema).save("forged.veil")


def test_only_what_a_person_has_replaced_loses_its_mark(folder):
    draft = draft_schema(rows_of(), "y", name="loans").schema
    assert draft.unreviewed == ("y", "age", "income", "debt")
    for marked in (True, ("y",), draft.unreviewed):
        schema = draft.model_copy(update={"drafted": marked})
        again = Schema.from_json(schema.to_json())
        assert again.unreviewed == schema.unreviewed
        veil = Curator(again).release(rows_of(200), 1, training=TINY, progress=False)
        assert veil.statement.level is Level.NONE
    with pytest.raises(Exception, match="'drafted' must be true or list columns"):
        Schema.from_json(draft.model_copy(update={"drafted": ("unknown",)}).to_json())
    with pytest.raises(RequestError, match="no number"):
        Curator(draft.model_copy(update={"drafted": ("y",)})).bounds("rows.csv", 0.1)


def test_an_exact_draft_is_an_exact_look(folder):
    words = ("schema", "draft", "rows.csv", "--label", "y", "--out", "new.json")
    assert said(*words, "--ledger", "ledger.db", "--dataset", "loans").exit_code == 0
    (look,) = Ledger("ledger.db").entries("loans")
    assert (look.state, look.what) == ("looked", "exact draft of a schema of rows")
    assert Schema.load("new.json").drafted is True
