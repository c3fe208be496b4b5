"""DP-SGD beside the veil's private model: f's own network, trained under the same ε and δ.

`population` measures the private model f~ of a veil on the same split; the columns are the same.
DP-SGD is measured with several settings. Whoever takes the best of them lets DP-SGD choose on the
rows that are reported, which is in its favour. It explains nothing: f~ comes with explanations for
the same ε.
"""

from collections.abc import Iterator
from functools import partial

import torch

from counterveil.privacy import Budget
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.populations import SPLIT, TABLES, prepared, quality
from counterveil_lab.experiments.runner import Case, Experiment, Options
from counterveil_lab.results import Row
from counterveil_lab.targets import classes_of, new_target, train_privately

EPSILONS, DELTA = (0.1, 0.75, 3.0), 1e-9
SETTINGS = tuple((batch, clip) for batch in (512, 4096) for clip in (0.5, 4.0))
DRAWS, QUICK_DRAWS = 3, 1


def cases(options: Options) -> Iterator[Case]:
    """Every table, ε and setting; every draw of the noise."""
    for dataset in options.names(TABLES, ("adult",)):
        for epsilon in (0.75,) if options.quick else EPSILONS:
            for batch, clip in SETTINGS[:1] if options.quick else SETTINGS:
                for draw in range(QUICK_DRAWS if options.quick else DRAWS):
                    head = {"dataset": dataset, "epsilon": epsilon, "delta": DELTA}
                    yield {**head, "batch": batch, "clip": clip, "draw": draw}


def measure_case(
    dataset: str, epsilon: float, delta: float, batch: int, clip: float, draw: int, *, quick: bool
) -> list[Row]:
    """One training."""
    data = releases.data_for(dataset, SPLIT, quick=quick)
    _, points, classes, decided = prepared(dataset, 1.0, quick)
    budget, new = Budget(epsilon, delta), partial(new_target, data.schema)
    model = train_privately(new, data.schema, data.train, budget, clip=clip, batch=batch, seed=draw)
    said = classes_of(model, torch.as_tensor(points, dtype=torch.float32)).numpy()
    return [{"method": "dp-sgd", **quality(said, decided, classes)}]


def _why_not(case: Case) -> str | None:
    return releases.why_not("dpsgd", case["dataset"])


PRIVATE_MODELS = Experiment(
    "f's own network by DP-SGD, beside the private model of a veil at the same ε.",
    cases,
    measure_case,
    why_not=_why_not,
    chosen_by=(),
)
