"""What a statement says in words, the tail of the privacy loss, and the budget of a model."""

import math

import numpy as np
import pytest
from pydantic import ValidationError

from counterveil.curator.noise import calibrate
from counterveil.errors import BudgetError, RequestError
from counterveil.pages import TEMPLATES
from counterveil.privacy import Access, Budget, Level, ModelBudget, Rho, Statement
from counterveil.privacy.consistency import gaussian_delta
from counterveil.privacy.statement import GAUSSIAN, LAPLACE
from counterveil.text_rules import LONGEST, check_text

RECORD = {"unit": "record", "relation": "replace-one"}


def gaussian(l2, scale, epsilon=0.05, delta=5e-7):
    return Access(
        what="sums", mechanism=GAUSSIAN, sensitivity=f"L2 {l2}", l1=16, l2=l2, scale=scale,
        epsilon=epsilon, delta=delta,
    )  # fmt: skip


def laplace(l1, epsilon):
    return Access(
        what="counts", mechanism=LAPLACE, sensitivity=f"L1 {l1}", l1=l1, l2=math.sqrt(l1),
        scale=l1 / epsilon, epsilon=epsilon,
    )  # fmt: skip


def promise(epsilon, delta, *accesses, **more):
    return Statement(
        level=Level.EXPLAINER, mechanism="functional", epsilon=epsilon, delta=delta,
        accesses=accesses, exclusions=("the target model and everything it reveals",), **more,
    )  # fmt: skip


def draws(scale, size, rng):
    """Exact draws of the discrete Gaussian on the integers."""
    values = np.arange(-round(12 * scale), round(12 * scale) + 1)
    weights = np.exp(-(values.astype(float) ** 2) / (2 * scale**2))
    return rng.choice(values, p=weights / weights.sum(), size=size)


def test_a_promise_in_words():
    said = " ".join(promise(0.1, 0.0, laplace(16, 0.1)).text().split())
    assert "at most exp(0.1) times its probability with any other version." in said
    assert "Nothing that is seen can move the odds between two versions of one unit" in said
    assert "except with" not in said
    idle = promise(0.1, 1e-6, laplace(16, 0.1))
    assert idle.loss_tail(0.1) == 0
    assert "No noise needed the δ: nothing that is seen can move the odds" in idle.text()
    nothing = Statement(level=Level.NONE, mechanism="paper", epsilon=0.1)
    assert nothing.promise == ()
    assert nothing.loss_tail(100.0) == 1
    assert "probability" not in nothing.text()
    assert nothing.composed_with(ModelBudget(1.0, **RECORD)) is nothing


def test_a_promise_with_delta_is_not_said_to_hold_but_for_delta():
    noise = calibrate(10**6, 4.0, Budget(0.1, 1e-6))
    made = promise(0.1, 1e-6, gaussian(4.0, noise.scale, 0.1, 1e-6))
    said = made.text()
    assert "except with probability" not in said
    assert "any other version, plus 1e-06." in said
    assert "more than exp(0.1) is at most 0.000437; by more than exp(0.134), at most 1e-06." in said
    rho = made.accesses[0].concentrated
    exact = 0.5 * math.erfc((0.1 - rho) / 2 / math.sqrt(rho))
    assert exact == pytest.approx(42e-6, rel=0.05)  # the normal's tail: 42 times δ, not δ
    assert exact < made.loss_tail(0.1) < 15 * exact


def test_the_tail_of_what_cannot_be_computed_is_the_general_one():
    training = Access(what="training", mechanism="DP-SGD", sensitivity="L2 1", scale=2.0,
                      epsilon=0.5, delta=1e-5)  # fmt: skip
    made = promise(0.5, 1e-5, training)
    assert made.loss_tail(0.5) == 1
    assert made.loss_tail(0.5 + math.log(2)) == pytest.approx(2e-5)
    assert "by more than 2·exp(0.5) is at most 2e-05." in made.text()


def test_delta_of_steps_that_are_not_listed_may_have_been_needed():
    made = promise(0.5, 1e-5)
    assert made.loss_tail(0.5) == 1
    assert "No noise needed" not in made.text()
    nearly_never = promise(100.0, 1e-6, gaussian(1.0, 5.0, 100.0, 1e-6))
    assert "more than exp(100) is at most 1e-300" in nearly_never.text()


@pytest.mark.parametrize("scale", [0.7, 3.0, 25.0])
def test_the_tail_bounds_the_exact_loss_of_one_sum(scale):
    """One sum that moves by d ≤ Δ₂: the chance is a finite sum."""
    values = np.arange(-round(40 * scale), round(40 * scale) + 1)
    weights = np.exp(-(values.astype(float) ** 2) / (2 * scale**2))
    weights /= weights.sum()
    made = promise(50.0, 0.5, gaussian(3.0, scale))
    for moved in (1, 2, 3):
        losses = (values * moved) / scale**2 + moved**2 / (2 * scale**2)
        for loss in np.linspace(0.01, 3 * losses.std() + 10 / scale, 60):
            exact = weights[losses > loss].sum()
            assert exact <= made.loss_tail(float(loss)) * (1 + 1e-12)


def test_the_tail_bounds_a_simulation_of_several_steps():
    """Two Gaussian steps and a Laplace step that always loses all of its ε."""
    rng = np.random.default_rng(0)
    first, second, pure = gaussian(4.0, 20.0), gaussian(3.0, 12.0), laplace(2, 0.1)
    made = promise(5.0, 0.1, first, pure, second)
    moves = {20.0: np.array([1.0] * 8 + [-1.0] * 8), 12.0: np.array([3.0])}  # of L2 norm 4 and 3
    losses = np.full(200_000, pure.epsilon)
    for scale, moved in moves.items():
        noise = draws(scale, (len(losses), len(moved)), rng)
        losses += noise @ moved / scale**2 + (moved**2).sum() / (2 * scale**2)
    rho = first.concentrated + second.concentrated
    assert losses.mean() - pure.epsilon == pytest.approx(rho, rel=0.05)
    assert losses.var() == pytest.approx(2 * rho, rel=0.02)
    for loss in np.linspace(0.3, 1.1, 30):
        bound, found = made.loss_tail(float(loss)), (losses > loss).mean()
        assert found <= bound
        assert bound <= 20 * max(found, 1e-5)  # and it is no idle bound


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.1, 1e-6), (1, 1e-9), (10, 1e-3), (100, 1e-9), (1e-3, 1e-2)]
)
def test_the_public_arithmetic_agrees_with_opendp(epsilon, delta):
    noise = calibrate(10**9, 7.0, Budget(epsilon, delta))
    rho = (7.0 / noise.scale) ** 2 / 2
    assert gaussian_delta(rho, epsilon) == pytest.approx(delta, rel=1e-6)
    assert gaussian_delta(rho, epsilon) <= delta * (1 + 1e-9)


def concentrated(rho):
    l1, scale = 16, 4.0 / math.sqrt(2 * rho)
    return Access(
        what="sums", mechanism=GAUSSIAN, sensitivity=f"L1 {l1}", l1=l1, l2=4.0, scale=scale,
        rho=rho,
    )  # fmt: skip


def test_readings_in_rho():
    """In words and on a page, and their tail is that of their sum."""
    made = promise(0.75, 1e-9, concentrated(0.005), concentrated(0.002))
    page = TEMPLATES.get_template("parts.html").module.promise
    said, shown = made.text(), str(page(made, "unsigned"))
    assert "sensitivity L1 16, ρ 0.005" in said
    assert "The ρ of these readings add up to 0.007. A mechanism of this ρ" in said
    for words in ("<th>ρ</th>", "<td>0.005</td>", "The ρ of these readings add up to 0.007."):
        assert words in shown
    pure = promise(0.1, 0.0, laplace(16, 0.1))
    assert "add up" not in pure.text()
    assert "ρ" not in str(page(pure, "unsigned"))
    assert made.composed_with(ModelBudget(0.2, 1e-7, **RECORD)).composition == made.composition
    one = promise(0.75, 1e-9, concentrated(0.007))
    for loss in (0.1, 0.5, 0.75):
        assert made.loss_tail(loss) == pytest.approx(one.loss_tail(loss))
        assert made.loss_tail(loss) == pytest.approx(math.exp(-((loss - 0.007) ** 2) / 0.028))


def test_a_reading_spends_epsilon_or_rho():
    with pytest.raises(ValidationError, match="not both"):
        Access(what="a", mechanism=GAUSSIAN, sensitivity="s", epsilon=1.0, rho=0.1)
    with pytest.raises(ValidationError, match="not both"):
        Access(what="a", mechanism=GAUSSIAN, sensitivity="s", delta=1e-6, rho=0.1)
    for wrong in (0.0, math.nan, math.inf, -1.0):
        with pytest.raises(BudgetError):
            Rho(wrong)
    assert "rho" not in laplace(16, 0.5).model_dump()
    assert concentrated(0.1).model_dump()["rho"] == 0.1


def test_a_budget_of_the_same_kind_is_added():
    made = promise(0.1, 1e-6, laplace(16, 0.1)).composed_with(ModelBudget(0.2, 1e-7, **RECORD))
    assert made.level is Level.COMPOSED
    assert made.epsilon >= 0.1 + 0.2  # rounded up
    assert made.delta == pytest.approx(1.1e-6)
    assert "declared ε = 0.2, δ = 1e-07 for one record" in made.accesses[-1].sensitivity
    assert "whether the target model's declared budget is true" in made.exclusions
    with pytest.raises(TypeError):
        ModelBudget(1.0)
    with pytest.raises(RequestError, match="unit='record' or 'person'"):
        promise(0.5, 0.0).composed_with(Budget(1.0))
    for wrong in ({**RECORD, "unit": "row"}, {**RECORD, "relation": "replace"}):
        with pytest.raises(RequestError, match="must be '"):
            ModelBudget(1.0, **wrong)
    with pytest.raises(RequestError, match="finite"):
        ModelBudget(math.inf, **RECORD)
    with pytest.raises(BudgetError):
        ModelBudget(1.0, 1.0, **RECORD)


def test_add_remove_is_two_steps():
    declared = ModelBudget(1.0, 1e-6, unit="record", relation="add-remove")
    made = promise(0.5, 0.0, laplace(16, 0.5)).composed_with(declared)
    assert made.epsilon == 2.5
    assert made.delta == pytest.approx((1 + math.e) * 1e-6)
    assert made.delta >= (1 + math.e) * 1e-6
    assert "replace-one is two of its steps" in made.text()
    assert ModelBudget(1.0, unit="record", relation="add-remove").against("record") == Budget(2.0)


def test_units_of_veil_and_model():
    person = ModelBudget(1.0, unit="person", relation="replace-one")
    veil = promise(0.5, 0.0, laplace(16, 0.5))
    made = veil.composed_with(person)
    assert (made.unit, made.epsilon) == ("record", 1.5)
    assert "one person covers one of their records" in made.text()
    people = promise(0.5, 0.0, laplace(16, 0.5), unit="person", max_records=4)
    assert people.composed_with(person).epsilon == 1.5
    with pytest.raises(RequestError, match="the model's budget only records"):
        people.composed_with(ModelBudget(1.0, **RECORD))


def test_sums_that_promise_nothing_are_refused():
    veil = promise(0.5, 0.6, laplace(16, 0.5))
    with pytest.raises(BudgetError, match="delta of 1 or more"):
        veil.composed_with(ModelBudget(1.0, 0.6, **RECORD))  # 1.2 was accepted once
    for epsilon, delta in ((1.0, 0.3), (800.0, 1e-300), (1e308, 0.0)):
        with pytest.raises(BudgetError, match="turned from add-remove"):
            veil.composed_with(ModelBudget(epsilon, delta, unit="record", relation="add-remove"))
    with pytest.raises(BudgetError, match="delta of 1 or more"):
        promise(1e308, 0.0).composed_with(ModelBudget(1e308, **RECORD))


@pytest.mark.parametrize(
    "text", ["a\x1b[2J", "a\rb", "\ud800", "a\x85b", "a\u2028b", "\x00", "a\x7f"]
)
def test_texts_that_cannot_be_stored_or_printed(text):
    with pytest.raises(ValueError, match="a text holds"):
        check_text(text)
    for said in ({"what": text}, {"what": "a", "epsilon": -1.0}):
        with pytest.raises(ValidationError):
            Access(mechanism="m", sensitivity="s", **said)
    for reasons in ((text,), ("x",) * 101):
        with pytest.raises(ValidationError):
            Statement(level=Level.NONE, mechanism="paper", epsilon=1, reasons=reasons)
    for sound in ("", "é", "日本", "two\nlines\tand a tab", "می\u200cخواهم", "x" * LONGEST):
        check_text(sound)
    with pytest.raises(ValueError, match="U\\+000A"):
        check_text("two\nlines", one_line=True)
    with pytest.raises(ValueError, match="more than 10000 characters"):
        check_text("x" * (LONGEST + 1))
