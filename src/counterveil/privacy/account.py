"""The values of a ledger: amounts that add up exactly, accounts, entries, reservations."""

from __future__ import annotations

import math
import sqlite3
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact
from typing import Literal

from counterveil.errors import BudgetError
from counterveil.privacy.budget import Budget

# Sums of floats in decimal have fewer than 700 digits, so nothing is ever rounded here; if it were,
# the trap would stop the charge.
_EXACT = Context(prec=2000, traps=[Inexact])


@dataclass(frozen=True)
class Amount:
    """ε and δ as exact decimals: ten times 0.1 is 1.

    A float counts as the decimal number it is written as: `0.1` is one tenth.
    """

    epsilon: Decimal = Decimal(0)
    delta: Decimal = Decimal(0)

    @classmethod
    def of(cls, budget: Budget) -> Amount:
        """The price of `budget`; a release without noise has none."""
        if not math.isfinite(budget.epsilon):
            raise BudgetError(
                "a ledger cannot account for an infinite epsilon; give a finite one, "
                "or make the reference without a ledger"
            )
        return cls(exact_decimal(budget.epsilon), exact_decimal(getattr(budget, "delta", 0.0)))

    def __add__(self, other: Amount) -> Amount:
        return Amount(_EXACT.add(self.epsilon, other.epsilon), _EXACT.add(self.delta, other.delta))

    def __sub__(self, other: Amount) -> Amount:
        return Amount(
            _EXACT.subtract(self.epsilon, other.epsilon), _EXACT.subtract(self.delta, other.delta)
        )

    def fits(self, limit: Amount) -> bool:
        """Whether `limit` can pay this, in ε and in δ."""
        return self.epsilon <= limit.epsilon and self.delta <= limit.delta

    def __str__(self) -> str:
        return f"ε = {digits(self.epsilon)}, δ = {digits(self.delta)}"


@dataclass(frozen=True)
class Account:
    """What a dataset may spend in all, and what it has spent."""

    dataset: str
    total: Amount
    spent: Amount
    opened: str

    @property
    def remaining(self) -> Amount:
        return self.total - self.spent


@dataclass(frozen=True)
class Entry:
    """One charge. `reserved` is spent just as `released` is: the rows may have been read."""

    id: str
    dataset: str
    epsilon: float
    delta: float
    what: str
    state: Literal["reserved", "released"]
    digest: str | None
    time: str

    @property
    def price(self) -> Amount:
        return Amount(exact_decimal(self.epsilon), exact_decimal(self.delta))


@dataclass(frozen=True)
class Reservation:
    """The right to one release, already paid for."""

    id: str
    dataset: str
    budget: Budget


def exact_decimal(number: float | str) -> Decimal:
    """The decimal that a float, or its text in the file, is written as."""
    try:
        value = float(number)
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise sqlite3.DatabaseError("it is damaged: an amount is not a number")
    return Decimal(repr(value))


def digits(number: Decimal) -> str:
    """All the digits, in plain notation where that is short."""
    shortest = number.normalize(_EXACT)
    return f"{shortest:f}" if -5 <= shortest.adjusted() < 16 else f"{shortest:e}"
