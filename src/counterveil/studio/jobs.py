"""Long work: each job runs in a thread of its own, and the page asks after it.

Releases, audits and attacks are counterveil's command lines as a process, the same as typed. The
process has a session of its own and writes to files without a name: it ends its work whatever
becomes of the studio, and nothing is left behind.
"""

import json
import logging
import os
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any, Literal

from counterveil.errors import InputError, InternalError, RequestError, fault_of
from counterveil.service.responses import Problem
from counterveil.terminal import PROGRESS, PROGRESS_LINE

log = logging.getLogger("counterveil.studio")
MOST_JOBS = 100  # that are remembered
SECONDS_BETWEEN_LOOKS = 0.2
COUNTERVEIL = ("-m", "counterveil.cli")  # what Python is started with
Process = subprocess.Popen[bytes]


@dataclass
class Job:
    """One piece of work. `done` of `total` steps; 0 of 0 where nobody knows how many there are."""

    id: str
    kind: str
    state: Literal["running", "done", "failed"] = "running"
    title: str = ""
    done: int = 0
    total: int = 0
    result: Any = None
    problem: dict[str, Any] | None = None


class Jobs:
    """All jobs of a studio, by their id. Of each kind one runs at a time."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    def start(self, kind: str, work: Callable[[Job], Any], wanted: str | None = None) -> Job:
        """Start `work`, whose value becomes the job's result.

        `wanted`: the id that the job gets. Where there is a job of this id already, that one is
        returned and nothing is started: a request that is sent twice works once.
        """
        with self._lock:
            if wanted is not None and wanted in self._jobs:
                return self._jobs[wanted]
            if any(job.kind == kind and job.state == "running" for job in self._jobs.values()):
                raise Problem(409, f"a {kind} is running", "Wait until it is done.")
            job = Job(wanted or secrets.token_hex(8), kind)
            self._jobs[job.id] = job
            while len(self._jobs) > MOST_JOBS:
                ended = (each.id for each in self._jobs.values() if each.state != "running")
                del self._jobs[next(ended)]
        threading.Thread(target=self._do, args=(job, work), daemon=True).start()
        return job

    def get(self, name: str) -> Job:
        """The job with this id."""
        if name not in self._jobs:
            raise Problem(404, "there is no such job", "The studio was started again meanwhile.")
        return self._jobs[name]

    def find(self, name: str) -> Job | None:
        """The job with this id, if there is one."""
        return self._jobs.get(name)

    def all(self) -> list[Job]:
        """Every job, the oldest first."""
        return list(self._jobs.values())

    def _do(self, job: Job, work: Callable[[Job], Any]) -> None:
        try:
            job.result = work(job)
            job.state = "done"
        except Exception as error:
            job.problem = problem_of(error).body
            job.state = "failed"


def problem_of(error: Exception) -> Problem:
    """What the page is told of an error; what is nobody's mistake is logged without its text."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, InputError):
        return Problem(422, "this cannot be done", str(error))
    if isinstance(error, InternalError):
        return Problem(500, "a fault of counterveil", str(error))
    log.error("%s", fault_of(error))
    return Problem(500, "a fault of counterveil", "The terminal says where; please report it.")


@dataclass(frozen=True)
class Answer:
    """What a command has said that ended with 0 or 1: its JSON if any, and its lines by kind."""

    content: Any
    warnings: tuple[str, ...]
    failures: tuple[str, ...]


def shown(arguments: Sequence[str], program: str = "counterveil") -> str:
    """The command as it is typed in a terminal."""
    return shlex.join([program, *arguments])


def run_command(
    arguments: Sequence[str],
    job: Job,
    running: list[Process],
    *,
    program: Sequence[str] = COUNTERVEIL,
    as_json: bool = True,
) -> Answer:
    """Run `counterveil` with these arguments; its progress becomes that of `job`.

    The process is in `running` as long as it lives. `program`: another command line of this
    installation. `as_json`: ask for JSON with --json, which not every command has. A RequestError
    for exit code 2.
    """
    command = [sys.executable, *program, *arguments, *(["--json"] if as_json else [])]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as notes:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=notes,
            env={**os.environ, PROGRESS: "lines", "PYTHONIOENCODING": "utf-8"},
            start_new_session=True,
        )
        running.append(process)
        try:
            read = 0
            while process.poll() is None:
                read += _follow(_from(notes, read), job)
                time.sleep(SECONDS_BETWEEN_LOOKS)
        finally:
            running.remove(process)
        said = _from(notes, 0).decode("utf-8", "replace").splitlines()
        return _answer(process.returncode, _from(out, 0) if as_json else None, said)


def _from(stream: IO[bytes], place: int) -> bytes:
    """The content from `place` on, read without moving where the process writes."""
    return os.pread(stream.fileno(), 1 << 24, place)


def _follow(news: bytes, job: Job) -> int:
    """Put the last whole line of progress into `job`; how many bytes were whole lines."""
    whole = news[: news.rfind(b"\n") + 1]
    lines = whole.decode("utf-8", "replace").splitlines()
    steps = [line for line in lines if line.startswith(PROGRESS_LINE)]
    if steps:
        step = json.loads(steps[-1].removeprefix(PROGRESS_LINE))
        job.title, job.done, job.total = step["words"] or step["title"], step["done"], step["total"]
    return len(whole)


def _answer(code: int, out: bytes | None, said: list[str]) -> Answer:
    """`out`: what was printed, as JSON; None for a command that gives no JSON."""

    def lines(title: str) -> tuple[str, ...]:
        return tuple(line.removeprefix(title) for line in said if line.startswith(title))

    if code == 2:
        raise RequestError(" ".join(lines("error: ")) or "the command was refused")
    if code == -signal.SIGTERM:
        raise RequestError("it was stopped")
    if code != 0 and (code != 1 or out is None):
        fault = lines("fault of counterveil: ") or (f"the process ended with {code}",)
        raise InternalError(fault[0])
    try:
        content = None if out is None else json.loads(out)
    except ValueError:
        raise InternalError("the command gave no answer") from None
    return Answer(content, lines("warning: "), lines("failed: "))
