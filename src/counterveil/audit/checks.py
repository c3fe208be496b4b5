"""Checks of what the proof of `functional` needs and what must hold exactly: `checks` names them.

A game needs many draws to see a small leak. A check needs one or two runs of the mechanism, but
looks for one kind of leak only. `docs/audit.md` says of each what must hold.
"""

import math
import multiprocessing
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

import numpy as np

from counterveil.audit import joint, neighbours, releases
from counterveil.audit.concentrated import overspent
from counterveil.audit.functional import DELTA, Instrument
from counterveil.audit.game import Check, Claim
from counterveil.audit.pair import Pair
from counterveil.audit.releases import Find, Finding
from counterveil.curator.functional import make_plan, measure
from counterveil.curator.noise import EXACT, rho_of
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array
from counterveil.privacy import Budget, Rho, Share
from counterveil.privacy.budget import amount_of
from counterveil.privacy.record import Measurement, NoisyRecord, Sensitivity, to_members
from counterveil.privacy.statement import GAUSSIAN, LAPLACE

REPEATS = 30  # real measurements for the variance of the noise
FAR = 7.0  # standard errors: a variance further off is a finding
FAMILIES = (neighbours.counted_pairs, neighbours.ranges, neighbours.bits, neighbours.images)
VEILS = (neighbours.unfit, neighbours.persons, neighbours.bits, neighbours.images)
COMMANDS = (neighbours.unfit, neighbours.persons, neighbours.last_of_its_class)


def checks(budget: Budget) -> Iterator[Check]:
    """All checks of `functional` at one (ε, δ); of whole releases with δ > 0 those by features."""
    check = partial(Check, "functional", claim=Claim(budget.epsilon, budget.delta))
    each = partial(releases.checks_of, "functional", budget)
    numbers: dict[str, Find] = {
        "the record holds noise alone": noise_alone,
        "the plan is public": releases.plan_differs,
        "sums move as stated": lambda pair, budget: moves(*both(pair, budget)),
        "every record adds by itself": adds_by_itself,
        "the noise is enough": noise_is_enough,
    }
    follows = {"the veil follows from its record": releases.veil_follows}
    reads = {"rows are read once, after the charge": releases.read_once}
    yield from each(numbers, neighbours.pairs_at(budget))
    noisy = (*FAMILIES, neighbours.features) if budget.delta else FAMILIES
    if budget.delta != DELTA:  # where nothing is heard that is not heard at the others
        yield from each({"the noise is as stated": noise_as_stated}, noisy)
        drawn = partial(joint.large_vectors, Rho(0.5) if budget.delta else Budget(0.1))
        yield check("the noise is as stated", "large vectors", find=drawn)
    if budget.delta:
        yield from each(follows, (neighbours.features,))
        yield from each(reads, (neighbours.wide,))
        return
    yield check("the noise never repeats", "zeros", find=never_repeats)
    yield check("the shares add up", "all families", find=shares_add_up)
    yield from each(follows, VEILS)
    yield from each(reads, FAMILIES)
    yield from each({"no table is refused": releases.refusals}, neighbours.LAST_ONES)
    yield check("errors hold no value", "a cell that does not fit", find=releases.values_in_errors)
    yield from each({"the command": releases.command_differs}, COMMANDS)


@dataclass
class Dice(Instrument):
    """A source of noise whose answers are public dice, the same ones for every table."""

    dice: np.random.Generator = field(default_factory=lambda: np.random.default_rng(5))
    records: list[NoisyRecord] = field(default_factory=list)  # that were made of its answers

    def answer_to(self, exact: Array) -> Array:
        return np.asarray(self.dice.integers(1_000, 1_000_000, exact.shape))


@dataclass
class Loud(Instrument):
    """A source of the curator's own noise that writes it down; gives the answers `told`, if any."""

    noise: list[Array] = field(default_factory=list)

    def perturb(
        self, name: str, what: str, exact: Array, sensitivity: Sensitivity, share: Share
    ) -> Measurement:
        answer = EXACT.perturb(name, what, exact, sensitivity, share)
        self.noise.append((answer.values - exact).reshape(-1))
        self.answers.append(answer)
        return self.told[len(self.answers) - 1] if self.told else answer


def both(pair: Pair, budget: Budget, dice: Callable[[], Dice] = Dice) -> tuple[Dice, Dice]:
    """What is asked of the same dice in a run of the mechanism on D, and in one on D'."""
    sources = dice(), dice()
    for table, source in zip(pair.tables, sources, strict=True):
        source.records.append(measure(table, pair.plan(budget), source))
    return sources


def noise_alone(pair: Pair, budget: Budget) -> Finding:
    """What the record holds besides answers of the noise source, or asks for beyond the budget."""
    yield from more_than_noise(*both(pair, budget), budget)


def more_than_noise(one: Dice, two: Dice, budget: Budget) -> Finding:
    """What the records that came of two runs hold besides the answers of the same dice."""
    members = []
    for dice in (one, two):
        (record,) = dice.records
        members.append(to_members(record))
        held = record.measurements
        for found, answer in zip(held, dice.answers, strict=False):
            if found.access != answer.access:
                yield f"the record tells another noise of {found.name} than it got"
            if not np.array_equal(found.values, answer.values):
                yield f"{found.name} holds numbers that no noise was put on"
        if len(held) != len(dice.answers):
            yield "the record does not hold what was asked for, once each"
        if words := overspent(dice.asked, budget):
            yield words
    if members[0] != members[1]:
        yield "with the same answers of the noise the records of D and D' differ"


def moves(one: Instrument, two: Instrument) -> Finding:
    """What moves between two runs by more than its stated sensitivity."""
    for answer, exact_one, exact_two in zip(one.answers, one.exact, two.exact, strict=True):
        if exact_one.shape != exact_two.shape:
            yield f"{answer.name} has another shape for D'"
            continue
        moved, stated = np.abs(exact_two - exact_one), answer.sensitivity
        if moved.sum() > stated.l1:
            yield f"{answer.name} moves by L1 {moved.sum()}, stated {stated.l1}"
        if math.sqrt(int((moved**2).sum())) > stated.l2 * (1 + 1e-12):
            length = math.sqrt(int((moved**2).sum()))
            yield f"{answer.name} moves by L2 {length:.4g}, stated {stated.l2:.4g}"


def adds_by_itself(pair: Pair, budget: Budget) -> Finding:
    """Which sums move by another amount, for the same noise, when all other records are others.

    One record could then move what all of them add.
    """
    kept = [name for name in pair.one.columns if name != pair.unit_column]
    moved = []
    for other in (False, True):
        sums = []
        for frame, same in zip((pair.one, pair.two), pair.shared, strict=True):
            told = frame.copy()
            if other:  # every record that D and D' share becomes the first of them
                told.loc[same, kept] = frame.loc[same, kept].iloc[[0] * int(same.sum())].to_numpy()
            dice = Dice()
            measure(PrivateTable(told, pair.schema, **pair.units), pair.plan(budget), dice)
            sums.append(dice.exact)
        if any(one.shape != two.shape for one, two in zip(*sums, strict=True)):
            yield "the sums have another shape for D'"
            return
        moved.append([two - one for one, two in zip(*sums, strict=True)])
    for number, (among, elsewhere) in enumerate(zip(*moved, strict=True)):
        if not np.array_equal(among, elsewhere):
            yield f"what a record adds to sum {number + 1} depends on the other records"


def noise_is_enough(pair: Pair, budget: Budget) -> Finding:
    """Which answers get less noise than their share of (ε, δ) needs, by formulas of our own."""
    yield from too_quiet(both(pair, budget)[0])


def too_quiet(one: Instrument) -> Finding:
    """Which answers of a run get less noise than is due."""
    for answer, asked in zip(one.answers, one.asked, strict=True):
        sensitivity, scale = answer.sensitivity, answer.scale
        if isinstance(asked, Rho):
            needed = sensitivity.l2 / math.sqrt(2 * asked.rho)
            enough = answer.mechanism == GAUSSIAN and scale * (1 + 1e-12) >= needed
        elif answer.mechanism == LAPLACE:
            enough = scale * (1 + 1e-12) >= sensitivity.l1 / asked.epsilon
        else:
            spent = gaussian_delta(sensitivity.l2 / scale, asked.epsilon)
            enough = spent <= asked.delta
        if not enough:
            yield f"{answer.name}: noise of scale {scale:.4g} is not enough for {asked}"


def gaussian_delta(shift: float, epsilon: float) -> float:
    """δ at ε of Gaussian noise of deviation 1 on numbers that move by `shift` (Balle & Wang 2018).

    >>> round(gaussian_delta(1.0, 1.0), 4)
    0.1269
    """

    def below(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    middle = epsilon / shift
    return below(shift / 2 - middle) - math.exp(epsilon) * below(-shift / 2 - middle)


def noise_as_stated(pair: Pair, budget: Budget) -> Finding:
    """Which numbers of real measurements never move, or have another variance than is stated."""
    plan, table = pair.plan(budget), pair.tables[0]
    first = Loud()
    measure(table, plan, first)
    runs = []
    for _ in range(REPEATS):
        loud = Loud(told=first.answers)
        measure(table, plan, loud)
        runs.append(loud.noise)
    together = []
    for answer, *noise in zip(first.answers, *runs, strict=True):
        drawn = np.stack(noise).astype(np.float64)
        if (drawn.min(axis=0) == drawn.max(axis=0)).any():
            yield f"a number of {answer.name} never moves"
        stated, fourth = variance_of(answer)
        away = (drawn**2).mean() / stated - 1
        if abs(away) > FAR * math.sqrt(fourth / drawn.size):
            yield f"the noise on {answer.name} has {1 + away:.2f} of its stated variance"
        together.append(drawn / math.sqrt(stated))
    yield from joint.goes_together(together, [answer.name for answer in first.answers])


def variance_of(answer: Measurement) -> tuple[float, float]:
    """The variance of the discrete noise, and the variance of its square in units of variance²."""
    if answer.mechanism != LAPLACE:
        return answer.scale**2, 2.0
    ratio = math.exp(-1 / answer.scale)
    # Of a discrete Laplace number: fourth moment 2q(1 + 10q + q²)/(1 − q)⁴.
    variance = 2 * ratio / (1 - ratio) ** 2
    fourth = 2 * ratio * (1 + 10 * ratio + ratio**2) / (1 - ratio) ** 4
    return variance, fourth / variance**2 - 1


def draw_noise() -> list[int]:
    """Some of the curator's noise, with equal seeds of every generator that takes one."""
    joint.seed_all()
    zeros, unit = np.zeros(40, dtype=np.int64), Sensitivity(1, 1.0)
    found: list[int] = EXACT.perturb("x", "x", zeros, unit, Budget(0.01)).values.tolist()
    return found + EXACT.perturb("x", "x", zeros, unit, Rho(0.0001)).values.tolist()


def draw_in_a_copy() -> list[int]:
    """The same in a copy of this process as it is now."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the copy uses no threads
        with multiprocessing.get_context("fork").Pool(1) as copy:
            return copy.apply(draw_noise)


def never_repeats() -> Finding:
    """Whether noise came twice: with equal seeds, or in two copies of this process."""
    runs = {"equal seeds": draw_noise}
    if "fork" in multiprocessing.get_all_start_methods():
        runs["a copied process"] = draw_in_a_copy
    for what, run in runs.items():
        first, second = run(), run()
        if any(first[part] == second[part] for part in (slice(40), slice(40, 80))):
            yield f"noise repeats with {what}"


def shares_add_up() -> Finding:
    """Which shares of a plan add up to more than ε or ρ, in exact arithmetic, over many budgets."""
    dice = np.random.default_rng(3)
    schemas = [make().schema for make in (*FAMILIES, neighbours.wide_pairs)]
    budgets = [Budget(epsilon) for epsilon in dice.uniform(0.01, 4, 40).tolist()]
    for epsilon, digits in dice.uniform((0.01, 1), (4, 12), (6, 2)).tolist():
        budgets.append(Budget(epsilon, 10**-digits))
    for budget in budgets:
        for schema in schemas:
            plan = make_plan(schema, 1000, budget, order=2)
            shares = [share for share in plan.shares if share is not None]
            rho, words = rho_of(budget.rounded_down()), overspent(shares, budget)
            in_rho = rho and isinstance(shares[0], Rho)
            if rho and in_rho and sum(map(Fraction, map(amount_of, shares))) > rho.rho:
                words = "the shares of ρ add up to more than ρ"
            if words:
                yield f"{words}, in a plan for a {schema.family} table"
