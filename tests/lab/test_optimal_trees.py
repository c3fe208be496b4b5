"""Answers about boosted trees beside the optima of treecf."""

import numpy as np
import pandas as pd
import pytest
import torch
from campaigns import optimal_trees
from campaigns.exhaustive import allowed_points

from counterveil.encoding import Encoding
from counterveil.schema import Categorical, Label, Numeric, Schema
from counterveil.search.constraints.bounds import box_around

pytest.importorskip("treecf")

SCHEMA = Schema(
    features=(
        Numeric(name="age", lower=0, upper=10, integer=True, immutable=True),
        Numeric(name="income", lower=0, upper=12, integer=True),
        Numeric(name="debt", lower=0, upper=8, integer=True),
        Categorical(name="job", categories=("none", "some", "own")),
    ),
    label=Label(name="paid", classes=("no", "yes")),
)


def people():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({
        "age": rng.integers(0, 11, 2000), "income": rng.integers(0, 13, 2000),
        "debt": rng.integers(0, 9, 2000), "job": rng.choice(["none", "some", "own"], 2000),
    })  # fmt: skip
    worth = table.income - table.debt + 2 * (table.job == "own") + rng.normal(0, 1, 2000)
    return table.assign(paid=np.where(worth > 4, "yes", "no"))


def test_the_optimum_is_the_nearest_accepted_row():
    encoding, table = Encoding(SCHEMA), people()
    trees = optimal_trees._trees(table, SCHEMA)
    asked = encoding.encode(table[table.paid == "no"].head(5))
    for query in asked[trees.predict(asked) == 0]:
        box = box_around(encoding, query[None])
        found = optimal_trees.optimum(trees, encoding, query, box, 1)
        rows = allowed_points(encoding, torch.tensor(query).float()).double().numpy()
        accepted = rows[trees.predict_proba(rows)[:, 1] >= 0.5]
        assert found.point is not None
        assert found.proved
        least = np.abs(accepted - query).sum(axis=1).min()
        assert np.abs(found.point - query).sum() == pytest.approx(least, abs=1e-5)
        assert trees.predict(found.point[None])[0] == 1


def test_a_no_is_proved():
    encoding, table = Encoding(SCHEMA), people()
    trees = optimal_trees._trees(table, SCHEMA)
    query = encoding.encode(table.iloc[[0]].assign(income=0, debt=8, job="none"))[0]
    box = box_around(encoding, query[None], immutable=["income", "debt"])
    assert optimal_trees.optimum(trees, encoding, query, box, 1) == (None, True)


@pytest.mark.slow
def test_adult():
    for row in optimal_trees.measure_case("adult", quick=True):
        assert row["queries"] == optimal_trees.QUICK_QUERIES
        assert row["missed"] == 0
        assert row["found"] + row["no_way"] == row["queries"]
        assert row["times_l1"] >= 0.999
