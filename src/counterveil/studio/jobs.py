"""Long work: each job runs in a thread of its own, and the page asks after it."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from counterveil.errors import InputError, InternalError, fault_of
from counterveil.service.responses import Problem

log = logging.getLogger("counterveil.studio")
MOST_JOBS = 100  # that are remembered


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

    def to_dict(self) -> dict[str, Any]:
        """What the page is told."""
        return dict(vars(self))


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
