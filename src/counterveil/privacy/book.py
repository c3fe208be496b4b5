"""What a ledger holds: amounts, whose privacy is paid for, accounts and entries; and its cells.

No cell of a file is believed before all of them were checked: SQLite's own checks, the layout of
the tables, the types of cells, a SHA-256 of all of them, and what they mean.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sqlite3
from contextlib import closing
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from decimal import Context, Decimal, Inexact
from typing import Any, Literal

from counterveil.errors import BudgetError, InputError, RequestError
from counterveil.privacy.budget import Budget, Unit

APPLICATION_ID = 0x43566C67  # "CVlg"
VERSION = 2
BY = " by "  # in the cell of the unit: "person by patient"


def _text(name: str) -> str:
    return f"{name} TEXT NOT NULL CHECK (typeof({name}) = 'text')"


def _whole(name: str) -> str:
    return f"{name} INTEGER NOT NULL CHECK (typeof({name}) = 'integer' AND {name} >= 0)"


# No cell is ever NULL: what is not known is '' or 0. The checks do what STRICT tables do, also in
# an SQLite that does not know those.
TABLES = {
    1: (
        "CREATE TABLE accounts (dataset TEXT NOT NULL PRIMARY KEY,"
        " epsilon TEXT NOT NULL, delta TEXT NOT NULL, opened TEXT NOT NULL)",
        "CREATE TABLE spends (id TEXT NOT NULL PRIMARY KEY,"
        " dataset TEXT NOT NULL REFERENCES accounts (dataset), epsilon TEXT NOT NULL,"
        " delta TEXT NOT NULL, what TEXT NOT NULL, time TEXT NOT NULL, digest TEXT)",
        "CREATE INDEX spends_of_dataset ON spends (dataset)",
    ),
    2: (
        f"CREATE TABLE accounts ({_text('dataset')} PRIMARY KEY,"
        f" {_text('epsilon')}, {_text('delta')}, {_text('opened')})",
        f"CREATE TABLE entries (number INTEGER PRIMARY KEY, {_text('id')} UNIQUE,"
        f" {_text('dataset')} REFERENCES accounts (dataset), {_text('kind')},"
        f" {_text('epsilon')}, {_text('delta')}, {_text('what')}, {_text('time')},"
        f" {_text('digest')}, {_text('unit')}, {_whole('max_records')}, {_whole('units')},"
        f" {_text('columns')}, {_text('relation')}, {_whole('other_rows')})",
        f"CREATE TABLE seal ({_text('sha256')})",
    ),
}
_ENTRIES = {
    1: "SELECT row_number() OVER (ORDER BY rowid), id, dataset, 'charge', epsilon, delta, what,"
    " time, ifnull(digest, ''), '', 0, 0, '', '', 0 FROM spends ORDER BY rowid",
    2: "SELECT * FROM entries ORDER BY number",
}
_ACCOUNT_TYPES = (str,) * 4
_ENTRY_TYPES = (int, *(str,) * 9, int, int, str, str, int)

Rows = list[tuple[Any, ...]]

# Sums of floats in decimal have fewer than 700 digits, so nothing is ever rounded here; if it were,
# the trap would stop the charge.
_EXACT = Context(prec=2000, traps=[Inexact])


@dataclass(frozen=True)
class Amount:
    """ε and δ as exact decimals; a float counts as the decimal that it is written as."""

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
        return self.epsilon <= limit.epsilon and self.delta <= limit.delta

    def __str__(self) -> str:
        return f"ε = {digits(self.epsilon)}, δ = {digits(self.delta)}"


@dataclass(frozen=True)
class Subject:
    """Whose privacy a charge pays for, and in which rows."""

    unit: Unit
    max_records: int  # of a person that count; 1 for records
    units: int  # how many records or people there are: public
    columns: str  # SHA-256 (hex) of the sorted names of the schema's columns and its label
    relation: str = "replace-one"
    unit_column: str = ""  # that names the person; "" for records, and where it is not known

    def __post_init__(self) -> None:
        if self.unit not in {"record", "person"}:
            raise RequestError("unit must be 'record' or 'person'")
        for name in ("max_records", "units"):
            number = getattr(self, name)
            if type(number) is not int or not 1 <= number < 1 << 63:
                raise RequestError(f"{name} must be a whole number of at least 1")
        if self.unit_column:
            check_words("unit_column", self.unit_column)
        if self.unit == "record" and self.unit_column:
            raise RequestError("unit_column must be empty where the unit is a record")
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
        person = f"one person by {self.unit_column!r}" if self.unit_column else "one person"
        return f"{person} with at most {self.max_records} {records}, {self.relation}"

    def adds_up_with(self, other: Subject) -> bool:
        """Whether they protect the same unit; old charges do not name the person's column."""
        if not (self.unit_column and other.unit_column):
            return replace(self, unit_column="").protects == replace(other, unit_column="").protects
        return self.protects == other.protects


@dataclass(frozen=True)
class Account:
    """What a dataset may spend in all, what it has spent, and for whom.

    `subject` is that of the first charge that has one, with the column that names the person where
    a charge tells it: its unit, records and relation hold for all later charges. `looks` is the
    number of exact looks at the rows, which no ε covers.
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

    @property
    def amounts(self) -> dict[str, dict[str, float]]:
        """Total, spent and remaining ε and δ, for JSON."""
        named = {"total": self.total, "spent": self.spent, "remaining": self.remaining}
        return {
            name: {"epsilon": float(amount.epsilon), "delta": float(amount.delta)}
            for name, amount in named.items()
        }


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
    unit: Unit | None = None
    max_records: int | None = None
    units: int | None = None
    columns: str | None = None
    relation: str | None = None
    other_rows: bool = False
    unit_column: str = ""

    @property
    def price(self) -> Amount:
        return Amount(exact_decimal(self.epsilon), exact_decimal(self.delta))

    @property
    def subject(self) -> Subject | None:
        """Whose privacy it pays for, where that is known."""
        if not (self.unit and self.max_records and self.units and self.columns and self.relation):
            return None
        whose = self.unit, self.max_records, self.units, self.columns, self.relation
        return Subject(*whose, self.unit_column)


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


@dataclass(frozen=True)
class Book:
    """The content of an open ledger, checked, and the file to add to it."""

    file: sqlite3.Connection
    accounts: dict[str, Account]
    entries: tuple[Entry, ...]

    def add(self, *cells: str, subject: Subject | None = None, other_rows: bool = False) -> None:
        """Write a new entry: `cells` are its id, dataset, kind, ε, δ and what it is for."""
        whose: tuple[Any, ...] = ("", 0, 0, "", "")
        if subject is not None:
            unit, *more, column = astuple(subject)
            whose = unit + (BY + column if column else ""), *more
        row = len(self.entries) + 1, *cells, now(), "", *whose, int(other_rows)
        insert(self.file, "entries", row)


def checked_cells(file: sqlite3.Connection, version: int) -> tuple[Rows, Rows]:
    """The cells of all accounts and entries; DatabaseError if the file is not as it was written."""
    try:
        whole = file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        whole = whole and not file.execute("PRAGMA foreign_key_check").fetchall()
        whole = whole and _layout(file) == _usual_layout(version)
        accounts, entries = cells = cells_of(file, version)
        if version > 1:
            seal = seal_of(accounts, entries)
            whole = whole and file.execute("SELECT * FROM seal").fetchall() == [(seal,)]
        for rows, types in ((accounts, _ACCOUNT_TYPES), (entries, _ENTRY_TYPES)):
            whole = whole and all(tuple(map(type, row)) == types for row in rows)
    except (ValueError, TypeError, OverflowError, MemoryError):
        whole = False
    if not whole:
        raise sqlite3.DatabaseError("damaged")
    return cells


def cells_of(file: sqlite3.Connection, version: int) -> tuple[Rows, Rows]:
    """The cells of all accounts and entries, as they are in a ledger of VERSION."""
    accounts = file.execute("SELECT * FROM accounts ORDER BY dataset").fetchall()
    return accounts, file.execute(_ENTRIES[version]).fetchall()


def _layout(file: sqlite3.Connection) -> Rows:
    return file.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY 2").fetchall()


def _usual_layout(version: int) -> Rows:
    with closing(sqlite3.connect(":memory:")) as file:
        for statement in TABLES[version]:
            file.execute(statement)
        return _layout(file)


def seal_of(accounts: Rows, entries: Rows) -> str:
    """SHA-256 of all cells."""
    return hashlib.sha256(json.dumps([accounts, entries]).encode()).hexdigest()


def fill(file: sqlite3.Connection, accounts: Rows, entries: Rows) -> None:
    """Make the tables of VERSION, with these rows."""
    file.execute(f"PRAGMA user_version = {VERSION}")
    for statement in TABLES[VERSION]:
        file.execute(statement)
    for table, rows in (("accounts", accounts), ("entries", entries)):
        for row in rows:
            insert(file, table, row)
    insert(file, "seal", (seal_of(accounts, entries),))


def insert(file: sqlite3.Connection, table: str, row: tuple[Any, ...]) -> None:
    file.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)


def understand(file: sqlite3.Connection, accounts: Rows, entries: Rows) -> Book:
    """What the cells mean; DatabaseError if they mean nothing."""
    try:
        book = Book(
            file,
            {name: Account(name, _amount(*both), Amount(), time) for name, *both, time in accounts},
            tuple(_entry(number, row) for number, row in enumerate(entries, 1)),
        )
        for entry in book.entries:
            account = book.accounts[entry.dataset]
            spent, looks = account.spent + entry.price, account.looks + (entry.kind == "looked")
            subject = _better_known(account.subject, entry.subject)
            changed = replace(account, spent=spent, subject=subject, looks=looks)
            book.accounts[entry.dataset] = changed
    except (ValueError, LookupError, InputError):
        raise sqlite3.DatabaseError("damaged") from None
    return book


def _entry(place: int, row: tuple[Any, ...]) -> Entry:
    number, id_, dataset, kind, epsilon, delta, what, time, digest, *whose, other_rows = row
    if number != place or kind not in {"charge", "looked"}:
        raise ValueError("not an entry")
    price = _amount(epsilon, delta)
    amounts = float(price.epsilon), float(price.delta)
    state: Any = kind if kind == "looked" else "released" if digest else "reserved"
    unit, by, column = whose[0].partition(BY)
    known: list[Any] = [cell or None for cell in (unit, *whose[1:])]
    entry = Entry(id_, dataset, kind, *amounts, what, state, digest or None, time, *known)
    entry = replace(entry, other_rows=bool(other_rows), unit_column=column)
    if (any(whose) and entry.subject is None) or bool(by) != bool(column):
        raise ValueError("not a subject")
    return entry


def _better_known(one: Subject | None, two: Subject | None) -> Subject | None:
    """The first of two subjects, or the second where it tells what the first does not."""
    if one is None or (two is not None and two.unit_column and not one.unit_column):
        return two or one
    return one


def _amount(epsilon: str, delta: str) -> Amount:
    """The amount that is written so in a file, and in no other way."""
    amount = Amount(exact_decimal(float(epsilon)), exact_decimal(float(delta)))
    good = (str(amount.epsilon), str(amount.delta)) == (epsilon, delta)
    if not (good and amount.epsilon.is_finite() and amount.delta.is_finite()):
        raise ValueError("not an amount")
    if amount.epsilon < 0 or amount.delta < 0:
        raise ValueError("a refund")
    return amount


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
