"""Answers about boosted trees beside proved optima: the package treecf reads the same trees.

treecf searches an ensemble by branch and bound. What it returns has the least L1 distance of
encoded rows, and it proves that where its time is enough. Both get the same model, queries, bounds,
whole numbers and one-hot columns. Ours minimises the squared L2 distance (`nearest`) or J
(`believable`). One row for each dataset and preference:

| column | what |
|---|---|
| queries, found, theirs | refused people; those with an answer of ours, and of treecf |
| proved | of treecf's, those that are proved to be the nearest in L1 |
| no_way, missed | people for whom treecf proved a no; with an answer of treecf's alone |
| times_l1, times_l2 | the sum of our distances over theirs, of people with both |
| times_effort | the same of effort: percentiles of real people moved, 1 for a category |
| changes, their_changes | mean changed features |
| other_trees, their_other_trees | answers that trees of a bootstrap of the same rows accept |
| times_seconds | processor time of ours, for one person at a time, over theirs |
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from counterveil import Explainer
from counterveil.curator import Curator
from counterveil.encoding import Array, Encoding
from counterveil.models import adapt
from counterveil.schema import Schema
from counterveil.search.constraints.bounds import Box, box_around
from counterveil.search.options import Prefer
from counterveil.veil import Veil
from counterveil_lab.believability import WISHES
from counterveil_lab.datasets import load
from counterveil_lab.experiments.runner import Case, Experiment, Options, combined
from counterveil_lab.percentiles import Percentiles
from counterveil_lab.product import embedded_adult
from counterveil_lab.results import Row

EPSILON = 0.75
DATASETS = ("adult", "hospital", "homecredit")
TREES, LEAVES = 60, 15
QUERIES, QUICK_QUERIES = 60, 3
SECONDS = 10.0  # of treecf for one query
PREFERENCES: tuple[Prefer, ...] = ("nearest", "believable")


class Optimum(NamedTuple):
    """What treecf found: an encoded row (width,), None without one, and whether it is proved."""

    point: Array | None
    proved: bool


def optimum(trees: Any, encoding: Encoding, query: Array, box: Box, goal: int) -> Optimum:
    """The row that is nearest to an encoded query (width,) in L1, within the box of this query.

    A missing value stays missing, and no known value becomes missing. A number outside its bounds
    may stay, as with us: then both are tried.
    """
    lower, upper = (side[0].double().numpy() for side in (box.lower, box.upper))
    outside = np.flatnonzero((query < lower) | (query > upper)).tolist()
    found = []
    for stays in product((True, False), repeat=len(outside)):
        low, high = lower.copy(), upper.copy()
        for column in np.array(outside, dtype=int)[list(stays)]:
            low[column] = high[column] = query[column]
        found.append(_within(trees, encoding, query, low, high, goal))
    points = [each.point for each in found if each.point is not None]
    nearest = min(points, key=lambda point: np.abs(point - query).sum(), default=None)
    return Optimum(nearest, all(each.proved for each in found))


def _within(
    trees: Any, encoding: Encoding, query: Array, lower: Array, upper: Array, goal: int
) -> Optimum:
    """The same within bounds of every column, (width,); where these are equal it is held."""
    from treecf import Explainer as TreeExplainer
    from treecf import Freeze, Grid, Infeasible, OneHot, Range, Target

    names = [f"f{column}" for column in range(encoding.width)]  # as treecf calls them
    rules: list[Any] = []
    whole: dict[str, Any] = {}
    for block in encoding.blocks:
        columns, flag = range(block.start, block.stop), block.missing_flag
        held = {column for column in columns if lower[column] >= upper[column]}
        if flag is not None:
            held |= {flag} if query[flag] < 0.5 else set(columns)
        for column in columns:
            bounds = names[column], float(lower[column]), float(upper[column])
            rules.append(Freeze(names[column]) if column in held else Range(*bounds))
        if block.feature.one_hot:
            rules.append(OneHot(tuple(names[column] for column in columns)))
        elif not block.feature.is_one_number:
            whole[names[block.start]] = "integer"
        elif block.feature.is_whole:
            low, high = block.feature.number_range or (0.0, 1.0)
            whole[names[block.start]] = Grid(1 / (high - low))
    explainer = TreeExplainer(
        trees, normalizers=np.ones(encoding.width), constraints=rules, value_policy=whole
    )
    wanted = Target.probability(range=(0.5, 1.0) if goal == 1 else (0.0, 0.5))
    with warnings.catch_warnings(action="ignore"):  # that nothing is proved: `proved` says so
        found: Any = explainer.explain(query, wanted, "exact", SECONDS, seed=0)
    if isinstance(found, Infeasible):
        return Optimum(None, found.proof == "certified")
    return Optimum(np.asarray(found.x_cf), found.proof == "optimal")


class Task(NamedTuple):
    """A table, and what its people ask for: `held` features stay, beside the schema's own rules."""

    schema: Schema
    train: pd.DataFrame
    test: pd.DataFrame
    veil: Veil
    target: Any
    held: Sequence[str]


def task_of(dataset: str) -> Task:
    """The embedded Adult with its rules, or a dataset with what is personal held."""
    wish = WISHES[dataset]
    if dataset == "adult":
        schema, people, veil = embedded_adult(EPSILON)
        return Task(schema, people.train, people.test, veil, wish.target, ())
    data = load(dataset)
    veil = Curator(data.schema).release(data.train, EPSILON, progress=False)
    return Task(data.schema, data.train, data.test, veil, wish.target, wish.personal)


def measure_case(dataset: str, *, quick: bool) -> list[Row]:
    """Both searches of ours beside treecf, on one dataset."""
    task, count = task_of(dataset), QUICK_QUERIES if quick else QUERIES
    schema, encoding, names = task.schema, Encoding(task.schema), list(task.schema.columns)
    goal = schema.label.classes.index(task.target)
    trees = _trees(task.train, schema)
    again = _trees(task.train.sample(frac=1, replace=True, random_state=1), schema)
    how: dict[str, Any] = {"inputs": "encoding", "classes": schema.label.classes}
    explainer, other = (Explainer(task.veil, adapt(each, schema, **how)) for each in (trees, again))
    asked = task.test[names].head(20 * count)
    asked = asked[explainer.decide(asked).argmax(axis=1) != goal].head(count)
    asked = asked.reset_index(drop=True)
    points = encoding.encode(asked)

    def of_theirs(row: int) -> Optimum:
        box = box_around(encoding, points[[row]], immutable=task.held)
        return optimum(trees, encoding, points[row], box, goal)

    def of_ours(prefer: Prefer, row: int) -> Array | None:
        found = explainer.explain(
            asked.iloc[[row]], task.target, prefer=prefer, immutable=task.held, progress=False
        )
        return encoding.encode(found.rows)[0] if found.valid[0] else None

    def accepted(rows: pd.DataFrame) -> float:
        return float((other.decide(rows).argmax(axis=1) == goal).mean())

    best, their_seconds = _one_by_one(of_theirs, len(asked))
    space, rows = Percentiles(schema, task.train), []
    for prefer in PREFERENCES:
        of_ours(prefer, 0)  # what is made once for all answers
        answers, seconds = _one_by_one(partial(of_ours, prefer), len(asked))
        pairs = [
            (query, mine, each.point)
            for query, mine, each in zip(points, answers, best, strict=True)
            if mine is not None and each.point is not None
        ]
        row: Row = {"dataset": dataset, "prefer": prefer, "queries": len(asked)}
        row["found"] = sum(mine is not None for mine in answers)
        row["theirs"] = sum(each.point is not None for each in best)
        row["proved"] = sum(each.proved and each.point is not None for each in best)
        row["no_way"] = sum(each.proved and each.point is None for each in best)
        row["missed"] = row["theirs"] - len(pairs)
        compared = _compared(pairs, space, accepted) if pairs else {}
        rows.append({**row, **compared, "times_seconds": seconds / their_seconds})
    return rows


def _trees(train: pd.DataFrame, schema: Schema) -> Any:
    """Boosted trees over the encoding; classes count evenly."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        max_iter=TREES, max_leaf_nodes=LEAVES, class_weight="balanced", random_state=0
    )
    is_second = train[schema.label.name] == schema.label.classes[1]
    return model.fit(Encoding(schema).encode(train), is_second.astype(int))


def _one_by_one(answer: Callable[[int], Any], count: int) -> tuple[list[Any], float]:
    """The answers of `count` queries, and the processor's seconds for each."""
    begun = time.process_time()
    return [answer(row) for row in range(count)], (time.process_time() - begun) / count


def _compared(
    pairs: Sequence[tuple[Array, Array, Array]],
    space: Percentiles,
    accepted: Callable[[pd.DataFrame], float],
) -> Row:
    """Ours beside theirs; `pairs`: query, our answer and theirs, each encoded (width,)."""
    query, mine, other = (np.array(each) for each in zip(*pairs, strict=True))
    asked, ours, theirs = (space.encoding.decode(each) for each in (query, mine, other))
    start, end, their_end = (space.points(each) for each in (asked, ours, theirs))
    effort, their_effort = ((each - start).abs().sum(dim=1) for each in (end, their_end))
    away, their_way = mine - query, other - query
    l1, their_l1 = (np.abs(each).sum(axis=1) for each in (away, their_way))
    l2, their_l2 = (np.linalg.norm(each, axis=1) for each in (away, their_way))
    return {
        "times_l1": float(l1.sum() / their_l1.sum()),
        "times_l2": float(l2.sum() / their_l2.sum()),
        "times_effort": float(effort.sum() / their_effort.sum()),
        "changes": float(space.changed(asked, ours).sum(axis=1).mean()),
        "their_changes": float(space.changed(asked, theirs).sum(axis=1).mean()),
        "other_trees": accepted(ours),
        "their_other_trees": accepted(theirs),
    }


def cases(options: Options) -> Iterable[Case]:
    return combined(dataset=options.names(DATASETS, ("adult",)))


OPTIMAL_TREES = Experiment(
    "answers about boosted trees beside optima that the package treecf proves.",
    cases,
    measure_case,
    chosen_by=(),
)
