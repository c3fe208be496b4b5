"""Work in parts on a cluster: Ray's workers on this machine, or on machines that run already.

A worker is given the work and part after part, one at a time. Its answer to a part is taken once:
where a worker dies, Ray starts it again and it does its part anew; nothing of the first is used.

What goes wrong in a worker comes back as the words of counterveil's own errors, which hold no
value of a row; of any other error only its kind is told.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal, TypeVar

from counterveil import errors
from counterveil.errors import CounterveilError, InternalError, RequestError

Part = TypeVar("Part")
Answer = TypeVar("Answer")
Work = Callable[[], Callable[[Part], Answer]]  # called once by each worker
Engine = Literal["here", "ray"]

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
        self._workers: list[Any] = []

    def __enter__(self) -> Cluster:
        self._inside += 1
        if self._inside == 1:
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._inside -= 1
        if self._inside:
            return
        self._end_workers()
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
            with _on_loopback(ray) if self.address is None else nullcontext():
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
            shipped = ray.put((secrets.token_hex(8), version("counterveil"), work))
            count = min(self.workers or int(ray.cluster_resources().get("CPU", 1)), len(parts))
            make = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=ATTEMPTS - 1)(_Worker)
            self._workers += [make.remote() for _ in range(count - len(self._workers))]
            pool, is_done = ray.util.ActorPool(self._workers[:count]), False
            try:
                for number, said in pool.map_unordered(
                    lambda worker, part: worker.do.remote(shipped, *part), enumerate(parts)
                ):
                    yield number, _answer(said)
                is_done = True
            except ray.exceptions.RayTaskError:  # before any of our code ran
                raise RequestError(
                    "a worker cannot open what it was sent: its machine needs the same "
                    "counterveil, and the packages of the model"
                ) from None
            except ray.exceptions.RayError:
                raise RequestError(
                    f"a part was lost {ATTEMPTS} times: its workers died, or their machine was "
                    "lost. Look for a lack of memory there; an explanation goes on when it is "
                    "started again"
                ) from None
            finally:
                if not is_done:  # what is under way is for nobody
                    self._end_workers()

    def _end_workers(self) -> None:
        for worker in self._workers:
            _ray().kill(worker)
        self._workers = []


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

    _known = ""  # the work that `_work` does

    def do(self, shipped: tuple[str, str, Work[Any, Any]], number: int, part: Any) -> Any:
        """The number of a part, and what the work makes of it or an error, in words."""
        name, sent_by, make = shipped
        mine = version("counterveil")
        try:
            if mine != sent_by:
                raise RequestError(
                    f"a worker has counterveil {mine}, this machine {sent_by}; install one"
                )
            if self._known != name:
                self._work, self._known = make(), name
            return number, ("done", self._work(part))
        except CounterveilError as error:
            return number, (type(error).__name__, str(error))
        except Exception as error:
            return number, ("unknown", type(error).__name__)


def _answer(said: tuple[str, Any]) -> Any:
    kind, content = said
    if kind == "done":
        return content
    if kind == "unknown":
        raise InternalError(f"a worker failed with {content}; what it says may be private")
    raise getattr(errors, kind)(content)


@contextmanager
def _on_loopback(ray: Any) -> Iterator[None]:
    """What is started here listens on 127.0.0.1 alone.

    Ray takes that address for the one of this machine in its network, unless it is told, as on
    desktop systems, that there are no other machines.
    """
    constants, name = ray._private.ray_constants, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    with_others, said = constants.ENABLE_RAY_CLUSTER, os.environ.get(name)
    constants.ENABLE_RAY_CLUSTER, os.environ[name] = False, "0"
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = with_others
        os.environ.pop(name)
        if said is not None:
            os.environ[name] = said


def _ray() -> Any:
    """The package ray, which tells nobody that it is used."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
        import ray._private.ray_constants
        import ray.exceptions
        import ray.util
    except ImportError:
        raise RequestError("Ray is not installed: pip install 'counterveil[scale]'") from None
    return ray
