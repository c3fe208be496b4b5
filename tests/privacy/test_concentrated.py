"""Plans whose steps share out ρ of zero-concentrated DP: what they spend, together and each."""

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterveil.audit import checks, neighbours
from counterveil.audit.concentrated import delta_of, epsilon_of, overspent
from counterveil.audit.functional import listen
from counterveil.build import Training
from counterveil.curator import Curator
from counterveil.curator.functional import make_plan, measure
from counterveil.curator.noise import Noise, add, calibrate, rho_of
from counterveil.errors import BudgetError, InternalError, VeilError
from counterveil.privacy import Budget, Rho
from counterveil.privacy.budget import amount_of, with_amount
from counterveil.privacy.consistency import gaussian_delta
from counterveil.privacy.record import Sensitivity
from counterveil.privacy.statement import GAUSSIAN, LAPLACE
from counterveil.veil import Veil

TINY = Training(50, 1, 50, 1e-3, (3,), 1)
BUDGETS = st.builds(
    lambda epsilon, digits: Budget(epsilon, 10**-digits),
    st.floats(0.01, 20),
    st.floats(0.5, 30),
)
FAMILIES = (
    neighbours.wide_pairs, neighbours.counted_pairs, neighbours.ranges, neighbours.many_bits,
    neighbours.many_frequencies, neighbours.features,
)  # fmt: skip


def steps_of(plan):
    return [share for share in plan.shares if share is not None]


def in_rho(plan):
    return all(isinstance(share, Rho) for share in steps_of(plan))


# The conversion


@pytest.mark.long
@settings(max_examples=15, deadline=None)
@given(BUDGETS)
def test_the_rho_of_a_budget_gives_it_and_a_larger_one_does_not(budget):
    rho = rho_of(budget).rho
    for delta in (delta_of(rho, budget.epsilon), gaussian_delta(rho, budget.epsilon)):
        assert delta <= budget.delta * (1 + 1e-9)
    assert delta_of(rho * (1 + 1e-5), budget.epsilon) > budget.delta
    assert epsilon_of(rho, budget.delta) == pytest.approx(budget.epsilon, rel=1e-4)
    # A Gaussian of this ρ: its exact δ at ε is below that of all mechanisms of the same ρ.
    assert checks.gaussian_delta(math.sqrt(2 * rho), budget.epsilon) <= budget.delta


def test_the_rho_of_budgets_at_the_ends():
    assert rho_of(Budget(1.0)) is None
    for epsilon, delta in ((1e-6, 1e-300), (1e-6, 0.5), (1e4, 1e-9), (0.1, 0.999)):
        rho = rho_of(Budget(epsilon, delta))
        assert rho is None or delta_of(rho.rho, epsilon) <= delta * (1 + 1e-9)
    assert rho_of(Budget(0.75, 1e-9)).rho == pytest.approx(0.0086227, rel=1e-4)
    for rho, epsilon in ((0.001, 0.3), (0.01, 0.5), (0.1, 0.1), (2.0, 9.0)):
        assert delta_of(rho, epsilon) == pytest.approx(gaussian_delta(rho, epsilon), rel=1e-6)


# Plans


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(
    budget=BUDGETS, order=st.sampled_from([None, 1, 2]), records=st.sampled_from([1, 3]),
    rows=st.sampled_from([50, 5_000, 10**6]), make=st.sampled_from(FAMILIES),
)  # fmt: skip
def test_whatever_is_planned_is_private_together(budget, order, records, rows, make):
    plan = make_plan(make().schema, rows, budget, records=records, order=order)
    shares = steps_of(plan)
    assert not overspent(shares, budget)
    whole = rho_of(budget.rounded_down()) if in_rho(plan) else Budget(budget.epsilon)
    total = sum(Fraction(amount_of(share)) for share in shares)
    assert Fraction(amount_of(whole)) * (1 - Fraction(1, 10**9)) <= total
    assert total <= Fraction(amount_of(whole))


def test_a_plan_takes_the_smaller_noise_on_its_main_sums():
    wide = neighbours.wide().schema
    assert in_rho(make_plan(wide, 1000, Budget(1.0, 1e-6)))
    assert not in_rho(make_plan(wide, 1000, Budget(1.0)))
    assert not in_rho(make_plan(wide, 1000, Budget(100.0, 1e-6)))  # Laplace noise is smaller
    assert not in_rho(make_plan(neighbours.one_feature().schema, 1000, Budget(1.0, 1e-9)))
    for make in FAMILIES:
        pair = make()
        for epsilon in (0.3, 3.0):
            plan = pair.plan(Budget(epsilon, 1e-3))
            kinds = {type(share) for share in steps_of(plan)}
            assert len(kinds) == 1
            words = plan.text()
            if plan.family != "image":
                assert ("ρ" in words) == (kinds == {Rho})


# Noise


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-9, 50), st.integers(1, 10**12))
def test_noise_for_a_rho(rho, square):
    l2 = math.nextafter(math.sqrt(square), math.inf)
    noise = calibrate(square, l2, Rho(rho))
    assert noise.kind == GAUSSIAN
    spent = (Fraction(l2) / Fraction(noise.scale)) ** 2 / 2
    assert spent <= Fraction(rho) <= spent * (1 + Fraction(1, 10**12))


def test_noise_that_is_not_confirmed_is_refused():
    zeros = np.zeros(3, dtype=np.int64)
    noise = calibrate(4, 2.0, Rho(0.1))
    add(zeros, noise, 4, 2.0)
    wrong = (
        replace(noise, scale=noise.scale * 0.999),
        replace(noise, share=Rho(0.0999)),
        Noise(LAPLACE, noise.scale, Rho(0.1)),
    )
    for each in wrong:
        with pytest.raises(InternalError, match="privacy that was promised"):
            add(zeros, each, 4, 2.0)
    with pytest.raises(InternalError, match="privacy that was promised"):
        add(zeros, noise, 4, 2.1)
    with pytest.raises(BudgetError):
        amount_of(Budget(1.0, 1e-6))
    with pytest.raises(BudgetError, match="no noise fits"):
        calibrate(4, 1e300, Rho(1e-300))
    assert with_amount(Rho(1.0), 0.5) == Rho(0.5)


# Neighbouring tables


@pytest.mark.parametrize("make", [neighbours.wide_pairs, neighbours.moments, neighbours.many_bits])
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_the_divergence_between_neighbours_is_at_most_what_is_spent(make, epsilon):
    """The exact sums of D and D', the noise that is stated, and the order-α divergence of both."""
    pair, budget = make(), Budget(epsilon, 0.01)
    plan = pair.plan(budget)
    assert in_rho(plan)
    one = listen(pair.tables[0], plan)
    two = listen(pair.tables[1], plan, told=one.answers)
    total = 0.0
    for exact_one, exact_two, answer in zip(one.exact, two.exact, one.answers, strict=True):
        moved = float(((exact_one - exact_two) ** 2).sum())
        spent = moved / (2 * answer.scale**2)  # D_α of Gaussians of one scale is α times this
        assert spent <= answer.rho * (1 + 1e-12)
        total += spent
    assert delta_of(total, epsilon) <= budget.delta * (1 + 1e-9)


def test_the_audit_counts_what_is_overspent():
    budget = Budget(1.0, 1e-6)
    rho = rho_of(budget).rho
    assert not overspent([Rho(rho / 2), Rho(rho / 2)], budget)
    assert "ρ add up" in overspent([Rho(rho), Rho(rho / 1e6)], budget)
    assert "others ε" in overspent([Rho(rho / 2), Budget(0.1)], budget)
    assert "of ε" in overspent([Budget(0.6), Budget(0.5)], budget)
    assert "of δ" in overspent([Budget(0.1, 1e-6), Budget(0.1, 1e-9)], budget)
    assert not overspent([Budget(0.5, 5e-7), Budget(0.5)], budget)


# Veils


@pytest.fixture(scope="module")
def veil():
    pair = neighbours.wide_pairs()
    return Curator(pair.schema).release(
        pair.one, 0.75, 1e-4, order=2, training=TINY, progress=False
    )


def test_a_veil_in_rho_says_so_and_can_be_opened(veil):
    readings = [found.access for found in veil.record.measurements]
    assert [access.mechanism for access in readings] == [GAUSSIAN, GAUSSIAN]
    assert all(access.rho and access.epsilon is None and not access.delta for access in readings)
    assert not overspent([found.share for found in veil.record.measurements], Budget(0.75, 1e-4))
    assert "The ρ of these readings add up to" in veil.statement.text()
    assert any("ρ goes: " in why for why in veil.statement.plan)
    again = Veil.from_bytes(veil.to_bytes())
    assert again.digest == veil.digest
    manifest = json.loads(veil._manifest(veil._members()))
    assert manifest["version"] == 7
    assert veil.statement.loss_tail(0.75) < 0.05
    pair = neighbours.wide_pairs()
    pure = Curator(pair.schema).release(pair.one, 0.75, order=2, training=TINY, progress=False)
    members = pure._members()
    assert json.loads(pure._manifest(members))["version"] == 7
    for name in ("statement.json", "record.json"):
        assert b"rho" not in members[name]
        assert b"rho" in veil._members()[name]


def forged(veil, number, **changes):
    """The veil with one measurement changed, in its record and in its statement alike."""
    made = list(veil.record.measurements)
    made[number] = replace(made[number], **changes)
    record = replace(veil.record, measurements=tuple(made))
    statement = veil.statement.model_copy(update={"accesses": record.accesses})
    return replace(veil, record=record, statement=statement)


@pytest.mark.parametrize(
    ("number", "change", "words"),
    [
        (0, lambda found: {"rho": found.rho * 0.9}, "do not add up"),
        (0, lambda found: {"rho": found.rho * 1.01}, "spend more than"),
        (0, lambda found: {"rho": found.rho * 0.9, "scale": found.scale * 2}, "do not add up"),
        (0, lambda found: {"scale": found.scale * 0.999}, "too small for the rho"),
        (0, lambda found: {"mechanism": LAPLACE}, "too small for the rho"),
        (0, lambda found: {"sensitivity": Sensitivity(24, 9.0)}, "too small for the rho"),
        (0, lambda found: {"sensitivity": Sensitivity(24, 4.0)}, "smaller sensitivity"),
        (0, lambda _: {"rho": None, "epsilon": 0.5}, "do not all spend the same"),
        (1, lambda _: {"rho": None, "epsilon": 0.1, "delta": 1e-5}, "do not all spend the same"),
        (1, lambda found: {"scale": found.scale * 0.99}, "too small for the rho"),
    ],
)
def test_readings_in_rho_that_were_forged_are_refused(veil, number, change, words):
    found = veil.record.measurements[number]
    with pytest.raises(VeilError, match=words):
        Veil.from_bytes(forged(veil, number, **change(found)).to_bytes())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": 0.7}, "spend more than"), ({"epsilon": 0.749999}, "spend more than"),
        ({"epsilon": 0.8}, "do not add up"), ({"delta": 0.99e-4}, "spend more than"),
        ({"delta": 1.1e-4}, "do not add up"), ({"delta": 0.0}, "spend more than"),
    ],
)  # fmt: skip
def test_a_statement_of_another_budget_than_its_rho_gives_is_refused(veil, changes, words):
    statement = veil.statement.model_copy(update=changes)
    with pytest.raises(VeilError, match=words):
        Veil.from_bytes(replace(veil, statement=statement).to_bytes())


def test_rho_that_was_moved_from_one_reading_to_another_is_refused(veil):
    first, last = veil.record.measurements
    moved = first.rho / 10
    once = forged(veil, 0, rho=first.rho - moved)
    with pytest.raises(VeilError, match="too small for the rho"):
        Veil.from_bytes(forged(once, 1, rho=last.rho + moved).to_bytes())


def test_readings_spend_epsilon_or_rho():
    pair = neighbours.wide_pairs()
    record = measure(pair.tables[0], pair.plan(Budget(1.0, 0.01)))
    for found in record.measurements:
        for wrong in ({"epsilon": 1.0}, {"delta": 1e-6}, {"rho": None}):
            with pytest.raises(ValueError, match="and not both"):
                replace(found, **wrong)
