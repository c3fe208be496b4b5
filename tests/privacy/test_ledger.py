"""The ledger: no account spends more than its total, to the digit, together, through crashes."""

import doctest
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
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterveil.cli.ledger import ledger_app
from counterveil.errors import BudgetError, InputError, RequestError
from counterveil.privacy import Budget
from counterveil.privacy import ledger as module
from counterveil.privacy.ledger import Amount, Ledger, OverdrawnError, Reservation, digits

DIGEST = "5f0c" * 16


@dataclass(frozen=True)
class Both(Budget):
    """ε and δ."""

    delta: float = 0.0


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open_account("adult", Budget(1.0))
    return ledger


def spent(ledger, dataset="adult"):
    return next(account.spent for account in ledger.accounts() if account.dataset == dataset)


# Exact amounts


def test_ten_tenths_are_one(ledger):
    for _ in range(10):
        ledger.reserve("adult", Budget(0.1), "a tenth")
    assert spent(ledger) == Amount(Decimal(1), Decimal(0))
    with pytest.raises(OverdrawnError):
        ledger.reserve("adult", Budget(5e-324), "a crumb")


def test_three_tenths_do_not_overrun(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open_account("adult", Budget(0.3))
    with pytest.raises(OverdrawnError, match=r"requested ε = 0\.30000000000000004"):
        ledger.reserve("adult", Budget(0.1 + 0.2), "floats add up to more")
    for epsilon in (0.1, 0.2):
        ledger.reserve("adult", Budget(epsilon), "decimals do not")


amounts = st.floats(min_value=0, max_value=1e300, exclude_min=True)
deltas = st.floats(min_value=0, max_value=1, exclude_max=True)


@given(st.lists(st.tuples(amounts, deltas), max_size=12), st.tuples(amounts, deltas))
def test_sums_are_exact(spends, limit):
    def fraction(number):
        return Fraction(repr(number))

    total = sum((Amount.of(Both(*spend)) for spend in spends), Amount())
    epsilon = sum(fraction(epsilon) for epsilon, _ in spends)
    delta = sum(fraction(delta) for _, delta in spends)
    assert (Fraction(total.epsilon), Fraction(total.delta)) == (epsilon, delta)
    fits = epsilon <= fraction(limit[0]) and delta <= fraction(limit[1])
    assert total.fits(Amount.of(Both(*limit))) == fits
    assert Amount(Decimal(digits(total.epsilon)), total.delta) == total


@settings(max_examples=5, deadline=None)
@given(st.lists(st.integers(1, 400), max_size=8))
def test_the_file_keeps_exact_sums(tmp_path_factory, thousandths):
    ledger = Ledger(tmp_path_factory.mktemp("exact") / "ledger.db")
    ledger.open_account("d", Budget(1))
    accepted = 0
    for part in thousandths:
        if accepted + part <= 1000:
            ledger.reserve("d", Budget(part / 1000), "part")
            accepted += part
        else:
            with pytest.raises(OverdrawnError):
                ledger.reserve("d", Budget(part / 1000), "part")
        assert spent(ledger, "d").epsilon * 1000 == accepted


def test_epsilon_and_delta_are_both_limits(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open_account("adult", Both(1.0, 1e-6))
    ledger.reserve("adult", Both(0.25, 1e-6), "Gaussian")
    words = "requested ε = 0.25, δ = 1e-30; remaining ε = 0.75, δ = 0; total ε = 1, δ = 1e-6"
    with pytest.raises(OverdrawnError, match=re.escape(words)):
        ledger.reserve("adult", Both(0.25, 1e-30), "Gaussian")
    ledger.reserve("adult", Both(0.75, 0.0), "Laplace")


def test_a_reference_without_noise_has_no_price(ledger):
    with pytest.raises(BudgetError, match="infinite epsilon"):
        ledger.reserve("adult", Budget(math.inf), "reference")
    with pytest.raises(BudgetError, match="infinite epsilon"):
        ledger.open_account("all", Budget(math.inf))


@pytest.mark.parametrize(
    ("number", "text"),
    [("0", "0"), ("10", "10"), ("1E-6", "1e-6"), ("0.00001", "0.00001"), ("1E+20", "1e+20"),
     ("0.750", "0.75")],
)  # fmt: skip
def test_amounts_read_well(number, text):
    assert digits(Decimal(number)) == text


# The account


def test_overdrawing_names_requested_remaining_total_and_the_remedy(ledger):
    ledger.reserve("adult", Budget(0.75), "veil")
    with pytest.raises(OverdrawnError) as caught:
        ledger.reserve("adult", Budget(0.3), "veil")
    assert str(caught.value) == (
        "dataset 'adult' cannot pay: requested ε = 0.3, δ = 0; remaining ε = 0.25, δ = 0; "
        "total ε = 1, δ = 0. Ask for at most what remains, or use a veil that is already released"
    )
    assert isinstance(caught.value, BudgetError)
    assert spent(ledger).epsilon == Decimal("0.75")
    ledger.reserve("adult", Budget(0.25), "the rest")


def test_what_was_done_is_there_for_the_next_process(ledger):
    ledger.open_account("hospital", Budget(3))
    first = ledger.reserve("adult", Budget(0.5), "the first veil")
    ledger.reserve("hospital", Budget(2), "the second veil")
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


def test_one_charge_pays_for_one_release(ledger):
    reservation = ledger.reserve("adult", Budget(0.5), "veil")
    ledger.commit(reservation, DIGEST)
    with pytest.raises(RequestError, match="already released as veil 5f0c5f0c5f0c"):
        ledger.commit(reservation, "0" * 64)
    assert [entry.digest for entry in ledger.entries()] == [DIGEST]


def test_only_what_was_reserved_is_committed(ledger, tmp_path):
    real = ledger.reserve("adult", Budget(0.5), "veil")
    other = Ledger(tmp_path / "other.db")
    other.open_account("adult", Budget(1.0))
    unknown = Reservation("0" * 16, "adult", Budget(0.5))
    for where, what in ((ledger, unknown), (ledger, replace(real, budget=Budget(0.4))),
                        (ledger, replace(real, dataset="hospital")), (other, real)):  # fmt: skip
        with pytest.raises(RequestError, match="no such reservation"):
            where.commit(what, DIGEST)
    assert [entry.state for entry in ledger.entries()] == ["reserved"]


def test_a_total_is_fixed_for_good(ledger):
    ledger.reserve("adult", Budget(0.75), "veil")
    with pytest.raises(RequestError, match=r"total ε = 1, δ = 0; remaining ε = 0\.25, δ = 0"):
        ledger.open_account("adult", Budget(100))
    assert ledger.accounts()[0].total == Amount(Decimal(1))


def test_a_dataset_without_an_account(ledger):
    remedy = r"counterveil ledger open .*ledger.db --dataset 'my rows' --epsilon TOTAL"
    for call in (lambda: ledger.reserve("my rows", Budget(1), "veil"),
                 lambda: ledger.entries("my rows")):  # fmt: skip
        with pytest.raises(RequestError, match=remedy):
            call()


@pytest.mark.parametrize("words", ["", "  ", "two\nlines", "\x1b[2J", "\udc80", "a\0b", None, 3])
def test_names_are_one_line_of_text(ledger, words):
    reservation = ledger.reserve("adult", Budget(0.5), "veil")
    for call in (lambda: ledger.open_account(words, Budget(1)),
                 lambda: ledger.reserve(words, Budget(0.1), "veil"),
                 lambda: ledger.reserve("adult", Budget(0.1), words),
                 lambda: ledger.commit(reservation, words),
                 lambda: ledger.entries(words or "")):  # fmt: skip
        with pytest.raises(RequestError, match="must be one line of text"):
            call()
    assert [entry.state for entry in ledger.entries()] == ["reserved"]


def test_the_example_of_the_module_runs():
    assert doctest.testmod(module).failed == 0


# Together


SPENDER = """
import os, sys
from counterveil.privacy import Budget
from counterveil.privacy.ledger import Ledger, OverdrawnError

ledger = Ledger(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(4):
    try:
        reservation = ledger.reserve("adult", Budget(0.1), f"process {os.getpid()}")
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
                paid.append(ledger.reserve("adult", Budget(0.1), "thread").id)
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
            hasty.reserve("adult", Budget(0.1), "veil")
        assert hasty.entries() == ()
        # A second opening in this process, closed, must not drop the lock of the first.
        locking = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0.05)"
        locking += ".execute('BEGIN IMMEDIATE')"
        assert "database is locked" in start(locking, ledger.path).communicate()[1]
    hasty.reserve("adult", Budget(0.1), "veil")


# Crashes: a child kills itself with SIGKILL when it is about to run the n-th statement of a kind.

CHILD = """
import os, signal, sqlite3, sys
from counterveil.privacy import Budget
from counterveil.privacy.ledger import Ledger

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
                    super().execute("UPDATE spends SET epsilon = '0', what = hex(zeroblob(50000))")
                die()
        return super().execute(statement, *values)

connect = sqlite3.connect
sqlite3.connect = lambda *values, **options: connect(*values, factory=Fatal, **options)
ledger = Ledger(path)
if word == "open":
    word, count = "COMMIT", 1
    ledger.open_account("new", Budget(1))
reservation = ledger.reserve("adult", Budget(0.25), "cut off")
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
    "before the release": ("UPDATE", 1, "reserved", ["reserved"]),
    "the release half-written": ("half UPDATE", 1, "reserved", ["reserved"]),
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
    ledger.reserve("adult", Budget(0.25), "earlier")
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
        ledger.reserve("adult", Budget(0.25), "later")
    with pytest.raises(OverdrawnError):
        ledger.reserve("adult", Budget(0.25), "too much")


def test_a_crash_while_the_ledger_is_made_leaves_room_for_it(tmp_path):
    path = tmp_path / "ledger.db"
    assert run_child(path, "open", 1)[0] == -signal.SIGKILL
    with pytest.raises(RequestError, match="no ledger at"):
        Ledger(path).accounts()
    Ledger(path).open_account("new", Budget(1))
    assert len(Ledger(path).accounts()) == 1


def test_kills_at_any_moment_lose_no_charge(tmp_path):
    path = tmp_path / "ledger.db"
    ledger = Ledger(path)
    ledger.open_account("adult", Budget(50))
    loop = (
        "import sys\nfrom counterveil.privacy import Budget\n"
        "from counterveil.privacy.ledger import Ledger\n"
        "while True:\n"
        "    print(Ledger(sys.argv[1]).reserve('adult', Budget(0.1), 'loop').id, flush=True)\n"
    )
    told = set()
    for wait in (1, 2, 5):
        child = start(loop, path)
        lines = [child.stdout.readline() for _ in range(wait)]
        child.kill()
        rest, _ = child.communicate()
        told |= {line for line in "".join([*lines, rest]).split() if len(line) == 16}
        charged = {entry.id for entry in ledger.entries()}
        assert told <= charged
        assert spent(ledger).epsilon == Decimal("0.1") * len(charged)
    assert len(told) >= 8


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
        Ledger(path).reserve("adult", Budget(0.5), "veil")
        database(*statements)(path)

    return make


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
    "a newer version": (altered("PRAGMA user_version = 2"), "version 2.* upgrade counterveil"),
}
DAMAGES = {
    "no tables": altered("DROP TABLE spends"),
    "no account": altered("DELETE FROM accounts", "PRAGMA user_version = 1"),
    "not a number": altered("UPDATE spends SET epsilon = 'some'"),
    "a refund": altered("UPDATE spends SET epsilon = '-3'"),
    "endless": altered("UPDATE accounts SET epsilon = '1e999999999'"),
    "no bytes of text": altered("UPDATE spends SET what = CAST(x'ff' AS TEXT)"),
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
                 lambda: Ledger(path).reserve("adult", Budget(0.1), "veil"),
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
                 lambda: Ledger(path).reserve("adult", Budget(0.1), "veil")):  # fmt: skip
        with pytest.raises(InputError, match=r"cannot use the ledger|has no account") as caught:
            call()
        assert "\n" not in str(caught.value)


def test_no_file_is_made_by_looking(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    for call in (ledger.accounts, ledger.entries, lambda: ledger.reserve("a", Budget(1), "veil")):
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
    code, out = run("open", "l.db", "--dataset", "adult", "--epsilon", 1)
    assert (code, out) == (0, "adult may spend ε = 1, δ = 0 in all\n")
    assert "charges to adult: none yet" in run("show", "l.db")[1]
    run("open", "l.db", "--dataset", "[b]odd[/x]", "--epsilon", 2)
    ledger = Ledger("l.db")
    ledger.commit(ledger.reserve("adult", Budget(0.75), "for the [loan] desk"), DIGEST)
    ledger.reserve("[b]odd[/x]", Budget(0.5), "cut off")
    code, out = run("show", "l.db")
    assert code == 0
    for words in ("total", "spent", "remaining", "ε = 0.25, δ = 0", "for the [loan] desk",
                  "released", "reserved", "5f0c5f0c5f0c", "[b]odd[/x]"):  # fmt: skip
        assert words in out
    assert "odd" not in run("show", "l.db", "--dataset", "adult")[1]


def test_show_as_json(run):
    run("open", "l.db", "--dataset", "adult", "--epsilon", 0.3)
    run("open", "l.db", "--dataset", "other", "--epsilon", 1)
    reservation = Ledger("l.db").reserve("adult", Budget(0.1), "veil")
    code, out = run("show", "l.db", "--json", "--dataset", "adult")
    answer = json.loads(out)
    (account,), (entry,) = answer["accounts"], answer["entries"]
    assert code == 0
    assert account["total"] == {"epsilon": 0.3, "delta": 0}
    assert account["remaining"] == {"epsilon": 0.2, "delta": 0}
    assert (entry["id"], entry["state"], entry["digest"]) == (reservation.id, "reserved", None)


def test_what_a_hostile_file_says_cannot_steer_the_terminal(run, tmp_path):
    altered("UPDATE spends SET what = 'a' || char(27) || '[2J'")(tmp_path / "l.db")
    assert "\x1b" not in run("show", "l.db")[1]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("show", "l.db"), RequestError, "no ledger at"),
        (("show", "."), RequestError, "is a directory"),
        (("open", "l.db", "--dataset", "a", "--epsilon", 0), BudgetError, "epsilon must be"),
        (("open", "l.db", "--dataset", "a", "--epsilon", "inf"), BudgetError, "infinite"),
        (("open", "l.db", "--dataset", "", "--epsilon", 1), RequestError, "one line of text"),
    ],
)
def test_wrong_input_reaches_the_main_command_as_one_line(run, tmp_path, arguments, error, words):
    with pytest.raises(error, match=words) as caught:
        run(*arguments)
    assert "\n" not in str(caught.value)
    assert not os.listdir(tmp_path)


def test_accounts_open_once_from_the_command_line(run):
    opening = ("open", "l.db", "--dataset", "a", "--epsilon", 1)
    run(*opening)
    with pytest.raises(RequestError, match="already has an account"):
        run(*opening)
    with pytest.raises(RequestError, match="has no account"):
        run("show", "l.db", "--dataset", "b")


@pytest.mark.skipif(len(fields(Budget)) < 2, reason="budgets have no delta yet")
def test_delta_from_the_command_line(run):
    out = run("open", "l.db", "--dataset", "a", "--epsilon", 1, "--delta", "1e-6")[1]
    assert "ε = 1, δ = 1e-6" in out
    with pytest.raises(BudgetError):
        run("open", "l.db", "--dataset", "b", "--epsilon", 1, "--delta", -1)


def test_usage_and_help(run):
    assert run("open", "l.db")[0] == 2
    for command in ((), ("open",), ("show",)):
        code, out = run(*command, "--help")
        assert code == 0
        assert "Usage" in out


def test_the_ledger_does_not_load_torch():
    probe = "import sys, counterveil.cli.ledger, counterveil.privacy.ledger as _\n"
    probe += "assert not {'torch', 'pandas', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", probe], check=True)
