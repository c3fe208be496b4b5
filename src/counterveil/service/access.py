"""Who may ask, how fast and how much: API keys and what each of them has used, in one SQLite file.

A key is 256 random bits, so a plain SHA-256 of it cannot be undone; only that is kept. What a key
has used is written before the answer is searched: a service that is killed forgets nothing.
"""

import hashlib
import os
import re
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from counterveil.errors import RequestError
from counterveil.text_rules import check_text

PREFIX = "cvk_"
ROWS_A_MINUTE, ANSWERS_A_DAY = 600, 1000  # of a key, where nothing else is said
WAIT = 5.0  # seconds for another process that writes
_TABLES = (
    "keys (name TEXT PRIMARY KEY, digest BLOB UNIQUE NOT NULL, made TEXT NOT NULL, revoked TEXT, "
    "rows_a_minute INTEGER NOT NULL, answers_a_day INTEGER NOT NULL)",
    "used (name TEXT NOT NULL, day TEXT NOT NULL, answers INTEGER NOT NULL, "
    "PRIMARY KEY (name, day))",
)


@dataclass(frozen=True)
class Caller:
    """Whose key it is; None as a limit: there is none."""

    name: str
    rows_a_minute: int | None = None
    answers_a_day: int | None = None


@dataclass(frozen=True)
class KeyEntry:
    """What the file says of a key: never the key itself. Times are UTC."""

    name: str
    made: str
    revoked: str | None
    rows_a_minute: int
    answers_a_day: int
    used_today: int


class AccessKeys:
    """The API keys in a file.

    Several processes may use it at a time. An `sqlite3.Error` where the file cannot be read or
    written, a full disk for instance.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = False) -> None:
        self.path = Path(path)
        if not create and not self.path.is_file():
            raise RequestError(f"no file of keys at {path}; make one: counterveil keys new --api")
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            with self._open() as file:
                for table in _TABLES:
                    file.execute(f"CREATE TABLE IF NOT EXISTS {table}")
        except (OSError, sqlite3.DatabaseError):
            raise RequestError(f"{path} is no file of API keys, or cannot be written") from None

    def new(
        self, name: str, rows_a_minute: int = ROWS_A_MINUTE, answers_a_day: int = ANSWERS_A_DAY
    ) -> str:
        """Make a key for somebody; it is returned once and kept nowhere."""
        try:
            check_text(name, one_line=True, longest=100)
        except ValueError as error:
            raise RequestError(f"the name of a key: {error}") from None
        if rows_a_minute < 1 or answers_a_day < 1:
            raise RequestError("a key needs at least 1 row a minute and 1 answer a day")
        key = PREFIX + secrets.token_urlsafe(32)
        values = (name, _digest(key), _now(), rows_a_minute, answers_a_day)
        try:
            with self._open() as file:
                file.execute("INSERT INTO keys VALUES (?, ?, ?, NULL, ?, ?)", values)
        except sqlite3.IntegrityError:
            raise RequestError(f"there is a key named {name!r} already; give another") from None
        return key

    def entries(self) -> list[KeyEntry]:
        """All keys, the oldest first."""
        question = (
            "SELECT keys.name, made, revoked, rows_a_minute, answers_a_day, COALESCE(answers, 0) "
            "FROM keys LEFT JOIN used ON used.name = keys.name AND day = ? ORDER BY made, keys.name"
        )
        with self._open() as file:
            return [KeyEntry(*row) for row in file.execute(question, (_today(),))]

    def revoke(self, name: str) -> None:
        """No request with this key is answered any more."""
        with self._open() as file:
            asked = "UPDATE keys SET revoked = ? WHERE name = ? AND revoked IS NULL"
            if file.execute(asked, (_now(), name)).rowcount == 0:
                raise RequestError(f"no key named {name!r} that could be revoked")

    def find(self, key: str) -> Caller | None:
        """Whose key this is; None for one that was never made, or was revoked."""
        if not re.fullmatch(PREFIX + "[A-Za-z0-9_-]{43}", key):
            return None
        question = "SELECT name, rows_a_minute, answers_a_day FROM keys WHERE digest = ? "
        with self._open(to_write=False) as file:
            found = file.execute(question + "AND revoked IS NULL", (_digest(key),)).fetchone()
        return None if found is None else Caller(*found)

    def use(self, caller: Caller, answers: int) -> bool:
        """Write down that so many answers were asked for; False where too few are left today."""
        with self._open() as file:
            day = _today()
            question = "SELECT answers FROM used WHERE name = ? AND day = ?"
            row = file.execute(question, (caller.name, day)).fetchone()
            used = (row[0] if row else 0) + answers
            if caller.answers_a_day is not None and used > caller.answers_a_day:
                return False
            file.execute("INSERT OR REPLACE INTO used VALUES (?, ?, ?)", (caller.name, day, used))
            return True

    @contextmanager
    def _open(self, *, to_write: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction. Whoever reads in it may write what follows from that, `to_write`."""
        with closing(sqlite3.connect(self.path, timeout=WAIT, isolation_level=None)) as file:
            file.execute("PRAGMA journal_mode=WAL")
            file.execute("PRAGMA synchronous=NORMAL")  # a killed process loses nothing
            file.execute("BEGIN IMMEDIATE" if to_write else "BEGIN")
            try:
                yield file
            except BaseException:
                file.execute("ROLLBACK")
                raise
            file.execute("COMMIT")


class RateLimiter:
    """How fast each caller may ask: rows a minute, of which as many may come at once."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}  # rows left, and when that was so

    def wait_for(self, caller: Caller, rows: int) -> float:
        """Take `rows`; 0, or the seconds after which so many may be asked about."""
        most = caller.rows_a_minute
        if most is None:
            return 0.0
        now = time.monotonic()
        left, then = self._left.get(caller.name, (float(most), now))
        left = min(float(most), left + (now - then) * most / 60)
        taken = min(rows, most)  # a large question needs a full minute, and may then be asked
        short = taken - left
        self._left[caller.name] = (left if short > 0 else left - rows, now)
        return max(0.0, short * 60 / most)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def seconds_left_today() -> float:
    """Until keys have new answers: their day ends at midnight, UTC."""
    return 86_400 - time.time() % 86_400


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
