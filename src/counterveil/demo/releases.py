"""The veils of the demo, each made in a process of its own."""

from __future__ import annotations

import math
import multiprocessing
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from counterveil.curator import Curator
from counterveil.demo.adult import adult_schema, adult_split
from counterveil.progress import progress_bar
from counterveil.veil import Veil


@dataclass(frozen=True)
class Release:
    """A mechanism at an ε."""

    mechanism: str
    epsilon: float

    @property
    def file(self) -> str:
        """The name of its file, without the ending."""
        start = "adult-paper" if self.mechanism == "paper" else "adult"
        return f"{start}-{self.epsilon:g}" if math.isfinite(self.epsilon) else f"{start}-no-noise"


def release_all(
    wanted: Sequence[Release], seed: int, epochs: int, workers: int
) -> dict[Release, Veil]:
    """Every wanted veil. The networks are too small for one process to use two cores."""
    veils: dict[Release, Veil] = {}
    with progress_bar("releasing", len(wanted)) as tick, _workers(workers) as pool:
        with _deaf_to_interrupts():  # workers inherit it: an interrupt is for this process alone
            jobs = {pool.submit(_release_one, which, seed, epochs): which for which in wanted}
        for job in as_completed(jobs):
            veils[jobs[job]] = job.result()
            tick(len(veils), "veils")
    return veils


def _release_one(which: Release, seed: int, epochs: int) -> Veil:
    torch.set_num_threads(1)
    return Curator(adult_schema()).release(
        adult_split(seed).train,
        which.epsilon,
        mechanism=which.mechanism,
        seed=seed,
        epochs=epochs if which.mechanism == "paper" else None,
        progress=False,
    )


@contextmanager
def _workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """A pool that stops at once when something goes wrong or the user interrupts."""
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    pool.shutdown()


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
