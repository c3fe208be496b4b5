"""Scores and the attacks on plain numbers: a planted difference is found, and none is not."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from counterveil_lab.attacks import membership, scores
from counterveil_lab.attacks.shadows import Evidence, Guess, Signals


@pytest.fixture(autouse=True)
def _short_lessons_of_attackers(monkeypatch):
    monkeypatch.setattr(membership, "EPOCHS", 2)


def planted(shift, people=400, networks=8, seed=0):
    """Signals in which training on a row adds `shift`; the first half of the people are members."""
    rng = np.random.default_rng(seed)
    hard, hard_pool = 2 * rng.normal(size=people), 2 * rng.normal(size=people)
    inside = rng.random((networks, people)) < 0.5
    target = hard + rng.normal(size=people) / 2
    target[: people // 2] += shift
    noise = rng.normal(size=(2, networks, people)) / 2
    return Signals(
        target, hard + noise[0], np.zeros_like(inside), hard_pool,
        hard_pool + noise[1] + shift * inside, inside,
    )  # fmt: skip


def halves(values):
    return scores.area(values[: len(values) // 2], values[len(values) // 2 :])


def evidence(shift, networks=3, people=600):
    """The same as log-probabilities of two classes."""
    signals = planted(shift, people, networks)
    classes = torch.arange(people) % 2

    def told(margins):
        own = torch.nn.functional.logsigmoid(torch.as_tensor(margins))
        other = torch.nn.functional.logsigmoid(-torch.as_tensor(margins))
        first = torch.where(classes == 0, own, other)
        return torch.stack([first, torch.where(classes == 0, other, own)], dim=-1).float()

    return Evidence(
        classes, told(signals.target), told(signals.shadows), torch.as_tensor(signals.joined),
        classes, told(signals.pool), told(signals.pool_shadows), torch.as_tensor(signals.inside),
    )  # fmt: skip


def test_area_is_that_of_scikit_learn_and_rates_rest_on_enough_people():
    rng = np.random.default_rng(0)
    members, outsiders = np.round(rng.normal(0.4, 1, 300), 1), np.round(rng.normal(0, 1, 200), 1)
    truth = np.r_[np.ones(300), np.zeros(200)]
    assert scores.area(members, outsiders) == pytest.approx(
        roc_auc_score(truth, np.r_[members, outsiders])
    )
    low, high = scores.interval(members, outsiders)
    assert low < scores.area(members, outsiders) < high

    outsiders = np.arange(1000.0)
    members = np.full(10, 989.5)  # below the ten highest outsiders
    assert scores.caught(members, outsiders, 0.01) == 1.0
    assert scores.caught(members - 1, outsiders, 0.01) == 0.0
    assert scores.caught(members, outsiders[:999], 0.01) is None
    assert scores.caught(members, outsiders, 0.001) is None


def test_intervals_over_groups_know_that_repeats_say_nothing_new():
    values = np.r_[np.ones(60), -np.ones(40)]
    alone = scores.share_interval(values, np.arange(100))
    grouped = scores.share_interval(values, np.arange(100) // 20)
    assert alone[1] - alone[0] < grouped[1] - grouped[0]
    assert scores.seeds_interval([0.5])[0] == 0.5
    assert np.isnan(scores.seeds_interval([0.5])[1])


def test_a_planted_shift_is_found_by_the_likelihood_ratios_and_none_is_not():
    assert halves(membership.likelihood_ratio(planted(1.0))) > 0.85
    assert abs(halves(membership.likelihood_ratio(planted(0.0, people=2000))) - 0.5) < 0.04

    signals = planted(1.0)
    joined = np.random.default_rng(1).random(signals.shadows.shape) < 0.5
    signals = replace(signals, joined=joined, shadows=signals.shadows + joined)
    assert halves(membership.online_ratio(signals)) > 0.85


@pytest.mark.parametrize(
    "attack", [membership.by_threshold, membership.by_lira, membership.by_rmia]
)
def test_attacks_find_members_whom_the_model_is_surer_of(attack):
    assert halves(attack(evidence(2.0)).scores) > 0.6
    assert abs(halves(attack(evidence(0.0, people=3000)).scores) - 0.5) < 0.04


def test_the_threshold_is_the_best_on_shadows():
    guess = membership.by_learning(evidence(0.0), 60, seed=0)
    assert (len(guess.scores), guess.threshold) == (600, 0.0)
    assert membership.best_threshold(np.array([2.0, 3.0]), np.array([0.0, 1.0])) == 2.0
    guess = Guess(np.array([2.5, 0.5]), 2.0)
    assert guess.accuracy(np.array([True, False])) == 1.0
