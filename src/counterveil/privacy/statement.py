"""The Statement: what exactly is promised, inside every Veil.

A statement is data, not prose: who is protected, against which change, by how much, and every time
the private rows were read. `text()` puts it into words for a person.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from counterveil.errors import BudgetError, RequestError
from counterveil.pages import notebook_table
from counterveil.privacy.budget import Budget, ModelBudget, Unit, sum_above
from counterveil.privacy.recipe import Recipe
from counterveil.text_rules import LONGEST, check_text

if TYPE_CHECKING:
    from counterveil.schema import Schema

Mechanism = Literal["discrete Laplace", "discrete Gaussian"]
LAPLACE: Mechanism = "discrete Laplace"
GAUSSIAN: Mechanism = "discrete Gaussian"
TARGET_MODEL = "the target model and everything it reveals"  # what a veil does not cover
MOST_ITEMS = 100  # of each list of a statement


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
                "answers are private in the training rows, however many are asked for: nothing but "
                "the veil is consulted, and no model that saw the rows themselves"
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

    `l1`, `l2`: the sensitivity as numbers, where the mechanism is one of `Mechanism`. `scale`: of
    the noise; None where there is none. What it spends is (ε, δ) or, in zero-concentrated DP, ρ;
    ρ is written only where it is stated.
    """

    what: Text
    mechanism: Text
    sensitivity: Text
    l1: int | None = Field(default=None, ge=1)
    l2: float | None = Field(default=None, gt=0)
    scale: float | None = Field(default=None, gt=0)
    epsilon: float | None = Field(default=None, gt=0)
    delta: float = Field(default=0.0, ge=0, lt=1)
    rho: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _spends_one_or_the_other(self) -> Access:
        if self.rho is not None and (self.epsilon is not None or self.delta):
            raise ValueError("a reading spends (ε, δ) or ρ, not both")
        return self

    @model_serializer(mode="wrap")
    def _without_an_empty_rho(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        if self.rho is None:
            del written["rho"]
        return written

    @property
    def noise(self) -> str:
        """The scale of the noise, in words."""
        return f"scale {self.scale:g}" if self.scale is not None else "no noise"

    @property
    def spent(self) -> str:
        """What it spends, in words; nothing where nothing is stated."""
        parts = [] if self.epsilon is None else [f"ε {self.epsilon:g}"]
        parts += [f"δ {self.delta:g}"] if self.delta else []
        parts += [] if self.rho is None else [f"ρ {self.rho:.3g}"]
        return ", ".join(parts)

    @property
    def concentrated(self) -> float | None:
        """A ρ for which the reading is ρ-zCDP: the stated one, or Δ₂²/(2σ²) of a Gaussian."""
        if self.rho is not None:
            return self.rho
        if self.mechanism != GAUSSIAN or self.l2 is None or self.scale is None:
            return None
        ratio = self.l2 / self.scale
        return ratio * ratio / 2


def access_to_bounds(schema: Schema) -> tuple[Access, ...]:
    """The reading of the rows that bounds in the schema come from, if they were measured."""
    paid = schema.measured
    if paid is None:
        return ()
    spent = Budget(paid.epsilon, paid.delta).rounded_down()
    about: dict[str, Any] = {
        "what": "bounds of numbers in the schema",
        "mechanism": "counts on a public ladder with exact discrete noise, charged by themselves",
        "sensitivity": "as certified when they were measured",
    }
    return (Access(**about, epsilon=spent.epsilon, delta=spent.delta),)


class Statement(_Frozen):
    """What is guaranteed about the rows behind a Veil, and what is not.

    - `level`: how much of an answer the ε covers.
    - `mechanism`: how the veil was made: "functional", "dpsgd" or "paper".
    - `epsilon`, `delta`: the budget; ε is None where no noise was added.
    - `unit`, `max_records`: who is protected, one "record" or one "person" with at most so many.
    - `relation`: which tables are compared: in one of them one unit is replaced.
    - `accesses`: every reading of the private rows, with its noise and what it spent.
    - `plan`: why these readings were chosen, from public numbers alone.
    - `public_inputs`, `exclusions`: what was public from the start; what is not covered.
    - `reasons`: where nothing is guaranteed, why not.
    - `versions`: the programs that made the veil; `recipe`: how its networks were trained on P~.
    """

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
    recipe: Recipe | None = None

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

        1. L is the sum over the steps. A step of pure ε-DP adds at most its ε. For a step that is
           ρ-zCDP, E exp(s·L) ≤ exp(sρ + s²ρ) for s > 0, whatever was seen before: that is the
           definition at the order α = 1 + s. Over several steps the ρ add up. A discrete Gaussian
           of scale σ whose sums move by at most Δ₂ is ρ-zCDP with ρ = Δ₂²/(2σ²) (Canonne, Kamath
           and Steinke 2020), whether it states this or an ε and δ. Markov's inequality at the best
           s gives P(L > E + ρ + t) ≤ exp(−t²/(4ρ)), E the sum of the ε of the pure steps.
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
        """Σε of the pure steps and Σρ of the concentrated ones; None if others are or may be."""
        pure, rho = Fraction(0), 0.0
        for access in self.accesses:
            if access.concentrated is not None:
                rho += access.concentrated
            elif access.delta == 0 and access.epsilon is not None:
                pure += Fraction(access.epsilon)
            else:
                return None
        return (float(pure), rho) if self.accesses else None

    @property
    def composition(self) -> str:
        """How the ρ of the readings give ε and δ, in a sentence; nothing where none is stated."""
        parts = [access.rho for access in self.accesses if access.rho is not None]
        if not parts:
            return ""
        return (
            f"The ρ of these readings add up to {_rounded_up(sum_above(*parts))}. A mechanism of "
            "this ρ (zero-concentrated differential privacy) has the ε and δ that they spend."
        )

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

    @property
    def protected(self) -> str:
        """Whom the promise protects."""
        if self.unit == "record":
            return "one record"
        return f"one person with all of their records (at most {self.max_records} are used)"

    def _repr_html_(self) -> str:
        """What a notebook shows: the promise, and every reading of the private rows."""
        is_none = self.level is Level.NONE
        return notebook_table(
            f"Privacy statement: {self.headline}",
            [
                ("guarantee", f"{self.level.value}: {self.level.meaning}"),
                ("protects", "" if is_none else f"{self.protected}; relation {self.relation}"),
                ("promise", " ".join(self.promise)),
                ("why", " ".join(f"{number}. {why}" for number, why in enumerate(self.reasons, 1))),
                ("not covered", "; ".join(self.exclusions)),
                ("more", ".text()"),
            ],
            headings=("reading of the private rows", "mechanism", "noise", "spends"),
            rows=[(each.what, each.mechanism, each.noise, each.spent) for each in self.accesses],
            warning="Nothing is guaranteed." if is_none else "",
        )

    def text(self) -> str:
        """The statement in words."""
        lines = [self.headline, self.level.meaning + ".", ""]
        if self.level is not Level.NONE:
            lines += [
                f"Protected unit: {self.protected}. Relation: {self.relation}, the number of units "
                "is public.",
                *self.promise,
                "",
            ]
        if self.reasons:
            lines += ["Why:", *(f"  {i}. {why}" for i, why in enumerate(self.reasons, 1)), ""]
        lines.append("Readings of the private rows:")
        lines += [f"  - {_access_line(access)}" for access in self.accesses]
        lines += [f"  {self.composition}"] if self.composition else []
        for title, items in (
            ("Plan, from public numbers alone", self.plan),
            ("Public inputs", self.public_inputs),
            ("Not covered", self.exclusions),
        ):
            if items:
                lines += ["", f"{title}:", *(f"  - {item}" for item in items)]
        if self.recipe is not None:
            lines += ["", f"Networks: {self.recipe.text}."]
        if self.versions:
            names = ", ".join(f"{name} {version}" for name, version in self.versions.items())
            lines += ["", f"Made with {names}."]
        return "\n".join(lines)


def _access_line(access: Access) -> str:
    line = f"{access.what}: {access.mechanism}, {access.noise}; sensitivity {access.sensitivity}"
    return f"{line}, {access.spent}" if access.spent else line


def _rounded_up(number: float) -> str:
    """With three digits, never less than it is."""
    return f"{float(Context(prec=3, rounding=ROUND_CEILING).create_decimal(repr(number))):g}"
