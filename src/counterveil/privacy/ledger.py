"""The Ledger: the durable account of privacy spent per dataset.

Formal guarantee: for every account, at every moment, the sum of all charges is at most the total it
was opened with, in ε and in δ (basic composition: both add up). This holds for every interleaving
of threads and processes on one file system, and whatever crashes: a charge is on the disk before
`reserve` returns, never expires and is never refunded. One charge pays for one release, because
`commit` works once.

Not covered: deleting the file, editing it, copying or hard-linking it and spending from both, going
back to a backup, opening accounts under two names for the same rows, and file systems whose locks
or syncs do nothing (some network shares).

>>> import tempfile
>>> ledger = Ledger(tempfile.mkdtemp() + "/ledger.db")
>>> ledger.open_account("adult", Budget(1.0))
>>> reservation = ledger.reserve("adult", Budget(0.75), "veil for the loan desk")
>>> ledger.commit(reservation, digest="5f0c…")
>>> print(ledger.accounts()[0].remaining)
ε = 0.25, δ = 0
>>> ledger.reserve("adult", Budget(0.3), "another")  # doctest: +ELLIPSIS
Traceback (most recent call last):
counterveil.privacy.ledger.OverdrawnError: dataset 'adult' cannot pay: requested ε = 0.3, δ = 0; ...
"""

from __future__ import annotations

import math
import os
import secrets
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Context, Decimal, Inexact
from pathlib import Path
from typing import Literal

from counterveil.errors import BudgetError, RequestError
from counterveil.privacy.statement import Budget

APPLICATION_ID = 0x43566C67  # "CVlg"
VERSION = 1

_TABLES = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
    "CREATE TABLE accounts (dataset TEXT NOT NULL PRIMARY KEY,"
    " epsilon TEXT NOT NULL, delta TEXT NOT NULL, opened TEXT NOT NULL)",
    "CREATE TABLE spends (id TEXT NOT NULL PRIMARY KEY,"
    " dataset TEXT NOT NULL REFERENCES accounts (dataset), epsilon TEXT NOT NULL,"
    " delta TEXT NOT NULL, what TEXT NOT NULL, time TEXT NOT NULL, digest TEXT)",
    "CREATE INDEX spends_of_dataset ON spends (dataset)",
)


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


class OverdrawnError(BudgetError):
    """A charge that the account cannot pay; names requested, remaining and total."""


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
        """Let `dataset` spend `total` in all, for good; makes the file where there is none."""
        _check_words("dataset", dataset)
        limit = Amount.of(total)
        with self._transaction("BEGIN IMMEDIATE", create=True) as file:
            for account in _accounts(file, dataset):
                raise RequestError(
                    f"dataset {dataset!r} already has an account in {self.path}: total "
                    f"{account.total}; remaining {account.remaining}. A total is fixed for good: "
                    "spend from this account, or name another dataset"
                )
            row = dataset, str(limit.epsilon), str(limit.delta), _now()
            file.execute("INSERT INTO accounts VALUES (?, ?, ?, ?)", row)

    def reserve(self, dataset: str, budget: Budget, what: str) -> Reservation:
        """Charge `dataset` with `budget`; call it before the first private row is read.

        Guarantee: when this returns, the charge is on the disk, and charges in all are at most the
        account's total, whatever other processes do and whatever crashes later. When it raises
        OverdrawnError, nothing was charged. `what` says in a few public words what it is for.
        """
        _check_words("dataset", dataset)
        _check_words("what", what)
        price = Amount.of(budget)
        # The write lock is taken before the sum is read: nobody can spend between the two.
        with self._transaction("BEGIN IMMEDIATE") as file:
            account = self._account(file, dataset)
            if not (account.spent + price).fits(account.total):
                raise OverdrawnError(
                    f"dataset {dataset!r} cannot pay: requested {price}; remaining "
                    f"{account.remaining}; total {account.total}. Ask for at most what remains, "
                    "or use a veil that is already released"
                )
            reservation = Reservation(secrets.token_hex(8), dataset, budget)
            row = reservation.id, dataset, str(price.epsilon), str(price.delta), what, _now()
            file.execute("INSERT INTO spends VALUES (?, ?, ?, ?, ?, ?, NULL)", row)
        return reservation

    def commit(self, reservation: Reservation, digest: str) -> None:
        """Mark `reservation` as released with the veil `digest`: once, so one charge, one veil."""
        _check_words("digest", digest)
        price = Amount.of(reservation.budget)
        with self._transaction("BEGIN IMMEDIATE") as file:
            charges = _entries(file, reservation.dataset)
            charge = next((entry for entry in charges if entry.id == reservation.id), None)
            if charge is None or charge.price != price:
                raise RequestError(
                    f"no such reservation in {self.path}; commit to the ledger that reserved it"
                )
            if charge.digest is not None:
                raise RequestError(
                    f"this reservation was already released as veil {charge.digest[:12]}; "
                    "a charge pays for one release: reserve again"
                )
            file.execute("UPDATE spends SET digest = ? WHERE id = ?", (digest, reservation.id))

    def accounts(self) -> tuple[Account, ...]:
        """Every account, by name."""
        with self._transaction("BEGIN") as file:
            return _accounts(file)

    def entries(self, dataset: str | None = None) -> tuple[Entry, ...]:
        """Every charge, oldest first; with `dataset`, those of its account."""
        with self._transaction("BEGIN") as file:
            if dataset is not None:
                _check_words("dataset", dataset)
                self._account(file, dataset)
            return _entries(file, dataset)

    def _account(self, file: sqlite3.Connection, dataset: str) -> Account:
        for account in _accounts(file, dataset):
            return account
        raise RequestError(
            f"dataset {dataset!r} has no account in {self.path}; open one: counterveil ledger open "
            f"{shlex.quote(str(self.path))} --dataset {shlex.quote(dataset)} --epsilon TOTAL"
        )

    @contextmanager
    def _transaction(
        self, begin: Literal["BEGIN", "BEGIN IMMEDIATE"], *, create: bool = False
    ) -> Iterator[sqlite3.Connection]:
        """The open file between `begin` and COMMIT; whatever is raised inside undoes it all."""
        self._check_place(create=create)
        try:
            # Looks without locks or recovery, so that the file of another program stays untouched.
            with closing(self._connect("mode=ro&immutable=1")) as file:
                self._check_identity(file, empty=True)
        except sqlite3.Error as error:
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
                if self._check_identity(file, empty=create):
                    for statement in _TABLES:
                        file.execute(statement)
                yield file
                file.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._unusable(error) from None

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

    def _check_identity(self, file: sqlite3.Connection, *, empty: bool) -> bool:
        """Refuse what is no ledger of this version; True where there is nothing yet, if `empty`."""
        owner = _number(file, "PRAGMA application_id")
        version = _number(file, "PRAGMA user_version")
        if owner == version == 0 and not _number(file, "SELECT count(*) FROM sqlite_master"):
            if not empty:
                raise self._missing()
            return True
        if owner != APPLICATION_ID or version < 1:
            raise self._foreign()
        if version > VERSION:
            raise RequestError(
                f"{self.path} is a ledger of version {version}, this counterveil knows {VERSION}; "
                "upgrade counterveil (the file was left as it is)"
            )
        return False

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

    def _unusable(self, error: sqlite3.Error) -> RequestError:
        match _code(error):
            case sqlite3.SQLITE_NOTADB:
                return self._foreign()
            case sqlite3.SQLITE_BUSY:
                why = "another process holds it", "try again when that is done"
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
                why = "it cannot be written", "check the permissions of the file and its folder"
            case _:
                why = str(error), "an older copy is no remedy: it forgets what was spent since"
        return RequestError(f"cannot use the ledger at {self.path}: {why[0]}; {why[1]}")


def _accounts(file: sqlite3.Connection, dataset: str | None = None) -> tuple[Account, ...]:
    columns = "SELECT dataset, epsilon, delta, opened FROM accounts"
    accounts = {
        name: Account(name, Amount(exact_decimal(epsilon), exact_decimal(delta)), Amount(), opened)
        for name, epsilon, delta, opened in _rows(file, columns, dataset, order="dataset")
    }
    for entry in _entries(file, dataset):
        if entry.dataset not in accounts:
            raise sqlite3.DatabaseError("it is damaged: a charge has no account")
        account = accounts[entry.dataset]
        accounts[entry.dataset] = replace(account, spent=account.spent + entry.price)
    return tuple(accounts.values())


def _entries(file: sqlite3.Connection, dataset: str | None = None) -> tuple[Entry, ...]:
    columns = "SELECT id, dataset, epsilon, delta, what, digest, time FROM spends"
    found = []
    for id_, name, epsilon, delta, what, digest, time in _rows(file, columns, dataset):
        price = float(exact_decimal(epsilon)), float(exact_decimal(delta))
        state: Literal["reserved", "released"] = "released" if digest else "reserved"
        found.append(Entry(id_, name, *price, what, state, digest or None, time))
    return tuple(found)


def _rows(
    file: sqlite3.Connection, columns: str, dataset: str | None, order: str = "rowid"
) -> list[tuple[str, ...]]:
    """Rows of text, of all datasets or of one; nothing in a file is trusted to be text."""
    question = f"{columns} WHERE dataset = ?1 OR ?1 IS NULL ORDER BY {order}"
    return [tuple(str(cell or "") for cell in row) for row in file.execute(question, (dataset,))]


def _check_words(name: str, words: str) -> None:
    if not isinstance(words, str) or not words.strip() or not words.isprintable():
        raise RequestError(f"{name} must be one line of text that is not empty")


def _number(file: sqlite3.Connection, question: str) -> int:
    return int(file.execute(question).fetchone()[0])


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; the extended ones say more in their upper bits."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
