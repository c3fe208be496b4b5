"""`release` is killed at many points: no charge is forgotten, no paid veil is lost.

A child is forked for each kill, because loading torch a hundred times would take minutes. It dies
before the n-th line that it runs in the files that pay and write, or after some time.
"""

import os
import signal
import sys
import time
import warnings
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random

import pytest

import counterveil
from counterveil import build
from counterveil.cli import main
from counterveil.privacy import Budget
from counterveil.privacy.ledger import Ledger, OverdrawnError
from counterveil.veil import Veil

KILLS, MANY = 25, 100
SOURCES = Path(counterveil.__file__).parent
PAYING = {str(SOURCES / name) for name in ("curator/curator.py", "files.py", "privacy/ledger.py")}
EPSILON = "0.01"

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
    pytest.mark.forks,
]


class Project:
    """A folder with rows, a schema and a ledger, and releases to x.veil there."""

    def __init__(self, folder, schema, rows):
        self.folder, self.veil = folder, folder / "x.veil"
        self.ledger = Ledger(folder / "ledger.db")
        self.started = self.charges = 0
        self.lost_names = 0  # of files that are neither rows, ledger nor veil
        schema.save(folder / "schema.json")
        rows.head(40).to_csv(folder / "rows.csv", index=False)
        self.inputs = {"ledger.db", "ledger.db-journal", "rows.csv", "schema.json"}

    def fork(self, line=0):
        """Start a release; it dies before the `line`-th line of PAYING. Returns the child."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
            child = os.fork()
        if child:
            self.started += 1
            return child
        code = 99
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            if line:
                sys.settrace(Lines(line).enter)
            code = self.release()
        finally:
            os._exit(code)

    def release(self):
        """Run the command in this process. Returns its exit code."""
        self.started += 1
        named = {
            "data": "rows.csv", "schema": "schema.json", "ledger": "ledger.db", "out": "x.veil",
        }  # fmt: skip
        files = [word for name, file in named.items() for word in (f"--{name}", self.folder / file)]
        command = ["release", *files, "--epsilon", EPSILON, "--epochs", "1"]
        try:
            main([str(word) for word in command])
        except SystemExit as done:
            return int(done.code or 0)
        return 0

    def look(self):
        """Check all that must hold after a release ended somehow; then make room for the next."""
        entries = self.ledger.entries()
        assert self.charges <= len(entries) <= self.charges + 1 <= self.started
        (account,) = self.ledger.accounts()
        assert account.spent.epsilon == Decimal(EPSILON) * len(entries) <= account.total.epsilon
        paid = {entry.digest for entry in entries[self.charges :] if entry.state == "released"}
        self.charges = len(entries)
        whole = {path: Veil.load(path).digest for path in self.folder.glob("x.veil*")}
        assert paid <= set(whole.values()), "a veil that was paid for is lost"
        assert len(set(whole.values())) <= 1  # for a moment one file has both names
        if self.veil.exists():
            assert whole[self.veil] in paid, "a veil is there that was not paid for"
        for path in whole:
            path.unlink()
        self.lost_names = len({path.name for path in self.folder.iterdir()} - self.inputs)


class Lines:
    """Counts the lines that run in the files PAYING, and kills the process before one of them.

    Helpers of the ledger that only read do not count, nor do loops over the charges: their lines
    would be most of all, and more with every charge.
    """

    def __init__(self, fatal=0):
        self.seen, self.fatal = 0, fatal

    def enter(self, frame, event, argument):
        code = frame.f_code
        reads = code.co_filename.endswith("ledger.py") and not code.co_qualname.startswith("Ledger")
        loops = code.co_name == "<genexpr>"
        return self.count if code.co_filename in PAYING and not (reads or loops) else None

    def count(self, frame, event, argument):
        if event == "line":
            self.seen += 1
            if self.seen == self.fatal:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.count


@pytest.fixture
def project(tmp_path, schema, rows, monkeypatch):
    small = replace(build.TRAININGS[schema.family], samples=200, surrogate_epochs=1)
    monkeypatch.setitem(build.TRAININGS, schema.family, small)
    project = Project(tmp_path, schema, rows)
    project.ledger.open_account("loans", Budget((MANY + 30) / 100))
    return project


def ended(child):
    """The exit code of the child, or minus its signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def count_lines(project):
    """How many lines of PAYING a release runs."""
    lines, before = Lines(), sys.gettrace()
    sys.settrace(lines.enter)
    try:
        assert project.release() == 0
    finally:
        sys.settrace(before)
    project.look()
    return lines.seen


@pytest.mark.long
@pytest.mark.parametrize("kills", [KILLS, pytest.param(MANY, marks=pytest.mark.slow)])
def test_a_release_that_is_killed_anywhere_forgets_and_loses_nothing(project, kills):
    random = Random(0)
    assert project.release() == 0  # loads whatever is loaded when it is first used
    project.look()
    lines = count_lines(project)
    start = time.monotonic()
    assert ended(project.fork()) == 0
    whole_s = time.monotonic() - start
    project.look()
    killed = 0
    for kill in range(kills):
        if kill % 5:
            child = project.fork(1 + int((kill + random.random()) / kills * lines))
        else:
            child = project.fork()
            time.sleep(random.uniform(0, whole_s))
            os.kill(child, signal.SIGKILL)
        code = ended(child)
        assert code in (0, -signal.SIGKILL)
        killed += code != 0
        project.look()
    assert killed > 0.8 * kills
    assert project.lost_names <= max(2, kills // 20)
    assert ended(project.fork()) == 0  # nothing that a kill left is in the way
    project.look()
    subject = project.ledger.accounts()[0].subject
    account = project.ledger.accounts()[0]
    project.ledger.reserve("loans", Budget(float(account.remaining.epsilon)), "the rest", subject)
    with pytest.raises(OverdrawnError):
        project.ledger.reserve("loans", Budget(1e-9), "a crumb", subject)
