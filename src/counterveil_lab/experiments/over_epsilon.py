"""Target models, and reconstruction error over ε.

`targets`: accuracy of the target models on held-out rows. Balanced accuracy is the mean over
classes, and `majority_share` what naming the largest class would score. The f of all other
experiments weights its classes evenly; `target-unweighted` does not.

`fig-mse`: mean squared error of the autoencoder on held-out rows, for `paper` and `functional`;
`epochs` says how long `paper` was trained. The error of answering the mean of all training rows
stands beside: above it nothing was learnt.
"""

from collections.abc import Iterator

import torch

from counterveil_lab.datasets import LOADERS, Dataset
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.runner import Case, Experiment, Options, combined, figure
from counterveil_lab.metrics import reconstruction_error
from counterveil_lab.results import Row
from counterveil_lab.targets import classes_of, encoded

MSE_EPSILONS: tuple[releases.Epsilon, ...] = (5e-4, 0.005, 0.025, 0.1, 0.75, 1.0)
MSE_ROWS = 5000


def target_cases(options: Options) -> Iterator[Case]:
    return combined(seed=options.repetitions, dataset=options.names(tuple(LOADERS)))


def measure_target(dataset: str, seed: int, *, quick: bool) -> list[Row]:
    """One f with its classes weighted evenly, and one without."""
    data = releases.data_for(dataset, seed, quick=quick)
    kinds = {"target": True, "target-unweighted": False}
    return [_accuracy_of(method, data, seed, even=even) for method, even in kinds.items()]


def _accuracy_of(method: str, data: Dataset, seed: int, *, even: bool) -> Row:
    model = releases.target_for(data, seed, even=even)
    points, classes = encoded(data.test, data.schema)
    said = classes_of(model, points)
    counts = torch.bincount(classes, minlength=len(data.schema.label.classes))
    right = torch.bincount(classes[said == classes], minlength=len(counts))
    there = counts > 0
    row: Row = {"method": method, "rows": len(data.train), "test_rows": len(data.test)}
    row["accuracy"] = float(right.sum() / counts.sum())
    row["balanced_accuracy"] = float((right[there] / counts[there]).mean())
    row["majority_share"] = float(counts.max() / counts.sum())
    return {**row, "paper_accuracy": data.paper_accuracy}


def mse_cases(options: Options) -> Iterator[Case]:
    """Both mechanisms at every ε, and `paper` without noise."""
    for seed in options.repetitions:
        for name in options.names():
            epsilons = (5e-4, 0.75) if options.quick else MSE_EPSILONS
            for mechanism, more in (("paper", (releases.NO_NOISE,)), ("functional", ())):
                for epsilon in (*epsilons, *more):
                    case = {"dataset": name, "mechanism": mechanism, "epsilon": epsilon}
                    yield {**case, "seed": seed}


def measure_mse(
    dataset: str, mechanism: str, epsilon: releases.Epsilon, seed: int, *, quick: bool
) -> list[Row]:
    data = releases.data_for(dataset, seed, quick=quick)
    made = releases.release(data, mechanism, epsilon, seed, quick=quick)
    error = reconstruction_error(made.veil, data.test.head(MSE_ROWS))
    row = {**releases.head_of(made, mechanism), "release_seconds": made.seconds, "mse": error}
    return [{**row, "mse_of_pooled_mean": releases.pooled_mean_error(data)}]


TARGETS = Experiment(
    "how good the target models are, beside what the paper prints.",
    target_cases,
    measure_target,
    chosen_by=(),
)
FIG_MSE = Experiment(
    "the paper's figure of reconstruction error over ε, on every dataset.",
    mse_cases,
    measure_mse,
    paint=figure("figures_experiments", "errors_over_epsilon", "fig-mse"),
)
