"""Whether answers can be believed: judged by real rows and by models that no search ever saw.

The queries are held-out people whom f refuses, towards the class that a person wants, with personal
features fixed. Real rows are training rows where the table does not say otherwise.

| column | better | meaning |
|---|---|---|
| flip_ratio | high | queries with an answer that f accepts |
| twins | high | answers accepted by models trained like f on bootstraps of the same rows |
| boosted | high | answers accepted by a gradient-boosted model, of queries that it refuses itself |
| changes | low | features that differ |
| effort | low | sum of the differences of percentiles; a changed category counts 1 |
| top | low | answers that change the feature which is changed most often |
| rare | low | answers in which a changed feature meets another where fewer than 3 real rows do |
| odd | low | the same in one of the ten most dependent pairs, with fewer than 5 real rows |
| odd_queries | - | queries with such a pair, changed or not |
| impossible | low | answers with a change that the process behind a generated table never makes |
| near | low | effort from the answer to the nearest real row of the target class |
| near_queries, near_real | - | the same of the queries, and of held-out rows of the target class |
| iso, lof | low | answers more outlying than 95 % of held-out rows of the target class |

All but `flip_ratio` are means over the answers that a method calls valid, None where there is none.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Literal

import numpy as np
import pandas as pd
from torch import Tensor, nn

from counterveil.encoding import Array, Encoding
from counterveil.errors import RequestError
from counterveil.models import TargetModel, adapt
from counterveil.schema import Category, Schema
from counterveil_lab import months
from counterveil_lab.datasets import Dataset
from counterveil_lab.experiments import releases
from counterveil_lab.percentiles import PercentileNetwork, Percentiles, nearest_l1
from counterveil_lab.product import decided
from counterveil_lab.results import Row
from counterveil_lab.targets import new_target, train_target

Kind = Literal["network", "percentile network", "boosted"]
KINDS: tuple[Kind, ...] = ("network", "percentile network", "boosted")
QUERIES, QUICK_QUERIES = 500, 50
TWINS, QUICK_TWINS = 5, 2
REAL_ROWS = 20_000  # that answers are compared with
OUTLIER_ROWS = 5_000  # that the judges of outliers learn from, and as many to set the limit
OUTLYING = 0.05  # of real rows
NEIGHBOURS = 20
# The judge is another model than a boosted f: smaller trees, slower learning.
JUDGE: Mapping[str, Any] = {
    "learning_rate": 0.05,
    "max_iter": 200,
    "max_leaf_nodes": 15,
    "min_samples_leaf": 40,
}
OTHER_SEED = 1000  # from the seed of f to that of its judges


@dataclass(frozen=True)
class Wish:
    """What a person asks of a dataset's f: the class to reach, and what stays as it is."""

    target: Category
    personal: tuple[str, ...]


WISHES: Mapping[str, Wish] = {
    "adult": Wish(">50K", ("age", "marital_status", "relationship", "race", "sex")),
    "hospital": Wish("no", ("race", "gender", "age")),
    "homecredit": Wish(0, ("CODE_GENDER", "AGE_YEARS", "CNT_CHILDREN", "NAME_FAMILY_STATUS")),
    "months": Wish("no", months.PERSONAL),
}


class BoostedTrees:
    """scikit-learn's gradient-boosted trees over rows in original units, classes weighted evenly.

    Categories and missing values are known to it as such. `settings` go to scikit-learn.
    """

    def __init__(self, schema: Schema, train: pd.DataFrame, seed: int, **settings: Any) -> None:
        from sklearn.ensemble import HistGradientBoostingClassifier

        self._encoding = Encoding(schema)
        self.classes_ = np.array(schema.label.classes, dtype=object)
        categories = [block.feature.one_hot for block in self._encoding.blocks]
        self._trees = HistGradientBoostingClassifier(
            class_weight="balanced", categorical_features=categories, random_state=seed, **settings
        )
        self._trees.fit(self._table(train), self._encoding.labels(train))

    def predict_proba(self, rows: pd.DataFrame) -> Array:
        """Probabilities (rows, classes) in the order of the schema."""
        proba = np.zeros((len(rows), len(self.classes_)))
        proba[:, self._trees.classes_] = self._trees.predict_proba(self._table(rows))
        return proba

    def _table(self, rows: pd.DataFrame) -> Array:
        """A column a feature: a number, NaN where it is missing, or the place of a category."""
        encoded = self._encoding.encode(rows)
        columns = []
        for block in self._encoding.blocks:
            here = encoded[:, block.at]
            if block.feature.one_hot:
                columns.append(here.argmax(axis=1).astype(float))
            elif block.missing_flag is not None:
                columns.append(np.where(here[:, 1] > 0.5, np.nan, here[:, 0]))
            else:
                columns.append(here[:, 0])
        return np.stack(columns, axis=1)


@dataclass(frozen=True, eq=False)
class Reality:
    """The real rows of a dataset, as judges of rows: those to train on, and those held out."""

    data: Dataset
    target: Category

    @cached_property
    def space(self) -> Percentiles:
        """Percentiles among the training rows."""
        return Percentiles(self.data.schema, self.data.train)

    @cached_property
    def wanted(self) -> Tensor:
        """Training rows of the target class, at most 20,000, in the space of percentiles."""
        return self.space.points(self._of_class(self.data.train).head(REAL_ROWS))

    @cached_property
    def wanted_held_out(self) -> Tensor:
        """Held-out rows of the target class, at most 5,000, in the space of percentiles."""
        return self.space.points(self._of_class(self.data.test).head(OUTLIER_ROWS))

    @cached_property
    def near_real(self) -> float:
        """How far held-out rows of the target class are from the nearest training row of it."""
        return float(nearest_l1(self.wanted_held_out[:2000], self.wanted).mean())

    @cached_property
    def outlier_judges(self) -> dict[str, Callable[[Tensor], Array]]:
        """Functions from points to whether each is more outlying than 95 % of real rows."""
        from sklearn.ensemble import IsolationForest
        from sklearn.neighbors import LocalOutlierFactor

        real, held_out = self.wanted[:OUTLIER_ROWS].numpy(), self.wanted_held_out.numpy()
        forest = IsolationForest(random_state=0).fit(real)
        count = min(NEIGHBOURS, max(1, len(real) - 1))
        factor = LocalOutlierFactor(count, metric="manhattan", novelty=True)
        with warnings.catch_warnings(action="ignore"):  # equal rows are as real as others
            factor.fit(real)
        limits = {"iso": forest.score_samples, "lof": factor.score_samples}
        return {
            name: partial(_below, score, float(np.quantile(score(held_out), OUTLYING)))
            for name, score in limits.items()
        }

    def judge(self, queries: pd.DataFrame, answers: pd.DataFrame) -> Row:
        """The metrics that need no model, means over all of `answers`, one for each of `queries`.

        Both in original units, with the columns of the schema.
        """
        before, points = self.space.points(queries), self.space.points(answers)
        changed = self.space.changed(queries, answers)
        row: Row = {
            "changes": float(changed.sum(axis=1).mean()),
            "effort": float((points - before).abs().sum(dim=1).mean()),
            "top": float(changed.mean(axis=0).max()),
            "rare": float(self.space.has_rare_pair(answers, changed).mean()),
            "odd": float(self.space.has_odd_pair(answers, changed).mean()),
            "near": float(nearest_l1(points, self.wanted).mean()),
        }
        if self.data.impossible is not None:
            broken = changed & self.data.impossible(answers)
            row["impossible"] = float(broken.any(axis=1).mean())
        judges = self.outlier_judges.items()
        return row | {name: float(outlying(points).mean()) for name, outlying in judges}

    def near(self, rows: pd.DataFrame) -> float:
        """Mean effort from each of `rows` to the nearest training row of the target class."""
        return float(nearest_l1(self.space.points(rows), self.wanted).mean())

    def _of_class(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame[frame[self.data.schema.label.name] == self.target]


def _below(score: Callable[[Array], Array], limit: float, points: Tensor) -> Array:
    return score(points.numpy()) < limit


@dataclass(frozen=True, eq=False)
class Judges:
    """f, the people whom it refuses, and whoever judges the answers that they get.

    `model`: f as it was trained; `f`: the same for the search. `queries`: rows in original units,
    the columns of the schema. `fixed`: features that no answer may change. `twins`, `boosted`:
    models that no search has seen.
    """

    reality: Reality
    model: Any
    f: TargetModel
    queries: pd.DataFrame
    fixed: tuple[str, ...]
    twins: tuple[TargetModel, ...]
    boosted: TargetModel

    @classmethod
    def of(cls, dataset: str, seed: int, kind: Kind, *, quick: bool = False) -> Judges:
        """The judges of a dataset, split by `seed`, for an f of one kind; made once a process."""
        return _judges(dataset, seed, kind, quick)

    @property
    def data(self) -> Dataset:
        """The rows that f learnt from, and those held out."""
        return self.reality.data

    @property
    def target(self) -> Category:
        """The class that all queries ask for."""
        return self.reality.target

    @property
    def target_number(self) -> int:
        """The place of the target in the label set."""
        return self.data.schema.label.classes.index(self.target)

    @cached_property
    def refused_by_boosted(self) -> Array:
        """Which queries the boosted judge refuses, bool (queries,)."""
        return ~self._accepted(self.boosted, self.queries)

    @cached_property
    def near_queries(self) -> float:
        return self.reality.near(self.queries)

    @cached_property
    def odd_queries(self) -> float:
        """The share of all queries in which one of the most dependent pairs is odd."""
        return float(self.reality.space.has_odd_pair(self.queries).mean())

    def of_model(self, model: Any) -> Judges:
        """The same judges for another model than f, and as many of the people whom it refuses.

        There are fewer where it refuses fewer, or nobody.
        """
        f = adapt(model, self.data.schema)
        queries = refused(self.data, f, self.target_number, len(self.queries))
        return replace(self, model=model, f=f, queries=queries)

    def score(self, answers: pd.DataFrame, valid: Any, seconds: float | None = None) -> Row:
        """Every metric of the module for the answers to the first `len(answers)` queries.

        `answers`: a row for each query, in original units. `valid`: which of them the method calls
        answers, bool (answers,); the others only lower the flip ratio. `seconds`: what all took.
        """
        valid = np.asarray(valid, dtype=bool)
        if not 0 < len(answers) == len(valid) <= len(self.queries):
            raise RequestError(f"{len(answers)} answers, {len(valid)} marks: one for each query")
        answers = self.reality.space.encoding.pick(answers)
        given, queries = answers[valid], self.queries.head(len(answers))[valid]
        row: Row = {
            "flip_ratio": float((self._accepted(self.f, answers) & valid).mean()),
            "queries": len(answers),
            "near_queries": self.near_queries,
            "near_real": self.reality.near_real,
            "odd_queries": self.odd_queries,
        }
        if seconds is not None:
            row["seconds_per_query"] = seconds / len(answers)
        if not len(given):
            metrics = "twins boosted changes effort top rare odd near iso lof"
            return row | dict.fromkeys(metrics.split())
        row["twins"] = float(np.mean([self._accepted(twin, given).mean() for twin in self.twins]))
        refused = self.refused_by_boosted[: len(answers)][valid]
        says = self._accepted(self.boosted, given)[refused]
        row["boosted"] = float(says.mean()) if len(says) else None
        return row | self.reality.judge(queries, given)

    def accepts(self, answers: pd.DataFrame) -> Array:
        """Which rows f puts into the target class, bool (answers,)."""
        return self._accepted(self.f, self.reality.space.encoding.pick(answers))

    def _accepted(self, model: TargetModel, rows: pd.DataFrame) -> Array:
        return (decided(model, rows) == self.target_number).numpy()


@lru_cache(maxsize=4)
def _judges(dataset: str, seed: int, kind: Kind, quick: bool) -> Judges:
    if dataset not in WISHES:
        raise RequestError(f"no wish is known for {dataset!r}; there are: {', '.join(WISHES)}")
    reality, boosted = _reality(dataset, seed, quick)
    wish, data = WISHES[dataset], reality.data
    schema, number = data.schema, data.schema.label.classes.index(wish.target)
    model = trained(data, kind, seed)
    f = adapt(model, schema)
    queries = refused(data, f, number, QUICK_QUERIES if quick else QUERIES)
    twins = [trained(data, kind, seed, twin) for twin in range(QUICK_TWINS if quick else TWINS)]
    adapted = tuple(adapt(twin, schema) for twin in twins)
    return Judges(reality, model, f, queries, wish.personal, adapted, boosted)


@lru_cache(maxsize=2)
def _reality(dataset: str, seed: int, quick: bool) -> tuple[Reality, TargetModel]:
    """The real rows and the boosted judge, which are the same for every kind of f."""
    data = releases.data_for(dataset, seed, quick=quick)
    boosted = BoostedTrees(data.schema, data.train, seed + OTHER_SEED, **JUDGE)
    return Reality(data, WISHES[dataset].target), adapt(boosted, data.schema)


def refused(data: Dataset, f: TargetModel, target: int, count: int) -> pd.DataFrame:
    """The first `count` held-out rows that f does not put into the class number `target`."""
    held_out = Encoding(data.schema).pick(data.test)
    wishing = held_out[(decided(f, held_out) != target).numpy()]
    return wishing.head(count).reset_index(drop=True)


def trained(data: Dataset, kind: Kind, seed: int, twin: int | None = None) -> Any:
    """f of one kind, or one of its twins: trained alike with another seed on a bootstrap."""
    if twin is None and kind == "network":
        return releases.target_for(data, seed)
    key = data.name, kind, seed, twin, len(data.train)
    if twin is not None:
        drawn = np.random.default_rng([seed, twin]).integers(0, len(data.train), len(data.train))
        data = replace(data, train=data.train.take(drawn).reset_index(drop=True))
        seed += OTHER_SEED + 1 + twin
    schema = data.schema
    if kind == "boosted":
        return BoostedTrees(schema, data.train, seed)
    path = releases.place("judge", ".pt", *key)

    def new(train: pd.DataFrame | None = None) -> nn.Module:
        return new_target(schema) if kind == "network" else PercentileNetwork(schema, train)

    train = partial(train_target, data, seed=seed, new=partial(new, data.train))
    return releases.kept(path, new, train)
