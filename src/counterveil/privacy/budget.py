"""Budgets: ε and δ of a release, the shares of its steps, and those of a target model."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Literal

from counterveil.errors import BudgetError, RequestError

Unit = Literal["record", "person"]
Relation = Literal["replace-one", "add-remove"]


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
        numbers = self.epsilon, self.delta
        return Budget(*(float_below(Fraction(repr(x))) if math.isfinite(x) else x for x in numbers))

    def __str__(self) -> str:
        if not self.adds_noise:
            return "no noise"
        return f"ε = {self.epsilon:g}" + (f", δ = {self.delta:g}" if self.delta else "")


@dataclass(frozen=True)
class Rho:
    """ρ of zero-concentrated differential privacy (zCDP; Bun and Steinke 2016), checked.

    A mechanism is ρ-zCDP if for all neighbours and all orders α > 1 the Rényi divergence of its
    outputs is at most α·ρ. The ρ of steps that may look at the outputs of earlier ones add up, and
    ρ-zCDP is (ε, δ)-DP for every δ > 0 and an ε that follows.

    >>> Rho(0.01)
    Rho(rho=0.01)
    """

    rho: float

    def __post_init__(self) -> None:
        if not _is_number(self.rho) or not 0 < self.rho < math.inf:
            raise BudgetError("rho must be a finite number above 0")
        object.__setattr__(self, "rho", float(self.rho))

    def __str__(self) -> str:
        return f"ρ = {self.rho:g}"


Share = Budget | Rho  # what a step spends


def amount_of(share: Share) -> float:
    """The number that adds up over steps: ρ, or the ε of a budget without δ."""
    if isinstance(share, Rho):
        return share.rho
    if share.delta:
        raise BudgetError("only budgets without a delta are shared out by their epsilon")
    return share.epsilon


def with_amount(share: Share, amount: float) -> Share:
    return Rho(amount) if isinstance(share, Rho) else Budget(amount)


def rest_of(total: float, *parts: float) -> float:
    """What is left of `total`, rounded down: in exact arithmetic all add up to at most `total`."""
    share = float_below(Fraction(total) - sum(map(Fraction, parts)))
    if share <= 0:
        raise BudgetError(f"a budget of {total:g} is too small to be shared out")
    return share


def float_below(exact: Fraction) -> float:
    """The largest float that is at most `exact`."""
    near = float(exact)
    return near if Fraction(near) <= exact else math.nextafter(near, -math.inf)


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


def plus(one: float, two: float) -> float:
    """The sum of two numbers as the decimals that they are written as: 0.1 and 0.2 are 0.3."""
    return float(Decimal(repr(one)) + Decimal(repr(two)))


def less(total: float, part: float) -> float:
    """The same for a difference."""
    return float(Decimal(repr(total)) - Decimal(repr(part)))


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
