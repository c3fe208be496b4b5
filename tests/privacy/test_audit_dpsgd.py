"""The audit of `dpsgd`: it hears the mechanism, its fast noise is the real one, it catches faults.

A failing `test_dpsgd_is_not_refuted` means that the mechanism breaks its promise, not that the test
is noisy: its bounds are wrong with a probability far below 5 %.
"""

import math

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from counterveil import audit
from counterveil.audit import Effort, fast_noise, games
from counterveil.audit import dpsgd as audited
from counterveil.audit.fast_noise import Steps
from counterveil.audit.game import play
from counterveil.cli.audit import audit as command
from counterveil.curator import dpsgd
from counterveil.errors import RequestError
from counterveil.privacy import Budget
from counterveil.privacy.record import Measurement, Sensitivity
from counterveil.privacy.statement import GAUSSIAN

SMALL = Effort(draws=20_000, runs=30, seed=7)
BUDGET = Budget(3.0, audited.SHARP)
EVERY, SOME = audited.SCHEDULES.values()

needs_opacus = pytest.mark.skipif(
    not dpsgd.installed(), reason="opacus is absent: pip install 'counterveil[dpsgd]'"
)


def planned(mechanism, epsilon, effort=SMALL):
    return {
        f"{game.mechanism}, {game.view}, {game.pair}, {game.claim.delta:g}": game
        for game in games(mechanism, [epsilon], effort)
    }


DPSGD = planned("dpsgd", 1.0) if dpsgd.installed() else {"all games": None}


@pytest.mark.long
@needs_opacus
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if "the command" in name else ()) for name in DPSGD],
)
def test_dpsgd_is_not_refuted(name):
    row = DPSGD[name].play()
    assert not row.refuted, row
    assert 0 <= row.bound <= row.ceiling
    assert row.delta > 0


@needs_opacus
def test_real_releases_are_enough_to_refute_the_claim():
    for epsilon in (1.0, 3.0):
        for game in planned("dpsgd", epsilon, Effort()).values():
            if "the curator's" not in game.view and game.draws:
                limit = play(np.zeros(game.draws), np.ones(game.draws), game.claim).ceiling
                assert limit > epsilon, game


@needs_opacus
def test_the_default_optimiser_is_heard(monkeypatch):
    """Training gets no optimiser from the audit, and another default is noticed."""
    from opacus import optimizers

    class Quiet(optimizers.DPOptimizer):
        def add_noise(self):
            for weight in self.params:
                weight.grad = weight.summed_grad / 2

    training = audited.canary_training(EVERY, BUDGET)
    assert not list(audited.training_differs(training))
    monkeypatch.setattr(optimizers, "DPOptimizer", Quiet)
    assert any("variance" in found for found in audited.training_differs(training))


@needs_opacus
@pytest.mark.parametrize(("epsilon", "share"), [(1.0, 0.5), (3.0, 0.6)])
@pytest.mark.parametrize(
    "view",
    [
        "gradients, all of ε, a canary in every batch",
        "sums of codes, all of ε, " + audited.CODES,
    ],
)
def test_the_worst_pairs_come_near_the_claim(epsilon, share, view):
    game = planned("dpsgd", epsilon, Effort())[f"dpsgd, {view}, {audited.SHARP:g}"]
    row = game.play()
    assert share * epsilon <= row.bound <= epsilon


# What is heard, and the fast noise


@needs_opacus
@pytest.mark.parametrize("clip", [dpsgd.CLIP, dpsgd.SURROGATE_CLIP])
def test_the_training_is_heard(clip):
    training = audited.canary_training(SOME, BUDGET, clip)
    heard = audited.heard_training(training)
    assert heard.one == pytest.approx(-clip, rel=1e-6)
    assert heard.two == pytest.approx(clip, rel=1e-6)
    assert abs(heard.two - heard.one) <= 2 * clip
    noise = dpsgd.calibrate_training(SOME, BUDGET)
    assert heard.deviation == pytest.approx(noise * clip)
    assert (heard.rate, heard.steps) == (0.25, 8)
    assert audited.heard_training(training, 0.5).deviation == pytest.approx(noise * clip / 2)


@needs_opacus
def test_fast_steps_are_those_of_the_curators_training():
    """Kolmogorov–Smirnov on sums with little noise, so that who was in a batch shows."""
    training = audited.canary_training(SOME, Budget(60.0, 0.1))
    real = np.sort(audited.real_steps(training, 1, 150).ravel())
    steps, rng = audited.heard_training(training), np.random.default_rng(0)
    assert steps.deviation < 0.7

    def distance(other):
        drawn = np.sort(fast_noise.draw_steps(other, 1, 100_000 // other.steps, rng).ravel())
        shares = np.searchsorted(drawn, real) / len(drawn)
        return np.abs(shares - np.arange(len(real)) / len(real)).max() * math.sqrt(len(real))

    assert distance(steps) < 2.2  # exceeded once in 8,000 times
    for wrong in ({"rate": 0.6}, {"deviation": 2 * steps.deviation}, {"two": -1.0}):
        assert distance(Steps(**{**vars(steps), **wrong})) > 2.2, wrong


@pytest.mark.parametrize("rate", [0.2, 1.0])
def test_log_ratio_of_steps_is_exact(rate):
    steps = Steps(one=-1.0, two=0.5, deviation=0.8, rate=rate, steps=2)
    noisy = np.array([[0.3, -2.0], [1.1, 0.0]])

    def density(x, gradient):
        inside, outside = (math.exp(-((x - mean) ** 2) / (2 * 0.8**2)) for mean in (gradient, 0))
        return rate * inside + (1 - rate) * outside

    expected = [sum(math.log(density(x, 0.5) / density(x, -1.0)) for x in row) for row in noisy]
    assert fast_noise.log_ratio_of_steps(steps, noisy) == pytest.approx(expected)


def test_codes_attain_the_sensitivity():
    (part,) = audited.moved_codes(BUDGET)
    shift = part.two - part.one
    sensitivity = part.measurement.sensitivity
    assert math.sqrt((shift**2).sum()) == pytest.approx(sensitivity.l2)
    assert np.abs(shift).sum() <= sensitivity.l1
    assert part.measurement.mechanism == GAUSSIAN


def test_fast_noise_of_a_wide_gaussian():
    nothing, scale = np.zeros(1, dtype=np.int64), 1.001 * fast_noise.WIDE
    noise = Measurement("x", "x", nothing, Sensitivity(1, 1.0), GAUSSIAN, scale, 1.0, 1e-6)
    drawn = np.sort(fast_noise.draw(noise, (100_000,), np.random.default_rng(0)))
    assert drawn.dtype == np.int64
    shares = [0.5 * (1 + math.erf(x / noise.scale / math.sqrt(2))) for x in drawn]
    away = np.abs(shares - np.arange(len(drawn)) / len(drawn)).max()
    assert away * math.sqrt(len(drawn)) < 2.2


# Where opacus is not installed


def test_without_opacus_the_command_says_so_in_one_line(monkeypatch):
    monkeypatch.setattr(dpsgd, "find_spec", lambda name: None)
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command)
    refused = CliRunner().invoke(app, ["--mechanism", "dpsgd"]).exception
    assert isinstance(refused, RequestError)
    assert str(refused) == "mechanism dpsgd needs: pip install 'counterveil[dpsgd]'"
    assert not [game for game in games("all", [1.0], SMALL) if game.mechanism == "dpsgd"]
    left = games("controls", [1.0], SMALL)
    assert not [game for game in left if "halved noise" in game.mechanism]
    monkeypatch.setattr(audit, "games", lambda *_: left[:1])
    played = CliRunner().invoke(app, ["--mechanism", "controls", "--epsilon", "1"])
    assert played.exit_code == 0, played.output
    assert "mechanism dpsgd is not audited" in played.stderr
