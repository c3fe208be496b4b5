"""The noisy score of a private model: what a record can do to it, its charge, its intervals."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from rows import random_rows
from scipy.stats import norm
from torch import nn

from counterveil import audit
from counterveil.audit import Effort
from counterveil.audit import score as audited
from counterveil.audit.functional import Instrument
from counterveil.curator import Curator
from counterveil.curator.noise import EXACT
from counterveil.curator.score import bins_for, edges_of, exact_score, measure_score
from counterveil.curator.scored import LEAST_BINS, Score
from counterveil.curator.table import PrivateTable
from counterveil.errors import BudgetError, RequestError
from counterveil.privacy import Budget
from counterveil.privacy.ledger import Ledger, OverdrawnError
from counterveil.privacy.record import Sensitivity
from counterveil.privacy.statement import GAUSSIAN, LAPLACE
from counterveil.private_model import PrivateModel
from counterveil.schema import Label


def exact(table, model):
    heard = Instrument()
    measure_score(table, model, Budget(1.0), heard)
    return heard.exact[0], heard.answers[0].sensitivity


@pytest.fixture(scope="module")
def model(veil):
    return veil.model()


def test_counts_and_auc_are_those_of_the_predictions(schema, model):
    frame = random_rows(schema, 150, seed=5)
    table = PrivateTable(frame, schema)
    counts, stated = exact(table, model)
    right = model.predict(frame) == frame.loan.to_numpy()
    found = exact_score(table, model)
    near = measure_score(table, model, Budget(1e4))
    for place, name in enumerate(schema.label.classes):
        mine = right[frame.loan == name]
        wanted = ((~mine).sum(), mine.sum())
        assert counts[place].sum() == len(mine)
        assert found.wrong_and_right[place] == near.wrong_and_right[place] == wanted
    assert (stated.l1, stated.l2) == (2, pytest.approx(math.sqrt(2)))
    assert near.right.shape == near.counts.shape
    assert found.accuracy.value == near.accuracy.value == right.mean()
    assert found.base_rate.value == pytest.approx((frame.loan == found.largest_class).mean())
    frame = random_rows(schema, 150, seed=5)
    odds = np.log(model.predict_proba(frame)[:, 1] / model.predict_proba(frame)[:, 0])
    second = (frame.loan == schema.label.classes[1]).to_numpy()
    higher = np.sign(odds[second][:, None] - odds[~second][None]).mean() / 2 + 0.5
    table = PrivateTable(frame, schema)
    assert exact_score(table, model).auc.value == pytest.approx(higher, abs=1e-3)
    binned = measure_score(table, model, Budget(1e4)).auc
    assert binned.low <= higher <= binned.high
    assert binned.value == pytest.approx(higher, abs=0.03)


def test_edges_are_public(schema, model, veil):
    """They follow from the veil alone; one is where the decision turns."""
    edges = edges_of(model, 12)
    assert np.array_equal(edges, edges_of(veil.model(), 12))
    assert len(edges) <= 11
    assert (edges == 0).sum() == 1
    assert (np.diff(edges) > 0).all()
    without = PrivateModel(schema, veil.surrogate, veil.statement)
    assert edges_of(without, 4) == pytest.approx([-math.log(3), 0, math.log(3)], abs=0.01)
    assert edges_of(without, 2).tolist() == [0]
    assert [bins_for(5000, 1, variance) for variance in (1e4, 1250, 800, 8)] == [2, 4, 6, 20]


@pytest.mark.parametrize("make", audited.PAIRS[:3])
def test_the_stated_sensitivity_is_attained(make):
    pair = make()
    one, two = audited.listened(pair, Budget(1.0))
    stated = one.answers[0].sensitivity
    assert stated == Sensitivity.of_counts(1, pair.max_records or 1)
    moved = one.exact[0] - two.exact[0]
    assert np.abs(moved).sum() == stated.l1
    assert math.sqrt((moved**2).sum()) == pytest.approx(stated.l2)


GAMES = audit.games("score", [0.5], Effort(draws=20_000, runs=40, seed=7))


def long_ones(games):
    """Games of the whole command take ten seconds each."""
    long = pytest.mark.long
    return [pytest.param(game, marks=long if game.view == "the command" else ()) for game in games]


@pytest.mark.parametrize("game", long_ones(GAMES), ids=lambda game: f"{game.view}, {game.pair}")
def test_the_score_is_not_refuted(game):
    row = game.play()
    assert not row.refuted, row
    if game.draws == 20_000 and not row.delta:
        least = 0.15 if "none" in row.pair else 0.3  # such a record is in one cell, or in none
        assert row.bound > least  # the game sees most of what there is


def test_a_score_is_charged_or_refused_before(schema, model, rows, tmp_path):
    ledger = Ledger(tmp_path / "l.db")
    ledger.open_account("others", Budget(1.0))
    paid = {"ledger": ledger.path, "dataset": "others"}
    curator, foreign = Curator(schema, **paid), schema.model_copy(update={"name": "else"})
    score = curator.score(rows, model, 0.4, save_to=tmp_path / "s.json")
    (entry,) = ledger.entries()
    assert (entry.state, entry.epsilon, entry.digest) == ("released", 0.4, score.digest)
    assert (tmp_path / "s.json").read_bytes() == score.to_json()
    for error, asked in ((OverdrawnError, 0.7), (BudgetError, math.inf)):
        with pytest.raises(error):
            curator.score(rows, model, asked)
    with pytest.raises(RequestError, match="another schema"):
        Curator(foreign, **paid).score(rows, model, 0.1)
    with pytest.raises(RequestError, match="spends nothing"):
        curator.score(rows, model, save_to=tmp_path / "x.json")
    assert len(ledger.entries()) == 1


def test_a_person_counts_at_most_so_often(schema, model, rows):
    people = rows.assign(who=np.arange(len(rows)) // 10)
    curator = Curator(schema, unit_column="who", max_records=3)
    score = curator.score(people, model, 1000.0)
    assert score.measurement.sensitivity.l1 == 6
    assert abs(int(score.counts.sum()) - 180) < 10
    assert (score.unit, score.units, score.records) == ("person", 60, 3)
    once = Curator(schema).score(people.groupby("who").head(3), model)
    wider, narrower = score.accuracy, once.accuracy  # three records may be as good as one
    assert wider.high - wider.low > 1.3 * (narrower.high - narrower.low)


NOISES = {
    "laplace": EXACT.perturb("x", "x", np.zeros(1, np.int64), Sensitivity(2, 1.5), Budget(0.5)),
    "gaussian": EXACT.perturb(
        "x", "x", np.zeros(1, np.int64), Sensitivity(200, 1.5), Budget(0.5, 1e-3)
    ),
}


def score_from(counts, made, tops=None, records=1):
    names = tuple(str(place) for place in range(len(counts)))
    return Score((*range(len(counts)),), names, counts, tops, made, "record", 500, records, "")


@pytest.mark.long
@pytest.mark.parametrize(("name", "kind"), [("laplace", LAPLACE), ("gaussian", GAUSSIAN)])
def test_intervals_hold_the_true_shares(name, kind):
    """Held-out people and noise are drawn anew; the intervals must hold what they were drawn by."""
    dice = np.random.default_rng(0)
    made, right, draws = NOISES[name], np.array([0.9, 0.6]), 400
    assert made.mechanism == kind
    missed, wide = np.zeros(3), []
    for _ in range(draws):
        sizes = dice.multinomial(1000, [0.8, 0.2])
        hits = dice.binomial(sizes, right)
        counts = np.stack([sizes - hits, hits], axis=1)
        counts += audit.functional.fast_noise.draw(made, counts.shape, dice)
        score = score_from(counts, made)
        told = (score.accuracy, 0.84), (score.balanced_accuracy, 0.75), (score.base_rate, 0.8)
        for place, (found, truth) in enumerate(told):
            assert 0 <= found.low <= found.value <= found.high <= 1
            missed[place] += not found.low <= truth <= found.high
        wide.append(score.accuracy.high - score.accuracy.low)
    assert (missed <= 0.07 * draws).all()
    assert np.mean(wide) < 0.12


@pytest.mark.parametrize(
    ("epsilon", "spread"), [(0.1, 1.0), (0.5, 4.0), (1.0, 1.0), (None, 1.0), (None, 4.0)]
)
def test_intervals_hold_the_true_auc(epsilon, spread):
    """Log-odds of the second class are normal about 1.5, those of the first about 0.

    With a spread of 4 the second class is on both sides of the first, as no usual model has it.
    """
    dice, people, draws = np.random.default_rng(7), 5000, 200
    truth = norm.cdf(1.5 / math.sqrt(1 + spread**2))
    made = None if epsilon is None else EXACT.perturb(
        "x", "x", np.zeros(1, np.int64), Sensitivity.of_counts(1, 1), Budget(epsilon)
    )  # fmt: skip
    bins = 2 if made is None else bins_for(people, 1, made.variance)
    alike = [dice.normal(middle, wide, 10_000) for middle, wide in ((0, 1), (1.5, spread))]
    edges = np.quantile(alike, np.arange(1, bins) / bins)
    missed, off = 0, []
    for _ in range(draws):
        second = (dice.random(people) < 0.25).astype(int)
        odds = np.where(second, dice.normal(1.5, spread, people), dice.normal(0, 1, people))
        tops = np.unique(odds) if made is None else np.append(edges, np.inf)
        counts = np.zeros((2, len(tops)), np.int64)
        np.add.at(counts, (second, np.searchsorted(tops, odds)), 1)
        if made is not None:
            counts += audit.functional.fast_noise.draw(made, counts.shape, dice)
        found = score_from(counts, made, tops).auc
        assert 0 <= found.low <= found.value <= found.high <= 1
        missed += not found.low <= truth <= found.high
        off.append(found.value - truth)
    assert missed <= (0.07 if made else 0.09) * draws  # exact ones miss one in twenty
    assert abs(np.mean(off)) < 0.02


def test_counts_that_drown_in_noise_promise_nothing():
    made = NOISES["laplace"]
    score = score_from(np.array([[-9, -3], [4, -2]]), made)
    for found in (score.accuracy, score.balanced_accuracy, score.base_rate, *score.recalls):
        assert 0 <= found.low <= found.value <= found.high <= 1
    assert json.loads(score.to_json())["classes"][0]["wrong"] == -9
    assert pd.notna(score.balanced_accuracy.value)
    tops = np.array([-1, 0, 1, np.inf])
    drowned = score_from(np.array([[-9, -3, 5, 0], [4, -2, 1, -9]]), made, tops)
    assert (drowned.auc.low, drowned.auc.high) == (0, 1)
    few = score_from(np.array([[80, 20], [30, 90]]), made, np.array([0, np.inf]))
    assert few.auc is None
    assert LEAST_BINS > 2
    assert few.facts["AUC"].startswith("none: too much noise")


@pytest.mark.parametrize(
    ("counts", "auc"),
    [
        ([[3, 4], [0, 0]], 0.5),  # a class is absent
        ([[0, 0], [0, 0]], 0.5),  # nobody has a label
        ([[1, 0], [0, 0]], 0.5),  # one row
        ([[4], [6]], 0.5),  # all of them tie
        ([[5, 0], [0, 5]], 1.0),
        ([[0, 5], [5, 0]], 0.0),
    ],
)
def test_exact_scores_of_few_rows(counts, auc):
    tops = np.array([-1.0, 1.0])[: len(counts[0])]
    score = score_from(np.array(counts), None, tops)
    assert score.auc.value == auc
    told = (score.auc, score.accuracy, score.balanced_accuracy, score.base_rate)
    assert all(0 <= each.low <= each.value <= each.high <= 1 for each in told)
    assert score.auc.high - score.auc.low > 0.2
    assert json.loads(score.to_json())["bins"] is None


def test_three_classes_have_no_auc_and_what_a_score_shows(rows, schema, model):
    noisy = Curator(schema).score(rows, model, 50)
    page = noisy._repr_html_()
    for words in ("AUC", "always the largest class", "balanced accuracy", "Laplace noise"):
        assert words in page
    assert "EXACT AND PRIVATE" in Curator(schema).score(rows, model)._repr_html_()
    bins = noisy.to_dict()["bins"]
    assert 0.0 in bins["edges"]
    assert np.array(bins["counts"]).shape == (2, len(bins["edges"]) + 1)
    pair = audited.many_numbers()
    label = Label(name="label", classes=("no", "yes", "perhaps"), value_names={"no": "refused"})
    schema = pair.schema.model_copy(update={"label": label})

    class Three(nn.Module):
        def forward(self, points):
            return torch.stack([points[:, 0], 1 - points[:, 0], points[:, 0] * 0], dim=1)

    model, table = PrivateModel(schema, Three(), audited.NOTHING), PrivateTable(pair.one, schema)
    noisy, private = measure_score(table, model, Budget(1.0)), exact_score(table, model)
    for score in (noisy, private):
        assert score.counts.shape == (3, 2)
        assert score.auc is None
        assert score.facts["AUC"] == "none: for two classes only"
        assert [row[0] for row in score.rows] == ["refused", "yes", "perhaps"]
        content = json.loads(score.to_json())
        assert (content["auc"], content["bins"]) == (None, None)
        assert [each["class"] for each in content["classes"]] == ["no", "yes", "perhaps"]
        assert content["classes"][0]["name"] == "refused"
    assert noisy.measurement.sensitivity == Sensitivity.of_counts(1, 1)
    assert private.counts.sum() == 401
