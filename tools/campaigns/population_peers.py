"""Our private model and population beside DP-EBM, AIM and MST, under the same ε and δ.

All are judged on the same held-out rows, on the split of `populations`. One row for each model:

| method | model | what it is |
|---|---|---|
| ours | private model | the scorecard of a population |
| ours, aim, mst | boosted trees | trained on 40,000 rows of a population alone |
| dp-ebm | dp-ebm | `DPExplainableBoostingClassifier` of interpret-core, with its own settings |
| real rows | boosted trees, f | without privacy: what can be reached |

| column | better | meaning |
|---|---|---|
| auc | high | that a row of class 1 scores above one of class 0 |
| balanced_accuracy, agreement | high | as in `populations` |
| slope | near 1 | by what log-odds have to be multiplied to be calibrated; below 1: too sure |
| two_way | low | of a population, as in `populations` |
| rows, bins | | what a method was given; bins of a number, at most |
| seconds | low | to make the model or the population |

Peers promise less than we do for the same ε and δ: all count as neighbours two tables of which one
has a row more, and we those that differ in a row. DP-EBM adds noise for sums that one row moves by
1 (`_privacy.py` and `_ebm.py` of interpret-core 0.7): a replaced row moves a count by √2 and a sum
of residuals by up to 2, so under our relation its noise would have to be up to twice as large. AIM
and MST run with `contributions=1`; a replaced row is two. They also read from the data, without
noise, DP-EBM which categories there are and how many rows, AIM and MST the quantiles that are their
bins. DP-EBM gets its threshold, the share of class 1, for nothing. All of that is in their favour.

DP-EBM needs δ > 0. It knows no missing values and reads the schema of `peers.complete`. AIM and MST
are those of OpenDP, with the largest ρ-zCDP that (ε, δ) allows; for its time AIM counts pairs
alone, in fewer rounds and with a smaller model than by default. That is against AIM: with fewer
rounds than columns it may never count the class beside what tells it. `marginals`: what they need.
"""

import os
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import torch

from campaigns.marginals import PYTHON, Codes, marginals_sample
from campaigns.populations import (
    SAMPLES,
    SPLIT,
    TABLES,
    parts_of,
    prepared,
    quality,
    scorecard_of,
    two_way,
)
from counterveil.curator.functional import make_plan, measure
from counterveil.encoding import Array, Encoding
from counterveil.population import population_of
from counterveil.privacy import Budget
from counterveil.schema import Categorical, Feature, Numeric
from counterveil_lab.datasets import Dataset
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.peers import complete
from counterveil_lab.experiments.runner import Case, Experiment, Options
from counterveil_lab.metrics import timed
from counterveil_lab.results import Row

EPSILONS, DELTAS, DRAWS = (0.1, 0.5, 0.75, 1.0, 3.0), (0.0, 1e-6), 5
OURS, DP_EBM, REAL = "ours", "dp-ebm", "real rows"
MARGINALS, MARGINALS_EPSILONS = ("mst", "aim"), (0.75, 3.0)  # one draw, δ > 0: they are slow
BINS, QUICK_BINS = 16, 4  # of a number, for AIM and MST
ROUNDS, SIZE = 16, 1.0  # of AIM, at most; megabytes of its model


def cases(options: Options) -> Iterator[Case]:
    """Every table and method; every ε, δ and draw of the noise where there is noise."""
    epsilons = (0.75,) if options.quick else EPSILONS
    for dataset in options.names(TABLES, ("adult",)):
        none = {"epsilon": None, "delta": None, "draw": 0}
        yield {"dataset": dataset, "method": REAL, **none}
        for epsilon in epsilons:
            for delta in DELTAS:
                noise = {"epsilon": epsilon, "delta": delta}
                for draw in range(1 if options.quick else DRAWS):
                    for method in (OURS, DP_EBM):
                        yield {"dataset": dataset, "method": method, **noise, "draw": draw}
                if delta and epsilon in MARGINALS_EPSILONS:
                    for method in MARGINALS:
                        yield {"dataset": dataset, "method": method, **noise, "draw": 0}


def why_not(case: Case) -> str | None:
    if case["method"] == DP_EBM and not case["delta"]:
        return "without dp-ebm at δ 0: its noise is Gaussian and needs δ > 0"
    if case["method"] == DP_EBM and find_spec("interpret") is None:
        return "without dp-ebm: it needs pip install 'counterveil[lab]'"
    if case["method"] in MARGINALS and not os.environ.get(PYTHON):
        return f"without aim and mst: {PYTHON} names no Python that has opendp, mbi and pandas"
    return None


def measure_case(
    dataset: str, method: str, epsilon: float | None, delta: float | None, draw: int, *, quick: bool
) -> list[Row]:
    """The models of one method."""
    data = releases.data_for(dataset, SPLIT, quick=quick)
    table, real, classes, decided = prepared(dataset, 1.0, quick)

    def judged(model: str, score: Array, seconds: float | None = None, **more: Any) -> Row:
        from sklearn.linear_model import LogisticRegression
        from sklearn.metrics import roc_auc_score

        auc = float(roc_auc_score(classes, score))
        mended = LogisticRegression(C=np.inf, class_weight="balanced").fit(score[:, None], classes)
        found = quality((score > 0).astype(int), decided, classes)
        found["slope"] = float(mended.coef_[0, 0])
        return {"model": model, "auc": auc, **found, **more, "seconds": seconds}

    def by_trees(points: Array, labels: Array, **more: Any) -> Row:
        return judged("boosted trees", boosted_score(points, labels, real), **more)

    if epsilon is None or delta is None:
        own = judged("f", network_score(releases.target_for(data, SPLIT), real))
        return [by_trees(table.points, table.classes), own]
    budget = Budget(epsilon, delta)
    if method == DP_EBM:
        return [judged(DP_EBM, *timed(partial(dp_ebm_score, data, budget)), rows=table.size)]
    parts, rng, rows = parts_of(table.schema, real), np.random.default_rng(draw), []
    more: Row = {"rows": table.size}
    if method == OURS:
        population, seconds = timed(partial(private_population, table, budget))
        network, longer = timed(partial(scorecard_of, population))
        score = network_score(network, real)
        rows.append(judged("private model", score, seconds + longer, **more))
        points, labels = population.sample(SAMPLES, rng)
    else:
        more["bins"] = QUICK_BINS if quick else BINS
        codes = Codes(table.schema, table.points, more["bins"])
        given = np.column_stack([codes.of(table.points), table.classes])
        told = {"method": method, "epsilon": epsilon, "delta": delta, "samples": SAMPLES}
        told |= {"rounds": ROUNDS, "size": SIZE}
        sampled, seconds = timed(partial(marginals_sample, given, [*codes.sizes, 2], **told))
        points, labels = codes.points(sampled[:, :-1], rng), sampled[:, -1]
    more |= {"seconds": seconds, "two_way": two_way(parts(points), parts(real))}
    return [*rows, by_trees(points, labels, **more)]


def private_population(table: Any, budget: Budget) -> Any:
    """A population of the rows of a table, with noise of its own."""
    return population_of(table.schema, measure(table, make_plan(table.schema, table.size, budget)))


def network_score(network: Any, points: Array) -> Array:
    """How much a network of two logits is for class 1."""
    with torch.no_grad():
        logits = network(torch.as_tensor(points, dtype=torch.float32)).double().numpy()
    return logits[:, 1] - logits[:, 0]


def boosted_score(points: Array, labels: Array, asked: Array) -> Array:
    """How much boosted trees that learn from some points are for class 1; classes count evenly."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    trees = HistGradientBoostingClassifier(class_weight="balanced", random_state=0)
    return trees.fit(points, labels).decision_function(asked)


def dp_ebm_score(data: Dataset, budget: Budget) -> Array:
    """How much a DP-EBM of the training rows is for class 1 on held-out rows, beyond its share."""
    from interpret.privacy import DPExplainableBoostingClassifier

    encoding, whole = Encoding(data.schema), Encoding(complete(data.schema))
    features = whole.schema.features

    def read(frame: pd.DataFrame) -> pd.DataFrame:
        rows = whole.decode(encoding.encode(frame))
        kinds = {each.name: float if isinstance(each, Numeric) else str for each in features}
        return rows.astype(kinds)

    def kind(feature: Feature) -> str | list[str]:
        if isinstance(feature, Categorical) and feature.ordered:
            return [str(category) for category in feature.categories]
        return "continuous" if isinstance(feature, Numeric) else "nominal"

    model = DPExplainableBoostingClassifier(
        feature_types=[kind(each) for each in features],
        privacy_bounds={each.name: each.number_range for each in features if each.number_range},
        epsilon=budget.epsilon,
        delta=budget.delta,
        n_jobs=1,
    )
    labels = encoding.labels(data.train)
    return model.fit(read(data.train), labels).predict_proba(read(data.test))[:, 1] - labels.mean()


POPULATION_PEERS = Experiment(
    "the private model and the population beside DP-EBM, AIM and MST, at the same ε and δ.",
    cases,
    measure_case,
    why_not=why_not,
    chosen_by=("method",),
)
