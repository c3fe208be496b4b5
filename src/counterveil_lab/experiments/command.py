"""What `counterveil-lab run` does: one experiment, or all of them one after the other."""

from __future__ import annotations

import inspect
import os
import shlex
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterveil.errors import RequestError
from counterveil_lab.datasets import LOADERS, VARIABLE
from counterveil_lab.experiments import EXPERIMENTS, experiment
from counterveil_lab.experiments.releases import CACHE
from counterveil_lab.experiments.runner import Say

EVERY = "all"


@dataclass(frozen=True)
class Options:
    """What was asked for; what is None is left to the experiment.

    `datasets` and `mechanisms` choose among the cases of an experiment. They are no part of the
    stored command: parts that are measured one after the other come together in one file.
    """

    folder: Path
    seeds: int
    quick: bool
    workers: int
    datasets: tuple[str, ...] | None = None
    mechanisms: tuple[str, ...] | None = None
    add: bool = False
    data: Path | None = None
    cache: Path | None = None


def run_named(name: str, options: Options, say: Say) -> dict[str, str]:
    """Run an experiment or `all`; what failed, with the reason. One alone raises its failure."""
    _check(name, options)
    with _environment(options):
        if name != EVERY:
            _run(name, options, say, strict=True)
            return {}
        failures: dict[str, str] = {}
        for each in EXPERIMENTS:
            started = time.monotonic()
            try:
                _run(each, options, say, strict=False)
            except Exception as error:
                failures[each] = f"{type(error).__name__}: {error}"
            ending = "FAILED" if each in failures else "done"
            say(f"{each} {ending} after {time.monotonic() - started:.0f} s")
        return failures


def _check(name: str, options: Options) -> None:
    if name != EVERY and name not in EXPERIMENTS:
        raise RequestError(f"no experiment {name!r}; there are: {', '.join((*EXPERIMENTS, EVERY))}")
    for dataset in options.datasets or ():
        if dataset not in LOADERS:
            raise RequestError(f"no dataset {dataset!r}; there are: {', '.join(LOADERS)}")


def _run(name: str, options: Options, say: Say, *, strict: bool) -> None:
    run = experiment(name)
    known = inspect.signature(run).parameters
    chosen: dict[str, Any] = {
        "datasets": options.datasets,
        "mechanisms": options.mechanisms,
        "add": options.add or None,
    }
    chosen = {option: value for option, value in chosen.items() if value is not None}
    for option in [option for option in chosen if option not in known]:
        if strict:
            raise RequestError(f"{name} has no option --{option}")
        chosen.pop(option)
    command = f"counterveil-lab run {shlex.quote(name)} --seeds {options.seeds}"
    command += " --quick" if options.quick else ""
    run(options.folder, command, seeds=options.seeds, quick=options.quick,
        workers=options.workers, say=say, **chosen)  # fmt: skip


@contextmanager
def _environment(options: Options) -> Iterator[None]:
    """The folders of data and of what is made, for this process and its workers."""
    before = {name: os.environ.get(name) for name in (VARIABLE, CACHE)}
    with tempfile.TemporaryDirectory(prefix="counterveil-lab-") as passing:
        if options.data is not None:
            os.environ[VARIABLE] = str(options.data)
        if options.cache is not None or not before[CACHE]:
            os.environ[CACHE] = str(options.cache or passing)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def listed(words: str | None) -> tuple[str, ...] | None:
    """`a,b` as names; None as it is."""
    names: Sequence[str] = [word.strip() for word in (words or "").split(",")]
    return tuple(name for name in names if name) or None
