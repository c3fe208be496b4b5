"""Cases -> those that are missing -> processes -> stored rows: what all experiments share.

A case is a dictionary whose entries stand in each of its rows, so that a stored row tells that its
case is done. The rows of a case are stored together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from counterveil_lab.datasets import DatasetMissing
from counterveil_lab.results import Results, Row

Case = dict[str, Any]
Measure = Callable[..., list[Row]]
Say = Callable[[str], None]

# What takes longest begins first, or the last case would keep all others waiting.
SLOWEST_FIRST = ("texas", "texas-substitute", "purchase", "purchase-substitute", "mnist",
                 "hospital", "homecredit", "adult", "digits")  # fmt: skip
PAPER_DATASETS = ("adult", "hospital", "homecredit", "mnist", "purchase-substitute",
                  "texas-substitute", "digits")  # fmt: skip
SETS_OF_BITS = ("texas", "texas-substitute", "purchase", "purchase-substitute")
QUICK_DATASETS = ("adult", "digits")


class CasesFailed(RuntimeError):  # noqa: N818 - reads as what it says
    """Some cases of an experiment failed; all others are stored."""


def datasets_of(quick: bool, datasets: Sequence[str] | None) -> tuple[str, ...]:
    """Those that were asked for; otherwise those of the paper, or the two that come with us."""
    return tuple(datasets or (QUICK_DATASETS if quick else PAPER_DATASETS))


def repetitions(quick: bool, seeds: int) -> range:
    """The seeds; a quick look needs one."""
    return range(1 if quick else seeds)


def run_cases(
    results: Results,
    cases: Iterable[Case],
    measure: Measure,
    *,
    workers: int,
    say: Say,
    store: Callable[[Row], Row] | None = None,
    **size: Any,
) -> None:
    """Call `measure(**case, **size)` for every case that has no row yet, and store what it gives.

    `store` may take out of a row what belongs elsewhere (pictures). A dataset that is missing is
    said and left out. A case that fails does not stop the others; it is raised when all are done.
    """
    missing = [case for case in cases if not results.has(**case)]
    missing.sort(key=lambda case: _rank(case.get("dataset")))
    absent: set[str] = set()
    failures: list[str] = []
    for done, (case, rows_of) in enumerate(
        _finished(missing, partial(measure, **size), workers), 1
    ):
        try:
            rows = [{**case, **row} for row in rows_of()]
        except DatasetMissing as error:
            if case["dataset"] not in absent:
                say(f"without {case['dataset']}: {error}")
            absent.add(case["dataset"])
            continue
        except Exception as error:
            failures.append(f"{_words(case)}: {type(error).__name__}: {error}")
            say(f"failed: {failures[-1]}")
            continue
        results.add(*(store(row) if store else row for row in rows))
        say(f"{done}/{len(missing)}: {_words(case)}")
    if failures:
        raise CasesFailed(f"{len(failures)} of {len(missing)} cases failed; first {failures[0]}")


def draw(painter: Callable[[Sequence[Row], Path], Any], results: Results, folder: Path,
         say: Say) -> None:  # fmt: skip
    """Draw stored rows, where matplotlib is."""
    if not results.rows:
        say("nothing measured, nothing to draw")
    elif find_spec("matplotlib") is None:
        say("no figures: matplotlib is missing; pip install 'counterveil[plot]'")
    else:
        painter(results.rows, folder)


def _finished(
    cases: Sequence[Case], measure: Measure, workers: int
) -> Iterator[tuple[Case, Callable[[], list[Row]]]]:
    """Each case with a function that gives its rows or raises; a single worker is this process."""
    if workers == 1 or len(cases) < 2:
        _one_thread()
        yield from ((case, partial(measure, **case)) for case in cases)
        return
    with ProcessPoolExecutor(
        min(workers, len(cases)), mp_context=get_context("spawn"), initializer=_one_thread
    ) as pool:
        jobs = {pool.submit(measure, **case): case for case in cases}
        for job in as_completed(jobs):
            yield jobs[job], job.result


def _one_thread() -> None:
    torch.set_num_threads(1)


def _rank(dataset: str | None) -> int:
    return SLOWEST_FIRST.index(dataset) if dataset in SLOWEST_FIRST else len(SLOWEST_FIRST)


def _words(case: Case) -> str:
    return ", ".join(f"{name} {value}" for name, value in case.items() if value is not None)


def only(cases: Iterable[Case], name: str, values: Collection[str] | None) -> list[Case]:
    """The cases whose `name` is among `values`; all where none are given."""
    return [case for case in cases if not values or case[name] in values]
