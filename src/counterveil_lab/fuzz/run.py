"""Every case in a child process of its own, watched: its time, its memory, how it ends."""

from __future__ import annotations

import faulthandler
import io
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from counterveil_lab.fuzz import judge
from counterveil_lab.fuzz.cases import Case, make_case
from counterveil_lab.fuzz.world import learning_less, make_world, warm_up
from counterveil_lab.results import Row

LIMIT = 10  # seconds that a case may work, or wait
MEMORY = 1 << 30  # bytes that a case may take
ROOM = 2 << 30  # bytes of addresses, after which nothing more is given


@dataclass
class _Running:
    case: Case
    folder: Path
    before: dict[str, str]
    pid: int
    worked: int = 0  # ticks of the processor when it was last seen working
    seen: float = 0.0  # when that was


def run_cases(
    numbers: Sequence[int],
    seed: int,
    *,
    workers: int = 2,
    keep: Path | None = None,
) -> Iterator[Case]:
    """Run the cases of these numbers, and give each when it is done.

    `keep`: a folder for the files of cases that failed; by default they are removed.
    """
    with learning_less(), tempfile.TemporaryDirectory(prefix="counterveil-fuzz-") as scratch:
        world, folders = Path(scratch) / "world", Path(scratch) / "cases"
        world.mkdir()
        folders.mkdir()
        make_world(world)
        warm_up(world)
        waiting, running = list(reversed(numbers)), list[_Running]()
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(_start(waiting.pop(), seed, world, folders))
            time.sleep(0.002)
            for one in list(running):
                if _is_done(one):
                    running.remove(one)
                    if keep is not None and one.case.failures:
                        kept = keep / str(one.case.number)
                        shutil.copytree(one.folder, kept, symlinks=True, dirs_exist_ok=True)
                    shutil.rmtree(one.folder, ignore_errors=True)
                    yield one.case


def _start(number: int, seed: int, world: Path, folders: Path) -> _Running:
    folder = folders / str(number)
    case = make_case(number, seed, world, folder)
    before = judge.state(folder)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _child(case, folder)
    return _Running(case, folder, before, pid, seen=time.monotonic())


def _child(case: Case, folder: Path) -> None:
    """Run the command as the shell would, and leave without ever coming back."""
    code = 120  # as Python ends where its last words cannot be written
    try:
        stdout, stderr, memory = (_beside(folder, ending) for ending in ("out", "err", "memory"))
        Path("/proc/self/clear_refs").write_text("5")  # the peak of memory is counted from here
        pages = Path("/proc/self/statm").read_text().split()
        memory.write_text(str(int(pages[1]) * resource.getpagesize()))
        os.chdir(folder)
        os.environ |= {"XDG_CACHE_HOME": str(folder / ".cache"), "COLUMNS": "100"}
        os.environ.pop("COUNTERVEIL_DEBUG", None)
        room = int(pages[0]) * resource.getpagesize() + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.disable()
        _redirect(case.stdout, stdout, stderr)
        code = _command(case.arguments)
        sys.stderr.flush()
        sys.stdout.flush()
    except BaseException:
        os._exit(120)
    os._exit(code)


def _redirect(kind: str, stdout: Path, stderr: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(stderr, flags), 2)
    if kind == "closed":
        reader, writer = os.pipe()
        os.close(reader)
    else:
        writer = os.open("/dev/full" if kind == "full" else stdout, flags)
    os.dup2(writer, 1)
    encoding = "ascii" if kind == "ascii" else "utf-8"
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w"), encoding, errors="strict")
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), encoding, "backslashreplace", None, True)
    sys.stdin = io.TextIOWrapper(io.FileIO(0), "utf-8")


def _command(arguments: Sequence[str]) -> int:
    from counterveil.cli import main

    try:
        main(arguments)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(bool(done.code))
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _is_done(one: _Running) -> bool:
    case = one.case
    pid, status, used = os.wait4(one.pid, os.WNOHANG)
    hung = pid == 0 and _is_waiting(one)
    if hung:
        os.kill(one.pid, signal.SIGKILL)
        pid, status, used = os.wait4(one.pid, 0)
    if pid == 0:
        return False
    work = used.ru_utime + used.ru_stime
    errors, out, memory = (_beside(one.folder, ending) for ending in ("err", "out", "memory"))
    taken = max(0, used.ru_maxrss * 1024 - int(memory.read_text()))
    case.seconds, case.megabytes = round(work, 2), round(taken / 2**20, 1)
    case.errors = errors.read_bytes().decode("utf-8", "replace")
    case.said = out.stat().st_size if out.exists() else 0
    case.code = os.waitstatus_to_exitcode(status)
    if hung:
        case.failures.append(f"waited for {LIMIT} s")
    elif case.code < 0 and work >= LIMIT:
        case.failures.append(f"worked for {work:.0f} s")
    elif case.code not in judge.codes(case):
        case.failures.append(f"exit code {case.code}")
    if taken > MEMORY:
        case.failures.append(f"took {case.megabytes:.0f} MB")
    judge.words(case)
    judge.files(case, one.before, one.folder)
    for path in (errors, out, memory):
        path.unlink(missing_ok=True)
    return True


def _beside(folder: Path, ending: str) -> Path:
    return folder.with_name(f"{folder.name}.{ending}")


def _is_waiting(one: _Running) -> bool:
    """Whether the case and its children have neither worked nor been ready to for LIMIT seconds."""
    now, ticks, ready = time.monotonic(), 0, False
    children = Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text().split()
    for pid in (str(one.pid), *children):
        with suppress(OSError):  # a child that has just ended
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks, ready = ticks + int(fields[11]) + int(fields[12]), ready or fields[0] == "R"
    if ready or ticks != one.worked:
        one.worked, one.seen = ticks, now
    return now - one.seen > LIMIT


def summary(cases: Sequence[Case], seed: int) -> list[Row]:
    """A row for each area and kind of damage."""
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.area, case.kind), []).append(case)
    return [
        {
            "area": area,
            "mutation": kind,
            "seed": seed,
            "first_case": min(case.number for case in group),
            "last_case": max(case.number for case in group),
            "cases": len(group),
            "refused": sum(case.code == 2 for case in group),
            "failures": sum(bool(case.failures) for case in group),
            "worst_seconds": max(case.seconds for case in group),
            "peak_mb": max(case.megabytes for case in group),
        }
        for (area, kind), group in sorted(groups.items())
    ]
