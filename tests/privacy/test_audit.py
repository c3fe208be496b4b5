"""The audit: its bounds hold, its fast noise is the real noise, it catches faults and only faults.

A failing `test_functional_is_not_refuted` means that the mechanism breaks its promise on that pair,
not that the test is noisy: its bounds are wrong with a probability far below 5 %.
"""

import ast
import csv
import inspect
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from scipy.stats import binom
from typer.testing import CliRunner

from counterveil import audit
from counterveil.audit import (
    Check,
    Effort,
    Game,
    Row,
    checks,
    failures,
    fast_noise,
    functional,
    neighbours,
)
from counterveil.audit.functional import Instrument, likelihood_scores, listen, moved_sums
from counterveil.audit.game import (
    Claim,
    ceiling,
    epsilon_bound,
    play,
    project,
)
from counterveil.audit.releases import release
from counterveil.audit.report import tables
from counterveil.cli.audit import audit as command
from counterveil.curator import Curator, dpsgd
from counterveil.curator.functional import measure
from counterveil.curator.job import ReleaseOptions
from counterveil.curator.noise import EXACT, calibrate
from counterveil.errors import RequestError
from counterveil.intervals import clopper_pearson
from counterveil.privacy import Budget, Rho
from counterveil.privacy.record import Measurement, Sensitivity, spent_by
from counterveil.privacy.statement import GAUSSIAN, LAPLACE

SMALL = Effort(draws=20_000, runs=40, seed=7)


# The arithmetic of bounds


def test_shares_are_where_the_binomial_tail_has_the_stated_error():
    for draws in (7, 300, 50_000):
        for hits in (1, draws // 3, draws - 1):
            for error in (0.025, 1e-5):
                low, high = clopper_pearson(hits, draws, error)
                assert binom.sf(hits - 1, draws, low) == pytest.approx(error, rel=1e-9)
                assert binom.cdf(hits, draws, high) == pytest.approx(error, rel=1e-9)


def test_ceilings_are_the_published_ones():
    found = [ceiling(draws) for draws in (200, 300, 10_000)]
    assert found == pytest.approx([3.98, 4.39, 7.90], abs=0.006)
    assert ceiling(200) == pytest.approx(math.log(0.025**0.005 / (1 - 0.025**0.005)))
    # A game holds out half of its draws and shares the error, so its ceiling is lower.
    sides = np.zeros(200), np.ones(200)
    outcome = play(*sides, Claim(1.0, games=3))
    assert outcome.bound == outcome.ceiling == ceiling(100, error=0.05 / 6)
    assert outcome.ceiling < ceiling(200)
    assert epsilon_bound(50, 0, 1000) > 1
    assert epsilon_bound(50, 0, 1000, delta=0.05) == 0
    assert epsilon_bound(500, 5, 1000, delta=0.1) < epsilon_bound(500, 5, 1000)


# The game on mechanisms whose ε is known


def laplace_scores(epsilon, draws, seed):
    rng = np.random.default_rng(seed)
    return rng.laplace(0, 1 / epsilon, draws), rng.laplace(1, 1 / epsilon, draws)


@pytest.mark.parametrize("seed", range(3))
def test_plain_laplace_is_nearly_reached_and_never_passed(seed):
    outcome = play(*laplace_scores(0.5, 100_000, seed), Claim(0.5))
    assert 0.4 < outcome.bound < 0.5


def test_bounds_hold_with_the_stated_confidence():
    # Randomised response at ε = 1, for which the event of the game is the worst one there is.
    rng = np.random.default_rng(0)
    truth = math.e / (1 + math.e)
    bounds = [
        play(1.0 * (rng.random(400) > truth), 1.0 * (rng.random(400) < truth), Claim(1.0)).bound
        for _ in range(150)
    ]
    assert np.mean(np.array(bounds) > 1) <= 0.05
    assert max(bounds) > 0.5


def test_equal_worlds_are_not_detected_and_both_directions_are_looked_at():
    rng = np.random.default_rng(1)
    assert play(*rng.normal(size=(2, 10_000)), Claim(0.1)).bound == 0
    rng = np.random.default_rng(2)
    one = np.where(rng.random(4000) < 0.2, -1.0, 0.0)
    assert play(one, np.zeros(4000), Claim(1.0)).bound > 2
    assert play(np.zeros(4000), -one, Claim(1.0)).bound > 2


def test_projection_learns_on_the_first_half_alone():
    rng = np.random.default_rng(3)
    one, two = rng.normal(size=(2, 400, 5))
    two[:, 3] += 4
    assert play(*project(one, two), Claim(1.0)).bound > 2
    one[200:], two[200:] = two[200:], one[200:].copy()
    assert play(*project(one, two), Claim(1.0)).bound == 0
    assert not np.any(project(np.zeros((4, 2)), np.zeros((4, 2))))


# The fast noise


SENSITIVITY = Sensitivity(2, 2**0.5)


def made(noise):
    """A measurement of nothing with this noise, whose values are of no use."""
    nothing = np.zeros(1, dtype=np.int64)
    return Measurement(
        "x", "x", nothing, SENSITIVITY, noise.kind, noise.scale, **spent_by(noise.share)
    )


NOISES = {
    "laplace": made(calibrate(2, 2**0.5, Budget(0.5))),
    "narrow laplace": made(calibrate(2, 2**0.5, Budget(3.0))),
    "gaussian": made(calibrate(2, 2**0.5, Budget(1.0, 0.1))),
    "concentrated": made(calibrate(2, 2**0.5, Rho(0.05))),
}


def mass(noise, support):
    if noise.mechanism == LAPLACE:
        weights = np.exp(-np.abs(support) / noise.scale)
    else:
        weights = np.exp(-((support / noise.scale) ** 2) / 2)
    return weights / weights.sum()


def chi_square(draws, noise):
    """How many standard deviations the χ² of the draws lies above its mean."""
    support = np.arange(-400, 401)
    expected = mass(noise, support) * len(draws)
    common = np.flatnonzero(expected > 20)
    low, high = support[common[0]], support[common[-1]]
    expected = np.concatenate(
        [[expected[support < low].sum()], expected[common], [expected[support > high].sum()]]
    )
    seen = np.bincount(np.clip(draws, low - 1, high + 1) - low + 1, minlength=len(expected))
    freedom = len(expected) - 1
    statistic = ((seen - expected) ** 2 / expected).sum()
    return (statistic - freedom) / math.sqrt(2 * freedom)


@pytest.mark.parametrize("name", NOISES)
def test_fast_noise_is_the_curators_noise(name):
    noise, size = NOISES[name], 20_000
    rng = np.random.default_rng(5)
    assert chi_square(fast_noise.draw(noise, (size,), rng), noise) < 7
    zeros = np.zeros(size, dtype=np.int64)
    real = EXACT.perturb("x", "x", zeros, SENSITIVITY, noise.share)
    assert (real.mechanism, real.scale) == (noise.mechanism, noise.scale)
    assert chi_square(real.values, noise) < 7
    wrong = replace(noise, scale=noise.scale * 1.2)
    assert chi_square(fast_noise.draw(wrong, (size,), rng), noise) > 7  # the test can tell


@pytest.mark.parametrize("name", NOISES)
def test_log_ratio_is_exact(name):
    noise, support = NOISES[name], np.arange(-60, 61)
    assert noise.mechanism == (LAPLACE if "laplace" in name else GAUSSIAN)
    one, two = np.array([0, 3]), np.array([1, -1])
    seen = np.array([[5, -2], [0, 0], [-7, 9]])
    spread = mass(noise, support)
    expected = [
        sum(
            math.log(spread[60 + x - b] / spread[60 + x - a])
            for x, a, b in zip(row, one, two, strict=True)
        )
        for row in seen
    ]
    assert fast_noise.log_ratio(noise, seen, one, two) == pytest.approx(expected)


def test_a_release_takes_no_other_noise():
    """Neither can a noise source be given to the Curator, nor does it give one to a mechanism."""
    injected = {"noise", "optimiser_class"}
    for method in (Curator, Curator.release, Curator.score):
        assert not injected & inspect.signature(method).parameters.keys()
    assert not injected & {*ReleaseOptions.model_fields}
    calls = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(inspect.getmodule(Curator))))
        if isinstance(node, ast.Call)
    ]
    assert not injected & {named.arg for call in calls for named in call.keywords}
    (measured,) = [call for call in calls if getattr(call.func, "id", "") == "measure"]
    assert len(measured.args) == 2  # the table and the plan
    (scored,) = [call for call in calls if getattr(call.func, "id", "") == "measure_score"]
    assert len(scored.args) == 3  # the table, the model and the budget


def test_the_audit_patches_nothing():
    """No `setattr`, and no assignment to an attribute of anything but `self`."""
    for path in Path(audit.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                assert getattr(node.func, "id", "") not in ("setattr", "delattr", "vars"), path
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                assert getattr(node.value, "id", None) == "self", path


# The instrument and the pairs


def plan_names(plan):
    steps = ("ranges", "singles", "moments", "pairs", "spikes")
    return [name for name, share in zip(steps, plan.shares, strict=True) if share]


def test_the_instrument_hears_the_mechanism_and_answers_as_told():
    pair, plan = neighbours.counted_pairs(), neighbours.counted_pairs().plan(Budget(1.0))
    one, (table_one, table_two) = Instrument(), pair.tables
    record = measure(table_one, plan, one)
    assert [answer.share for answer in one.answers] == [each for each in plan.shares if each]
    for exact, name in zip(one.exact, plan_names(plan), strict=True):
        assert np.array_equal(record.find(name).values, exact)
    heard = dict(zip(plan_names(plan), one.exact, strict=True))
    assert heard["singles"].sum() == 3 * len(pair.one)  # three features, exact counts
    assert heard["pairs"].sum() == plan.pairs * len(pair.one)
    two = Instrument(told=one.answers)
    told = measure(table_two, plan, two)
    for number, name in enumerate(plan_names(plan)):
        assert not np.array_equal(two.exact[number], one.exact[number])
        assert np.array_equal(told.find(name).values, record.find(name).values)
    pair, plan = neighbours.what_goes_together(), neighbours.what_goes_together().plan(Budget(1.0))
    real = measure(pair.tables[0], plan)
    for answer in listen(pair.tables[0], plan).answers:
        same = real.find(answer.name)
        assert (answer.mechanism, answer.scale) == (same.mechanism, same.scale)
        assert (answer.sensitivity, answer.delta) == (same.sensitivity, same.delta)


@pytest.mark.parametrize("make", neighbours.PURE_PAIRS, ids=lambda make: make().name)
def test_the_record_of_a_veil_is_what_got_noise(make):
    pair, budget = make(), Budget(1.0)
    if pair.planned:
        pytest.skip("a release of so few rows has another plan")
    record = release(pair, budget, "functional", 0).record
    # What is measured next follows from what was measured before, so the veil's numbers are told.
    heard = listen(pair.tables[0], pair.plan(budget), told=record.measurements)
    for found, exact in zip(record.measurements, heard.exact, strict=True):
        away = np.abs(found.values - exact)
        assert away.any()
        assert away.max() < 40 * found.scale


@pytest.mark.parametrize("make", [neighbours.one_feature, neighbours.wide, neighbours.persons])
def test_pairs_attain_the_sensitivity(make):
    (part,) = moved_sums(make(), Budget(1.0))
    assert np.abs(part.two - part.one).sum() == part.measurement.sensitivity.l1


def test_gaussian_noise_is_audited_too():
    first, second, third, fourth, *_ = neighbours.APPROXIMATE_PAIRS
    for epsilon in (0.1, 0.5, 1.0, 3.0):
        for make, delta in (
            (first, functional.DELTA),
            (second, functional.DELTA),
            (third, functional.SHARP),
            (fourth, functional.SHARP),
        ):
            for part in moved_sums(make(), Budget(epsilon, delta)):
                assert part.measurement.mechanism == GAUSSIAN
    families = {make().schema.family for make in (first, second, third, fourth)}
    assert families == {"mixed", "binary", "image"}


# Checks


def test_a_check_that_finds_something_or_fails_refutes_the_claim():
    found = Check("functional", "v", "p", Claim(1.0), lambda: iter(["a leak", "a leak"])).play()
    assert found.refuted
    assert found.verdict == "REFUTED: a leak"
    assert failures([found], "all") == ["refuted: functional, v, p, ε = 1: a leak"]
    sound = Check("functional", "v", "p", Claim(1.0), lambda: iter(())).play()
    assert sound.verdict == "holds"
    assert not failures([sound], "all")

    def refuse():
        raise RequestError("no")

    assert (
        Check("functional", "v", "p", Claim(1.0), refuse).play().verdict == "REFUTED: it fails: no"
    )


def test_delta_of_gaussian_noise_has_the_known_values():
    # At ε = 0 it is the total variation distance, 2Φ(shift/2) − 1.
    assert checks.gaussian_delta(2.0, 0.0) == pytest.approx(0.6827, abs=1e-4)


@pytest.mark.parametrize("make", [checks.FAMILIES[0], checks.FAMILIES[1]])
def test_the_stated_variance_of_noise_is_exact(make):
    pair = make()
    (answer, *_) = listen(pair.tables[0], pair.plan(Budget(1.0))).answers
    support = np.arange(-4000, 4001)
    spread = mass(answer, support)
    variance, beyond = checks.variance_of(answer)
    assert variance == pytest.approx((spread * support**2).sum())
    assert beyond == pytest.approx((spread * support**4).sum() / variance**2 - 1)


# Whole audits


def planned(mechanism, epsilon, effort=SMALL):
    return {
        f"{game.mechanism}, {game.view}, {game.pair}, {game.claim.delta:g}": game
        for game in audit.games(mechanism, [epsilon], effort)
    }


FUNCTIONAL = planned("functional", 0.5)


# The longest games: `make nightly` plays them.
AT_NIGHT = (
    "the command", "prototypes, bits", "prototypes, order 2, pairs",
    "as stated, order 2, pairs, 0.01", "as stated, large vectors, 0.01",
)  # fmt: skip


def longest_at_night(names):
    return [
        pytest.param(name, marks=pytest.mark.slow if any(it in name for it in AT_NIGHT) else ())
        for name in names
    ]


@pytest.mark.long
@pytest.mark.parametrize("name", longest_at_night(FUNCTIONAL))
def test_functional_is_not_refuted(name):
    row = FUNCTIONAL[name].play()
    assert not row.refuted, row
    assert 0 <= row.bound <= row.ceiling
    if not isinstance(FUNCTIONAL[name], Check):
        assert row.claimed_epsilon < row.ceiling  # so few draws could have refuted it


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_the_worst_pair_nearly_reaches_the_claim(epsilon):
    game = planned("functional", epsilon, Effort())["functional, coefficients, one feature, 0"]
    row = game.play()
    assert 0.8 * epsilon <= row.bound <= epsilon
    assert row.draws == 100_000


def test_all_games_of_a_claim_share_its_error():
    found = audit.games("functional", [1.0], SMALL)
    pure = [game for game in found if game.claim.delta == 0]
    assert {game.claim.games for game in pure} == {len(pure)}
    assert sum(2 * game.claim.error for game in pure) == pytest.approx(0.05)


@pytest.mark.parametrize(("mechanism", "epsilon"), [("controls", 1.0), ("paper", 0.5)])
def test_known_faults_are_caught(mechanism, epsilon):
    rows = [game.play() for game in audit.games(mechanism, [epsilon], SMALL)]
    assert len(rows) == {"controls": 3 + 2 * dpsgd.installed(), "paper": 1}[mechanism]
    assert all(row.refuted for row in rows), rows
    assert not failures(rows, "all")


def test_the_curators_own_sampler_is_audited():
    parts = moved_sums(neighbours.one_feature(), Budget(2.0))
    outcome = play(*likelihood_scores(parts, 4000), Claim(2.0))
    assert 1.2 < outcome.bound < 2


# Reports and the command


def row(mechanism, *, refuted, bound=None):
    found = (2.0 if refuted else 0.3) if bound is None else bound
    return Row(mechanism, "v", "p", 1.0, 0.0, 1000, found, 5.0, 0.95, refuted)


@pytest.mark.parametrize(
    ("mechanism", "asked", "refuted", "fails", "words"),
    [
        ("functional", "all", True, True, "REFUTED"),
        ("functional", "functional", False, False, "not refuted"),
        ("paper", "all", True, False, "refuted, as its statement says"),
        ("paper", "all", False, True, "not refuted"),
        ("paper", "paper", True, True, "refuted, as its statement says"),
        ("paper", "paper", False, False, "not refuted"),
        ("control: x", "controls", True, False, "caught"),
        ("control: x", "all", False, True, "NOT CAUGHT"),
    ],
)
def test_what_counts_as_a_failure(mechanism, asked, refuted, fails, words):
    found = row(mechanism, refuted=refuted)
    assert found.verdict == words
    assert bool(failures([found], asked)) is fails


def test_nothing_found_is_not_detected_and_never_private():
    assert row("functional", refuted=False, bound=0.0).verdict == "not detected"
    blind = Row("functional", "v", "p", 9.0, 0.0, 10, 0.0, 1.5, 0.95, False)
    assert blind.verdict == "not detected; so few draws certify 1.50 at most"
    assert "private" not in blind.verdict
    rows = [row("functional", refuted=False), row("paper", refuted=True)]
    assert [table.title for table in tables(rows)] == ["functional", "paper"]


@pytest.fixture
def call(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command)
    return lambda *arguments: CliRunner().invoke(app, [str(word) for word in arguments])


@pytest.fixture
def rigged(monkeypatch):
    """Makes the audit play one game whose result is known."""

    def rig(mechanism, leaks):
        scores = np.zeros(1000), np.full(1000, 1.0 * leaks)
        game = Game(mechanism, "view", "pair", Claim(1.0), 1000, lambda: scores)
        monkeypatch.setattr(audit, "games", lambda *_: [game])

    return rig


@pytest.mark.parametrize(
    ("mechanism", "asked", "leaks", "code"),
    [
        ("functional", "functional", True, 1), ("functional", "all", False, 0),
        ("control: x", "controls", False, 1),
    ],
)  # fmt: skip
def test_exit_codes(call, rigged, mechanism, asked, leaks, code):
    rigged(mechanism, leaks)
    done = call("--mechanism", asked)
    assert done.exit_code == code, done.output
    assert "never private" in " ".join(done.output.split())


def test_the_command_writes_a_report(call, rigged, tmp_path):
    rigged("control: x", True)
    asked = ("--mechanism", "controls", "--epsilon", 0.5, "--draws", 20000, "--runs", 40)
    done = call(*asked, "--out", "found/audit.json")
    assert done.exit_code == 0, done.output
    assert "caught" in done.output
    content = json.loads((tmp_path / "found/audit.json").read_text())
    assert content["experiment"] == "audit"
    assert content["command"] == (
        "counterveil audit --mechanism controls --epsilon 0.5 --draws 20000 --runs 40 "
        "--out found/audit.json"
    )
    assert content["commit"]
    names = "mechanism view pair claimed_epsilon delta draws bound ceiling confidence refuted"
    names += " finding"
    assert list(content["rows"][0]) == names.split()
    with (tmp_path / "found/audit.csv").open(newline="") as file:
        sheet = list(csv.DictReader(file))
    assert [float(line["bound"]) for line in sheet] == [line["bound"] for line in content["rows"]]


def test_the_command_prints_json(call, rigged):
    rigged("functional", False)
    content = json.loads(call("--json", "--quick").stdout)
    assert content["command"] == "counterveil audit --quick"
    assert content["rows"][0]["refuted"] is False


@pytest.mark.parametrize("wrong", [("--epsilon", "0"), ("--epsilon", "inf"), ("--out", "a.txt")])
def test_wrong_arguments_are_one_line(call, wrong):
    assert isinstance(call(*wrong).exception, RequestError)


def test_the_same_seed_gives_the_same_draws_by_any_workers():
    name = "functional, coefficients, eleven features, 0"
    first, again = (planned("functional", 1.0)[name].play().bound for _ in range(2))
    assert first == again
    # Checks that copy processes are among the games, and every game has draws of its own.
    games = audit.games("functional", [1.0], SMALL)
    chosen = [game for game in games if game.view in ("coefficients", "the noise never repeats")][
        :4
    ]
    one, two = (audit.play_all(chosen, workers, lambda *_: None) for workers in (1, 2))
    assert one == two
