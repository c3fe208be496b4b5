"""Plausibility as a judge: how copies are made, and that a judge of pairs sees them."""

import numpy as np
import pandas as pd
import pytest
from campaigns import plausibility

from counterveil.curator import Curator
from counterveil.schema import Categorical, Label, Numeric, Schema
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.runner import Options

SCHEMA = Schema(
    features=(
        Numeric(name="rent", lower=0, upper=100, integer=True, missing=True),
        Numeric(name="income", lower=0, upper=100, integer=True),
        Categorical(name="member", categories=("no", "yes")),
        Categorical(name="same", categories=("a", "b")),
    ),
    label=Label(name="y", classes=("no", "yes")),
)


def people(count):
    """Income follows rent, where that is known; members are few."""
    dice = np.random.default_rng(2)
    rent = dice.integers(10, 90, count)
    return pd.DataFrame({
        "rent": np.where(dice.random(count) < 0.1, np.nan, rent),
        "income": rent + dice.integers(-5, 6, count), "same": "a",
        "member": dice.choice(["no", "yes"], count, p=[0.97, 0.03]),
        "y": dice.choice(["no", "yes"], count),
    })[["rent", "income", "member", "same", "y"]]  # fmt: skip


TABLE = people(3000)


@pytest.fixture(scope="module")
def pairs():
    return plausibility.with_copies(TABLE, SCHEMA, 2000, np.random.default_rng(0))


def test_a_copy_differs_in_the_feature_that_was_replaced(pairs):
    unlike = pairs.real.ne(pairs.copies) & ~(pairs.real.isna() & pairs.copies.isna())
    assert (unlike.sum(axis=1) == 1).all()
    assert (unlike.to_numpy().argmax(axis=1) == pairs.replaced).all()
    assert list(pairs.copies.columns) == list(TABLE.columns)
    counts = np.bincount(pairs.replaced, minlength=4)
    assert counts.tolist() == [1000, 1000, 1000, 0]  # all have the same "same"
    assert pairs.real["y"].value_counts().tolist() == [1500, 1500]
    # Every value leaves as often as it comes.
    mine = pairs.replaced == 2
    members = [(part["member"][mine] == "yes").mean() for part in (pairs.real, pairs.copies)]
    assert members == pytest.approx([0.5, 0.5], abs=0.05)  # of 3 % of all


def test_auc_by_hand():
    for real, copies, auc in (
        ((2, 3), (0, 1), 1.0),
        ((1, 1), (1, 1), 0.5),
        ((0, 2), (1, 2), 0.375),
    ):
        assert plausibility.auc(np.array(real), np.array(copies)) == auc


def test_a_population_with_pairs_sees_copies_and_one_of_singles_does_not(pairs):
    found = {}
    for order in (1, 2):
        veil = Curator(SCHEMA).release(TABLE, 50.0, order=order, progress=False)
        scores = plausibility.plausibility(veil, pairs.both)
        assert 0 <= scores.min() <= scores.max() <= 1
        found[order] = pairs.judged(scores, [0, 1])
    assert found[1] == pytest.approx([0.5, 0.5], abs=0.04)
    assert found[2][1] > 0.75


def test_cases(tmp_path):
    asked = list(plausibility.cases(Options(tmp_path, seeds=2, quick=False, workers=1)))
    assert len(asked) == 2 * 4 * 3
    assert {case["seed"] for case in asked} == {1, 2}


@pytest.mark.slow
def test_months(monkeypatch):
    monkeypatch.setattr(releases, "QUICK_ROWS", 6000)
    (row,) = plausibility.measure_case("months", 3.0, 1, quick=True)
    assert row["rows"] == 2 * 23 * (plausibility.QUICK_ROWS // 23)
    assert 0.5 < row["auc"] < 1
    assert row["ceiling"] > 0.6
