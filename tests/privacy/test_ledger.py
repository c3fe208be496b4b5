"""The ledger: no account spends more than its total, to the digit, together, through crashes."""

import json
import math
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterveil.cli import main
from counterveil.cli.ledger import ledger_app
from counterveil.curator import Curator
from counterveil.errors import BudgetError, InputError, RequestError
from counterveil.privacy import Budget
from counterveil.privacy import book as module
from counterveil.privacy.ledger import (
    Amount,
    Ledger,
    OverdrawnError,
    Reservation,
    Subject,
    digits,
    find_account,
)

DIGEST = "5f0c" * 16
RECORDS = Subject("record", 1, 600, "a1" * 32)


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open_account("adult", Budget(1.0))
    return ledger


def spent(ledger, dataset="adult"):
    return next(account.spent for account in ledger.accounts() if account.dataset == dataset)


# Exact amounts


def test_three_tenths_do_not_overrun(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open_account("adult", Budget(0.3))
    with pytest.raises(OverdrawnError, match=r"requested ε = 0\.30000000000000004"):
        ledger.reserve("adult", Budget(0.1 + 0.2), "floats add up to more", RECORDS)
    for epsilon in (0.1, 0.2):
        ledger.reserve("adult", Budget(epsilon), "decimals do not", RECORDS)


amounts = st.floats(min_value=0, max_value=1e300, exclude_min=True)
deltas = st.floats(min_value=0, max_value=1, exclude_max=True)


@given(st.lists(st.tuples(amounts, deltas), max_size=12), st.tuples(amounts, deltas))
def test_sums_are_exact(spends, limit):
    def fraction(number):
        return Fraction(repr(number))

    total = sum((Amount.of(Budget(*spend)) for spend in spends), Amount())
    epsilon = sum(fraction(epsilon) for epsilon, _ in spends)
    delta = sum(fraction(delta) for _, delta in spends)
    assert (Fraction(total.epsilon), Fraction(total.delta)) == (epsilon, delta)
    fits = epsilon <= fraction(limit[0]) and delta <= fraction(limit[1])
    assert total.fits(Amount.of(Budget(*limit))) == fits
    assert Amount(Decimal(digits(total.epsilon)), total.delta) == total


@settings(max_examples=5, deadline=None)
@given(st.lists(st.integers(1, 400), max_size=8))
def test_the_file_keeps_exact_sums(tmp_path_factory, thousandths):
    ledger = Ledger(tmp_path_factory.mktemp("exact") / "ledger.db")
    ledger.open_account("d", Budget(1))
    accepted = 0
    for part in thousandths:
        if accepted + part <= 1000:
            ledger.reserve("d", Budget(part / 1000), "part", RECORDS)
            accepted += part
        else:
            with pytest.raises(OverdrawnError):
                ledger.reserve("d", Budget(part / 1000), "part", RECORDS)
        assert spent(ledger, "d").epsilon * 1000 == accepted


@given(amounts, deltas)
def test_what_is_spent_is_at_most_what_is_charged(epsilon, delta):
    budget = Budget(epsilon, delta)
    charged = Amount.of(budget)
    try:
        spent = budget.rounded_down()
    except BudgetError:
        assert epsilon < 1e-300  # nothing above 0 is smaller
        return
    assert Fraction(spent.epsilon) <= Fraction(charged.epsilon)
    assert Fraction(spent.delta) <= Fraction(charged.delta)


def test_epsilon_and_delta_are_both_limits(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open_account("adult", Budget(1.0, 1e-6))
    ledger.reserve("adult", Budget(0.25, 1e-6), "Gaussian", RECORDS)
    words = "requested ε = 0.25, δ = 1e-30; remaining ε = 0.75, δ = 0; total ε = 1, δ = 1e-6"
    with pytest.raises(OverdrawnError, match=re.escape(words)):
        ledger.reserve("adult", Budget(0.25, 1e-30), "Gaussian", RECORDS)
    ledger.reserve("adult", Budget(0.75, 0.0), "Laplace", RECORDS)


@pytest.mark.parametrize(
    ("number", "text"),
    [("0", "0"), ("10", "10"), ("1E-6", "1e-6"), ("0.00001", "0.00001"), ("1E+20", "1e+20"),
     ("0.750", "0.75")],
)  # fmt: skip
def test_amounts_read_well(number, text):
    assert digits(Decimal(number)) == text


# The account


def test_overdrawing_names_requested_remaining_total_and_the_remedy(ledger):
    ledger.reserve("adult", Budget(0.75), "veil", RECORDS)
    with pytest.raises(OverdrawnError) as caught:
        ledger.reserve("adult", Budget(0.3), "veil", RECORDS)
    assert str(caught.value) == (
        "dataset 'adult' cannot pay: requested ε = 0.3, δ = 0; remaining ε = 0.25, δ = 0; "
        "total ε = 1, δ = 0. Ask for at most what remains, or use a veil that is already released"
    )
    assert isinstance(caught.value, BudgetError)
    assert spent(ledger).epsilon == Decimal("0.75")
    ledger.reserve("adult", Budget(0.25), "the rest", RECORDS)


def test_what_was_done_is_there_for_the_next_process(ledger):
    ledger.open_account("hospital", Budget(3))
    first = ledger.reserve("adult", Budget(0.5), "the first veil", RECORDS)
    ledger.reserve("hospital", Budget(2), "the second veil", replace(RECORDS, units=9))
    ledger.commit(first, DIGEST)
    again = Ledger(str(ledger.path))
    assert [account.dataset for account in again.accounts()] == ["adult", "hospital"]
    assert str(again.accounts()[1].remaining) == "ε = 1, δ = 0"
    released, reserved = again.entries()
    assert (released.id, released.what, released.digest) == (first.id, "the first veil", DIGEST)
    assert (released.state, reserved.state) == ("released", "reserved")
    assert (released.epsilon, released.delta, reserved.digest) == (0.5, 0.0, None)
    assert datetime.fromisoformat(released.time).utcoffset() == timedelta(0)
    assert again.entries("hospital") == (reserved,)
    assert os.listdir(ledger.path.parent) == ["ledger.db"]


def test_one_charge_pays_for_one_release_that_was_reserved(ledger, tmp_path):
    reservation = ledger.reserve("adult", Budget(0.5), "veil", RECORDS)
    ledger.commit(reservation, DIGEST)
    with pytest.raises(RequestError, match="already released as veil 5f0c5f0c5f0c"):
        ledger.commit(reservation, "0" * 64)
    assert [entry.digest for entry in ledger.entries()] == [DIGEST]
    real = ledger.reserve("adult", Budget(0.5), "veil", RECORDS)
    other = Ledger(tmp_path / "other.db")
    other.open_account("adult", Budget(1.0))
    unknown = Reservation("0" * 16, "adult", Budget(0.5))
    for where, what in ((ledger, unknown), (ledger, replace(real, budget=Budget(0.4))),
                        (ledger, replace(real, dataset="hospital")), (other, real)):  # fmt: skip
        with pytest.raises(RequestError, match="no such reservation"):
            where.commit(what, DIGEST)
    assert [entry.state for entry in ledger.entries()] == ["released", "reserved"]


def test_what_an_account_refuses(ledger):
    ledger.reserve("adult", Budget(0.75), "veil", RECORDS)
    with pytest.raises(RequestError, match=r"total ε = 1, δ = 0; remaining ε = 0\.25, δ = 0"):
        ledger.open_account("adult", Budget(100))
    assert ledger.accounts()[0].total == Amount(Decimal(1))
    remedy = r"counterveil ledger open .*ledger.db --dataset 'my rows' --epsilon TOTAL"
    for call in (lambda: ledger.reserve("my rows", Budget(1), "veil", RECORDS),
                 lambda: ledger.entries("my rows")):  # fmt: skip
        with pytest.raises(RequestError, match=remedy):
            call()
    with pytest.raises(BudgetError, match="infinite epsilon"):
        ledger.reserve("adult", Budget(math.inf), "reference", RECORDS)
    with pytest.raises(BudgetError, match="infinite epsilon"):
        ledger.open_account("all", Budget(math.inf))


@pytest.mark.parametrize("words", ["", "  ", "two\nlines", "\x1b[2J", "\udc80", "a\0b", None, 3])
def test_names_are_one_line_of_text(ledger, words):
    reservation = ledger.reserve("adult", Budget(0.5), "veil", RECORDS)
    for call in (lambda: ledger.open_account(words, Budget(1)),
                 lambda: ledger.reserve(words, Budget(0.1), "veil", RECORDS),
                 lambda: ledger.reserve("adult", Budget(0.1), words, RECORDS),
                 lambda: ledger.commit(reservation, words),
                 lambda: ledger.entries(words or "")):  # fmt: skip
        with pytest.raises(RequestError, match="must be one line of text"):
            call()
    assert [entry.state for entry in ledger.entries()] == ["reserved"]


# Whose privacy, in which rows


PEOPLE = Subject("person", 3, 200, "a1" * 32)


@pytest.mark.parametrize(
    "other",
    [PEOPLE, replace(RECORDS, relation="add-or-remove-one"), replace(RECORDS, unit="person")],
)
def test_the_first_charge_fixes_the_unit(ledger, other):
    ledger.reserve("adult", Budget(0.25), "veil", RECORDS)
    with pytest.raises(RequestError, match="for different units do not add up; release for the"):
        ledger.reserve("adult", Budget(0.25), "veil", other, other_rows=True)
    assert spent(ledger).epsilon == Decimal("0.25")
    assert ledger.accounts()[0].subject == RECORDS


def test_people_by_another_column_are_another_unit(ledger):
    """A person may have many visits: what protects a visit protects no person."""
    visits = replace(PEOPLE, unit_column="visit")
    ledger.reserve("adult", Budget(0.25), "veil", PEOPLE)  # of an earlier version: not told
    ledger.reserve("adult", Budget(0.25), "veil", visits)
    words = "one person by 'visit' with .* this charge is for one person by 'patient' with"
    with pytest.raises(RequestError, match=words):
        ledger.reserve("adult", Budget(0.25), "veil", replace(PEOPLE, unit_column="patient"))
    ledger.reserve("adult", Budget(0.25), "veil", visits)
    assert [entry.unit_column for entry in ledger.entries()] == ["", "visit", "visit"]
    assert [entry.unit for entry in ledger.entries()] == ["person"] * 3
    assert ledger.accounts()[0].subject == visits
    with pytest.raises(RequestError, match="must be empty where the unit is a record"):
        replace(RECORDS, unit_column="visit")


def test_people_with_more_records_are_another_unit(ledger):
    ledger.reserve("adult", Budget(0.25), "veil", PEOPLE)
    words = "is charged for one person with at most 3 records, replace-one, and this charge is for "
    words += "one person with at most 1 record, replace-one"
    with pytest.raises(RequestError, match=words):
        ledger.reserve("adult", Budget(0.25), "veil", replace(PEOPLE, max_records=1))
    ledger.reserve("adult", Budget(0.25), "veil", PEOPLE)


def test_other_columns_and_rows_of_one_account_add_up_and_are_kept(ledger):
    subjects = RECORDS, replace(RECORDS, units=601), replace(RECORDS, columns="b2" * 32)
    for subject in subjects:
        ledger.reserve("adult", Budget(0.25), "veil", subject)
    assert spent(ledger).epsilon == Decimal("0.75")
    assert tuple(entry.subject for entry in ledger.entries()) == subjects
    assert [entry.units for entry in ledger.entries()] == [600, 601, 600]


def test_a_second_name_for_the_same_rows_is_noticed(ledger):
    ledger.open_account("renamed", Budget(1.0))
    ledger.reserve("adult", Budget(0.25), "veil", RECORDS)
    words = (
        "the rows look like those of dataset 'adult': same columns and number of rows; charge that "
        "account, or say that these are other people: --other-rows"
    )
    with pytest.raises(RequestError, match=re.escape(words)):
        ledger.reserve("renamed", Budget(0.25), "veil", RECORDS)
    assert spent(ledger, "renamed") == Amount()
    for other in (replace(RECORDS, units=601), replace(RECORDS, columns="b2" * 32)):
        ledger.reserve("renamed", Budget(0.25), "veil", other)
    with pytest.raises(RequestError, match="look like those of dataset 'adult'"):
        ledger.reserve("renamed", Budget(0.25), "veil", RECORDS)


def test_other_people_are_declared_once_and_that_is_kept(ledger):
    ledger.open_account("others", Budget(1.0))
    ledger.reserve("adult", Budget(0.25), "veil", RECORDS)
    ledger.reserve("others", Budget(0.25), "veil", RECORDS, other_rows=True)
    ledger.reserve("others", Budget(0.25), "veil", RECORDS)
    ledger.reserve("adult", Budget(0.25), "veil", RECORDS)
    assert [entry.other_rows for entry in ledger.entries()] == [False, True, False, False]
    ledger.open_account("third", Budget(1.0))
    with pytest.raises(RequestError, match="look like those of dataset 'adult'"):
        ledger.reserve("third", Budget(0.25), "veil", RECORDS)


@pytest.mark.parametrize(
    "wrong",
    [{"unit": "household"}, {"max_records": 2}, {"max_records": 0}, {"units": 0},
     {"units": 1 << 63}, {"units": 6.0}, {"columns": "age, income"}, {"columns": None},
     {"relation": "a\nb"}],
)  # fmt: skip
def test_a_subject_that_means_nothing_is_refused(wrong):
    with pytest.raises(RequestError, match=next(iter(wrong))):
        replace(RECORDS, **wrong)


def test_exact_looks_are_written_down_and_cost_nothing(ledger):
    ledger.write_down("adult", "check of all rows")
    assert ledger.accounts()[0].subject is None
    ledger.reserve("adult", Budget(1.0), "veil", PEOPLE)
    ledger.write_down("adult", "another check")
    first, charge, second = ledger.entries()
    assert [entry.kind for entry in (first, charge, second)] == ["looked", "charge", "looked"]
    assert (first.state, first.what, first.price) == ("looked", "check of all rows", Amount())
    assert (first.subject, second.digest) == (None, None)
    assert ledger.accounts()[0].looks == 2
    assert spent(ledger) == Amount(Decimal(1))
    with pytest.raises(RequestError, match="no such reservation"):
        ledger.commit(Reservation(first.id, "adult", Budget(1.0)), DIGEST)
    for call in (lambda: ledger.write_down("other", "check"),
                 lambda: ledger.write_down("adult", "")):  # fmt: skip
        with pytest.raises(RequestError, match=r"has no account|one line of text"):
            call()


def test_an_account_is_found_in_folders(ledger, tmp_path):
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "a.txt").write_text("adult")
    (folder / "b.db").touch()
    database("PRAGMA application_id = 77", "CREATE TABLE accounts (dataset)")(folder / "c.db")
    os.mkfifo(folder / "d.db")
    Ledger(folder / "e.db").open_account("hospital", Budget(1))
    before = {path: content(path) for path in folder.iterdir()}
    places = [tmp_path / "missing", tmp_path / "ledger.db", folder, tmp_path]
    assert find_account(places, "adult") == tmp_path / "ledger.db"
    assert find_account(iter(places), "hospital") == folder / "e.db"
    assert find_account(places, "other") is None
    assert find_account([], "adult") is None
    assert {path: content(path) for path in folder.iterdir()} == before
    database("DROP TABLE entries")(folder / "e.db")
    with pytest.raises(RequestError, match="is damaged"):  # the account may be in it
        find_account(places, "other")


def test_paper_is_never_charged(schema, rows, ledger, tmp_path, capsys):
    ledger.open_account("loans", Budget(1.0))
    with pytest.raises(RequestError, match=r"paper guarantees nothing.*leave the ledger out"):
        Curator(schema, ledger=ledger.path).release(rows, 0.1, mechanism="paper", progress=False)
    schema.save(tmp_path / "schema.json")
    rows.to_csv(tmp_path / "rows.csv", index=False)
    files = ("--data", tmp_path / "rows.csv", "--schema", tmp_path / "schema.json")
    told = ("--epsilon", 0.1, "--mechanism", "paper", "--ledger", ledger.path)
    command = ("release", *files, *told, "--out", tmp_path / "x.veil")
    with pytest.raises(SystemExit, match="2"):
        main([str(word) for word in command])
    assert "leave the ledger out" in capsys.readouterr().err
    assert not (tmp_path / "x.veil").exists()
    assert [entry for entry in ledger.entries() if entry.kind == "charge"] == []


# Together


SPENDER = """
import os, sys
from counterveil.privacy import Budget
from counterveil.privacy.ledger import Ledger, OverdrawnError, Subject

RECORDS = Subject("record", 1, 600, "a1" * 32)
ledger = Ledger(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(4):
    try:
        reservation = ledger.reserve("adult", Budget(0.1), f"process {os.getpid()}", RECORDS)
    except OverdrawnError:
        continue
    ledger.commit(reservation, "5f0c")
    print(reservation.id)
"""


def start(script, *arguments):
    """A fresh interpreter, as multiprocessing would spawn it, without the weight of this module."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_eight_processes_never_overspend_together(tmp_path):
    path = tmp_path / "ledger.db"
    Ledger(path).open_account("adult", Budget(2.0))
    spenders = [start(SPENDER, path) for _ in range(8)]
    assert [spender.stdout.readline() for spender in spenders] == ["ready\n"] * 8
    for spender in spenders:
        spender.stdin.write("go\n")
        spender.stdin.flush()
    paid = []
    for spender in spenders:
        out, errors = spender.communicate(timeout=60)
        assert (spender.returncode, errors) == (0, "")
        paid += out.split()
    assert len(paid) == len(set(paid)) == 20
    assert {entry.id for entry in Ledger(path).entries()} == set(paid)
    assert spent(Ledger(path)) == Amount(Decimal(2))


def test_threads_that_share_a_ledger_never_overspend(ledger):
    paid = []

    def spend():
        for _ in range(4):
            try:
                paid.append(ledger.reserve("adult", Budget(0.1), "thread", RECORDS).id)
            except OverdrawnError:
                continue

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {entry.id for entry in ledger.entries()} == set(paid)
    assert len(paid) == 10


def test_a_ledger_that_stays_busy_is_said_to_be(ledger):
    hasty = Ledger(ledger.path, timeout_s=0.05)
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RequestError, match="another process holds it; try again"):
            hasty.reserve("adult", Budget(0.1), "veil", RECORDS)
        assert hasty.entries() == ()
        # A second opening in this process, closed, must not drop the lock of the first.
        locking = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0.05)"
        locking += ".execute('BEGIN IMMEDIATE')"
        assert "database is locked" in start(locking, ledger.path).communicate()[1]
    hasty.reserve("adult", Budget(0.1), "veil", RECORDS)


# Crashes: a child kills itself with SIGKILL when it is about to run the n-th statement of a kind.

CHILD = """
import os, signal, sqlite3, sys
from counterveil.privacy import Budget
from counterveil.privacy.ledger import Ledger, Subject

RECORDS = Subject("record", 1, 600, "a1" * 32)
path, word, count = sys.argv[1], sys.argv[2], int(sys.argv[3])

def die():
    os.kill(os.getpid(), signal.SIGKILL)

class Fatal(sqlite3.Connection):
    seen = 0

    def execute(self, statement, *values):
        if word and statement.startswith(word.removeprefix("half ")):
            Fatal.seen += 1
            if Fatal.seen == count:
                if word.startswith("half "):
                    # A cache this small spills into the file, so that it is half-written.
                    super().execute("PRAGMA cache_size = 1")
                    super().execute(statement, *values)
                    super().execute("UPDATE entries SET epsilon = '0', what = hex(zeroblob(50000))")
                die()
        return super().execute(statement, *values)

connect = sqlite3.connect
sqlite3.connect = lambda *values, **options: connect(*values, factory=Fatal, **options)
ledger = Ledger(path)
if word == "open":
    word, count = "COMMIT", 1
    ledger.open_account("new", Budget(1))
reservation = ledger.reserve("adult", Budget(0.25), "cut off", RECORDS)
print("reserved", flush=True)
if word == "before":
    die()
if word == "exit":
    os._exit(1)
ledger.commit(reservation, "5f0c")
print("released", flush=True)
die()
"""

# Where the child dies, what it had been told by then, and the states of the charges that stand.
CRASHES = {
    "before the charge": ("INSERT", 1, "", []),
    "the charge half-written": ("half INSERT", 1, "", []),
    "before the charge is on the disk": ("COMMIT", 1, "", []),
    "after the charge": ("before", 0, "reserved", ["reserved"]),
    "leaving without clean-up": ("exit", 0, "reserved", ["reserved"]),
    "before the release": ("UPDATE entries", 1, "reserved", ["reserved"]),
    "the release half-written": ("half UPDATE entries", 1, "reserved", ["reserved"]),
    "before the release is on the disk": ("COMMIT", 2, "reserved", ["reserved"]),
    "after the release": ("", 0, "reserved released", ["released"]),
}


def run_child(path, word, count):
    """Exit code, what the child had said, and what went wrong."""
    child = start(CHILD, path, word, count)
    out, errors = child.communicate(timeout=60)
    return child.returncode, out, errors


@pytest.mark.parametrize("case", CRASHES)
def test_a_crash_keeps_the_charge_and_the_file(ledger, case):
    word, count, told, states = CRASHES[case]
    ledger.reserve("adult", Budget(0.25), "earlier", RECORDS)
    before = ledger.path.read_bytes()
    code, out, errors = run_child(ledger.path, word, count)
    assert code == (1 if word == "exit" else -signal.SIGKILL), errors
    assert out.split() == told.split()
    if word.startswith("half"):
        assert b"0000000" in ledger.path.read_bytes(), "the file should be half-written"
    elif not told:
        assert ledger.path.read_bytes() == before
    assert [entry.state for entry in ledger.entries()] == ["reserved", *states]
    assert [entry.epsilon for entry in ledger.entries()] == [0.25] * (1 + len(states))
    for _ in range(3 - len(states)):
        ledger.reserve("adult", Budget(0.25), "later", RECORDS)
    with pytest.raises(OverdrawnError):
        ledger.reserve("adult", Budget(0.25), "too much", RECORDS)


def test_a_crash_while_the_ledger_is_made_leaves_room_for_it(tmp_path):
    path = tmp_path / "ledger.db"
    assert run_child(path, "open", 1)[0] == -signal.SIGKILL
    with pytest.raises(RequestError, match="no ledger at"):
        Ledger(path).accounts()
    Ledger(path).open_account("new", Budget(1))
    assert len(Ledger(path).accounts()) == 1


def test_a_ledger_and_its_journal_are_the_owners_alone(tmp_path):
    (tmp_path / "empty.db").touch(0o666)
    for name in ("ledger.db", "empty.db"):
        Ledger(tmp_path / name).open_account("adult", Budget(1.0))
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert run_child(tmp_path / "ledger.db", "half INSERT", 1)[0] == -signal.SIGKILL
    assert (tmp_path / "ledger.db-journal").stat().st_mode & 0o777 == 0o600
    assert Ledger(tmp_path / "ledger.db").entries() == ()
    (tmp_path / "ledger.db").chmod(0o660)  # the owner may share it
    Ledger(tmp_path / "ledger.db").open_account("more", Budget(1.0))
    assert (tmp_path / "ledger.db").stat().st_mode & 0o777 == 0o660


# Files that are no ledger


def database(*statements):
    def make(path):
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            for statement in statements:
                file.execute(statement)

    return make


def altered(*statements):
    def make(path):
        Ledger(path).open_account("adult", Budget(1.0))
        Ledger(path).reserve("adult", Budget(0.5), "veil", RECORDS)
        database(*statements)(path)

    return make


def reseal(path):
    """What somebody can do who edits the file and knows how it is checked."""
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("UPDATE seal SET sha256 = ?", (module.seal_of(*module.cells_of(file, 2)),))


FILES = {
    "a directory": (lambda path: path.mkdir(), "is a directory"),
    "a pipe": (os.mkfifo, "not a plain file"),
    "a text": (lambda path: path.write_text("time,epsilon\n"), "not a ledger"),
    "one byte": (lambda path: path.write_bytes(b"\0"), "not a ledger"),
    "much text": (lambda path: path.write_bytes(b"text" * 5000), "not a ledger"),
    "another program's tables": (database("CREATE TABLE notes (x)"), "not a ledger"),
    "another program's log": (
        database("PRAGMA journal_mode = WAL", "CREATE TABLE notes (x)"),
        "not a ledger",
    ),
    "another program's empty file": (database("PRAGMA application_id = 77"), "not a ledger"),
    "our tables, their name": (altered("PRAGMA application_id = 77"), "not a ledger"),
    "version 0": (altered("PRAGMA user_version = 0"), "not a ledger"),
    "a newer version": (altered("PRAGMA user_version = 3"), "version 3.* upgrade counterveil"),
}
DAMAGES = {
    "no tables": altered("DROP TABLE entries"),
    "no account": altered("DELETE FROM accounts", "PRAGMA user_version = 1"),
    "not a number": altered("UPDATE entries SET epsilon = 'some'"),
    "a refund": altered("UPDATE entries SET epsilon = '-3'"),
    "endless": altered("UPDATE accounts SET epsilon = '1e999999999'"),
    "no bytes of text": altered("UPDATE entries SET what = CAST(x'ff' AS TEXT)"),
}


def content(path):
    return path.read_bytes() if path.is_file() else None


@pytest.mark.parametrize("case", FILES)
def test_foreign_files_are_refused_and_left_alone(tmp_path, case):
    make, words = FILES[case]
    path = tmp_path / "ledger.db"
    make(path)
    before, beside = content(path), sorted(os.listdir(tmp_path))
    for call in (lambda: Ledger(path).accounts(),
                 lambda: Ledger(path).reserve("adult", Budget(0.1), "veil", RECORDS),
                 lambda: Ledger(path).open_account("new", Budget(1))):  # fmt: skip
        with pytest.raises(RequestError, match=words) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert (content(path), sorted(os.listdir(tmp_path))) == (before, beside)


@pytest.mark.parametrize("case", DAMAGES)
def test_damaged_ledgers_are_one_line(tmp_path, case):
    path = tmp_path / "ledger.db"
    DAMAGES[case](path)
    for call in (lambda: Ledger(path).accounts(),
                 lambda: Ledger(path).reserve("adult", Budget(0.1), "veil", RECORDS)):  # fmt: skip
        with pytest.raises(RequestError, match=r"cannot use the ledger .* is damaged") as caught:
            call()
        assert "\n" not in str(caught.value)


# Damage: what is read is what was written, or nothing is read


@pytest.fixture(scope="module")
def long_ledger(tmp_path_factory):
    """A ledger of several pages; account 0 can pay 0.1 more."""
    ledger = Ledger(tmp_path_factory.mktemp("long") / "ledger.db")
    for name in range(3):
        ledger.open_account(f"rows {name}", Budget(2.1, 1e-6))
    for number in range(60):
        name, words = number % 3, f"veil {number} " + "for the loan desk " * (number % 9)
        subject = replace(RECORDS, units=600 + name)
        paid = ledger.reserve(f"rows {name}", Budget(0.1), words.strip(), subject)
        if number % 2:
            ledger.commit(paid, DIGEST)
    ledger.write_down("rows 1", "check of all rows")
    assert ledger.path.stat().st_size >= 8 * 4096
    accounts, entries = read(ledger)
    assert (len(accounts), len(entries)) == (3, 61)
    return ledger


def damaged(whole, random):
    """`whole` with one kind of damage, somewhere."""
    broken, size = bytearray(whole), len(whole)
    start, other = (random.choice(range(0, size, 4096)) for _ in range(2))
    place = random.choice(
        (random.randrange(size), random.randrange(100), start + random.randrange(16))
    )
    length = min(random.choice((1, 2, 8, 64, 512, 4096)), size - place)
    page, another = slice(start, start + 4096), slice(other, other + 4096)
    match random.choice(("flip", "flip", "flip", "zero", "noise", "cut", "swap", "copy", "lose")):
        case "flip":
            for _ in range(random.choice((1, 1, 2, 5))):
                broken[place] ^= random.randrange(1, 256)
                place = random.randrange(size)
        case "zero":
            broken[place : place + length] = bytes(length)
        case "noise":
            broken[place : place + length] = random.randbytes(length)
        case "cut":
            del broken[random.choice((place, start)) :]
        case "swap":
            broken[page], broken[another] = broken[another], broken[page]
        case "copy":
            broken[page] = broken[another]
        case "lose":
            del broken[page]
    return bytes(broken)


def read(ledger):
    """Accounts and entries, or None for a refusal."""
    try:
        return ledger.accounts(), ledger.entries()
    except RequestError:
        return None


def test_a_damaged_ledger_forgets_no_charge(long_ledger, tmp_path):
    whole, before = long_ledger.path.read_bytes(), read(long_ledger)
    subject = replace(RECORDS, units=600)
    ledger = Ledger(tmp_path / "ledger.db", timeout_s=1)
    refused = 0
    for seed in range(int(os.environ.get("COUNTERVEIL_DAMAGES", "150"))):
        for beside in tmp_path.iterdir():
            beside.unlink()
        ledger.path.write_bytes(damaged(whole, Random(seed)))
        assert read(ledger) in (None, before), seed
        with pytest.raises(InputError):
            ledger.reserve("rows 0", Budget(0.1000001), "too much", subject)
        assert read(ledger) in (None, before), seed
        try:
            ledger.reserve("rows 0", Budget(0.1), "the rest", subject)
        except RequestError:
            refused += 1
            continue
        accounts, entries = read(ledger)
        assert accounts[0].remaining.epsilon == 0, seed
        assert accounts[1:] == before[0][1:], seed
        assert entries[:-1] == before[1], seed
        assert (entries[-1].what, entries[-1].epsilon) == ("the rest", 0.1), seed
    assert refused > seed / 2


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM entries WHERE number = 61",
        "UPDATE entries SET epsilon = '0.01' WHERE number = 7",
        "UPDATE entries SET digest = '' WHERE number = 2",
        "UPDATE entries SET number = 62 WHERE number = 3",
        "UPDATE accounts SET epsilon = '9' WHERE dataset = 'rows 2'",
        "INSERT INTO accounts VALUES ('new', '1', '0', 'now')", "UPDATE seal SET sha256 = ''",
        "DELETE FROM seal", "INSERT INTO seal SELECT * FROM seal", "CREATE TABLE more (x)",
        "CREATE TRIGGER free AFTER INSERT ON entries BEGIN DELETE FROM entries; END",
        "CREATE VIEW more AS SELECT * FROM entries",
    ],
)  # fmt: skip
def test_a_change_that_sqlite_finds_sound_is_noticed(long_ledger, tmp_path, change):
    path = tmp_path / "ledger.db"
    path.write_bytes(long_ledger.path.read_bytes())
    database(change)(path)
    before = path.read_bytes()
    for call in (Ledger(path).accounts,
                 lambda: Ledger(path).reserve("rows 0", Budget(0.1), "veil", RECORDS),
                 lambda: Ledger(path).open_account("other", Budget(1))):  # fmt: skip
        with pytest.raises(RequestError, match="is damaged"):
            call()
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET number = 9", "UPDATE entries SET kind = 'refund'",
        "UPDATE entries SET epsilon = '-0.5'", "UPDATE entries SET epsilon = '0.50'",
        "UPDATE entries SET epsilon = 'Infinity'", "UPDATE entries SET units = 0",
        "UPDATE entries SET unit = 'household'", "UPDATE entries SET columns = ''",
    ],
)  # fmt: skip
def test_values_are_checked_too(tmp_path, change):
    altered(change)(tmp_path / "ledger.db")
    reseal(tmp_path / "ledger.db")
    with pytest.raises(RequestError, match="is damaged"):
        Ledger(tmp_path / "ledger.db").accounts()


@pytest.mark.parametrize("value", ["NULL", "7", "x'3031'", "1.5"])
def test_no_cell_of_another_type_is_written(ledger, value):
    ledger.reserve("adult", Budget(0.5), "veil", RECORDS)
    with closing(sqlite3.connect(ledger.path)) as file:
        for column in ("max_records", "units", "other_rows", "what", "digest", "epsilon"):
            texts = column in {"what", "digest", "epsilon"}
            if (value in {"7", "1.5"} and texts) or (value == "7" and not texts):
                continue  # becomes text, or is a whole number
            with pytest.raises(sqlite3.IntegrityError):
                file.execute(f"UPDATE entries SET {column} = {value}")


def test_a_full_disk_is_not_called_damage(ledger, monkeypatch):
    connect = sqlite3.connect

    def small(*values, **options):
        file = connect(*values, **options)
        file.execute("PRAGMA max_page_count = 1")
        return file

    monkeypatch.setattr(sqlite3, "connect", small)
    with pytest.raises(RequestError, match="the disk is full; make room and try again"):
        ledger.reserve("adult", Budget(0.5), "long " * 2000, RECORDS)
    monkeypatch.undo()
    assert ledger.entries() == ()


# Ledgers of version 1


def version_1(path, charges=2):
    """A ledger as the first version wrote it: ε of 0.25 a charge, the first of them released."""
    tables = module.TABLES[1]
    names = "PRAGMA application_id = 0x43566C67", "PRAGMA user_version = 1"
    account = "INSERT INTO accounts VALUES ('adult', '1.0', '0.0', '2025-01-01T00:00:00+00:00')"
    spends = [
        f"INSERT INTO spends VALUES ('{number:016x}', 'adult', '0.25', '0.0', 'veil {number}',"
        f" '2025-01-02T00:00:00+00:00', {'NULL' if number else repr(DIGEST)})"
        for number in range(charges)
    ]
    database(*names, "BEGIN", *tables, account, *spends, "COMMIT")(path)
    return Ledger(path)


def test_an_old_ledger_is_read_as_it_is_and_carried_over_by_the_next_charge(tmp_path):
    ledger = version_1(tmp_path / "ledger.db")
    before = ledger.path.read_bytes()
    assert spent(ledger).epsilon == Decimal("0.5")
    released, reserved = old = ledger.entries()
    assert (released.digest, released.state, reserved.state) == (DIGEST, "released", "reserved")
    assert (released.kind, released.subject, released.other_rows) == ("charge", None, False)
    assert ledger.path.read_bytes() == before
    with pytest.raises(OverdrawnError):
        ledger.reserve("adult", Budget(0.6), "veil", PEOPLE)
    assert ledger.path.read_bytes() == before
    ledger.commit(Reservation(reserved.id, "adult", Budget(0.25)), "ab" * 32)
    ledger.reserve("adult", Budget(0.25), "veil", PEOPLE)  # fixes the unit
    with pytest.raises(RequestError, match="different units"):
        ledger.reserve("adult", Budget(0.25), "veil", RECORDS)
    assert ledger.entries()[0] == old[0]
    assert ledger.entries()[1].digest == "ab" * 32
    assert ledger.accounts()[0].subject == PEOPLE
    assert spent(ledger).epsilon == Decimal("0.75")
    with closing(sqlite3.connect(ledger.path)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (2,)
        assert file.execute("SELECT name FROM sqlite_master WHERE name = 'spends'").fetchall() == []


def test_an_account_can_be_opened_in_an_old_ledger(tmp_path):
    ledger = version_1(tmp_path / "ledger.db", charges=500)
    ledger.open_account("more", Budget(1.0))
    assert [account.dataset for account in ledger.accounts()] == ["adult", "more"]
    assert [entry.what for entry in ledger.entries()] == [f"veil {i}" for i in range(500)]


@pytest.mark.parametrize("statement", ["DROP TABLE spends", "CREATE TABLE", "INSERT", "COMMIT"])
def test_a_crash_while_an_old_ledger_is_carried_over_loses_nothing(tmp_path, statement):
    ledger = version_1(tmp_path / "ledger.db")
    before = ledger.entries()
    assert run_child(ledger.path, statement, 1)[0] == -signal.SIGKILL
    assert ledger.entries() == before
    ledger.reserve("adult", Budget(0.25), "veil", RECORDS)
    assert ledger.entries()[:2] == before


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE spends SET dataset = 'other'",
        "UPDATE spends SET epsilon = x'00'",
        "UPDATE spends SET epsilon = '-0.25'",
        "DROP INDEX spends_of_dataset",
        "PRAGMA user_version = 2",
    ],
)
def test_a_damaged_old_ledger_is_refused(tmp_path, change):
    ledger = version_1(tmp_path / "ledger.db")
    database(change)(ledger.path)
    before = ledger.path.read_bytes()
    for call in (ledger.entries, lambda: ledger.reserve("adult", Budget(0.1), "veil", RECORDS)):
        with pytest.raises(RequestError, match="is damaged"):
            call()
    assert ledger.path.read_bytes() == before


def test_a_new_ledger_that_says_it_is_old_is_refused(ledger):
    ledger.reserve("adult", Budget(1.0), "veil", RECORDS)
    database("PRAGMA user_version = 1")(ledger.path)
    with pytest.raises(RequestError, match="is damaged"):
        ledger.reserve("adult", Budget(0.1), "veil", RECORDS)


def test_no_file_is_made_by_looking(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    for call in (ledger.accounts, ledger.entries,
                 lambda: ledger.reserve("a", Budget(1), "veil", RECORDS)):  # fmt: skip
        with pytest.raises(RequestError, match=r"no ledger at .*; make one: counterveil ledger"):
            call()
    assert not os.listdir(tmp_path)
    with pytest.raises(RequestError, match="null character"):
        Ledger("led\0ger.db")
    with pytest.raises(RequestError, match="check the path"):
        Ledger(tmp_path / ("x" * 300)).open_account("a", Budget(1))


def test_odd_places_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.db").touch()
    for name in ("new/folder/ledger.db", "50%?mode=memory&x#y.db", "empty.db"):
        ledger = Ledger(name)
        monkeypatch.chdir("/")
        ledger.open_account("café [b]", Budget(1))
        assert (tmp_path / name).stat().st_size > 0
        assert ledger.accounts() == Ledger(tmp_path / name).accounts()
        monkeypatch.chdir(tmp_path)


# The command line


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        code = 0
        try:
            ledger_app(args=[str(argument) for argument in arguments])
        except SystemExit as done:
            code = int(done.code or 0)
        return code, capsys.readouterr().out

    return call


def test_open_and_show(run):
    code, out = run("open", "l.db", "--dataset", "adult", "--epsilon", 1, "--delta", "1e-6")
    assert (code, out) == (0, "adult may spend ε = 1, δ = 1e-6 in all\n")
    assert "charges to adult: none yet" in run("show", "l.db")[1]
    run("open", "l.db", "--dataset", "[b]odd[/x]", "--epsilon", 2)
    ledger = Ledger("l.db")
    ledger.commit(ledger.reserve("adult", Budget(0.75), "for the [loan] desk", RECORDS), DIGEST)
    ledger.reserve("[b]odd[/x]", Budget(0.5), "cut off", RECORDS, other_rows=True)
    out = run("show", "l.db")[1]
    for words in ("total", "spent", "remaining", "ε = 0.25, δ = 1e-6", "for the [loan] desk",
                  "released", "reserved", "5f0c5f0c5f0c", "[b]odd[/x]"):  # fmt: skip
        assert words in out
    assert "odd" not in run("show", "l.db", "--dataset", "adult")[1]
    answer = json.loads(run("show", "l.db", "--json", "--dataset", "adult")[1])
    (account,), (entry,) = answer["accounts"], answer["entries"]
    assert account["total"] == {"epsilon": 1, "delta": 1e-6}
    assert account["remaining"] == {"epsilon": 0.25, "delta": 1e-6}
    assert (entry["state"], entry["digest"]) == ("released", DIGEST)


def test_show_tells_units_rows_and_looks(run):
    run("open", "l.db", "--dataset", "adult", "--epsilon", 1, "--delta", "1e-6")
    ledger = Ledger("l.db")
    ledger.write_down("adult", "check of all rows")
    ledger.reserve("adult", Budget(0.5, 1e-7), "veil", PEOPLE, other_rows=True)
    out = run("show", "l.db")[1]
    for words in ("each protects one person with at most 3 records, replace-one", "200 people",
                  "columns a1a1", "check of all rows", "exact look by", "no ε covers it", "δ 1e-07",
                  "declared other people"):  # fmt: skip
        assert words in out
    answer = json.loads(run("show", "l.db", "--json")[1])
    (account,), (look, charge) = answer["accounts"], answer["entries"]
    assert (account["unit"], account["max_records"], account["looks"]) == ("person", 3, 1)
    assert account["relation"] == "replace-one"
    assert (look["kind"], look["unit"], look["epsilon"]) == ("looked", None, 0)
    assert (charge["kind"], charge["unit"], charge["max_records"]) == ("charge", "person", 3)
    assert (charge["units"], charge["columns"], charge["other_rows"]) == (200, "a1" * 32, True)
    version_1(Path("old.db"))
    assert "not known" in run("show", "old.db")[1]


def test_what_a_hostile_file_says_cannot_steer_the_terminal(run, tmp_path):
    altered("UPDATE entries SET what = 'a' || char(27) || '[2J'")(tmp_path / "l.db")
    reseal(tmp_path / "l.db")
    assert "\x1b" not in run("show", "l.db")[1]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("show", "none.db"), RequestError, "no ledger at"),
        (("show", "."), RequestError, "is a directory"),
        (("show", "l.db", "--dataset", "b"), RequestError, "has no account"),
        (("open", "l.db", "--dataset", "a", "--epsilon", 1), RequestError, "already has an acc"),
        (("open", "n.db", "--dataset", "a", "--epsilon", 0), BudgetError, "epsilon must be"),
        (("open", "n.db", "--dataset", "a", "--epsilon", "inf"), BudgetError, "infinite"),
        (("open", "n.db", "--dataset", "a", "--epsilon", 1, "--delta", -1), BudgetError, "delta"),
        (("open", "n.db", "--dataset", "", "--epsilon", 1), RequestError, "one line of text"),
    ],
)
def test_wrong_input_reaches_the_main_command_as_one_line(run, tmp_path, arguments, error, words):
    Ledger("l.db").open_account("a", Budget(1))
    with pytest.raises(error, match=words) as caught:
        run(*arguments)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == ["l.db"]
