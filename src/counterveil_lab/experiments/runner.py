"""What all experiments share: cases -> those that are missing -> processes -> rows -> figure.

A case is a dictionary whose entries stand in each of its rows, so that a stored row tells that its
case is done. The rows of a case are stored together.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from counterveil_lab.datasets import DatasetMissing
from counterveil_lab.results import Results, Row

Case = dict[str, Any]
Measure = Callable[..., list[Row]]
Say = Callable[[str], None]
Finish = Callable[[Sequence[Row], Path], None]

SETS_OF_BITS = ("texas", "texas-substitute", "purchase", "purchase-substitute")
# What takes longest begins first, or the last case would keep all others waiting.
SLOWEST_FIRST = (*SETS_OF_BITS, "mnist", "hospital", "homecredit", "adult", "digits")
TABLES_AND_MNIST = ("adult", "hospital", "homecredit", "mnist")
PAPER_DATASETS = (*TABLES_AND_MNIST, "purchase-substitute", "texas-substitute", "digits")


def combined(**values: Iterable[Any]) -> Iterator[Case]:
    """A case for each combination of these values; those of the last entry change fastest."""
    return (dict(zip(values, each, strict=True)) for each in product(*values.values()))


class CasesFailed(RuntimeError):  # noqa: N818 - reads as what it says
    """Some cases of an experiment failed; all others are stored."""


@dataclass(frozen=True)
class Options:
    """What was asked for; what is None is left to the experiment.

    `datasets` and `mechanisms` choose among the cases of an experiment. They are no part of the
    stored command: parts that are measured one after the other come together in one file. That
    begins with `program`.
    """

    folder: Path
    seeds: int
    quick: bool
    workers: int
    datasets: tuple[str, ...] | None = None
    mechanisms: tuple[str, ...] | None = None
    overwrite: bool = False
    data: Path | None = None
    cache: Path | None = None
    paper_epochs: int | None = None
    say: Say = lambda words: None
    program: str = "counterveil-lab run"

    @property
    def repetitions(self) -> range:
        """The seeds; a quick look needs one."""
        return self.splits(0)

    def splits(self, first: int) -> range:
        """As many seeds, from `first` on."""
        return range(first, first + (1 if self.quick else self.seeds))

    def names(
        self, full: Sequence[str] = PAPER_DATASETS, quick: Sequence[str] = ("adult", "digits")
    ) -> tuple[str, ...]:
        """The datasets asked for; otherwise `full`, or `quick` for a quick look."""
        return tuple(self.datasets or (quick if self.quick else full))


@dataclass(frozen=True)
class Experiment:
    """One experiment: what it measures, and how.

    `about`: one line for `counterveil-lab list`. `cases(options)`: what is to be measured.
    `measure(**case, quick)`: the rows of a case. `why_not(case)`: why it cannot be measured here,
    or None. `chosen_by`: the entries of a case that `--mechanisms` chooses by; none: no such
    option. `paint(rows, folder)` draws. `stamped`: rows get the time of the command as `run`.
    """

    about: str
    cases: Callable[[Options], Iterable[Case]]
    measure: Measure
    paint: Finish | None = None
    why_not: Callable[[Case], str | None] | None = None
    chosen_by: tuple[str, ...] = ("mechanism",)
    stamped: bool = False

    def chosen(self, options: Options) -> Iterator[Case]:
        """The cases that `--mechanisms` leaves and that can be measured; says why others cannot."""
        said: set[str] = set()
        wanted = set(options.mechanisms or ()) if self.chosen_by else set()
        for case in self.cases(options):
            pairs = [(name, case.get(name)) for name in self.chosen_by]
            words = {word for name, word in pairs if (name, word) != ("control", "none")}
            if wanted and not words & wanted:
                continue
            reason = self.why_not(case) if self.why_not else None
            if reason is None:
                yield case
            elif reason not in said:
                options.say(reason)
                said.add(reason)


def figure(module: str, function: str, name: str) -> Finish:
    """A `paint` that saves the figure of rows which `function` of a module draws."""

    def paint(rows: Sequence[Row], folder: Path) -> None:
        from counterveil_lab.figures import save  # loads matplotlib

        save(getattr(import_module(f"counterveil_lab.{module}"), function)(rows), folder / name)

    return paint


def run(name: str, experiment: Experiment, options: Options, pool: Executor | None = None) -> None:
    """Measure every case that is not stored yet; then draw, and say what follows."""
    command = f"{options.program} {shlex.quote(name)} --seeds {options.seeds}"
    command += " --quick" if options.quick else ""
    command += f" --paper-epochs {options.paper_epochs}" if options.paper_epochs else ""
    results = Results(options.folder, name, command, overwrite=options.overwrite)
    extra = {"run": datetime.now(UTC).isoformat(timespec="seconds")} if experiment.stamped else {}
    measure = partial(experiment.measure, quick=options.quick)
    cases = list(experiment.chosen(options))
    try:
        workers, say = options.workers, options.say
        run_cases(results, cases, measure, workers=workers, say=say, more=extra, pool=pool)
    finally:
        rows = results.rows
        if experiment.paint and not rows:
            options.say("nothing measured, nothing to draw")
        elif experiment.paint and find_spec("matplotlib") is None:
            options.say("no figures: matplotlib is missing; pip install 'counterveil[plot]'")
        elif experiment.paint:
            experiment.paint(rows, options.folder)


def run_cases(
    results: Results,
    cases: Iterable[Case],
    measure: Measure,
    *,
    workers: int,
    say: Say,
    more: Row | None = None,
    pool: Executor | None = None,
) -> None:
    """Call `measure(**case)` for every case that has no row yet, and store what it gives.

    Each row also gets what is in `more`. A dataset that is missing is said and left out. A case
    that fails does not stop the others; it is raised when all are done.
    """
    missing = [case for case in cases if not results.has(**case)]
    results.check_nothing_is_lost(missing)
    missing.sort(key=lambda case: [*SLOWEST_FIRST, case.get("dataset")].index(case.get("dataset")))
    absent: set[str] = set()
    failures: list[str] = []
    for done, (case, rows_of) in enumerate(_finished(missing, measure, workers, pool), 1):
        words = ", ".join(f"{name} {value}" for name, value in case.items() if value is not None)
        try:
            rows = [{**case, **row, **(more or {})} for row in rows_of()]
        except DatasetMissing as error:
            if case["dataset"] not in absent:
                say(f"without {case['dataset']}: {error}")
            absent.add(case["dataset"])
            continue
        except Exception as error:
            failures.append(f"{words}: {type(error).__name__}: {error}")
            say(f"failed: {failures[-1]}")
            continue
        results.add(*rows, case=case)
        say(f"{done}/{len(missing)}: {words}")
    if failures:
        raise CasesFailed(f"{len(failures)} of {len(missing)} cases failed; first {failures[0]}")


def processes(workers: int) -> Executor:
    """Processes that measure, each with one thread.

    They take seconds to start: experiments that are run one after the other share them.
    """
    return ProcessPoolExecutor(workers, get_context("spawn"), torch.set_num_threads, (1,))


def _finished(
    cases: Sequence[Case], measure: Measure, workers: int, pool: Executor | None
) -> Iterator[tuple[Case, Callable[[], list[Row]]]]:
    """Each case with a function that gives its rows or raises; a single worker is this process."""
    if workers == 1 or len(cases) < 2:
        torch.set_num_threads(1)
        yield from ((case, partial(measure, **case)) for case in cases)
        return
    with nullcontext(pool) if pool else processes(min(workers, len(cases))) as using:
        jobs = {using.submit(measure, **case): case for case in cases}
        for job in as_completed(jobs):
            yield jobs[job], job.result
