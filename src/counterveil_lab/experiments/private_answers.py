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
from functools import partial
from typing import Any

from counterveil.curator import Curator
from counterveil.encoding import Array
from counterveil.search import Explainer, Explanations
from counterveil.veil import Veil
from counterveil_lab.believability import KINDS, Judges
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.runner import Case, Experiment, Options
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


def cases(options: Options) -> Iterator[Case]:
    """Every table at its δ, every ε."""
    for dataset in options.names(tuple(EPSILONS), ("adult",)):
        for delta in DELTAS[dataset][:1] if options.quick else DELTAS[dataset]:
            for epsilon in (0.75,) if options.quick else EPSILONS[dataset]:
                yield {"dataset": dataset, "epsilon": epsilon, "delta": delta}


def measure_case(dataset: str, epsilon: float, delta: float, *, quick: bool) -> list[Row]:
    """Rows for each draw of the noise."""
    data = releases.data_for(dataset, SPLIT, quick=quick)
    # Believable answers ask nothing of the autoencoder: it is trained as briefly as can be.
    release = partial(Curator(data.schema).release, data.train, epsilon, delta)
    rows: list[Row] = []
    for draw in range(QUICK_DRAWS if quick else DRAWS):
        veil = release(epochs=1, seed=draw, progress=False)
        rows += [{"draw": draw, **row} for row in _answers(veil, dataset, quick=quick)]
    return rows


def _answers(veil: Veil, dataset: str, *, quick: bool) -> Iterator[Row]:
    """A row for the private model, and one for each kind of f."""
    surrogate = Explainer(veil, guidance="surrogate")
    for kind in KINDS:
        judges = Judges.of(dataset, SPLIT, kind, quick=quick)
        yield {"asked": kind, **_convinced(surrogate, judges, quick=quick)}
    own = Judges.of(dataset, SPLIT, KINDS[0], quick=quick).of_model(veil.model(classes="even"))
    if len(own.queries):
        yield {"asked": PRIVATE, **_convinced(Explainer(veil), own, quick=quick)}


def _convinced(explainer: Explainer, judges: Judges, *, quick: bool) -> Row:
    queries = judges.queries.head(QUICK_QUERIES if quick else QUERIES)
    asked: dict[str, Any] = {"target": judges.target, "progress": False}
    result: Explanations = explainer.explain(queries, prefer="believable", **asked)
    given, stability = result.valid, result.stability
    changed = judges.reality.space.changed(queries, judges.reality.space.encoding.pick(result.rows))
    return {
        "queries": len(queries),
        "flip_ratio": float((judges.accepts(result.rows) & given).mean()),
        "expected": None if stability is None else _mean(stability[given]),
        "changes": _mean(changed[given].sum(axis=1)),
    }


def _mean(values: Array) -> float | None:
    return float(values.mean()) if len(values) else None


PRIVATE_ANSWERS = Experiment(
    "whether answers from the veil alone convince a model that nobody asked, over draws of noise.",
    cases,
    measure_case,
    chosen_by=(),
)
