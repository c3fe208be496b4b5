"""Answers from the veil alone: whether they convince, over many draws of the noise.

Guidance `surrogate` consults nothing but the veil; its answers are then shown to an f of three
kinds that nobody asked. Besides, the veil's private model explains itself. People whom the model
refuses ask for the class that they want; every feature may change that the schema lets change.
Settings were chosen on the split of seed 0; `SPLIT` is another one. Only the noise differs from
draw to draw.

| column | better | meaning |
|---|---|---|
| asked | | the model that is shown the answers: a kind of f, or the private model |
| flip_ratio | high | queries with an answer that this model accepts |
| expected | | mean stability of the answers: what the veil itself expects of other models |
| changes | low | features changed, mean over the answers |
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pandas as pd

from counterveil.curator import Curator
from counterveil.encoding import Array
from counterveil.models import TargetModel, adapt
from counterveil.schema import Category
from counterveil.search import Explainer, Explanations
from counterveil.veil import Veil
from counterveil_lab.believability import KINDS, WISHES, refused, trained
from counterveil_lab.datasets import Dataset
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.runner import Case, Experiment, Options, combined
from counterveil_lab.percentiles import Percentiles
from counterveil_lab.product import decided
from counterveil_lab.results import Row

SPLIT = 2
DRAWS, QUICK_DRAWS = 20, 1
QUERIES, QUICK_QUERIES = 200, 20
EPSILONS: dict[str, tuple[float, ...]] = {
    "adult": (0.025, 0.1, 0.75, 3.0),
    "hospital": (0.1, 0.75),
    "homecredit": (0.1, 0.75),
}
DELTAS: dict[str, tuple[float, ...]] = {
    "adult": (0.0, 1e-9),
    "hospital": (1e-9,),
    "homecredit": (1e-9,),
}
PRIVATE = "private model"


@dataclass(frozen=True, eq=False)
class Asked:
    """A model that is shown the answers, and the people whom it refuses.

    `queries`: rows in original units. `space`: percentiles among the training rows. `target`: the
    class that all queries ask for.
    """

    model: TargetModel
    queries: pd.DataFrame
    space: Percentiles
    target: Category

    def convinced(self, explainer: Explainer) -> Row:
        """What becomes of the answers that `explainer` gives to the queries."""
        result: Explanations = explainer.explain(
            self.queries, target=self.target, prefer="believable", progress=False
        )
        given, stability, answers = result.valid, result.stability, result.rows
        answers = self.space.encoding.pick(answers)
        number = explainer.veil.schema.label.classes.index(self.target)
        accepted = (decided(self.model, answers) == number).numpy()
        changed = self.space.changed(self.queries, answers)
        return {
            "queries": len(self.queries),
            "flip_ratio": float((accepted & given).mean()),
            "expected": None if stability is None else _mean(stability[given]),
            "changes": _mean(changed[given].sum(axis=1)),
        }


def cases(options: Options) -> Iterator[Case]:
    """Every table at its δ, every ε, every draw of the noise."""
    draws = range(QUICK_DRAWS if options.quick else DRAWS)
    for dataset in options.names(tuple(EPSILONS), ("adult",)):
        deltas = DELTAS[dataset][:1] if options.quick else DELTAS[dataset]
        epsilons = (0.75,) if options.quick else EPSILONS[dataset]
        yield from combined(dataset=[dataset], delta=deltas, epsilon=epsilons, draw=draws)


def measure_case(
    dataset: str, epsilon: float, delta: float, draw: int, *, quick: bool
) -> list[Row]:
    """A row for each kind of f, and one for the private model."""
    data, space = _data(dataset, quick)
    # Believable answers ask nothing of the autoencoder: it is trained as briefly as can be.
    veil: Veil = Curator(data.schema).release(
        data.train, epsilon, delta, epochs=1, seed=draw, progress=False
    )
    surrogate = Explainer(veil, guidance="surrogate")
    rows = [{"asked": kind, **_asked(dataset, kind, quick).convinced(surrogate)} for kind in KINDS]
    model = veil.model(classes="even")
    own = _refused_by(model, data, space, quick)
    if len(own.queries):
        rows.append({"asked": PRIVATE, **own.convinced(Explainer(veil, model))})
    return rows


@lru_cache(maxsize=1)
def _data(dataset: str, quick: bool) -> tuple[Dataset, Percentiles]:
    data = releases.data_for(dataset, SPLIT, quick=quick)
    return data, Percentiles(data.schema, data.train)


@lru_cache(maxsize=len(KINDS))
def _asked(dataset: str, kind: Any, quick: bool) -> Asked:
    """f of one kind, trained once a process."""
    data, space = _data(dataset, quick)
    return _refused_by(trained(data, kind, SPLIT), data, space, quick)


def _refused_by(model: Any, data: Dataset, space: Percentiles, quick: bool) -> Asked:
    f, target = adapt(model, data.schema), WISHES[data.name].target
    number = data.schema.label.classes.index(target)
    queries = refused(data, f, number, QUICK_QUERIES if quick else QUERIES)
    return Asked(f, queries, space, target)


def _mean(values: Array) -> float | None:
    return float(values.mean()) if len(values) else None


PRIVATE_ANSWERS = Experiment(
    "whether answers from the veil alone convince a model that nobody asked, over draws of noise.",
    cases,
    measure_case,
    chosen_by=(),
)
