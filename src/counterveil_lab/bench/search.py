"""`bench search`: what an answer costs on one core, and how good it is, beside other methods.

| part | measures |
|---|---|
| peers | counterveil and published methods: one f, the same queries and targets, the same run |
| warm-up | the same on four datasets, with what each learns before its first answer |
| believable | believable answers beside the nearest ones: warm-up, many queries and a single one |
| batch | time over the number of queries asked at once |
| features | time over the number of features, on synthetic tables |
| floor | time over the least that the networks' matrix products take on this machine |
| boosted | boosted trees as f: no gradient, a student proposes |
| single | where the processor time of a single believable answer goes |

Everything runs in one process of its own that is held to one thread. Times are medians of repeated
calls after a call that does not count, and include all from table to table.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from counterveil.curator import Curator
from counterveil.encoding import Encoding
from counterveil.errors import RequestError
from counterveil.models import adapt
from counterveil.networks import classifier, seeded
from counterveil.schema import Binary, Categorical, Feature, Label, Numeric, Schema
from counterveil.search import Explainer
from counterveil.search.options import Prefer, SearchOptions
from counterveil_lab.believability import WISHES, refused
from counterveil_lab.bench import peers, roofline, single
from counterveil_lab.bench.peers import EPSILON, METHODS, Size, release, seconds, warm_up
from counterveil_lab.bench.roofline import head
from counterveil_lab.datasets import LOADERS
from counterveil_lab.evaluation import Evaluation
from counterveil_lab.metrics import measure
from counterveil_lab.product import query_batch, runner_up
from counterveil_lab.results import Results, Row
from counterveil_lab.targets import encoded

PREFERENCES: tuple[Prefer, ...] = ("nearest", "believable")
POLISHED_OR_NOT = ("counterveil", "counterveil-unpolished")
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR")}


def bench(
    folder: Path,
    command: str,
    *,
    quick: bool,
    say: Callable[[str], None],
    only: str | None = None,
    seeds: int = 1,
    datasets: tuple[str, ...] | None = None,
) -> None:
    """Measure in a process that is held to one thread from its first import on."""
    if only is not None and only not in PARTS:
        raise RequestError(f"no part {only!r} of bench search; there are: {', '.join(PARTS)}")
    for name in datasets or ():
        if name not in LOADERS:
            raise RequestError(f"no dataset {name!r}; there are: {', '.join(LOADERS)}")
    given = f"{str(folder)!r}, {command!r}, {quick}, {only!r}, {seeds}, {datasets!r}"
    code = f"from counterveil_lab.bench.search import measure_parts; measure_parts({given})"
    call, env = [sys.executable, "-c", code], {**os.environ, **ONE_THREAD}
    with subprocess.Popen(call, env=env, text=True, stdout=subprocess.PIPE) as child:
        for line in child.stdout or ():
            say(line.rstrip())
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, "bench search")


def measure_parts(
    folder: str,
    command: str,
    quick: bool,
    only: str | None,
    seeds: int,
    datasets: tuple[str, ...] | None = None,
) -> None:
    """Every part, or one of them into files of its own: one file, one run."""
    torch.set_num_threads(1)
    name = "bench-search" + (f"-{only}" if only else "")
    results = Results(Path(folder), name, command)
    size = peers.QUICK if quick else Size()
    size = replace(size, datasets=datasets or size.datasets)
    for part in [only] if only else PARTS:
        for row in PARTS[part](size, seeds):
            results.add({"part": part, **row})
            sys.stdout.write(f"{part}: {_in_words(row)}\n")
            sys.stdout.flush()
    if find_spec("matplotlib") is not None:
        from counterveil_lab.figures import draw_search

        draw_search(results.rows, Path(folder))


def _in_words(row: Row) -> str:
    words = [f"{row['method']} on {row['dataset']}"]
    words += [row["stage"]] if "stage" in row else []
    words += ["guidance surrogate"] if row["guidance"] == "surrogate" else []
    words += [f"{key} {row[key]:g}" for key in ("epsilon", "features", "batch") if row.get(key)]
    if "seconds_per_query" in row:
        words.append(f"{1000 * row['seconds_per_query']:.4g} ms a query")
    ratios = ("share", "times_counterveil", "times_nearest", "times_floor")
    numbers = ("flip_ratio", "distance", "objective", "warm_up_seconds", *ratios)
    words += [f"{key.replace('_', ' ')} {row[key]:.3g}" for key in numbers if key in row]
    return ", ".join(words)


def believable(size: Size, seeds: int) -> Iterator[Row]:
    """Adult: refused people ask for the other decision, their personal features held.

    `times_nearest`: over the time of the nearest answers, at the same number of queries at once.
    """
    evaluation, wish = peers.evaluation_of("adult", 0, size), WISHES["adult"]
    veil, goal = release(evaluation, EPSILON, 0, size), wish.target
    number = evaluation.data.schema.label.classes.index(goal)
    queries = refused(evaluation.data, evaluation.judge, number, size.queries)
    nearest: dict[int, float] = {}
    for prefer in PREFERENCES:
        explainer = Explainer(veil, evaluation.model)
        learning = warm_up(explainer, prefer)
        options: dict[str, Any] = {"target": goal, "immutable": wish.personal, "prefer": prefer}
        explain: Any = partial(explainer.explain, progress=False, **options)
        found = explain(queries).flip_ratio

        def ask(start: int, stop: int, explain: Any = explain) -> object:
            return explain(queries.iloc[start:stop])

        for batch in (len(queries), 1):
            times = seconds(ask, batch, len(queries), size.repeats)
            nearest.setdefault(batch, times["seconds_per_query"])
            about = {**head("adult", f"counterveil-{prefer}", EPSILON), "batch": batch, **times}
            about["times_nearest"] = times["seconds_per_query"] / nearest[batch]
            yield {**about, "flip_ratio": found, "warm_up_seconds": learning}


def batch_sizes(size: Size, seeds: int) -> Iterator[Row]:
    """One query at a time, four, sixteen, ...: Adult, the held-out rows again and again."""
    evaluation, explainer = _adult(size)
    batch = 1
    while batch <= size.largest_batch:
        queries = _repeated(evaluation.data.test, batch)
        for method in POLISHED_OR_NOT:
            times = _explaining(explainer, queries, size, method)
            yield {**head("adult", method, EPSILON), "batch": batch, **times}
        batch *= 4


def features(size: Size, seeds: int) -> Iterator[Row]:
    """Synthetic tables of binary features, and of numbers and categories half and half."""
    for kind, most in (("binary", max(size.features)), ("mixed", size.most_mixed)):
        for count in (count for count in size.features if count <= most):
            schema, rows = synthetic(kind, count, size.rows)
            veil = Curator(schema).release(rows, 1.0, order=1, epochs=1, progress=False)
            network = seeded(partial(classifier, schema.width, (32, 16), 2), 0)
            explainer = Explainer(veil, network.requires_grad_(False).eval())
            learning = warm_up(explainer, "nearest")
            queries = rows.head(size.queries)
            found = explainer.explain(queries, prefer="nearest", progress=False).flip_ratio
            for method in POLISHED_OR_NOT:
                about = {"features": count, "width": schema.width, "batch": len(queries)}
                times = _explaining(explainer, queries, size, method)
                worth = {"flip_ratio": found, "warm_up_seconds": learning}
                yield {**head(kind, method, 1.0), **about, **times, **worth}


def synthetic(kind: str, count: int, rows: int) -> tuple[Schema, pd.DataFrame]:
    """A schema of `count` features and random rows of two classes that fit it."""
    rng = np.random.default_rng(0)
    made: list[Feature] = []
    columns: dict[str, Any] = {}
    for number in range(count):
        name = f"x{number}"
        if kind == "binary":
            made.append(Binary(name=name))
            columns[name] = rng.integers(0, 2, rows)
        elif number % 2:
            made.append(Categorical(name=name, categories=("a", "b", "c", "d")))
            columns[name] = rng.choice(["a", "b", "c", "d"], rows)
        else:
            made.append(Numeric(name=name, lower=0, upper=1))
            columns[name] = rng.random(rows)
    schema = Schema(name=kind, label=Label(name="y", classes=(0, 1)), features=tuple(made))
    return schema, pd.DataFrame({**columns, "y": rng.integers(0, 2, rows)})


def floor(size: Size, seeds: int) -> Iterator[Row]:
    """Adult: tensors to tensors, then tables to tables without polish and with it."""
    evaluation, explainer = _adult(size)
    shapes = roofline.shapes_of(roofline.networks_of(explainer.veil, evaluation.model))
    work, rate = roofline.multiply_adds(shapes), roofline.matrix_rate(shapes)
    for batch in (size.queries, size.largest_batch):
        queries = _repeated(evaluation.data.test, batch)
        points, judge = encoded(queries, explainer.veil.schema)[0], evaluation.judge
        asked = query_batch(points, runner_up(judge, queries), judge.encoding)

        def ask(start: int, stop: int, asked: Any = asked) -> object:
            return explainer.answer_tensors(asked, SearchOptions(polish=False))

        times = {"tensors-unpolished": seconds(ask, batch, batch, size.repeats)}
        times |= {way: _explaining(explainer, queries, size, way) for way in POLISHED_OR_NOT}
        for method, each in times.items():
            row = {**head("adult", method, EPSILON), "batch": batch, **each}
            row |= {"multiply_adds": work, "multiply_adds_per_second": rate}
            row["floor_seconds"] = work / rate
            yield {**row, "times_floor": each["seconds_per_query"] * rate / work}


def boosted(size: Size, seeds: int) -> Iterator[Row]:
    """Adult with trees over the encoding as f; the packages that are there."""
    evaluation = peers.evaluation_of("adult", 0, size)
    schema, train, queries = evaluation.data.schema, evaluation.data.train, evaluation.queries
    encoding = Encoding(schema)
    points, classes = encoding.encode(train), encoding.labels(train)
    for package, maker in (("xgboost", "XGBClassifier"), ("lightgbm", "LGBMClassifier")):
        if find_spec(package) is None:
            continue
        quiet = {"verbose": -1} if package == "lightgbm" else {}
        trees = getattr(import_module(package), maker)(n_jobs=1, **quiet).fit(points, classes)
        model = adapt(trees, schema, inputs="encoding", classes=schema.label.classes)
        for epsilon in size.epsilons:
            explainer = Explainer(release(evaluation, epsilon, 0, size), model)
            learning = {"warm_up_seconds": warm_up(explainer, "nearest")}
            result = explainer.explain(queries, prefer="nearest", progress=False)
            times = _explaining(explainer, queries, size, "counterveil")
            worth = measure(result, evaluation.reference)
            about = {**head("adult", package, epsilon), "batch": len(queries)}
            yield {**about, **times, **worth, **learning}


def _adult(size: Size) -> tuple[Evaluation, Explainer]:
    """Adult with f trained, and an explainer of it that has learnt its search."""
    evaluation = peers.evaluation_of("adult", 0, size)
    explainer = Explainer(release(evaluation, EPSILON, 0, size), evaluation.model)
    explainer.warm_up(prefer="nearest", progress=False)
    return evaluation, explainer


def _repeated(rows: pd.DataFrame, count: int) -> pd.DataFrame:
    return rows.iloc[np.arange(count) % len(rows)]


def _explaining(explainer: Explainer, queries: pd.DataFrame, size: Size, method: str) -> Row:
    """Seconds a query from table to table."""
    ask = partial(explainer.explain, queries, progress=False, **METHODS[method])
    return seconds(lambda *_: ask(), len(queries), len(queries), size.repeats)


PARTS: dict[str, Callable[[Size, int], Iterator[Row]]] = {
    "peers": peers.peers,
    "warm-up": peers.with_warm_up,
    "believable": believable,
    "batch": batch_sizes,
    "features": features,
    "floor": floor,
    "boosted": boosted,
    "single": single.single,
}
