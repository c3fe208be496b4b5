"""Target models, reconstruction error and answers over ε.

`targets`: accuracy of the target models on held-out rows. Balanced accuracy is the mean over
classes, and `majority_share` what naming the largest class would score. The f of all other
experiments weights its classes evenly; `target-unweighted` does not.

`fig-mse`: mean squared error of the autoencoder on held-out rows, for `paper` and `functional`;
`epochs` says how long `paper` was trained. The error of answering the mean of all training rows
stands beside: above it nothing was learnt.

`frontier`: answers of each mechanism at each ε, with the product's own search for every mechanism,
so that what differs is the veil (`table-fr` has the paper's own search). With guidance `surrogate`
the target model is only asked afterwards whether it would agree.
"""

from collections.abc import Iterator

import torch

from counterveil_lab.datasets import LOADERS, Dataset
from counterveil_lab.evaluation import QUERIES
from counterveil_lab.experiments import releases, runner
from counterveil_lab.experiments.runner import Case, Experiment, Options, figure
from counterveil_lab.metrics import measure, reconstruction_error, timed
from counterveil_lab.results import Row
from counterveil_lab.targets import classes_of, encoded

MSE_EPSILONS: tuple[releases.Epsilon, ...] = (5e-4, 0.005, 0.025, 0.1, 0.75, 1.0)
MSE_ROWS = 5000
WIDE = ("purchase-substitute", "texas-substitute")
NARROW = (*runner.TABLES_AND_MNIST, "digits")


def target_cases(options: Options) -> Iterator[Case]:
    """Every dataset that the lab can load."""
    for seed in options.repetitions:
        for name in options.names(tuple(LOADERS)):
            yield {"dataset": name, "seed": seed}


def measure_target(dataset: str, seed: int, *, quick: bool) -> list[Row]:
    """One f with its classes weighted evenly, and one without."""
    data = releases.data_for(dataset, seed, quick=quick)
    return [
        _accuracy_of("target", data, seed, even=True),
        _accuracy_of("target-unweighted", data, seed, even=False),
    ]


def _accuracy_of(method: str, data: Dataset, seed: int, *, even: bool) -> Row:
    model, seconds = timed(lambda: releases.target_for(data, seed, even=even))
    points, classes = encoded(data.test, data.schema)
    said = classes_of(model, points)
    counts = torch.bincount(classes, minlength=len(data.schema.label.classes))
    right = torch.bincount(classes[said == classes], minlength=len(counts))
    there = counts > 0
    row: Row = {"method": method, "rows": len(data.train), "test_rows": len(data.test)}
    row["accuracy"] = float(right.sum() / counts.sum())
    row["balanced_accuracy"] = float((right[there] / counts[there]).mean())
    row["majority_share"] = float(counts.max() / counts.sum())
    return {**row, "paper_accuracy": data.paper_accuracy, "seconds": seconds}


def mse_cases(options: Options) -> Iterator[Case]:
    """Both mechanisms at every ε, and `paper` without noise."""
    for seed in options.repetitions:
        for name in options.names():
            epsilons = (5e-4, 0.75) if options.quick else MSE_EPSILONS
            for mechanism, more in (("paper", (releases.NO_NOISE,)), ("functional", ())):
                for epsilon in (*epsilons, *more):
                    yield _case(name, mechanism, epsilon, seed=seed)


def measure_mse(
    dataset: str, mechanism: str, epsilon: releases.Epsilon, seed: int, *, quick: bool
) -> list[Row]:
    """One release and its error."""
    data = releases.data_for(dataset, seed, quick=quick)
    made = releases.release(data, mechanism, epsilon, seed, quick=quick)
    error = reconstruction_error(made.veil, data.test.head(MSE_ROWS))
    row = {**releases.head_of(made, mechanism), "release_seconds": made.seconds, "mse": error}
    return [{**row, "mse_of_pooled_mean": releases.pooled_mean_error(data)}]


def frontier_cases(options: Options) -> Iterator[Case]:
    """Every mechanism at the ε that it is made for, on every dataset; Adult at both orders."""
    four, two, orders = (0.025, 0.1, 0.75, 3.0), (0.025, 0.75), (1, 2)
    cases = [
        *(_case("adult", "functional", e, asked_order=order) for e in four for order in orders),
        *(_case(name, "functional", epsilon) for name in NARROW for epsilon in four),
        *(_case(name, "functional", epsilon) for name in WIDE for epsilon in two),
        *(_case(name, "paper", epsilon) for name in (*NARROW, *WIDE) for epsilon in two),
        *(_case(name, "dpsgd", epsilon) for name in NARROW for epsilon in (0.75, 3.0)),
        *(_case(name, "dpsgd", 0.75) for name in WIDE),
    ]
    if options.quick:
        cases = [_case("digits", name, 0.75) for name in ("functional", "paper", "dpsgd")]
    for seed in options.repetitions:
        for case in cases:
            if case["dataset"] in options.names(runner.PAPER_DATASETS):
                yield {**case, "asked_order": case.get("asked_order"), "seed": seed}


def _case(dataset: str, mechanism: str, epsilon: releases.Epsilon, **more: int) -> Case:
    return {"dataset": dataset, "mechanism": mechanism, "epsilon": epsilon, **more}


def measure_frontier(
    dataset: str, mechanism: str, epsilon: float, asked_order: int | None, seed: int, *, quick: bool
) -> list[Row]:
    """One release, its answers with both guidances."""
    evaluation = releases.evaluation_for(dataset, seed, quick=quick, queries=QUERIES)
    data = evaluation.data
    made = releases.release(data, mechanism, epsilon, seed, order=asked_order, quick=quick)
    head = {**releases.head_of(made, mechanism), "order": None, "release_seconds": made.seconds}
    head["mse"] = reconstruction_error(made.veil, data.test)
    head["mse_of_pooled_mean"] = releases.pooled_mean_error(data)
    if mechanism == "functional":
        record = made.veil.record
        head["order"] = 2 if record is not None and record.find("tree") else 1
    if made.epochs is None:
        del head["epochs"]
    rows = []
    for guidance, explainer in releases.explainers_for(made.veil, evaluation.model):
        if guidance == "model":
            row = evaluation.score_explainer(explainer)
            del row["queries"]
            # Polished answers lie near the query whatever the population: to compare populations,
            # and with the paper, the same without polish.
            result = evaluation.explain(explainer, method="iterations", polish=False)
            plain = measure(result, evaluation.reference)
            row |= {f"{name}_unpolished": plain[name] for name in ("distance", "plausibility")}
        else:  # f is asked only when all is over
            result = evaluation.explain(explainer)
            row = {**measure(result, evaluation.reference)}
            row["flip_ratio_by_surrogate"] = row["flip_ratio"]
            row["flip_ratio"] = float(evaluation.accepted(result).mean())
            row["flip_ratio_any"] = float(evaluation.left(explainer, result).mean())
        rows.append({**head, "guidance": guidance, **row})
    return rows


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
FRONTIER = Experiment(
    "how good the answers of each mechanism are at each ε, on every dataset.",
    frontier_cases,
    measure_frontier,
    paint=figure("figures_experiments", "frontier", "frontier"),
    why_not=lambda case: releases.why_not(case["mechanism"], case["dataset"]),
)
