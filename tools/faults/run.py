"""Planted faults: would the audit notice if the code broke its promise?

Every fault is a small change of the product's text that breaks privacy, as a slip of the pen could.
It is planted in a copy of `counterveil`; a new process loads that copy and plays the games and
checks that must find it. The sound copy plays the very same ones, and none may find anything.

`python tools/faults` does it for all of them and stores what was found in
`results/audit_faults.parquet`. A fault whose text is no longer in the product is an error:
it must follow the code.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import counterveil
from counterveil.errors import InputError
from counterveil_lab.results import Row
from faults.fault import (
    ALONE,
    COMMAND,
    COUNTS,
    ENOUGH,
    ITSELF,
    MOVES,
    ONE,
    PLANNED,
    SCORED,
    SOUND,
    TEST,
    Fault,
    Play,
)
from faults.planted import FAULTS

SOURCE = Path(counterveil.__file__).parent
TESTS = Path(__file__).parents[2] / "tests"
EPSILON, DRAWS, RUNS = 1.0, 10_000, 60
LIMIT = 600.0  # seconds for one fault; the sound code plays what all of them do
QUICK = (ALONE, PLANNED, MOVES, ITSELF, ENOUGH, SCORED, COUNTS)  # are played beside
HEAVY = (
    "pandas",
    "torch",
    "torch._dynamo",
    "opendp.prelude",
    "pyarrow.dataset",
    "scipy.stats",
    "opacus",
)


class FaultError(InputError):
    """A fault that cannot be planted: the code has changed."""


def run_all(
    faults: Sequence[Fault] = FAULTS, *, workers: int = 2, say: Callable[[str], object] = str
) -> list[Row]:
    """Plant every fault, and none, in a copy of the product, and tell what was found, in order.

    A row has `fault, breaks, mechanism, delta, caught, caught_by, alone, finding`; `alone`: only
    one view of the pairs that were looked at has seen it. The sound code, whose fault is `SOUND`,
    must be caught by nothing.
    """
    for name in HEAVY:  # loaded once, for all processes that are forked off this one
        __import__(name)
    work = [*_sound(faults), *faults]
    context, waiting = multiprocessing.get_context("fork"), list(work)
    running: dict[Any, tuple[Fault, Any, float]] = {}
    rows: dict[Fault, Row] = {}
    while waiting or running:
        while waiting and len(running) < workers:
            fault = waiting.pop(0)
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_child, args=(fault, theirs))
            process.start()
            theirs.close()
            running[process] = fault, ours, time.monotonic()
        for process, (fault, ours, started) in list(running.items()):
            if ours.poll(0.05):
                found = ours.recv()
            elif not process.is_alive():
                found = [("", "the process ended without a word", False)]
            elif time.monotonic() - started > LIMIT and fault.name != SOUND:
                process.kill()
                found = [("", f"not done after {LIMIT:g} s", False)]
            else:
                continue
            process.join()
            del running[process]
            rows[fault] = _row(fault, found)
            say(f"{fault.name}: {rows[fault]['finding'] or 'nothing found'}")
    return [rows[fault] for fault in work]


def failures(rows: Iterable[Row]) -> list[str]:
    """What is wrong with the audit: a fault that was not caught, or an alarm at the sound code."""
    return [
        f"{row['fault']}: {row['finding'] or ('alarm' if row['caught'] else 'not caught')}"
        for row in rows
        if row["caught"] == (row["fault"] == SOUND)
    ]


def _row(fault: Fault, found: Sequence[tuple[str, str, bool]]) -> Row:
    caught = [(view, words) for view, words, refuted in found if refuted]
    broken = [words for _, words, refuted in found if not refuted and words]
    return {
        "fault": fault.name,
        "breaks": fault.breaks,
        "mechanism": fault.mechanism,
        "delta": fault.delta,
        "caught": bool(caught) or (fault.name == SOUND and bool(broken)),
        "caught_by": "; ".join(dict.fromkeys(view for view, _ in caught)),
        "alone": len({view.partition(":")[0] for view, _ in caught}) == 1,
        "finding": "; ".join(dict.fromkeys([*(words for _, words in caught), *broken])),
    }


def _sound(faults: Sequence[Fault]) -> Iterator[Fault]:
    """The sound code, with all plays of the faults, one of these for each mechanism and δ."""
    plays: dict[tuple[str, float], dict[Play, None]] = {}
    for fault in faults:
        plays.setdefault((fault.mechanism, fault.delta), {}).update(dict.fromkeys(fault.plays))
    for (mechanism, delta), all_plays in plays.items():
        yield Fault(SOUND, "nothing", (), tuple(all_plays), mechanism, delta)


def plant(fault: Fault, folder: Path) -> None:
    """A copy of the product with the fault, as `folder`/counterveil."""
    copy = folder / "counterveil"
    # With the compiled files, which fit the copies for they have the same dates.
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("*.parquet"))
    for file, old, new in fault.patches:
        text = (copy / file).read_text("utf-8")
        if text.count(old) != 1:
            raise FaultError(
                f"fault {fault.name!r}: its text must be in {file} once, and is there "
                f"{text.count(old)} times; let the fault follow the code"
            )
        (copy / file).write_text(text.replace(old, new), "utf-8")
        os.utime(copy / file)


def _child(fault: Fault, answer: Any) -> None:
    """Load a copy with the fault in this process, play, and send (view, words, refuted)."""
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(StringIO()):
        try:
            plant(fault, Path(folder))
            for name in [name for name in sys.modules if name.split(".")[0] == "counterveil"]:
                del sys.modules[name]
            sys.path.insert(0, folder)
            found = list(_play(fault, Path(folder)))
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
            found = [("", f"{place}: {error}", False)]
    answer.send(found)


def _play(fault: Fault, folder: Path) -> Iterator[tuple[str, str, bool]]:
    """The named games and checks of the loaded copy."""
    import counterveil
    from counterveil import audit
    from counterveil.audit import neighbours
    from counterveil.audit.releases import command_differs
    from counterveil.privacy import Budget

    if not Path(counterveil.__file__).is_relative_to(folder):
        raise FaultError("the copy of counterveil was not loaded")
    effort, budget = audit.Effort(draws=DRAWS, runs=RUNS), Budget(EPSILON, fault.delta)
    planned = {
        (game.view, game.pair): game
        for game in audit.games_of_claim(fault.mechanism, budget, effort)
    }
    for play in fault.plays:
        if play[0] == TEST:
            failed = _test_fails(play[1], folder)
            yield ": ".join(play), "it fails" if failed else "", failed
            continue
        if play == (COMMAND, ONE):  # in this process: a new one would take its time to load
            asked = neighbours.one_feature(), budget, fault.mechanism
            words = "; ".join(command_differs(*asked, run=_run_here))
            yield f"{COMMAND}: {ONE}", words, bool(words)
            continue
        if play not in planned:
            raise FaultError(f"the audit does not play {play[0]!r} on {play[1]!r}")
    pairs = {pair for _, pair in fault.plays}
    beside = [(view, pair) for view in QUICK for pair in pairs if (view, pair) in planned]
    named = [play for play in fault.plays if play in planned and play != (COMMAND, ONE)]
    for play in dict.fromkeys([*named, *beside]):
        row = planned[play].play()
        words = row.finding or (f"ε is at least {row.bound:.2f}" if row.refuted else "")
        yield f"{row.view}: {row.pair}", words, row.refuted


def _test_fails(test: str, folder: Path) -> bool:
    """Whether a test fails of the copy in `folder`; an error where it cannot be run."""
    paths = os.pathsep.join([str(folder), str(SOURCE.parent)])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS / test)],
        cwd=TESTS.parent,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise FaultError(f"the test {test} cannot be run")
    return done.returncode == 1


def _run_here(arguments: list[str], folder: Path) -> tuple[int, str, str]:
    """Run the command of the loaded copy in this process."""
    from counterveil.cli import main

    before, out, notes, code = Path.cwd(), StringIO(), StringIO(), 0
    os.chdir(folder)
    os.environ["COUNTERVEIL_PROGRESS"] = "lines"
    try:
        with redirect_stdout(out), redirect_stderr(notes):
            main(arguments)
    except SystemExit as done:
        code = int(done.code or 0)
    finally:
        os.chdir(before)
    return code, out.getvalue(), notes.getvalue()
