"""The private model and the population beside DP-EBM, AIM and MST."""

import os

import numpy as np
import pytest
from campaigns import population_peers
from campaigns.marginals import PYTHON, Codes

from counterveil.encoding import Encoding
from counterveil_lab.experiments.runner import Options

BUDGET = {"epsilon": 0.75, "delta": 1e-6, "draw": 0}


def quick_rows(method, **noise):
    found = population_peers.measure_case("adult", method, **(noise or BUDGET), quick=True)
    return {row["model"]: row for row in found}


def test_codes_stand_for_rows_with_the_same_codes(schema, rows):
    points = Encoding(schema).encode(rows)
    codes = Codes(schema, points, 8)
    given = codes.of(points)
    assert (given >= 0).all()
    assert (given < codes.sizes).all()
    again = codes.points(given, np.random.default_rng(0))
    assert (codes.of(again) == given).all()
    encoding = Encoding(schema)
    assert np.allclose(encoding.encode(encoding.decode(again)), again)  # legal rows


def test_what_cannot_be_measured_is_said(tmp_path, monkeypatch):
    monkeypatch.delenv(PYTHON, raising=False)
    monkeypatch.setattr(population_peers, "find_spec", lambda name: None)
    said = []
    options = Options(tmp_path, seeds=1, quick=True, workers=1, say=said.append)
    chosen = list(population_peers.POPULATION_PEERS.chosen(options))
    assert {(case["method"], case["dataset"]) for case in chosen} == {
        ("ours", "adult"), ("real rows", "adult"),
    }  # fmt: skip
    told = ["without dp-ebm at δ 0", "without dp-ebm", "without aim and mst"]
    assert [words.split(":")[0] for words in said] == told


@pytest.mark.slow
def test_ours_beside_real_rows():
    best = quick_rows("real rows", epsilon=None, delta=None, draw=0)
    ours = quick_rows("ours")
    assert best["boosted trees"]["auc"] > 0.88
    assert best["f"]["agreement"] == 1
    for model in ("private model", "boosted trees"):
        assert 0.75 < ours[model]["auc"] < best["boosted trees"]["auc"]
    assert 0 < ours["boosted trees"]["two_way"] < 0.3


@pytest.mark.slow
def test_dp_ebm():
    pytest.importorskip("interpret", reason="DP-EBM needs pip install 'counterveil[lab]'")
    row = quick_rows("dp-ebm")["dp-ebm"]
    assert 0.75 < row["auc"] < 0.92
    assert row["balanced_accuracy"] > 0.65


@pytest.mark.slow
@pytest.mark.parametrize("method", population_peers.MARGINALS)
def test_marginals(method, monkeypatch):
    if not os.environ.get(PYTHON):
        pytest.skip(f"needs {PYTHON}, a Python that has opendp, mbi and pandas")
    monkeypatch.setattr(population_peers, "ROUNDS", 3)
    row = quick_rows(method)["boosted trees"]
    assert 0 < row["two_way"] < 0.3  # few rounds of AIM on few rows tell little of the class
    assert row["bins"] == population_peers.QUICK_BINS
