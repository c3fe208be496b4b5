"""The noisy score of a private model: what a record can do to it, its charge, its intervals."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from rows import random_rows

from counterveil import audit
from counterveil.audit import Effort
from counterveil.audit import score as audited
from counterveil.audit.functional import Instrument
from counterveil.curator import Curator
from counterveil.curator.noise import EXACT
from counterveil.curator.score import Score, count_right, measure_score, tail
from counterveil.curator.table import PrivateTable
from counterveil.errors import BudgetError, RequestError
from counterveil.privacy import Budget
from counterveil.privacy.ledger import Ledger, OverdrawnError
from counterveil.privacy.record import Sensitivity
from counterveil.privacy.statement import GAUSSIAN, LAPLACE


def exact(table, model):
    heard = Instrument()
    measure_score(table, model, Budget(1.0), heard)
    return heard.exact[0], heard.answers[0].sensitivity


@pytest.fixture(scope="module")
def model(veil):
    return veil.model()


def test_counts_are_those_of_the_predictions(schema, model):
    frame = random_rows(schema, 150, seed=5)
    counts, stated = exact(PrivateTable(frame, schema), model)
    right = model.predict(frame) == frame.loan.to_numpy()
    for place, name in enumerate(schema.label.classes):
        mine = right[frame.loan == name]
        assert counts[place].tolist() == [(~mine).sum(), mine.sum()]
    assert (stated.l1, stated.l2) == (2, pytest.approx(math.sqrt(2)))
    assert np.array_equal(count_right(PrivateTable(frame, schema), model), counts)


@pytest.mark.parametrize("seed", range(8))
def test_replacing_a_record_moves_counts_by_at_most_what_is_stated(schema, model, seed):
    frame = random_rows(schema, 30, seed=seed)
    other = frame.copy()
    other.iloc[seed] = random_rows(schema, 1, seed=seed + 100).iloc[0]
    if seed % 4 == 3:  # a label that is not in the schema counts for nothing
        other.loc[seed, "loan"] = "perhaps"
    one, stated = exact(PrivateTable(frame, schema), model)
    two, _ = exact(PrivateTable(other, schema), model)
    assert np.abs(one - two).sum() <= stated.l1
    assert math.sqrt(((one - two) ** 2).sum()) <= stated.l2


@pytest.mark.parametrize("make", audited.PAIRS)
def test_the_stated_sensitivity_is_attained(make):
    pair = make()
    one, two = audited.listened(pair, Budget(1.0))
    stated = one.answers[0].sensitivity
    assert stated == Sensitivity.of_counts(1, pair.max_records or 1)
    moved = one.exact[0] - two.exact[0]
    assert np.abs(moved).sum() == stated.l1
    assert math.sqrt((moved**2).sum()) == pytest.approx(stated.l2)


GAMES = audit.games("score", [0.5], Effort(draws=20_000, runs=40, seed=7))


@pytest.mark.parametrize("game", GAMES, ids=lambda game: f"{game.view}, {game.pair}")
def test_the_score_is_not_refuted(game):
    row = game.play()
    assert not row.refuted, row
    if game.draws == 20_000 and not row.delta:
        assert row.bound > 0.3  # the game sees most of what there is


def test_it_is_charged_before_and_committed_after(schema, model, rows, tmp_path):
    ledger = Ledger(tmp_path / "l.db")
    ledger.open_account("others", Budget(1.0))
    curator = Curator(schema, ledger=tmp_path / "l.db", dataset="others")
    score = curator.score(rows, model, 0.4, save_to=tmp_path / "s.json")
    (entry,) = ledger.entries()
    assert (entry.state, entry.epsilon, entry.digest) == ("released", 0.4, score.digest)
    assert (tmp_path / "s.json").read_bytes() == score.to_json()
    with pytest.raises(OverdrawnError):
        curator.score(rows, model, 0.7)
    with pytest.raises(BudgetError):
        curator.score(rows, model, math.inf)
    with pytest.raises(RequestError, match="another schema"):
        Curator(
            schema.model_copy(update={"name": "else"}), ledger=tmp_path / "l.db", dataset="others"
        ).score(rows, model, 0.1)
    with pytest.raises(RequestError, match="spends nothing"):
        curator.score(rows, model, save_to=tmp_path / "x.json")
    assert len(ledger.entries()) == 1
    exact_score = curator.score(rows, model)
    assert exact_score.measurement is None
    assert ledger.entries()[-1].kind == "looked"


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


def test_noises_are_of_both_kinds():
    assert [made.mechanism for made in NOISES.values()] == [LAPLACE, GAUSSIAN]


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("cells", [1, 2, 20])
def test_tails_hold_and_are_not_far_off(name, cells):
    made = NOISES[name]
    dice = np.random.default_rng(cells)
    noise = audit.functional.fast_noise.draw(made, (200_000, cells), dice).sum(axis=1)
    error = 0.01
    away = tail(made, cells, error)
    assert (noise > away).mean() <= error * 1.1
    assert away <= 1.8 * np.quantile(noise, 1 - error)
    assert tail(None, cells, error) == 0


def test_intervals_hold_the_true_shares():
    """Held-out people and noise are drawn anew; the intervals must hold what they were drawn by."""
    dice = np.random.default_rng(0)
    made, right = NOISES["laplace"], np.array([0.9, 0.6])
    missed = np.zeros(2)
    for _ in range(400):
        sizes = dice.multinomial(500, [0.8, 0.2])
        hits = dice.binomial(sizes, right)
        counts = np.stack([sizes - hits, hits], axis=1)
        counts += audit.functional.fast_noise.draw(made, counts.shape, dice)
        score = Score((0, 1), counts, made, "record", 500, 1, "")
        for place, (found, truth) in enumerate(
            ((score.accuracy, 0.84), (score.balanced_accuracy, 0.75))
        ):
            assert 0 <= found.low <= found.value <= found.high <= 1
            missed[place] += not found.low <= truth <= found.high
    assert (missed <= 0.05 * 400).all()
    assert score.accuracy.high - score.accuracy.low < 0.25


def test_counts_that_drown_in_noise_promise_nothing():
    made = NOISES["laplace"]
    score = Score((0, 1), np.array([[-9, -3], [4, -2]]), made, "record", 3, 1, "")
    for found in (score.accuracy, score.balanced_accuracy, *score.recalls):
        assert 0 <= found.low <= found.value <= found.high <= 1
    assert json.loads(score.to_json())["classes"][0]["wrong"] == -9
    assert pd.notna(score.balanced_accuracy.value)
