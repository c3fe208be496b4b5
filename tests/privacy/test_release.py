"""The curator as a whole: one pass, streams, the ledger, the statement, guidance."""

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import random_rows

from counterveil import Explainer
from counterveil.curator import Curator, functional
from counterveil.curator.functional import make_plan
from counterveil.curator.noise import EXACT
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Encoding
from counterveil.errors import BudgetError, DataError, RequestError
from counterveil.models import CallableModel
from counterveil.population import population_of
from counterveil.privacy import Budget, ModelBudget
from counterveil.privacy.budget import rest_of
from counterveil.privacy.ledger import Ledger, OverdrawnError
from counterveil.schema import Binary, Label, Pixels, Schema
from counterveil.veil import Veil


def release(schema, data, epsilon=1.0, **options):
    return Curator(schema, **options).release(data, epsilon, epochs=1, progress=False)


def test_bad_rows_are_numbered_in_the_whole_table(schema, rows, tmp_path, monkeypatch):
    monkeypatch.setattr("counterveil.curator.sources.BATCH", 64)
    frame = rows.copy()
    frame.loc[300, "income"] = 99.0
    with pytest.raises(DataError, match=r"row 301, column 'income'"):
        Curator(schema).check(frame)
    people = frame.assign(who=np.arange(len(frame)) // 2)
    with pytest.raises(DataError, match=r"row 301, column 'income'"):
        Curator(schema, unit_column="who", max_records=1).check(people)


def test_people(schema, rows):
    people = rows.assign(who=np.arange(len(rows)) // 4)
    veil = release(schema, people, unit_column="who", max_records=2)
    assert veil.statement.unit == "person"
    assert "at most 2" in veil.statement.text()
    assert "L1 32" in veil.statement.accesses[0].sensitivity  # 2 records · 2 · 8 features
    assert "the number of people, 150" in veil.statement.public_inputs
    table = PrivateTable(people, schema, unit_column="who", max_records=2)
    assert len(table.private_rows()[0]) == len(rows) // 2
    with pytest.raises(DataError, match="unit column 'whom' is missing"):
        release(schema, people, unit_column="whom")
    with pytest.raises(DataError, match="unit column 'who' names nobody"):
        release(schema, people.assign(who=np.nan), unit_column="who")


@settings(max_examples=200, deadline=None)
@given(st.floats(1e-6, 1e6), st.floats(0.01, 0.45), st.floats(0.01, 0.45))
def test_shares_never_add_up_to_more(total, first, second):
    parts = first * total, second * total
    assert sum(map(Fraction, (*parts, rest_of(total, *parts)))) <= Fraction(total)


def test_the_ledger_is_charged_before_a_row_is_read(schema, rows, tmp_path, monkeypatch):
    path = tmp_path / "ledger.db"
    Ledger(path).open_account("loans", Budget(1.0))
    release(schema, rows, 0.4, ledger=path)
    monkeypatch.setattr(PrivateTable, "private_columns", None)  # reading a row now fails
    with pytest.raises(TypeError):
        release(schema, rows, 0.4, ledger=path)
    states = [entry.state for entry in Ledger(path).entries()]
    assert states == ["released", "reserved"]
    with pytest.raises(OverdrawnError, match=r"0\.2"):
        release(schema, rows, 0.4, ledger=path)
    with pytest.raises(RequestError, match="open"):
        release(schema, rows, 0.1, ledger=path, dataset="other")


def test_a_table_that_does_not_fit_costs_nothing(schema, rows, tmp_path):
    path = tmp_path / "ledger.db"
    Ledger(path).open_account("loans", Budget(1.0))
    for wrong in (rows.drop(columns="age"), rows.drop(columns="loan"), rows.head(0)):
        with pytest.raises(DataError):
            release(schema, wrong, 0.4, ledger=path)
    with pytest.raises(BudgetError):
        release(schema, rows, math.inf, ledger=path)
    assert Ledger(path).entries() == ()


def test_plan_looks_at_public_numbers_only(schema):
    from counterveil.demo.adult import adult_schema

    orders = {
        epsilon: make_plan(adult_schema(), 36_632, Budget(epsilon)).order
        for epsilon in (0.005, 0.025, 0.1, 0.75, 3.0)
    }
    assert orders == {0.005: 1, 0.025: 2, 0.1: 2, 0.75: 2, 3.0: 2}
    many = Schema(
        features=tuple(Binary(name=f"b{i}") for i in range(600)),
        label=Label(name="y", classes=tuple(range(100))),
    )
    assert "hides what tells the classes apart" in make_plan(many, 60_000, Budget(0.025)).text()
    assert make_plan(schema, 100, Budget(1.0), order=2).order == 2
    (small,) = make_plan(adult_schema(), 200, Budget(1.0)).warnings
    assert "100 rows a class" in small
    assert "times the rows or the ε" in small


@pytest.mark.long
def test_surrogate_guidance_asks_no_model(veil, schema, rows):
    def explode(frame):
        raise AssertionError("the model was consulted")

    model = CallableModel(explode, schema)
    queries = random_rows(schema, 30, seed=4)
    result = Explainer(veil, model, guidance="surrogate").explain(
        queries, "granted", progress=False
    )
    assert result.statement.level.value == "end-to-end"
    assert result.flip_ratio > 0.8
    assert "already" not in result.status  # what was asked for by name is always sought
    alone = Explainer(veil, guidance="surrogate").explain(queries, "granted", progress=False)
    pd.testing.assert_frame_equal(result.rows, alone.rows)
    unnamed = Explainer(veil, model, guidance="surrogate").explain(queries[:3], progress=False)
    assert len(unnamed.rows) == 3


def test_surrogate_learns_the_classes(veil, schema, rows):
    points = torch.tensor(Encoding(schema).encode(rows)).float()
    right = veil.surrogate(points).argmax(dim=1).numpy() == Encoding(schema).labels(rows)
    assert right.mean() > 0.85


def test_guidance_errors_and_composition(release_once, veil, schema, rows, model):
    paper = release_once(schema, rows, 1, mechanism="paper", epochs=1)
    with pytest.raises(RequestError, match="no surrogate"):
        Explainer(paper, guidance="surrogate")
    with pytest.raises(RequestError, match="no private model"):
        Explainer(paper)
    with pytest.raises(RequestError, match="no private model"):
        paper.model()
    with pytest.raises(RequestError, match=r"mechanism paper makes none; release it by mechanism"):
        paper.population()
    with pytest.raises(RequestError, match="guidance must be"):
        Explainer(veil, model, guidance="stars")
    declared = ModelBudget(2.0, 1e-7, unit="record", relation="replace-one")
    composed = Explainer(veil, model, model_budget=declared).statement
    assert composed.level.value == "composed"
    assert (composed.epsilon, composed.delta) == (102.0, 1e-7)
    assert Explainer(paper, model, model_budget=declared).statement.level.value == "none"
    for foreign in ({}, {"model": model, "guidance": "surrogate"}):
        with pytest.raises(RequestError, match="leave its budget out"):
            Explainer(veil, model_budget=declared, **foreign)
    with pytest.raises(RequestError, match="must say what it protects"):
        Explainer(veil, model, model_budget=Budget(2.0, 1e-7))


class Listener:
    """The exact noise of the product; keeps what it answered."""

    def __init__(self):
        self.answers = []

    def perturb(self, name, what, exact, sensitivity, share):
        self.answers.append(EXACT.perturb(name, what, exact, sensitivity, share))
        return self.answers[-1]


def tables_of_every_family(schema, rows):
    rng = np.random.default_rng(0)
    label = Label(name="y", classes=("a", "b", "c"))
    bits = Schema(features=tuple(Binary(name=f"b{i}") for i in range(24)), label=label)
    image = Schema(features=(Pixels(name="p", height=6, breadth=6, levels=16),), label=label)
    yield schema, rows
    for other, top in ((bits, 2), (image, 17)):
        frame = pd.DataFrame(rng.integers(0, top, (90, other.width)), columns=other.columns)
        frame["y"] = np.array(["a", "b", "c"])[np.arange(90) % 3]
        yield other, frame


def test_the_veil_carries_the_record_and_rebuilds_the_population(schema, rows, tmp_path):
    for one, frame in tables_of_every_family(schema, rows):
        veil = Curator(one).release(frame, 5.0, order=2, epochs=1, progress=False)
        assert veil.record.accesses == veil.statement.accesses
        veil.save(tmp_path / "a.veil")
        again = Veil.load(tmp_path / "a.veil")
        before, after = (
            population_of(each.schema, each.record).sample(200, np.random.default_rng(1))
            for each in (veil, again)
        )
        for mine, yours in zip(before, after, strict=True):
            np.testing.assert_array_equal(mine, yours)
        points, _ = again.population().sample(200, np.random.default_rng(1))
        np.testing.assert_array_equal(points, before[0])


@pytest.mark.parametrize("delta", [0.0, 0.01])
@pytest.mark.parametrize("person", [False, True])
def test_every_number_of_a_record_came_from_the_noise(schema, rows, person, delta):
    for one, frame in tables_of_every_family(schema, rows):
        unit = {"unit_column": "who", "max_records": 2} if person else {}
        table = PrivateTable(frame.assign(who=np.arange(len(frame)) // 3), one, **unit)
        plan = make_plan(one, table.size, Budget(2.0, delta), records=table.records, order=2)
        listener = Listener()
        record = functional.measure(table, plan, listener)
        assert record.units == table.size
        assert record.unit == ("person" if person else "record")
        heard = {answer.name: answer for answer in listener.answers}
        assert {found.name for found in record.measurements} == set(heard)
        for name, answer in heard.items():
            assert record.find(name) is answer
        assert not any(found.values.flags.writeable for found in record.measurements)
