"""The Budget of a release, and the Statement: what exactly is promised, inside every Veil.

A statement is data, not prose: who is protected, against which change, by how much, and every time
the private rows were read. `text()` puts it into words for a person.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from counterveil.errors import BudgetError, RequestError


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


class Access(_Frozen):
    """One reading of the private rows, in words; a `Measurement` gives its own (`access`)."""

    what: str
    mechanism: str
    sensitivity: str
    scale: float | None = None
    epsilon: float | None = None
    delta: float = 0.0


class Statement(_Frozen):
    """What is guaranteed about the rows behind a Veil, and what is not."""

    level: Level
    mechanism: str
    epsilon: float | None = Field(gt=0)
    delta: float = Field(default=0.0, ge=0, lt=1)
    unit: Literal["record", "person"] = "record"
    max_records: int = Field(default=1, ge=1)
    relation: Literal["replace-one"] = "replace-one"
    accesses: tuple[Access, ...] = ()
    plan: tuple[str, ...] = ()
    public_inputs: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    exclusions: tuple[str, ...] = ()
    versions: dict[str, str] = {}

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

    def composed_with(self, model: Budget) -> Statement:
        """The statement of answers that also consulted a model trained under `model`."""
        if self.level is Level.NONE or self.epsilon is None:
            return self
        if not model.adds_noise:
            raise RequestError("the model's budget must be finite; leave it out if it has none")
        access = Access(
            what="training of the target model",
            mechanism="declared by whoever trained it; not checked here",
            sensitivity="declared",
            epsilon=model.epsilon,
            delta=model.delta,
        )
        kept = tuple(what for what in self.exclusions if "target model" not in what)
        composed = {
            "level": Level.COMPOSED,
            "epsilon": self.epsilon + model.epsilon,
            "delta": self.delta + model.delta,
            "accesses": (*self.accesses, access),
            "exclusions": (*kept, "whether the target model's declared budget is true"),
        }
        return self.model_copy(update=composed)

    def text(self) -> str:
        """The statement in words."""
        lines = [self.headline, self.level.meaning + ".", ""]
        if self.level is not Level.NONE:
            who = "one record"
            if self.unit == "person":
                who = f"one person with all of their records (at most {self.max_records} are used)"
            lines += [
                f"Protected unit: {who}. Relation: {self.relation}, the number of units is public.",
                "Whatever anybody learns from the veil, the odds between any two versions of one",
                f"unit move by a factor of at most exp({self.epsilon:g})"
                + (f", except with probability {self.delta:g}." if self.delta else "."),
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
