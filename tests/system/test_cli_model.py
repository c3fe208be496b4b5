"""`counterveil model` as a person meets it."""

import json

import numpy as np
import pandas as pd
import pytest
from commands import assert_refused
from rows import random_rows

from counterveil.privacy.ledger import Ledger

SCORE = ("model", "score", "--veil", "loans.veil", "--data", "held-out.csv")


@pytest.fixture
def held_out(world, schema):
    """Rows of other people."""
    frame = random_rows(schema, 400, seed=77)
    frame.to_csv(world / "held-out.csv", index=False)
    return frame


@pytest.fixture
def account(does, world):
    for name in ("loans", "others"):
        does("ledger", "open", "l.db", "--dataset", name, "--epsilon", 1)
    return Ledger(world / "l.db")


@pytest.mark.long
def test_export_writes_both_files_and_overwrites_nothing(run, does, world):
    files = ("--onnx", "m.onnx", "--pt2", "m.pt2")
    out, _ = does("model", "export", "loans.veil", *files)
    assert "end-to-end" in out
    before = (world / "m.onnx").read_bytes()
    assert_refused(run("model", "export", "loans.veil", *files), "there already")
    assert (world / "m.onnx").read_bytes() == before
    other = ("--classes", "even", "--overwrite")
    does("model", "export", "loans.veil", *files, *other)
    assert (world / "m.onnx").read_bytes() != before
    for given, words in (
        (("loans.veil",), "give --onnx X.onnx or --pt2"),
        (("loans.veil", "--onnx", "m.bin"), "name the file .onnx"),
        (("loans.veil", "--onnx", "n.onnx", "--classes", "odd"), "must be one of: even, popul"),
        (("none.veil", "--pt2", "n.pt2"), "no veil at none.veil"),
    ):
        assert_refused(run("model", "export", *given), words)


@pytest.mark.long
@pytest.mark.parametrize("file", ["m.onnx", "m.pt2"])
def test_explain_takes_an_exported_file(does, world, veil, file):
    if file == "m.onnx":
        pytest.importorskip("onnxruntime", reason="counterveil[onnx] is not installed")
    does("model", "export", "loans.veil", f"--{file[2:]}", file)
    command = ("explain", "--veil", "loans.veil", "--queries", "queries.csv", "--model", file)
    quick = ("--method", "iterations", "--iterations", 20, "--out", "cf.csv")
    does(*command, *quick, "--target", "granted")
    found = pd.read_csv(world / "cf.csv").query("status == 'found'")
    assert len(found)
    assert set(veil.model().predict(found)) == {"granted"}


def test_predict_writes_decisions(run, does, world, veil, held_out):
    asked = ("model", "predict", "--veil", "loans.veil", "--rows", "held-out.csv")
    does(*asked, "--out", "d.csv")
    table = pd.read_csv(world / "d.csv")
    assert table.decision.tolist() == veil.model().predict(held_out).tolist()
    shares = table[["probability of refused", "probability of granted"]].to_numpy()
    assert np.allclose(shares, veil.model().predict_proba(held_out))
    assert_refused(run(*asked, "--out", "d.csv"), "there already")
    assert_refused(run(*asked, "--out", "d.doc"), "name the file .csv")


def test_an_exact_score_is_loud_and_written_down(run, does, world, veil, held_out, account):
    out, err = does(*SCORE, "--ledger", "l.db", "--dataset", "others")
    assert "WHAT THIS COMMAND FINDS IS PRIVATE" in err
    assert "EXACT AND PRIVATE" in out
    (entry,) = account.entries()
    assert (entry.kind, entry.dataset, entry.epsilon) == ("looked", "others", 0)
    _, out, _ = run(*SCORE, "--json")
    found = json.loads(out)
    assert found["private"] is True
    right = veil.model().predict(held_out) == held_out.loan
    assert found["accuracy"]["value"] == pytest.approx(right.mean())


def test_a_noisy_score_is_paid_for(run, does, world, held_out, account):
    paid = (*SCORE, "--epsilon", 0.6, "--ledger", "l.db")
    assert_refused(run(*paid), "--ledger needs --dataset")
    assert account.entries() == ()
    out, _ = does(*paid, "--dataset", "others", "--out", "s.json")
    assert "discrete Laplace noise of scale 3.333 on each count: ε = 0.6" in out
    for words in ("accuracy", "always the largest class", "AUC"):
        assert words in out
    (entry,) = account.entries()
    assert (entry.state, entry.dataset, entry.epsilon) == ("released", "others", 0.6)
    assert entry.what == "score of a private model on loans"
    written = json.loads((world / "s.json").read_text())
    assert written["private"] is False
    assert written["access"]["l1"] == 2
    assert [each["class"] for each in written["classes"]] == ["refused", "granted"]
    assert_refused(run(*paid, "--dataset", "others", "--out", "s.json"), "there already")
    assert_refused(run(*paid, "--dataset", "others"), "cannot pay")
    assert_refused(run(*paid, "--dataset", "loans"), "--other-rows")
    does(*paid, "--dataset", "loans", "--other-rows", "--json")
    assert len(account.entries()) == 2


def test_wrong_words_of_score(run, does, world, held_out):
    _, err = does(*SCORE, "--epsilon", 5)
    assert "no --ledger" in err
    for given, words in (
        (("--delta", 1e-6), "belong to a noisy score"),
        (("--out", "s.json"), "belong to a noisy score"),
        (("--epsilon", 0), "epsilon must be"),
        (("--epsilon", 1, "--out", "s.txt"), "name the file .json"),
        (("--epsilon", 1, "--unit-column", "who"), "'who' is missing"),
    ):
        assert_refused(run(*SCORE, *given), words)
    held_out.drop(columns="loan").to_csv(world / "held-out.csv", index=False)
    assert_refused(run(*SCORE, "--epsilon", 1), "label column 'loan' is missing")
