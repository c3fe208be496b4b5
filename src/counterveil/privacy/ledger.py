"""The Ledger: the durable account of privacy spent per dataset.

Formal guarantee: for every account, at every moment, the sum of all charges is at most the total it
was opened with, in ε and in δ (basic composition: both add up), and all charges protect the same
unit. This holds for every interleaving of threads and processes on one file system, and whatever
crashes: a charge is on the disk before `reserve` returns, never expires and is never refunded. One
charge pays for one release, because `commit` works once.

Damage is noticed: each call checks the whole file before it believes any of it, and a file that is
not as it was written is refused. The check ends in a SHA-256 of all cells that the file itself
holds. Whoever can write the file can compute that too: it is no protection against editing.

Not covered: deleting the file, emptying it, editing it, copying or hard-linking it and spending
from both, going back to a backup, other ledgers, and file systems whose locks or syncs do nothing
(some network shares). A second account for the same rows is noticed by the names of their columns
and their number, and by nothing else: with a column or a row more or less, counted as people
instead of records, or where the charges were made by a ledger of version 1, it is not.

>>> import tempfile
>>> ledger = Ledger(tempfile.mkdtemp() + "/ledger.db")
>>> ledger.open_account("adult", Budget(1.0))
>>> records = Subject("record", max_records=1, units=600, columns="5f0c" * 16)
>>> reservation = ledger.reserve("adult", Budget(0.75), "veil for the loan desk", records)
>>> ledger.commit(reservation, digest="5f0c…")
>>> print(ledger.accounts()[0].remaining)
ε = 0.25, δ = 0
>>> ledger.reserve("adult", Budget(0.3), "another", records)  # doctest: +ELLIPSIS
Traceback (most recent call last):
counterveil.privacy.ledger.OverdrawnError: dataset 'adult' cannot pay: requested ε = 0.3, δ = 0; ...
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import shlex
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from decimal import Context, Decimal, Inexact
from pathlib import Path
from typing import Any, Literal

from counterveil.errors import BudgetError, InputError, RequestError
from counterveil.privacy.statement import Budget

APPLICATION_ID = 0x43566C67  # "CVlg"
VERSION = 2


def _text(name: str) -> str:
    return f"{name} TEXT NOT NULL CHECK (typeof({name}) = 'text')"


def _whole(name: str) -> str:
    return f"{name} INTEGER NOT NULL CHECK (typeof({name}) = 'integer' AND {name} >= 0)"


# No cell is ever NULL: what is not known is '' or 0. The checks do what STRICT tables do, also in
# an SQLite that does not know those.
_TABLES = {
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

# Sums of floats in decimal have fewer than 700 digits, so nothing is ever rounded here; if it were,
# the trap would stop the charge.
_EXACT = Context(prec=2000, traps=[Inexact])

# SQLite's errors, and the one for an error whose own text is damaged.
_FROM_SQLITE = (sqlite3.Error, UnicodeDecodeError)

_Rows = list[tuple[Any, ...]]


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
        _check_words("relation", self.relation)

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


@dataclass(frozen=True)
class _Book:
    """The content of an open ledger, checked, and the file to add to it."""

    file: sqlite3.Connection
    accounts: dict[str, Account]
    entries: tuple[Entry, ...]

    def add(self, *cells: str, subject: Subject | None = None, other_rows: bool = False) -> None:
        """Write a new entry: `cells` are its id, dataset, kind, ε, δ and what it is for."""
        whose = ("", 0, 0, "", "") if subject is None else astuple(subject)
        row = len(self.entries) + 1, *cells, _now(), "", *whose, int(other_rows)
        _insert(self.file, "entries", row)


class Ledger:
    """The accounts in the file at `path`; see the module for the guarantee.

    Every call opens the file, does one transaction and closes it, so a Ledger may be shared by
    threads and carried over a fork. `timeout_s` is how long a call waits for other processes.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout_s: float = 60.0) -> None:
        if "\0" in os.fspath(path):
            raise RequestError("the path of a ledger must not hold a null character")
        self.path = Path(path)
        self.timeout_s = timeout_s
        self._file = Path(os.path.realpath(path))  # stays the same when the process moves

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def open_account(self, dataset: str, total: Budget) -> None:
        """Let `dataset` spend `total` in all, for good.

        Makes the file where there is none, to be read and written by its owner alone.
        """
        _check_words("dataset", dataset)
        limit = Amount.of(total)
        with self._transaction("BEGIN IMMEDIATE", create=True) as book:
            if account := book.accounts.get(dataset):
                raise RequestError(
                    f"dataset {dataset!r} already has an account in {self.path}: total "
                    f"{account.total}; remaining {account.remaining}. A total is fixed for good: "
                    "spend from this account, or name another dataset"
                )
            row = dataset, str(limit.epsilon), str(limit.delta), _now()
            _insert(book.file, "accounts", row)

    def reserve(
        self,
        dataset: str,
        budget: Budget,
        what: str,
        subject: Subject,
        *,
        other_rows: bool = False,
    ) -> Reservation:
        """Charge `dataset` with `budget`; call it before the first private row is read.

        Guarantee: when this returns, the charge is on the disk, and charges in all are at most the
        account's total, whatever other processes do and whatever crashes later. When it raises
        OverdrawnError or RequestError, nothing was charged.

        `what` says in a few public words what it is for. `subject` must have the unit, records and
        relation of earlier charges: budgets for different units do not add up. If another account
        was charged for rows with the same columns and as many units, and this one never was, the
        charge is refused, unless `other_rows` declares that these are other people.
        """
        _check_words("dataset", dataset)
        _check_words("what", what)
        price = Amount.of(budget)
        # The write lock is taken before the sum is read: nobody can spend between the two.
        with self._transaction("BEGIN IMMEDIATE") as book:
            account = self._account(book, dataset)
            _check_unit(account, subject)
            if not other_rows:
                _check_names(book, dataset, subject)
            if not (account.spent + price).fits(account.total):
                raise OverdrawnError(
                    f"dataset {dataset!r} cannot pay: requested {price}; remaining "
                    f"{account.remaining}; total {account.total}. Ask for at most what remains, "
                    "or use a veil that is already released"
                )
            reservation = Reservation(secrets.token_hex(8), dataset, budget)
            cells = reservation.id, dataset, "charge", str(price.epsilon), str(price.delta), what
            book.add(*cells, subject=subject, other_rows=other_rows)
        return reservation

    def commit(self, reservation: Reservation, digest: str) -> None:
        """Mark `reservation` as released with the veil `digest`: once, so one charge, one veil."""
        _check_words("digest", digest)
        named = reservation.id, reservation.dataset, Amount.of(reservation.budget)
        with self._transaction("BEGIN IMMEDIATE") as book:
            charges = (each for each in book.entries if each.kind == "charge")
            charge = next((e for e in charges if (e.id, e.dataset, e.price) == named), None)
            if charge is None:
                raise RequestError(
                    f"no such reservation in {self.path}; commit to the ledger that reserved it"
                )
            if charge.digest is not None:
                raise RequestError(
                    f"this reservation was already released as veil {charge.digest[:12]}; "
                    "a charge pays for one release: reserve again"
                )
            change = "UPDATE entries SET digest = ? WHERE id = ?"
            book.file.execute(change, (digest, reservation.id))

    def write_down(self, dataset: str, what: str) -> None:
        """Note an exact look at the rows by the curator: no ε covers it, and it costs nothing."""
        _check_words("dataset", dataset)
        _check_words("what", what)
        with self._transaction("BEGIN IMMEDIATE") as book:
            self._account(book, dataset)
            book.add(secrets.token_hex(8), dataset, "looked", "0.0", "0.0", what)

    def accounts(self) -> tuple[Account, ...]:
        """Every account, by name."""
        with self._transaction("BEGIN") as book:
            return tuple(book.accounts.values())

    def entries(self, dataset: str | None = None) -> tuple[Entry, ...]:
        """Every charge and look, oldest first; with `dataset`, those of its account."""
        if dataset is not None:
            _check_words("dataset", dataset)
        with self._transaction("BEGIN") as book:
            if dataset is not None:
                self._account(book, dataset)
            return tuple(each for each in book.entries if dataset in (None, each.dataset))

    def _account(self, book: _Book, dataset: str) -> Account:
        if account := book.accounts.get(dataset):
            return account
        raise RequestError(
            f"dataset {dataset!r} has no account in {self.path}; open one: counterveil ledger open "
            f"{shlex.quote(str(self.path))} --dataset {shlex.quote(dataset)} --epsilon TOTAL"
        )

    @contextmanager
    def _transaction(
        self, begin: Literal["BEGIN", "BEGIN IMMEDIATE"], *, create: bool = False
    ) -> Iterator[_Book]:
        """The content between `begin` and COMMIT; whatever is raised inside undoes it all."""
        self._check_place(create=create)
        try:
            # Looks without locks or recovery, so that the file of another program stays untouched.
            with closing(self._connect("mode=ro&immutable=1")) as file:
                self._check_identity(file, empty=True)
        except _FROM_SQLITE as error:
            # Other errors here may be an interrupted write, which the real opening below undoes.
            if _code(error) == sqlite3.SQLITE_NOTADB:
                raise self._foreign() from None
        try:
            with closing(self._connect("mode=rwc" if create else "mode=rw")) as file:
                # EXTRA also syncs the folder when the rollback journal goes: with less, a power
                # cut just after a COMMIT could bring the journal back and undo the charge.
                file.execute("PRAGMA synchronous = EXTRA")
                file.execute("PRAGMA fullfsync = ON")
                file.execute(begin)
                version = self._check_identity(file, empty=create)
                if version == 0:
                    self._make(file)
                cells = _checked_cells(file, version or VERSION)
                book = _understand(file, *cells)
                if version == 1 and begin == "BEGIN IMMEDIATE":
                    file.execute("DROP TABLE spends")
                    file.execute("DROP TABLE accounts")
                    _fill(file, *cells)
                yield book
                if begin == "BEGIN IMMEDIATE":
                    cells = _cells(file, VERSION)
                    _understand(file, *cells)  # nothing is kept that could not be read again
                    file.execute("UPDATE seal SET sha256 = ?", (_seal(*cells),))
                file.execute("COMMIT")
        except _FROM_SQLITE as error:
            raise self._unusable(error) from None

    def _make(self, file: sqlite3.Connection) -> None:
        """The tables of a new ledger. Its journal gets the rights that the file has by then."""
        if self._file.stat().st_size:
            raise self._foreign()
        try:
            os.chmod(self._file, 0o600)
        except OSError as error:
            why = f"it cannot be kept to its owner: {error.strerror}; choose another place"
            raise RequestError(f"cannot make a ledger at {self.path}: {why}") from None
        file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        _fill(file, [], [])

    def _connect(self, mode: str) -> sqlite3.Connection:
        where = f"{self._file.as_uri()}?{mode}"
        return sqlite3.connect(where, uri=True, timeout=self.timeout_s, isolation_level=None)

    def _check_place(self, *, create: bool) -> None:
        """Refuse paths where no ledger can be; never opens the file, which would drop its locks."""
        try:
            if self._file.is_dir():
                raise RequestError(f"{self.path} is a directory; give the name of a ledger file")
            if not self._file.exists():
                if not create:
                    raise self._missing()
                self._file.parent.mkdir(parents=True, exist_ok=True)
            elif not self._file.is_file():
                raise RequestError(f"{self.path} is not a plain file; give the name of a ledger")
            elif 0 < self._file.stat().st_size < 512:  # SQLite takes a file of one byte for empty
                raise self._foreign()
        except OSError as error:
            why = f"{error.strerror}; check the path"
            raise RequestError(f"cannot open the ledger at {self.path}: {why}") from None

    def _check_identity(self, file: sqlite3.Connection, *, empty: bool) -> int:
        """The version of the ledger, 0 where there is nothing yet, if `empty`; refuses the rest."""
        owner = _number(file, "PRAGMA application_id")
        version = _number(file, "PRAGMA user_version")
        if owner == version == 0 and not _number(file, "SELECT count(*) FROM sqlite_master"):
            if not empty:
                raise self._missing()
            return 0
        if owner != APPLICATION_ID or version < 1:
            raise self._foreign()
        if version > VERSION:
            raise RequestError(
                f"{self.path} is a ledger of version {version}, this counterveil knows {VERSION}; "
                "upgrade counterveil (the file was left as it is)"
            )
        return version

    def _missing(self) -> RequestError:
        return RequestError(
            f"no ledger at {self.path}; make one: counterveil ledger open "
            f"{shlex.quote(str(self.path))} --dataset NAME --epsilon TOTAL"
        )

    def _foreign(self) -> RequestError:
        return RequestError(
            f"{self.path} is not a ledger and was left as it is; give the path of a ledger or of a "
            "new file"
        )

    def _unusable(self, error: Exception) -> RequestError:
        match _code(error):
            case sqlite3.SQLITE_NOTADB:
                return self._foreign()
            case sqlite3.SQLITE_BUSY:
                why = "another process holds it; try again when that is done"
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
                why = "it cannot be written; check the permissions of the file and its folder"
            case sqlite3.SQLITE_FULL:
                why = "the disk is full; make room and try again"
            case sqlite3.SQLITE_IOERR:
                why = "reading or writing it failed; check the disk and try again"
            case _:
                why = (
                    "it is damaged; use a copy that was made after the last charge (an older one "
                    "forgets charges), or open a new ledger for what all releases have left over"
                )
        return RequestError(f"cannot use the ledger at {self.path}: {why}")


def find_account(folders: Iterable[Path], dataset: str) -> Path | None:
    """A ledger in one of `folders` that has an account of this name; None where there is none.

    Raises RequestError for a ledger that cannot be read: the account may be in it.
    """
    for folder in folders:
        try:
            files = sorted(path for path in Path(folder).iterdir() if path.is_file())
        except OSError:
            continue  # no such folder, or not ours to read
        for path in files:
            if _says_ledger(path) and dataset in {each.dataset for each in Ledger(path).accounts()}:
                return path
    return None


def _says_ledger(path: Path) -> bool:
    """Whether the header of the file says that it is a ledger; nothing else in it is checked."""
    try:
        with open(path, "rb") as stream:
            head = stream.read(72)
    except OSError:
        return False
    return head[:16] == b"SQLite format 3\0" and head[68:] == APPLICATION_ID.to_bytes(4, "big")


def _check_unit(account: Account, subject: Subject) -> None:
    """Refuse a charge for another unit than the account's: such budgets do not add up."""
    first = account.subject
    if first is not None and first.protects != subject.protects:
        raise RequestError(
            f"dataset {account.dataset!r} is charged for {first.protects}, and this charge is for "
            f"{subject.protects}: budgets for different units do not add up; release for the "
            "account's unit: --unit-column, --max-records"
        )


def _check_names(book: _Book, dataset: str, subject: Subject) -> None:
    """Refuse rows that look like those of another account, if this one never had such rows."""
    alike = [
        each.dataset
        for each in book.entries
        if (each.columns, each.units) == (subject.columns, subject.units)
    ]
    if alike and dataset not in alike:
        raise RequestError(
            f"the rows look like those of dataset {alike[0]!r}: same columns and number of rows; "
            "charge that account, or say that these are other people: --other-rows"
        )


def _checked_cells(file: sqlite3.Connection, version: int) -> tuple[_Rows, _Rows]:
    """The cells of all accounts and entries; DatabaseError if the file is not as it was written."""
    try:
        whole = file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        whole = whole and not file.execute("PRAGMA foreign_key_check").fetchall()
        whole = whole and _layout(file) == _usual_layout(version)
        accounts, entries = cells = _cells(file, version)
        if version > 1:
            seal = _seal(accounts, entries)
            whole = whole and file.execute("SELECT * FROM seal").fetchall() == [(seal,)]
        for rows, types in ((accounts, _ACCOUNT_TYPES), (entries, _ENTRY_TYPES)):
            whole = whole and all(tuple(map(type, row)) == types for row in rows)
    except (ValueError, TypeError, OverflowError, MemoryError):
        whole = False
    if not whole:
        raise sqlite3.DatabaseError("damaged")
    return cells


def _cells(file: sqlite3.Connection, version: int) -> tuple[_Rows, _Rows]:
    """The cells of all accounts and entries, as they are in a ledger of VERSION."""
    accounts = file.execute("SELECT * FROM accounts ORDER BY dataset").fetchall()
    return accounts, file.execute(_ENTRIES[version]).fetchall()


def _layout(file: sqlite3.Connection) -> _Rows:
    return file.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY 2").fetchall()


def _usual_layout(version: int) -> _Rows:
    with closing(sqlite3.connect(":memory:")) as file:
        for statement in _TABLES[version]:
            file.execute(statement)
        return _layout(file)


def _seal(accounts: _Rows, entries: _Rows) -> str:
    """SHA-256 of all cells."""
    return hashlib.sha256(json.dumps([accounts, entries]).encode()).hexdigest()


def _fill(file: sqlite3.Connection, accounts: _Rows, entries: _Rows) -> None:
    """Make the tables of VERSION, with these rows."""
    file.execute(f"PRAGMA user_version = {VERSION}")
    for statement in _TABLES[VERSION]:
        file.execute(statement)
    for table, rows in (("accounts", accounts), ("entries", entries)):
        for row in rows:
            _insert(file, table, row)
    _insert(file, "seal", (_seal(accounts, entries),))


def _insert(file: sqlite3.Connection, table: str, row: tuple[Any, ...]) -> None:
    file.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)


def _understand(file: sqlite3.Connection, accounts: _Rows, entries: _Rows) -> _Book:
    """What the cells mean; DatabaseError if they mean nothing."""
    try:
        book = _Book(
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


def _check_words(name: str, words: str) -> None:
    if not isinstance(words, str) or not words.strip() or not words.isprintable():
        raise RequestError(f"{name} must be one line of text that is not empty")


def _number(file: sqlite3.Connection, question: str) -> int:
    return int(file.execute(question).fetchone()[0])


def _code(error: Exception) -> int:
    """SQLite's primary result code; the extended ones say more in their upper bits."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
