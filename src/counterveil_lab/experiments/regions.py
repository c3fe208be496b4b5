"""Regions: does f accept what they claim, and how much do they miss?

Held-out people whom f refuses get answers, with personal features fixed. Points are drawn evenly
from the regions of random answers, one feature at a time, as claimed. What works in truth is looked
up beside the product: every category, and of a number the values around the answer's own that f
accepts without a gap, on an even grid and at values of held-out rows, within what the schema
allows. One row for each dataset and kind of f:

| column | what |
|---|---|
| regions, exact | how many, and the share of them that is said to be exact |
| accepted | points that f accepts, of all that were drawn |
| missed_numbers | share of the true interval outside the region, mean over numbers |
| missed_lists | share of the categories that work outside the region, mean over categories |
| seconds | that the regions of all answers took |
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
from counterveil_lab.experiments.runner import Case, Experiment, Options
from counterveil_lab.metrics import timed
from counterveil_lab.results import Row

FIRST_SEED, EPSILON, EPOCHS = 1, 0.75, 2  # of the autoencoder, which these answers do not use
TABLES = ("adult", "hospital", "homecredit")
PRIVATE = "private model"
MODELS = ("network", "boosted", PRIVATE)
QUERIES, QUICK_QUERIES = 100, 20
POINTS, QUICK_POINTS = 10_000, 1_000
GRID = 300  # values of a number at which f is asked for the truth, and as many of held-out rows


def drawn(result: Explanations, count: int, dice: np.random.Generator) -> pd.DataFrame:
    """Answers in which one feature has another value of its region, (count, columns)."""
    claimed = [(at, region) for at in result.found.tolist() for region in result.regions[at]]
    chosen = [claimed[each] for each in dice.integers(0, len(claimed), count)]
    rows = result.rows.iloc[[at for at, _ in chosen]].reset_index(drop=True).astype(object)
    for row, (_, region) in enumerate(chosen):
        feature = result.schema.feature(region.column)
        if region.low is None or region.high is None:
            value = region.values[dice.integers(len(region.values))]
        elif feature.is_whole:
            value = int(dice.integers(int(region.low), int(region.high) + 1))
        else:
            value = float(dice.uniform(region.low, region.high))
        rows.loc[row, region.column] = value
    return rows


def missed(
    explainer: Explainer, result: Explanations, at: int, region: Region, held_out: pd.DataFrame
) -> float:
    """The share of what works that is outside of a region."""
    feature, answer = result.schema.feature(region.column), result.rows.iloc[at]
    own, before = answer[region.column], result.queries.iloc[at][region.column]
    tries = _tries(feature, own, held_out[region.column])
    rows = pd.DataFrame([answer.to_dict()] * len(tries), dtype=object)
    rows[region.column] = tries
    says = explainer.decide(rows).argmax(axis=1) == result.target[at]
    if region.low is None or region.high is None:
        works = {each for each, fine in zip(tries, says, strict=True) if fine and each != before}
        return 1 - len(works & set(region.values)) / len(works)
    values = np.array(tries, dtype=float)
    first = values[~says & (values < own)].max(initial=-np.inf)
    last = values[~says & (values > own)].min(initial=np.inf)
    inside = values[(values > first) & (values < last)]
    width = inside.max() - inside.min()
    covered = min(region.high, inside.max()) - max(region.low, inside.min())
    return 1 - max(covered, 0.0) / width if width > 0 else 0.0


def _tries(feature: Feature, own: Any, held_out: pd.Series[Any]) -> list[Any]:
    """Values of a feature that the schema allows, with the answer's own."""
    ends = feature.allowed_range()
    if ends is None:
        return list(feature.values or ())
    seen = held_out.dropna().to_numpy(float)
    inside = seen[(seen >= ends[0]) & (seen <= ends[1])]
    some = np.quantile(inside, np.linspace(0, 1, GRID)) if len(inside) else inside
    values = np.concatenate([np.linspace(*ends, GRID), some])
    values = np.rint(values) if feature.is_whole else values
    return sorted({own, *values.tolist()})


def measure_case(dataset: str, kind: str, seed: int, *, quick: bool) -> list[Row]:
    """The regions of one kind of f on one table."""
    data, wish = releases.data_for(dataset, seed, quick=quick), WISHES[dataset]
    veil = releases.release(data, "functional", EPSILON, seed, epochs=EPOCHS, quick=quick).veil
    model = veil.model(classes="even") if kind == PRIVATE else trained(data, kind, seed)
    explainer, schema = Explainer(veil, model), data.schema
    asked = refused(
        data,
        adapt(model, schema),
        schema.label.classes.index(wish.target),
        QUICK_QUERIES if quick else QUERIES,
    )
    result = explainer.explain(asked, wish.target, immutable=wish.personal, progress=False)
    every, seconds = timed(lambda: result.regions.many(result.found))
    dice = np.random.default_rng(seed)
    points = drawn(result, QUICK_POINTS if quick else POINTS, dice)
    goal = int(result.target[0])
    losses: dict[bool, list[float]] = {True: [], False: []}
    for at, regions in zip(result.found.tolist(), every, strict=True):
        for region in regions:
            loss = missed(explainer, result, at, region, data.test)
            losses[region.low is not None].append(loss)
    listed = [region for regions in every for region in regions]
    return [
        {
            "epsilon": EPSILON,
            "answers": len(result.found),
            "regions": len(listed),
            "exact": np.mean([region.checked == EXACT for region in listed]),
            "accepted": float((explainer.decide(points).argmax(axis=1) == goal).mean()),
            "missed_numbers": float(np.mean(losses[True])) if losses[True] else None,
            "missed_lists": float(np.mean(losses[False])) if losses[False] else None,
            "seconds": seconds,
        }
    ]


def cases(options: Options) -> Iterable[Case]:
    """Every split, table and kind of f."""
    for repetition in options.repetitions:
        for dataset in options.names(TABLES, ("adult",)):
            for kind in MODELS:
                yield {"dataset": dataset, "kind": kind, "seed": FIRST_SEED + repetition}


REGIONS = Experiment(
    "whether regions of answers hold what they claim, and how much of what works they miss.",
    cases,
    measure_case,
    chosen_by=("kind",),
)
