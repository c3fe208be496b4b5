"""`fig-time`: the paper's figure of time costs: seconds for ten queries, five runs of each method.

One thread; all methods of a dataset one after the other in one process. Training, releases and
what an explainer learns once are not counted, as in the paper. dice-ml is timed on fewer queries
(`timed_queries`) and counted up to ten. Times compare inside one run of the command alone: `run`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import fmean

from counterveil_lab.baselines import Baseline
from counterveil_lab.experiments import peers, releases
from counterveil_lab.experiments.exam import AS_PUBLISHED, Exam
from counterveil_lab.experiments.runner import Say, draw, run_cases
from counterveil_lab.results import Results, Row

DATASETS = ("adult", "hospital", "mnist", "digits")
QUERIES, RUNS = 10, 5
EPSILON, SEED = 0.75, 0
DICE_QUERIES, DICE_RUNS = 1, 3
Ask = Callable[[int, int], object]


def run(
    folder: Path, command: str, *, seeds: int, quick: bool, workers: int, say: Say,
    datasets: Sequence[str] | None = None, add: bool = False,
) -> None:  # fmt: skip
    """Time every dataset that is not stored yet; one seed, whatever `seeds`."""
    results = Results(folder, "fig-time", command, keep=add)
    names = ("digits",) if quick and not datasets else (datasets or DATASETS)
    cases = [{"dataset": name, "seed": SEED} for name in names]
    started = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        run_cases(results, cases, measure_case, workers=workers, say=say, quick=quick,
                  started=started)  # fmt: skip
    finally:
        draw(paint, results, folder, say)


def measure_case(dataset: str, seed: int, *, quick: bool, started: str) -> list[Row]:
    """Every method on one dataset."""
    data = releases.data_for(dataset, seed, quick=quick)
    model = releases.target_for(data, seed)
    runs = 2 if quick else RUNS
    exam = Exam.of(data, model, seed, queries=QUERIES * (RUNS + 1))
    rows = []
    for row, ask in [*_ours(exam, seed, quick), *_theirs(exam, seed, quick)]:
        slow = row["method"].startswith("dice")
        count = DICE_QUERIES if slow else QUERIES
        times = _times(ask, count, DICE_RUNS if slow and not quick else runs, warm=not slow)
        rows.append({
            **row, "run": started, "timed_queries": count, "runs": len(times),
            "seconds_for_ten": fmean(times) * QUERIES / count,
            "least_seconds_for_ten": min(times) * QUERIES / count,
            "most_seconds_for_ten": max(times) * QUERIES / count,
            "seconds_per_query": fmean(times) / count,
        })  # fmt: skip
    return rows


def _times(ask: Ask, count: int, runs: int, *, warm: bool) -> list[float]:
    """Seconds of each run, with other queries in every one."""
    if warm:
        ask(0, count)  # a first call loads and learns
    times = []
    for number in range(1, runs + 1):
        before = time.perf_counter()
        ask(number * count, (number + 1) * count)
        times.append(time.perf_counter() - before)
    return times


def _ours(exam: Exam, seed: int, quick: bool) -> Iterator[tuple[Row, Ask]]:
    for mechanism in ("paper", "functional"):
        made = releases.release(exam.data, mechanism, EPSILON, seed, quick=quick)
        head = {"method": "counterveil", "mechanism": mechanism, "epsilon": EPSILON,
                "delta": releases.delta_of(mechanism)}  # fmt: skip
        by_model = releases.explainer_for(made.veil, exam.model, quick=quick)
        way = AS_PUBLISHED if mechanism == "paper" else {}
        yield {**head, "guidance": "model"}, partial(exam.ask, by_model, **way)
        if made.veil.surrogate is not None:
            by_surrogate = releases.explainer_for(made.veil, guidance="surrogate")
            yield {**head, "guidance": "surrogate"}, partial(exam.ask, by_surrogate)


def _theirs(exam: Exam, seed: int, quick: bool) -> Iterator[tuple[Row, Ask]]:
    for part in peers.PARTS:
        if part == "dice" and peers.why_no_dice():
            continue
        for baseline, _, about in peers.peers(exam, part, seed, peers.QUICK, quick=quick):
            yield {"method": baseline.name, **about}, partial(_explain, exam, baseline)
        for method in peers.dice_methods(exam.data.schema)[1:] if part == "dice" else ():
            another = peers.dice(exam, method, seed)
            yield {"method": another.name}, partial(_explain, exam, another)


def _explain(exam: Exam, baseline: Baseline, start: int, stop: int) -> object:
    return baseline.explain(exam.queries.iloc[start:stop], exam.runner_up[start:stop])


def paint(rows: Sequence[Row], folder: Path) -> None:
    """The figure, from stored rows."""
    from counterveil_lab.experiments import drawing

    drawing.save(drawing.times(rows), folder / "fig-time")
