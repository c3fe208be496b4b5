"""`fig-mse`: the paper's figure of reconstruction error over ε, on every dataset.

Mean squared error of the autoencoder on held-out rows, for `paper` and `functional`. The paper's
training lengths are out of reach for the wide tables: `epochs` says what was used. The error of
answering the mean of all training rows stands beside: above it nothing was learnt.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from counterveil_lab.experiments import releases
from counterveil_lab.experiments.runner import (
    SETS_OF_BITS,
    Say,
    datasets_of,
    draw,
    only,
    repetitions,
    run_cases,
)
from counterveil_lab.metrics import reconstruction_error
from counterveil_lab.results import Results, Row

EPSILONS: tuple[releases.Epsilon, ...] = (5e-4, 0.005, 0.025, 0.1, 0.75)
FEWER = (5e-4, 0.025, 0.75)  # where a release takes minutes
TEST_ROWS = 5000


def run(
    folder: Path, command: str, *, seeds: int, quick: bool, workers: int, say: Say,
    datasets: Sequence[str] | None = None, mechanisms: Sequence[str] | None = None,
    add: bool = False,
) -> None:  # fmt: skip
    """Measure every case that is not stored yet."""
    results = Results(folder, "fig-mse", command, keep=add)
    cases = [
        {"dataset": name, "mechanism": mechanism, "epsilon": epsilon, "seed": seed}
        for seed in repetitions(quick, seeds)
        for name in datasets_of(quick, datasets)
        for mechanism, more in (("paper", (releases.NO_NOISE,)), ("functional", ()))
        for epsilon in (*epsilons_of(name, quick), *more)
    ]
    try:
        run_cases(results, only(cases, "mechanism", mechanisms), measure_case, workers=workers,
                  say=say, quick=quick)  # fmt: skip
    finally:
        draw(paint, results, folder, say)


def epsilons_of(dataset: str, quick: bool) -> tuple[releases.Epsilon, ...]:
    """The ε to measure a dataset at."""
    if quick:
        return (5e-4, 0.75)
    return FEWER if dataset in SETS_OF_BITS else EPSILONS


def measure_case(
    dataset: str, mechanism: str, epsilon: releases.Epsilon, seed: int, *, quick: bool
) -> list[Row]:
    """One release and its error."""
    data = releases.data_for(dataset, seed, quick=quick)
    made = releases.release(data, mechanism, epsilon, seed, quick=quick)
    test = data.test.head(TEST_ROWS)
    return [
        {
            "method": "counterveil",
            "delta": releases.delta_of(mechanism),
            "epochs": made.epochs,
            "release_seconds": made.seconds,
            "mse": reconstruction_error(made.veil, test),
            "mse_of_pooled_mean": releases.pooled_mean_error(data),
        }
    ]


def paint(rows: Sequence[Row], folder: Path) -> None:
    """The figure, from stored rows."""
    from counterveil_lab.experiments import drawing

    drawing.save(drawing.errors_over_epsilon(rows), folder / "fig-mse")
