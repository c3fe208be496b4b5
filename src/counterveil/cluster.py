"""Work in parts on a cluster: Ray's workers on this machine, or on machines that run already.

A worker is given the work once and then part after part, one at a time. Its answer to a part is
taken once: where a worker dies, another one does its part anew, and nothing of the first is used.

What goes wrong in a worker comes back as the words of counterveil's own errors, which hold no
value of a row; of any other error only its kind is told.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal, TypeVar

from counterveil import errors
from counterveil.errors import CounterveilError, InternalError, RequestError

Part = TypeVar("Part")
Answer = TypeVar("Answer")
Work = Callable[[], Callable[[Part], Answer]]  # called once by each worker
Engine = Literal["here", "ray"]

STARTED = -1  # in the place of the number of a part: a worker is ready for its first one
ATTEMPTS = 4  # at a part, before a cluster counts as broken


@dataclass
class Cluster:
    """Where parts are worked on.

    `address`: of a Ray cluster that runs already ("auto", "HOST:6379", "ray://HOST:10001"); without
    one, workers are started on this machine and end with this program. `workers`: how many, by
    default as many as there are processors.

    Workers and connection are kept while the cluster is open, `with cluster:`, or else for one call
    of `each`.
    """

    address: str | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and (type(self.workers) is not int or self.workers < 1):
            raise RequestError("workers must be a whole number of at least 1")
        self._inside, self._is_ours = 0, False
        self._idle: list[Any] = []  # workers that wait for a part

    def __enter__(self) -> Cluster:
        self._inside += 1
        if self._inside == 1:
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._inside -= 1
        if self._inside:
            return
        self._end(self._idle)
        self._idle = []
        if self._is_ours:
            _ray().shutdown()
            self._is_ours = False

    def _start(self) -> None:
        ray = _ray()
        if ray.is_initialized():  # in a notebook that uses Ray for other things
            return
        where: dict[str, Any] = {"address": self.address}
        if self.address is None:
            workers = self.workers or os.cpu_count() or 1
            where = {"address": "local", "num_cpus": workers, "include_dashboard": False}
            where |= {"_node_ip_address": "127.0.0.1"}
        try:
            ray.init(**where, log_to_driver=False, configure_logging=False)
        except (ConnectionError, OSError, RuntimeError, ValueError, TimeoutError):
            named = "on this machine" if self.address is None else f"at {self.address}"
            raise RequestError(
                f"no Ray cluster could be reached or started {named}; see docs/large-tables.md"
            ) from None
        self._is_ours = True

    def each(self, work: Work[Part, Answer], parts: Sequence[Part]) -> Iterator[tuple[int, Answer]]:
        """The number of every part and what the work makes of it, once each, as they get ready.

        A worker gets its next part when it has given back the last one: no more than one part a
        worker is under way.
        """
        with self:
            ray = _ray()
            shipped = ray.put((version("counterveil"), work))
            count = self.workers or int(ray.cluster_resources().get("CPU", 1))
            left, lost = list(range(len(parts)))[::-1], Counter[int]()
            starting = dict(self._worker(shipped) for _ in range(min(count, len(parts))))
            idle: list[Any] = []
            running: dict[Any, tuple[Any, int]] = {}
            try:
                while left or running:
                    while left and idle:
                        worker, number = idle.pop(), left.pop()
                        running[worker.do.remote(parts[number])] = worker, number
                    (ready,), _ = ray.wait([*running, *starting], num_returns=1)
                    worker = starting.pop(ready, None)
                    worker, number = running.pop(ready, (worker, STARTED))
                    try:
                        said = ray.get(ready)
                    except ray.exceptions.RayTaskError:  # before any of our code ran
                        raise RequestError(
                            "a worker cannot open what it was sent: its machine needs the same "
                            "counterveil, and the packages of the model"
                        ) from None
                    except ray.exceptions.RayError:  # the worker died
                        lost[number] += 1
                        _check_lost(lost[number], number, len(parts))
                        left += [] if number == STARTED else [number]
                        starting |= [self._worker(shipped)]
                        continue
                    idle.append(worker)
                    if number != STARTED:
                        yield number, _answer(said)
            finally:
                self._idle += idle
                self._end([*starting.values(), *(worker for worker, _ in running.values())])

    def _worker(self, shipped: Any) -> tuple[Any, Any]:
        """One that waits, or a new one: what says that it has its work, and the worker."""
        make = _ray().remote(num_cpus=1, max_restarts=0)(_Worker)
        worker = self._idle.pop() if self._idle else make.remote()
        return worker.begin.remote(shipped), worker

    def _end(self, workers: Sequence[Any]) -> None:
        for worker in workers:
            _ray().kill(worker)


def _check_lost(times: int, number: int, parts: int) -> None:
    """Give up where a part, or the start of a worker, has killed too many workers."""
    if times < ATTEMPTS:
        return
    what = "a worker that starts" if number == STARTED else f"part {number + 1} of {parts}"
    raise RequestError(
        f"{what} was lost {ATTEMPTS} times: its workers died. Look for a lack of memory on their "
        "machines"
    )


def cluster_of(engine: Engine | Cluster) -> Cluster | None:
    """The cluster that `engine` means; None for this process."""
    if isinstance(engine, Cluster):
        return engine
    if engine not in {"here", "ray"}:
        raise RequestError("engine must be 'here', 'ray', or a Cluster")
    if engine == "here":
        return None
    _ray()
    return Cluster()


class _Worker:
    """What runs on a machine of the cluster."""

    def begin(self, shipped: tuple[str, Work[Any, Any]]) -> None:
        sent_by, self._make = shipped
        mine = version("counterveil")
        self._wrong = None
        if mine != sent_by:
            self._wrong = f"a worker has counterveil {mine}, this machine {sent_by}; install one"
        self._work: Callable[[Any], Any] | None = None

    def do(self, part: Any) -> tuple[str, Any]:
        try:
            if self._wrong:
                raise RequestError(self._wrong)
            if self._work is None:
                self._work = self._make()
            return "done", self._work(part)
        except CounterveilError as error:
            return type(error).__name__, str(error)
        except Exception as error:
            return "unknown", type(error).__name__


def _answer(said: tuple[str, Any]) -> Any:
    kind, content = said
    if kind == "done":
        return content
    if kind == "unknown":
        raise InternalError(f"a worker failed with {content}; what it says may be private")
    raise getattr(errors, kind)(content)


def _ray() -> Any:
    """The package ray, which tells nobody that it is used."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise RequestError("Ray is not installed: pip install 'counterveil[scale]'") from None
    return ray
