"""The private model of a veil beside f's own network by DP-SGD, under the same ε and δ.

DP-SGD is measured with several settings. Whoever takes the best of them lets DP-SGD choose on the
rows that are reported, which is in its favour. What it trains comes without explanations. The
columns are those of `populations`, on the same split of the rows.
"""

from collections.abc import Iterator
from functools import partial

import torch

from campaigns.populations import SPLIT, TABLES, prepared, quality, scorecard_of
from counterveil.curator.functional import make_plan, measure
from counterveil.population import MixedPopulation
from counterveil.privacy import Budget
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.runner import Case, Experiment, Options, combined
from counterveil_lab.results import Row
from counterveil_lab.targets import classes_of, new_target, train_privately

EPSILONS, DELTA = (0.1, 0.75, 3.0), 1e-9
SETTINGS = tuple((batch, clip) for batch in (512, 4096) for clip in (0.5, 4.0))
DRAWS, QUICK_DRAWS = 3, 1
PRIVATE, DPSGD = "private model", "dp-sgd"


def cases(options: Options) -> Iterator[Case]:
    """Every table, ε and draw of the noise; the private model, and every setting of DP-SGD."""
    settings = SETTINGS[:1] if options.quick else SETTINGS
    names, draws = options.names(TABLES, ("adult",)), range(QUICK_DRAWS if options.quick else DRAWS)
    epsilons = (0.75,) if options.quick else EPSILONS
    for head in combined(dataset=names, epsilon=epsilons, delta=[DELTA], draw=draws):
        yield {**head, "method": PRIVATE, "batch": None, "clip": None}
        for batch, clip in settings:
            yield {**head, "method": DPSGD, "batch": batch, "clip": clip}


def measure_case(
    dataset: str,
    epsilon: float,
    delta: float,
    draw: int,
    method: str,
    batch: int | None,
    clip: float | None,
    *,
    quick: bool,
) -> list[Row]:
    data = releases.data_for(dataset, SPLIT, quick=quick)
    table, points, classes, decided = prepared(dataset, 1.0, quick)
    budget, real = Budget(epsilon, delta), torch.as_tensor(points, dtype=torch.float32)
    if batch is None or clip is None:
        plan = make_plan(data.schema, table.size, budget)
        network = scorecard_of(MixedPopulation(data.schema, measure(table, plan)))  # type: ignore[arg-type]
    else:
        new = partial(new_target, data.schema)
        network = train_privately(
            new, data.schema, data.train, budget, clip=clip, batch=batch, seed=draw
        )
    return [quality(classes_of(network, real).numpy(), decided, classes)]


def _why_not(case: Case) -> str | None:
    return releases.why_not("dpsgd", case["dataset"]) if case["method"] == DPSGD else None


PRIVATE_MODELS = Experiment(
    "the private model of a veil beside f's own network by DP-SGD, at the same ε.",
    cases,
    measure_case,
    why_not=_why_not,
    chosen_by=("method",),
)
