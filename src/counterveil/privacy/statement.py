"""The Budget of a release, and the Statement: what exactly is promised, inside every Veil.

A statement is data, not prose: who is protected, against which change, by how much, and every time
the private rows were read. `text()` puts it into words for a person. `check_statement` holds all
rules by which a statement in a veil file must be consistent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from counterveil.errors import BudgetError, RequestError, VeilError
from counterveil.text_rules import LONGEST, check_text

if TYPE_CHECKING:
    from counterveil.privacy.record import NoisyRecord
    from counterveil.schema import Schema

Mechanism = Literal["discrete Laplace", "discrete Gaussian", "permute-and-flip, one edge at a time"]
LAPLACE: Mechanism = "discrete Laplace"
GAUSSIAN: Mechanism = "discrete Gaussian"
CHOICE: Mechanism = "permute-and-flip, one edge at a time"
Unit = Literal["record", "person"]
Relation = Literal["replace-one", "add-remove"]
WITH_A_PROOF = ("functional", "dpsgd")  # mechanisms whose veils may promise something
TARGET_MODEL = "the target model and everything it reveals"  # what a veil does not cover
SLACK = Fraction(1, 10**9)  # relative; accesses add up to all of ε but for this
MOST_ITEMS = 100  # of each list of a statement


@dataclass(frozen=True)
class Budget:
    """ε and δ, checked. `math.inf` means that no noise is added at all: never private.

    >>> Budget(0.75)
    Budget(epsilon=0.75, delta=0.0)
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not _is_number(self.epsilon) or math.isnan(self.epsilon) or self.epsilon <= 0:
            raise BudgetError("epsilon must be a number above 0, for example 0.75")
        if not _is_number(self.delta) or not 0 <= self.delta < 1:
            raise BudgetError("delta must be at least 0 and below 1, for example 1e-6")
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))

    @property
    def adds_noise(self) -> bool:
        """False only for the reference without noise."""
        return math.isfinite(self.epsilon)

    def rounded_down(self) -> Budget:
        """The largest floats that are at most the decimals which these floats are written as.

        The float 0.1 is a little more than one tenth. What is promised and charged is one tenth;
        what a mechanism spends is this.
        """
        return Budget(*(_at_most(number) for number in (self.epsilon, self.delta)))

    def __str__(self) -> str:
        if not self.adds_noise:
            return "no noise"
        return f"ε = {self.epsilon:g}" + (f", δ = {self.delta:g}" if self.delta else "")


def rest_of(total: float, *parts: float) -> float:
    """What is left of `total`, rounded down: in exact arithmetic all add up to at most `total`."""
    return _positive(_float_below(Fraction(total) - sum(map(Fraction, parts))), total)


def part_of(total: float, parts: int) -> float:
    """One of `parts` equal parts, rounded down: so many of them are at most `total`, exactly."""
    return _positive(_float_below(Fraction(total) / parts), total)


def _positive(share: float, total: float) -> float:
    if share <= 0:
        raise BudgetError(f"a budget of {total:g} is too small to be shared out")
    return share


def _float_below(exact: Fraction) -> float:
    """The largest float that is at most `exact`."""
    near = float(exact)
    return near if Fraction(near) <= exact else math.nextafter(near, -math.inf)


def _at_most(number: float) -> float:
    if not math.isfinite(number):
        return number
    return _float_below(Fraction(repr(number)))


@dataclass(frozen=True)
class ModelBudget:
    """The privacy that a target model was trained with, as whoever trained it declares it.

    `unit`: whom it protects, one "record" or one "person" with all of their records. `relation`:
    which tables it compares, "replace-one" (one unit is replaced) or "add-remove" (one unit more or
    less). Neither has a usual value: look them up in the accountant of the training.

    >>> ModelBudget(1, unit="record", relation="add-remove").against("record")
    Budget(epsilon=2.0, delta=0.0)
    """

    epsilon: float
    delta: float = 0.0
    unit: Unit = field(kw_only=True)
    relation: Relation = field(kw_only=True)

    def __post_init__(self) -> None:
        if not Budget(self.epsilon, self.delta).adds_noise:
            raise RequestError("the model's budget must be finite; leave it out if it has none")
        if self.unit not in {"record", "person"}:
            raise RequestError("the unit of the model's budget must be 'record' or 'person'")
        if self.relation not in {"replace-one", "add-remove"}:
            raise RequestError(
                "the relation of the model's budget must be 'replace-one' or 'add-remove'"
            )

    def against(self, unit: Unit) -> Budget:
        """What it is worth where one `unit` is replaced.

        Replacing is removing and then adding: two steps of add-remove, (2ε, (1 + exp(ε))·δ)-DP.
        Replacing one record of a person changes that person's data once, so a budget for people
        covers records as it is. A budget for records says nothing about people, who may have any
        number of records in the training.
        """
        if unit == "person" and self.unit == "record":
            raise RequestError(
                "the veil protects people, the model's budget only records: a person may have any "
                "number of records in its training; declare a budget for people, or none"
            )
        if self.relation == "replace-one":
            return Budget(self.epsilon, self.delta)
        try:
            delta = (1 + math.exp(self.epsilon)) * self.delta * (1 + 1e-14)  # rounded up
        except OverflowError:
            delta = math.inf if self.delta else 0.0
        if not math.isfinite(2 * self.epsilon) or delta >= 1:
            raise BudgetError(
                "the model's budget, turned from add-remove into replace-one, has a delta of 1 or "
                "more and promises nothing; leave it out"
            )
        return Budget(2 * self.epsilon, delta)

    def described(self, unit: Unit) -> str:
        """The budget as declared, and what was converted."""
        declared = Budget(self.epsilon, self.delta)
        words = f"declared {declared} for one {self.unit}, {self.relation}"
        if self.relation == "add-remove":
            words += "; replace-one is two of its steps"
        if self.unit != unit:
            words += f"; one {self.unit} covers one of their {unit}s"
        return words


def sum_above(*parts: float) -> float:
    """The least float that is not below the exact sum; infinity where there is none."""
    exact = sum(map(Fraction, parts), Fraction(0))
    try:
        total = float(exact)
    except OverflowError:
        return math.inf
    return total if Fraction(total) >= exact else math.nextafter(total, math.inf)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Level(StrEnum):
    """How much of an answer the ε covers."""

    NONE = "none"
    EXPLAINER = "explainer"
    END_TO_END = "end-to-end"
    COMPOSED = "composed"

    @property
    def meaning(self) -> str:
        return {
            Level.NONE: "nothing is guaranteed: the ε is nominal",
            Level.EXPLAINER: (
                "the veil is private; answers also consult the target model, so they add this to "
                "whatever the model itself reveals"
            ),
            Level.END_TO_END: (
                "answers are private in the training rows, however many are asked for: the target "
                "model is consulted for nothing"
            ),
            Level.COMPOSED: (
                "answers are private in the training rows: the veil's privacy and the declared "
                "privacy of the target model, added up"
            ),
        }[self]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _one_line(text: str) -> str:
    check_text(text, one_line=True, longest=12 * LONGEST)  # it may quote a name with escapes
    return text


Text = Annotated[str, AfterValidator(_one_line)]
Texts = Annotated[tuple[Text, ...], Field(max_length=MOST_ITEMS)]


class Access(_Frozen):
    """One reading of the private rows, in words; a `Measurement` gives its own (`access`).

    `l1`, `l2`: the sensitivity as numbers, where the mechanism is `LAPLACE`, `GAUSSIAN` or
    `CHOICE`. `scale`: of the noise; None where there is none.
    """

    what: Text
    mechanism: Text
    sensitivity: Text
    l1: int | None = Field(default=None, ge=1)
    l2: float | None = Field(default=None, gt=0)
    scale: float | None = Field(default=None, gt=0)
    epsilon: float | None = Field(default=None, gt=0)
    delta: float = Field(default=0.0, ge=0, lt=1)

    @property
    def rho(self) -> float | None:
        """ρ = Δ₂²/(2σ²) of a discrete Gaussian, which is ρ-zCDP; None for all else."""
        if self.mechanism != GAUSSIAN or self.l2 is None or self.scale is None:
            return None
        ratio = self.l2 / self.scale
        return ratio * ratio / 2


class Statement(_Frozen):
    """What is guaranteed about the rows behind a Veil, and what is not."""

    level: Level
    mechanism: Text
    epsilon: float | None = Field(gt=0)
    delta: float = Field(default=0.0, ge=0, lt=1)
    unit: Unit = "record"
    max_records: int = Field(default=1, ge=1)
    relation: Literal["replace-one"] = "replace-one"
    accesses: tuple[Access, ...] = Field(default=(), max_length=MOST_ITEMS)
    plan: Texts = ()
    public_inputs: Texts = ()
    reasons: Texts = ()
    exclusions: Texts = ()
    versions: dict[Text, Text] = Field(default={}, max_length=MOST_ITEMS)

    @property
    def amount(self) -> str:
        """ε and δ as text."""
        return "no noise" if self.epsilon is None else str(Budget(self.epsilon, self.delta))

    @property
    def headline(self) -> str:
        """One line that can stand next to any answer."""
        if self.epsilon is None:
            return f"mechanism {self.mechanism}: no noise was added; nothing is protected"
        if self.level is Level.NONE:
            amount = f"{self.amount} is nominal, not a proved bound"
            return f"mechanism {self.mechanism}: guarantee none; {amount}"
        return f"mechanism {self.mechanism}: guarantee {self.level.value}, {self.amount}"

    def guided_by_surrogate(self) -> Statement:
        """The statement of answers that consulted f~ alone."""
        if self.level is Level.NONE:
            return self
        kept = tuple(what for what in self.exclusions if "target model" not in what)
        return self.model_copy(update={"level": Level.END_TO_END, "exclusions": kept})

    def composed_with(self, model: ModelBudget) -> Statement:
        """The statement of answers that also consulted a model trained under `model`.

        The budgets add up, for the unit of the veil under replace-one; see `ModelBudget.against`.
        """
        if not isinstance(model, ModelBudget):
            raise RequestError(
                "the model's budget must say what it protects: use ModelBudget(epsilon, delta, "
                "unit='record' or 'person', relation='replace-one' or 'add-remove')"
            )
        if self.level is Level.NONE or self.epsilon is None:
            return self
        counted = model.against(self.unit)
        access = Access(
            what="training of the target model",
            mechanism="declared by whoever trained it; not checked here",
            sensitivity=model.described(self.unit),
            epsilon=counted.epsilon,
            delta=counted.delta,
        )
        epsilon = sum_above(self.epsilon, counted.epsilon)
        delta = sum_above(self.delta, counted.delta)
        if delta >= 1 or not math.isfinite(epsilon):
            raise BudgetError(
                "the budgets of veil and model add up to a delta of 1 or more, which promises "
                "nothing; leave the model's budget out"
            )
        kept = tuple(what for what in self.exclusions if "target model" not in what)
        composed = {
            "level": Level.COMPOSED,
            "epsilon": epsilon,
            "delta": delta,
            "accesses": (*self.accesses, access),
            "exclusions": (*kept, "whether the target model's declared budget is true"),
        }
        return Statement(**{**dict(self), **composed})

    def loss_tail(self, loss: float) -> float:
        """An upper bound on the chance that what is seen moves the odds by more than exp(loss).

        The odds are those between two versions of one unit; `loss` is a natural logarithm. The
        privacy loss L is the log of the ratio of the probabilities of what is seen, drawn with one
        version. Proof sketch of the two bounds, of which the smaller one is returned:

        1. L is the sum over the steps. A step without δ adds at most its ε. A discrete Gaussian of
           scale σ whose sums move by d adds ⟨Z, d⟩/σ² + ‖d‖²/(2σ²) with Z its noise, and the
           discrete Gaussian is subgaussian: E exp(s·⟨Z, d⟩) ≤ exp(s²σ²‖d‖²/2) (Canonne, Kamath and
           Steinke 2020). With ‖d‖ ≤ Δ₂ and ρ = Δ₂²/(2σ²), E exp(s·L) ≤ exp(sρ + s²ρ) for s > 0,
           whatever was seen before: over several steps the ρ add up. Markov's inequality at the
           best s gives P(L > E + ρ + t) ≤ exp(−t²/(4ρ)), E the sum of the steps without δ.
        2. For any (ε, δ)-DP mechanism: let S = {L > loss}. P(S) ≤ exp(ε)·P'(S) + δ by definition,
           and P'(S) ≤ exp(−loss)·P(S) on S, so that P(S) ≤ δ/(1 − exp(ε − loss)).
        """
        if self.epsilon is None or self.level is Level.NONE:
            return 1.0
        known = self._steps()
        bounds = [1.0]
        if loss > self.epsilon:
            bounds.append(self.delta / -math.expm1(self.epsilon - loss))
        if known is not None:
            pure, rho = known
            room = loss - pure - rho
            if rho == 0:
                bounds.append(0.0 if room >= 0 else 1.0)
            elif room > 0:
                bounds.append(math.exp(-room * room / (4 * rho)))
        return min(bounds)

    def _steps(self) -> tuple[float, float] | None:
        """Σε of the steps without δ and Σρ of the Gaussian ones; None if others are or may be."""
        pure, rho = Fraction(0), 0.0
        for access in self.accesses:
            if access.rho is not None:
                rho += access.rho
            elif access.delta == 0 and access.epsilon is not None:
                pure += Fraction(access.epsilon)
            else:
                return None
        return (float(pure), rho) if self.accesses else None

    @property
    def promise(self) -> tuple[str, ...]:
        """What (ε, δ) means, in sentences; nothing where nothing is guaranteed."""
        if self.level is Level.NONE or self.epsilon is None:
            return ()
        more = f", plus {self.delta:g}" if self.delta else ""
        always = (
            f"move the odds between two versions of one unit by more than exp({self.epsilon:g})"
        )
        meaning = (
            "For every event, that is for everything that anybody may see or compute: its "
            "probability with one version of a unit's data is at most "
            f"exp({self.epsilon:g}) times its probability with any other version{more}."
        )
        if not self.delta:
            return (meaning, f"Nothing that is seen can {always}.")
        if (steps := self._steps()) is not None and steps[0] <= self.epsilon and steps[1] == 0:
            return (meaning, f"No noise needed the δ: nothing that is seen can {always}.")
        return (meaning, f"The chance that what is seen moves the odds {self._tail_in_words()}.")

    def _tail_in_words(self) -> str:
        """By how much the odds may move with which chance."""
        known, epsilon = self._steps(), self.epsilon or 0.0
        if known is None:  # the general bound: at ε + ln 2 it is 2δ
            return f"by more than 2·exp({epsilon:g}) is at most {_rounded_up(2 * self.delta)}"
        pure, rho = known
        reached = pure + rho + 2 * math.sqrt(-rho * math.log(self.delta))  # the bound is δ there
        often = _rounded_up(max(self.loss_tail(epsilon), 1e-300))  # it may be 0 by rounding
        words = f"by more than exp({epsilon:g}) is at most {often}"
        return (
            f"{words}; by more than exp({_rounded_up(reached)}), at most {_rounded_up(self.delta)}"
        )

    def text(self) -> str:
        """The statement in words."""
        lines = [self.headline, self.level.meaning + ".", ""]
        if self.level is not Level.NONE:
            who = "one record"
            if self.unit == "person":
                who = f"one person with all of their records (at most {self.max_records} are used)"
            lines += [
                f"Protected unit: {who}. Relation: {self.relation}, the number of units is public.",
                *self.promise,
                "",
            ]
        if self.reasons:
            lines += ["Why:", *(f"  {i}. {why}" for i, why in enumerate(self.reasons, 1)), ""]
        lines.append("Readings of the private rows:")
        lines += [f"  - {_access_line(access)}" for access in self.accesses]
        for title, items in (
            ("Plan, from public numbers alone", self.plan),
            ("Public inputs", self.public_inputs),
            ("Not covered", self.exclusions),
        ):
            if items:
                lines += ["", f"{title}:", *(f"  - {item}" for item in items)]
        if self.versions:
            names = ", ".join(f"{name} {version}" for name, version in self.versions.items())
            lines += ["", f"Made with {names}."]
        return "\n".join(lines)


def _access_line(access: Access) -> str:
    noise = f"scale {access.scale:g}" if access.scale is not None else "no noise"
    spent = "" if access.epsilon is None else f", ε {access.epsilon:g}"
    spent += f", δ {access.delta:g}" if access.delta else ""
    return f"{access.what}: {access.mechanism}, {noise}; sensitivity {access.sensitivity}{spent}"


def _rounded_up(number: float) -> str:
    """With three digits, never less than it is."""
    return f"{float(Context(prec=3, rounding=ROUND_CEILING).create_decimal(repr(number))):g}"


def check_statement(statement: Statement, schema: Schema, record: NoisyRecord | None) -> None:
    """A VeilError unless a statement in a veil file is consistent with itself and with the file.

    All is public arithmetic. It finds statements that contradict themselves; it cannot find out
    whether the noise was really added: that is what a signer vouches for.

    - Level: `none` or `explainer`. `end-to-end` and `composed` are levels of answers. `explainer`
      needs a mechanism with a proof, an ε, and a schema that is not a draft.
    - Unit: a record belongs to itself, so `max_records` is 1 for records; the noisy record has the
      unit of the statement.
    - Record: mechanism `functional` has a noisy record, whose readings are those of the statement;
      the others have none.
    - Sums, for mechanisms with a proof: the accesses' ε add up to the statement's, and their δ to
      at most its δ, in exact fractions. (Laplace noise leaves its share of δ unspent.)
    - Noise: every reading with discrete noise has a scale that gives its ε and δ for the
      sensitivity that it states.
    - Sensitivity: what a noisy record states is at least what follows from the schema, the settings
      in the record and `max_records`. How far images were cut is not in a file; of them only the
      counts are checked.
    """
    _check_level(statement, schema)
    if statement.unit == "record" and statement.max_records != 1:
        raise VeilError("its statement contradicts itself: a record has one record")
    if (record is not None) != (statement.mechanism == "functional"):
        raise VeilError("mechanism functional has a noisy record, and no other mechanism has one")
    if record is not None:
        if record.unit != statement.unit:
            raise VeilError("its noisy record protects another unit than its statement")
        if record.accesses != statement.accesses:
            raise VeilError("its noisy record is not the one its statement tells of")
        _check_sensitivities(statement, schema, record)
    if statement.mechanism in WITH_A_PROOF:
        _check_sums(statement)
        for access in statement.accesses:
            _check_noise(access)


def _check_level(statement: Statement, schema: Schema) -> None:
    if statement.level not in {Level.NONE, Level.EXPLAINER}:
        raise VeilError(f"its statement claims {statement.level.value}, a level of answers alone")
    if statement.mechanism not in (*WITH_A_PROOF, "paper"):
        raise VeilError("its statement names a mechanism that there is not")
    if statement.level is Level.EXPLAINER:
        if statement.mechanism not in WITH_A_PROOF or statement.epsilon is None:
            raise VeilError("its statement makes a promise that its mechanism cannot keep")
        if TARGET_MODEL not in statement.exclusions:
            raise VeilError("its statement does not say that the target model is not covered")
        if schema.drafted:
            raise VeilError("its statement makes a promise, but its schema is a draft")
    if statement.mechanism == "dpsgd" and (
        statement.unit != "record"
        or not statement.delta
        or len(statement.accesses) != 3
        or any(access.scale is None for access in statement.accesses)
    ):
        raise VeilError("its statement is none of mechanism dpsgd: records, δ, three readings")


def _check_sums(statement: Statement) -> None:
    epsilons = [access.epsilon for access in statement.accesses]
    deltas = [access.delta for access in statement.accesses]
    if statement.epsilon is None or None in epsilons:
        raise VeilError("its statement does not say what each reading of the rows spends")
    spent = sum(Fraction(each) for each in epsilons if each is not None)
    if not (1 - SLACK) * Fraction(statement.epsilon) <= spent <= _as_written(statement.epsilon):
        raise VeilError("the readings in its statement do not add up to its epsilon")
    if sum(map(Fraction, deltas)) > _as_written(statement.delta):
        raise VeilError("the readings in its statement spend more than its delta")


def _as_written(number: float) -> Fraction:
    """A budget as the decimal that it is written as, or as the float nearest to it, if larger."""
    return max(Fraction(number), Fraction(repr(number)))


def _check_noise(access: Access) -> None:
    """Whether the scale gives ε and δ; of other mechanisms there is nothing to compute with."""
    if access.mechanism not in {LAPLACE, GAUSSIAN, CHOICE}:
        return
    l1, scale, epsilon = access.l1, access.scale, access.epsilon
    if l1 is None or access.l2 is None or scale is None or epsilon is None:
        raise VeilError("its statement does not say how much noise a reading got")
    if access.mechanism == GAUSSIAN:
        enough = gaussian_delta(access.rho or 0.0, epsilon) <= access.delta * (1 + 1e-9)
    elif access.mechanism == LAPLACE:
        enough = Fraction(scale) * Fraction(epsilon) >= l1
    else:  # each choice has its share of ε: at least this for a single one
        enough = Fraction(scale) * Fraction(epsilon) >= 2 * l1 * (1 - SLACK)
    if not enough:
        raise VeilError("the noise in its statement is too small for the epsilon it claims")


def gaussian_delta(rho: float, epsilon: float) -> float:
    """A δ for which a ρ-zCDP mechanism is (ε, δ)-DP.

    The least over α > 1 of exp((α−1)(αρ−ε))/(α−1)·(1−1/α)^α (Canonne, Kamath and Steinke 2020,
    Corollary 13). Its logarithm is convex in α; where it is least its derivative
    (2α−1)ρ − ε + ln(1−1/α) is 0. Every α gives a valid δ.
    """
    if rho <= 0:
        return 0.0
    low, high = 0.0, min(1e100, max(1.0, (epsilon + 1) / rho))  # of α − 1; the slope changes sign
    for _ in range(200):
        middle = (low + high) / 2
        slope = (2 * middle + 1) * rho - epsilon + math.log(middle) - math.log1p(middle)
        low, high = (middle, high) if slope < 0 else (low, middle)
    order, alpha = high, high + 1
    log_delta = order * (alpha * rho - epsilon) - math.log(order)
    log_delta += alpha * (math.log(order) - math.log1p(order))
    return math.exp(min(0.0, log_delta))


def _check_sensitivities(statement: Statement, schema: Schema, record: NoisyRecord) -> None:
    features, records, ones = len(schema.features), statement.max_records, max(1, record.ones)
    least: Iterable[tuple[int, int]]  # L1 and squared L2 of each measurement, for one record
    if record.family == "mixed":
        pairs = features - 1
        least = ((2 * features, 2 * features), (2, 4), (2 * pairs, 2 * pairs))
        for found in record.measurements:
            each = Fraction(found.scale) * Fraction(found.epsilon)
            if found.mechanism == CHOICE and each < 2 * found.sensitivity.l1 * pairs * (1 - SLACK):
                raise VeilError("the noise in its statement is too small for the epsilon it claims")
    elif record.family == "binary":
        least = ((2 * ones, 4 * ones), (2 * (ones + 1), 4 * (ones + 1)))
    else:
        least = ((2 * record.fixed_point, 4 * record.fixed_point**2),)
    for found, (l1, l2_squared) in zip(record.measurements, least, strict=False):
        stated = found.sensitivity
        if stated.l1 < l1 * records or Fraction(stated.l2) ** 2 < l2_squared * records**2:
            raise VeilError("its noisy record states a smaller sensitivity than its sums have")
