"""Plausibility as a judge: does it tell real rows from those with one value of somebody else?

Beside each held-out row stands a copy in which one feature has the value of another row of its
class. Every feature is replaced equally often, and every value leaves as often as it comes, so that
only what stands beside it can tell: who looks at one feature at a time is right in one case of two.
The score of a row is its plausibility for its own class. One row for each dataset, ε and seed:

| column | what |
|---|---|
| rows | real rows, and as many copies |
| auc | how often a real row has a higher score than a copy; equal scores count one half |
| auc_dependent | the same where the feature is in one of the ten most dependent pairs |
| ceiling, ceiling_dependent | of boosted trees, not private, taught by training rows and copies |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from counterveil.encoding import Array, Encoding
from counterveil.schema import Categorical, Label, Schema
from counterveil.search.actions.people import People
from counterveil.veil import Veil
from counterveil_lab.attacks.scores import area as auc
from counterveil_lab.believability import BoostedTrees
from counterveil_lab.datasets import Dataset
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.runner import Case, Experiment, Options, combined
from counterveil_lab.percentiles import Percentiles
from counterveil_lab.results import Row

FIRST_SEED = 1  # as of `believable`
TABLES = ("adult", "hospital", "homecredit", "months")
EPSILONS = (0.1, 0.75, 3.0)
ROWS, LESSONS, QUICK_ROWS = 2_000, 100_000, 500  # of each class: judged, and learnt from
TREES: Mapping[str, Any] = {"max_iter": 400, "max_leaf_nodes": 31, "learning_rate": 0.1}
AT_A_TIME = 4096
Dice = np.random.Generator


class Pairs(NamedTuple):
    """Rows with the label, a copy of each, and the number of the feature that was replaced."""

    real: pd.DataFrame
    copies: pd.DataFrame
    replaced: Array

    def judged(self, scores: Array, features: Sequence[int]) -> list[float]:
        """The AUC of scores, of real rows and then of copies; of all, and of these features."""
        real, copies = np.split(scores, 2)
        some = np.isin(self.replaced, features)
        return [auc(real, copies), auc(real[some], copies[some])]

    @property
    def both(self) -> pd.DataFrame:
        """Real rows, then copies."""
        return pd.concat([self.real, self.copies], ignore_index=True)


def with_copies(frame: pd.DataFrame, schema: Schema, count: int, dice: Dice) -> Pairs:
    """About `count` rows of each class of `frame`, and their copies.

    Rows of a class are drawn by two until they differ in a feature, unless all agree in it.
    """
    drawn, classes = [], frame[schema.label.name].to_numpy()
    for each in schema.label.classes:
        mine = np.flatnonzero(classes == each)
        for number, name in enumerate(schema.columns):
            codes, values = pd.factorize(frame[name].iloc[mine], use_na_sentinel=False)
            if len(values) > 1:
                row, other = mine[_unlike(codes, count // len(schema.columns), dice)]
                drawn.append((row, other, np.full(len(row), number)))
    rows, others, replaced = (np.concatenate(part) for part in zip(*drawn, strict=True))
    copies = frame.iloc[rows].reset_index(drop=True)
    for number, name in enumerate(schema.columns):
        source = np.where(replaced == number, others, rows)
        copies[name] = frame[name].iloc[source].reset_index(drop=True)
    return Pairs(frame.iloc[rows].reset_index(drop=True), copies, replaced)


def _unlike(codes: Array, count: int, dice: Dice) -> Array:
    """`count` pairs of places at random that have different codes, (2, count)."""
    found = np.empty((2, 0), dtype=int)
    while found.shape[1] < count:
        places = dice.integers(0, len(codes), (2, AT_A_TIME))
        found = np.concatenate([found, places[:, codes[places[0]] != codes[places[1]]]], axis=1)
    return found[:, :count]


def plausibility(veil: Veil, rows: pd.DataFrame) -> Array:
    """Of rows with the label, each for its own class, from 0 to 1."""
    population: Any = veil.population()
    people, encoding = People(population), Encoding(veil.schema)
    points = torch.as_tensor(encoding.encode(rows), dtype=torch.float32)
    goals = torch.as_tensor(encoding.labels(rows))
    return people.plausibility(people.cells(points), goals).numpy()


@lru_cache(maxsize=1)
def prepared(dataset: str, seed: int, quick: bool) -> tuple[Dataset, Pairs, list[int], list[float]]:
    """A dataset, its pairs of held-out rows, the dependent features, and what trees tell."""
    data, dice = releases.data_for(dataset, seed, quick=quick), np.random.default_rng(seed)
    schema = data.schema
    pairs = with_copies(data.test, schema, QUICK_ROWS if quick else ROWS, dice)
    lessons = with_copies(data.train, schema, QUICK_ROWS if quick else LESSONS, dice)
    dependent = np.unique(Percentiles(schema, data.train).dependent).tolist()
    own_class = Categorical(name=schema.label.name, categories=schema.label.classes)
    asked = Label(name="row is", classes=("copy", "real"))
    telling = Schema(features=(*schema.features, own_class), label=asked)
    answers = np.repeat(["real", "copy"], len(lessons.real))
    trees = BoostedTrees(telling, lessons.both.assign(**{asked.name: answers}), seed, **TREES)
    return data, pairs, dependent, pairs.judged(trees.predict_proba(pairs.both)[:, 1], dependent)


def measure_case(dataset: str, epsilon: float, seed: int, *, quick: bool) -> list[Row]:
    """The population of one veil as a judge, beside trees."""
    data, pairs, dependent, ceiling = prepared(dataset, seed, quick)
    veil = releases.release(data, "functional", epsilon, seed, quick=quick).veil
    found = pairs.judged(plausibility(veil, pairs.both), dependent)
    names = ("auc", "auc_dependent", "ceiling", "ceiling_dependent")
    return [{"rows": len(pairs.real), **dict(zip(names, [*found, *ceiling], strict=True))}]


def cases(options: Options) -> Iterable[Case]:
    seeds, names = options.splits(FIRST_SEED), options.names(TABLES, ("adult",))
    epsilons = EPSILONS[1:2] if options.quick else EPSILONS
    return combined(seed=seeds, dataset=names, epsilon=epsilons)


PLAUSIBILITY = Experiment(
    "plausibility as a judge of real rows and rows with one value of somebody else.",
    cases,
    measure_case,
    chosen_by=(),
)
