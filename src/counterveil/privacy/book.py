"""The cells of a ledger file: how they are laid out, sealed, checked and understood.

No cell is believed before all of them were checked: SQLite's own checks, the layout of the tables,
the types of cells, a SHA-256 of all of them, and what they mean.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from counterveil.errors import InputError
from counterveil.privacy.accounts import Account, Amount, Entry, Subject, exact_decimal

APPLICATION_ID = 0x43566C67  # "CVlg"
VERSION = 2


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


@dataclass(frozen=True)
class Book:
    """The content of an open ledger, checked, and the file to add to it."""

    file: sqlite3.Connection
    accounts: dict[str, Account]
    entries: tuple[Entry, ...]

    def add(self, *cells: str, subject: Subject | None = None, other_rows: bool = False) -> None:
        """Write a new entry: `cells` are its id, dataset, kind, ε, δ and what it is for."""
        whose = ("", 0, 0, "", "") if subject is None else astuple(subject)
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
            book.accounts[entry.dataset] = replace(
                account,
                spent=account.spent + entry.price,
                subject=account.subject or entry.subject,
                looks=account.looks + (entry.kind == "looked"),
            )
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
    known: list[Any] = [cell or None for cell in whose]
    entry = Entry(id_, dataset, kind, *amounts, what, state, digest or None, time, *known)
    if any(whose) and entry.subject is None:
        raise ValueError("not a subject")
    return replace(entry, other_rows=bool(other_rows))


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
