"""The table of experiments, and what `counterveil-lab run` does with it."""

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager

from counterveil.errors import RequestError
from counterveil_lab.datasets import LOADERS, VARIABLE
from counterveil_lab.experiments import (
    answers,
    believable,
    believable_images,
    images,
    over_epsilon,
    readings,
    red_team,
    theorem_3,
)
from counterveil_lab.experiments.releases import CACHE, PAPER_EPOCHS
from counterveil_lab.experiments.runner import Experiment, Options, processes, run

EVERY = "all"
EXPERIMENTS: Mapping[str, Experiment] = {
    "targets": over_epsilon.TARGETS,
    "fig-mse": over_epsilon.FIG_MSE,
    "fig-reconstructions": images.FIG_RECONSTRUCTIONS,
    "table-fr": answers.TABLE_FR,
    "table-ad": answers.TABLE_AD,
    "fig-time": answers.FIG_TIME,
    "fig-case": images.FIG_CASE,
    "table-extraction": red_team.TABLE_EXTRACTION,
    "fig-membership": red_team.FIG_MEMBERSHIP,
    "fig-attribute": red_team.FIG_ATTRIBUTE,
    "fig-tradeoff": red_team.FIG_TRADEOFF,
    "paper-readings": readings.PAPER_READINGS,
    "theorem-3": theorem_3.THEOREM_3,
    "believable": believable.BELIEVABLE,
    "believable-images": believable_images.BELIEVABLE_IMAGES,
}


def run_named(
    name: str, options: Options, known: Mapping[str, Experiment] | None = None
) -> dict[str, str]:
    """Run an experiment or `all`; what failed, with the reason. One alone raises its failure.

    `known`: others than those of the lab.
    """
    known = EXPERIMENTS if known is None else known
    if name != EVERY and name not in known:
        raise RequestError(f"no experiment {name!r}; there are: {', '.join((*known, EVERY))}")
    for dataset in options.datasets or ():
        if dataset not in LOADERS:
            raise RequestError(f"no dataset {dataset!r}; there are: {', '.join(LOADERS)}")
    if name != EVERY and options.mechanisms and not known[name].chosen_by:
        raise RequestError(f"{name} has no option --mechanisms")
    with _environment(options):
        if name != EVERY:
            run(name, known[name], options)
            return {}
        return _run_all(options, known)


def _run_all(options: Options, known: Mapping[str, Experiment]) -> dict[str, str]:
    """Every experiment, all in the same processes; after a failure in new ones."""
    failures: dict[str, str] = {}
    pool: Executor | None = None
    with ExitStack() as stack:
        for each, experiment in known.items():
            started = time.monotonic()
            if options.workers > 1 and pool is None:
                pool = stack.enter_context(processes(options.workers))
            try:
                run(each, experiment, options, pool)
            except Exception as error:
                failures[each] = f"{type(error).__name__}: {error}"
                pool = None
            ending = "FAILED" if each in failures else "done"
            options.say(f"{each} {ending} after {time.monotonic() - started:.0f} s")
    return failures


@contextmanager
def _environment(options: Options) -> Iterator[None]:
    """The folders of data and of what is made, and epochs, for this process and its workers."""
    before = {name: os.environ.get(name) for name in (VARIABLE, CACHE, PAPER_EPOCHS)}
    with tempfile.TemporaryDirectory(prefix="counterveil-lab-") as passing:
        if options.data is not None:
            os.environ[VARIABLE] = str(options.data)
        if options.paper_epochs is not None:
            os.environ[PAPER_EPOCHS] = str(options.paper_epochs)
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
