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

import os
import secrets
import shlex
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

from counterveil.errors import RequestError
from counterveil.privacy.book import (
    APPLICATION_ID,
    VERSION,
    Account,
    Amount,
    Book,
    Entry,
    OverdrawnError,
    Reservation,
    Subject,
    cells_of,
    check_words,
    checked_cells,
    digits,
    fill,
    insert,
    now,
    seal_of,
    understand,
)
from counterveil.privacy.budget import Budget

__all__ = [
    "Account",
    "Amount",
    "Entry",
    "Ledger",
    "OverdrawnError",
    "Reservation",
    "Subject",
    "digits",
    "find_account",
]

# SQLite's errors, and the one for an error whose own text is damaged.
_FROM_SQLITE = (sqlite3.Error, UnicodeDecodeError)


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
        check_words("dataset", dataset)
        limit = Amount.of(total)
        with self._transaction("BEGIN IMMEDIATE", create=True) as book:
            if account := book.accounts.get(dataset):
                raise RequestError(
                    f"dataset {dataset!r} already has an account in {self.path}: total "
                    f"{account.total}; remaining {account.remaining}. A total is fixed for good: "
                    "spend from this account, or name another dataset"
                )
            row = dataset, str(limit.epsilon), str(limit.delta), now()
            insert(book.file, "accounts", row)

    def reserve(
        self, dataset: str, budget: Budget, what: str, subject: Subject, *, other_rows: bool = False
    ) -> Reservation:
        """Charge `dataset` with `budget`; call it before the first private row is read.

        Guarantee: when this returns, the charge is on the disk, and charges in all are at most the
        account's total, whatever other processes do and whatever crashes later. When it raises
        OverdrawnError or RequestError, nothing was charged.

        `what` says in a few public words what it is for. `subject` must have the unit, the column
        that names it, the records and the relation of earlier charges: budgets for different units
        do not add up. If another account
        was charged for rows with the same columns and as many units, and this one never was, the
        charge is refused, unless `other_rows` declares that these are other people.
        """
        check_words("dataset", dataset)
        check_words("what", what)
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
        check_words("digest", digest)
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
        check_words("dataset", dataset)
        check_words("what", what)
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
            check_words("dataset", dataset)
        with self._transaction("BEGIN") as book:
            if dataset is not None:
                self._account(book, dataset)
            return tuple(each for each in book.entries if dataset in (None, each.dataset))

    def _account(self, book: Book, dataset: str) -> Account:
        if account := book.accounts.get(dataset):
            return account
        raise RequestError(
            f"dataset {dataset!r} has no account in {self.path}; open one: counterveil ledger open "
            f"{shlex.quote(str(self.path))} --dataset {shlex.quote(dataset)} --epsilon TOTAL"
        )

    @contextmanager
    def _transaction(
        self, begin: Literal["BEGIN", "BEGIN IMMEDIATE"], *, create: bool = False
    ) -> Iterator[Book]:
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
                cells = checked_cells(file, version or VERSION)
                book = understand(file, *cells)
                if version == 1 and begin == "BEGIN IMMEDIATE":
                    file.execute("DROP TABLE spends")
                    file.execute("DROP TABLE accounts")
                    fill(file, *cells)
                yield book
                if begin == "BEGIN IMMEDIATE":
                    cells = cells_of(file, VERSION)
                    understand(file, *cells)  # nothing is kept that could not be read again
                    file.execute("UPDATE seal SET sha256 = ?", (seal_of(*cells),))
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
        fill(file, [], [])

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
    if first is not None and not first.adds_up_with(subject):
        raise RequestError(
            f"dataset {account.dataset!r} is charged for {first.protects}, and this charge is for "
            f"{subject.protects}: budgets for different units do not add up; release for the "
            "account's unit: --unit-column, --max-records"
        )


def _check_names(book: Book, dataset: str, subject: Subject) -> None:
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


def _number(file: sqlite3.Connection, question: str) -> int:
    return int(file.execute(question).fetchone()[0])


def _code(error: Exception) -> int:
    """SQLite's primary result code; the extended ones say more in their upper bits."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
