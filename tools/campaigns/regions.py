"""Regions: does f accept what they claim, and how much do they miss?

Held-out people whom f refuses get answers. Points are drawn evenly from the regions of random
answers, one feature at a time. What works in truth is looked up beside the product: every category,
and the numbers around the answer's own that f accepts without a gap, evenly spread over what the
schema allows and at values of held-out rows. One row for each dataset and kind of f:

| column | what |
|---|---|
| regions, exact | how many, and the share of them that is said to be exact |
| accepted | points that f accepts, of all that were drawn |
| missed_numbers | share of the true interval outside the region, mean over numbers |
| missed_lists | share of the categories that work outside the region, mean over categories |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from counterveil.models import adapt
from counterveil.schema import Feature
from counterveil.search import Explainer, Explanations
from counterveil.search.results.regions import EXACT, Region
from counterveil_lab.believability import WISHES, refused, trained
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.runner import Case, Experiment, Options, combined
from counterveil_lab.results import Row

FIRST_SEED, EPSILON, EPOCHS = 1, 0.75, 2  # of the autoencoder, which these answers do not use
TABLES = ("adult", "hospital", "homecredit")
MODELS = ("network", "boosted", PRIVATE := "private model")
QUERIES, POINTS, QUICK = 100, 10_000, 5  # a quick look takes a fifth
GRID = 300  # numbers at which f is asked for the truth, and as many of held-out rows


def drawn(result: Explanations, count: int, dice: np.random.Generator) -> pd.DataFrame:
    """Answers in which one feature has another value of its region, (count, columns)."""
    claimed = [(at, region) for at in result.found.tolist() for region in result.regions[at]]
    chosen = [claimed[each] for each in dice.integers(0, len(claimed), count)]
    rows = result.rows.iloc[[at for at, _ in chosen]].reset_index(drop=True).astype(object)
    for row, (_, region) in enumerate(chosen):
        if region.low is None or region.high is None:
            value = region.values[dice.integers(len(region.values))]
        else:
            value = dice.uniform(region.low, region.high)
            value = round(value) if result.schema.feature(region.column).is_whole else value
        rows.loc[row, region.column] = value
    return rows


def missed(explainer: Explainer, result: Explanations, at: int, region: Region, seen: Any) -> float:
    """The share of what works that is outside of a region; `seen`: a column of held-out rows."""
    answer, own = result.rows.iloc[at], result.rows[region.column].iloc[at]
    tries = _tries(result.schema.feature(region.column), own, seen)
    rows = pd.DataFrame([answer.to_dict()] * len(tries), dtype=object)
    rows[region.column] = tries
    says = explainer.decide(rows).argmax(axis=1) == result.target[at]
    if region.low is None or region.high is None:
        works = {each for each, fine in zip(tries, says, strict=True) if fine}
        works -= {result.queries[region.column].iloc[at]}
        return 1 - len(works & set(region.values)) / len(works)
    values = np.array(tries, dtype=float)
    first = values[~says & (values < own)].max(initial=-np.inf)
    last = values[~says & (values > own)].min(initial=np.inf)
    inside = values[(values > first) & (values < last)]
    covered = min(region.high, inside.max()) - max(region.low, inside.min())
    return float(1 - covered / np.ptp(inside)) if np.ptp(inside) > 0 else 0.0


def _tries(feature: Feature, own: Any, seen: Any) -> list[Any]:
    """Values of a feature that the schema allows, with the answer's own."""
    ends = feature.allowed_range()
    if ends is None:
        return list(feature.values or ())
    some = np.quantile(seen.dropna().to_numpy(float), np.linspace(0, 1, GRID)).clip(*ends)
    values = np.concatenate([np.linspace(*ends, GRID), some])
    return sorted({own, *(np.rint(values) if feature.is_whole else values).tolist()})


def measure_case(dataset: str, kind: str, seed: int, *, quick: bool) -> list[Row]:
    data, wish = releases.data_for(dataset, seed, quick=quick), WISHES[dataset]
    veil = releases.release(data, "functional", EPSILON, seed, epochs=EPOCHS, quick=quick).veil
    model = veil.model(classes="even") if kind == PRIVATE else trained(data, kind, seed)  # type: ignore[arg-type]
    explainer, part = Explainer(veil, model), QUICK if quick else 1
    goal = data.schema.label.classes.index(wish.target)
    asked = refused(data, adapt(model, data.schema), goal, QUERIES // part)
    result = explainer.explain(asked, wish.target, immutable=wish.personal, progress=False)
    points = drawn(result, POINTS // part, np.random.default_rng(seed))
    listed = [(at, region) for at in result.found.tolist() for region in result.regions[at]]
    loss: dict[bool, list[float]] = {True: [], False: []}
    for at, region in listed:
        lost = missed(explainer, result, at, region, data.test[region.column])
        loss[region.low is None].append(lost)
    return [
        {
            "epsilon": EPSILON,
            "regions": len(listed),
            "exact": float(np.mean([region.checked == EXACT for _, region in listed])),
            "accepted": float((explainer.decide(points).argmax(axis=1) == goal).mean()),
            "missed_numbers": float(np.mean(loss[False])) if loss[False] else None,
            "missed_lists": float(np.mean(loss[True])) if loss[True] else None,
        }
    ]


def cases(options: Options) -> Iterable[Case]:
    seeds, names = options.splits(FIRST_SEED), options.names(TABLES, ("adult",))
    return combined(seed=seeds, dataset=names, kind=MODELS)


REGIONS = Experiment(
    "whether regions of answers hold what they claim, and how much of what works they miss.",
    cases,
    measure_case,
    chosen_by=("kind",),
)
