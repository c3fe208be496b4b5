"""What a ledger speaks of: amounts, whose privacy is paid for, accounts and their entries."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact
from typing import Literal

from counterveil.errors import BudgetError, RequestError
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
        return cls(exact_decimal(budget.epsilon), exact_decimal(budget.delta))

    def __add__(self, other: Amount) -> Amount:
        return Amount(_EXACT.add(self.epsilon, other.epsilon), _EXACT.add(self.delta, other.delta))

    def __sub__(self, other: Amount) -> Amount:
        minus = _EXACT.subtract
        return Amount(minus(self.epsilon, other.epsilon), minus(self.delta, other.delta))

    def fits(self, limit: Amount) -> bool:
        """Whether `limit` can pay this, in ε and in δ."""
        return self.epsilon <= limit.epsilon and self.delta <= limit.delta

    def __str__(self) -> str:
        return f"ε = {digits(self.epsilon)}, δ = {digits(self.delta)}"


@dataclass(frozen=True)
class Subject:
    """Whose privacy a charge pays for, and in which rows."""

    unit: Literal["record", "person"]
    max_records: int  # of a person that count; 1 for records
    units: int  # how many records or people there are: public
    columns: str  # SHA-256 (hex) of the sorted names of the schema's columns and its label
    relation: str = "replace-one"

    def __post_init__(self) -> None:
        if self.unit not in {"record", "person"}:
            raise RequestError("unit must be 'record' or 'person'")
        for name in ("max_records", "units"):
            number = getattr(self, name)
            if type(number) is not int or not 1 <= number < 1 << 63:
                raise RequestError(f"{name} must be a whole number of at least 1")
        if self.unit == "record" and self.max_records != 1:
            raise RequestError("max_records must be 1 where the unit is a record")
        if not isinstance(self.columns, str) or not re.fullmatch("[0-9a-f]{64}", self.columns):
            raise RequestError("columns must be a SHA-256 in hexadecimal digits")
        check_words("relation", self.relation)

    @property
    def protects(self) -> str:
        """The unit in words."""
        if self.unit == "record":
            return f"one record, {self.relation}"
        records = "record" if self.max_records == 1 else "records"
        return f"one person with at most {self.max_records} {records}, {self.relation}"


@dataclass(frozen=True)
class Account:
    """What a dataset may spend in all, what it has spent, and for whom.

    `subject` is that of the first charge that has one: its unit, records and relation hold for all
    later charges. `looks` is the number of exact looks at the rows, which no ε covers.
    """

    dataset: str
    total: Amount
    spent: Amount
    opened: str
    subject: Subject | None = None
    looks: int = 0

    @property
    def remaining(self) -> Amount:
        return self.total - self.spent


@dataclass(frozen=True)
class Entry:
    """A charge, or an exact look at the rows by the curator, which no ε covers.

    A charge that is `reserved` is spent just as a `released` one: the rows may have been read. The
    fields of its `Subject` are None where it is not known: looks, and charges of version 1.
    `other_rows`: it was declared that these are other people than in an account with rows alike.
    """

    id: str
    dataset: str
    kind: Literal["charge", "looked"]
    epsilon: float
    delta: float
    what: str
    state: Literal["reserved", "released", "looked"]
    digest: str | None
    time: str
    unit: Literal["record", "person"] | None = None
    max_records: int | None = None
    units: int | None = None
    columns: str | None = None
    relation: str | None = None
    other_rows: bool = False

    @property
    def price(self) -> Amount:
        return Amount(exact_decimal(self.epsilon), exact_decimal(self.delta))

    @property
    def subject(self) -> Subject | None:
        """Whose privacy it pays for, where that is known."""
        if not (self.unit and self.max_records and self.units and self.columns and self.relation):
            return None
        return Subject(self.unit, self.max_records, self.units, self.columns, self.relation)


@dataclass(frozen=True)
class Reservation:
    """The right to one release, already paid for."""

    id: str
    dataset: str
    budget: Budget


def exact_decimal(number: float) -> Decimal:
    """The decimal that a float is written as."""
    return Decimal(repr(number))


def digits(number: Decimal) -> str:
    """All the digits, in plain notation where that is short."""
    shortest = number.normalize(_EXACT)
    return f"{shortest:f}" if -5 <= shortest.adjusted() < 16 else f"{shortest:e}"


class OverdrawnError(BudgetError):
    """A charge that the account cannot pay; names requested, remaining and total."""


def check_words(name: str, words: str) -> None:
    """Refuse `words` that are not one line of text."""
    if not isinstance(words, str) or not words.strip() or not words.isprintable():
        raise RequestError(f"{name} must be one line of text that is not empty")
