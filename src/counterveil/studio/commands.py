"""The command lines of counterveil as a process: the same release, audit and attack as typed.

The process has a session of its own and writes to files without a name: it ends its work whatever
becomes of the studio, and nothing is left behind.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

from counterveil.errors import InternalError, RequestError
from counterveil.studio.jobs import Job
from counterveil.terminal import PROGRESS, PROGRESS_LINE

SECONDS_BETWEEN_LOOKS = 0.2
COUNTERVEIL = ("-m", "counterveil.cli")  # what Python is started with
Process = subprocess.Popen[bytes]


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
