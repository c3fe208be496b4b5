"""`frontier`: how good the answers of mechanism `functional` are at each ε, on every dataset.

500 held-out queries, legal rows only. Flip ratio for the model's own runner-up class and, with many
classes, for a class drawn at random (`specified`); distance; plausibility (mean distance to the
nearest held-out real record); and the same with guidance `surrogate`, where the target model is not
consulted at all and is only asked afterwards whether it would agree.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from counterveil.curator import Curator
from counterveil.encoding import Encoding
from counterveil.models import adapt
from counterveil.search import Explainer
from counterveil.veil import Veil
from counterveil_lab.datasets import Dataset, load
from counterveil_lab.metrics import measure, reconstruction_error
from counterveil_lab.results import Results, Row
from counterveil_lab.targets import train_target

QUERIES = 500
SLOWEST_FIRST = ("texas-substitute", "purchase-substitute", "mnist", "digits", "homecredit",
                 "hospital", "adult")  # fmt: skip
CASES: tuple[tuple[str, float, int | None], ...] = (
    *(("adult", epsilon, order) for epsilon in (0.025, 0.1, 0.75, 3.0) for order in (1, 2)),
    *(
        (name, epsilon, None)
        for name in ("adult", "hospital", "homecredit", "mnist", "digits")
        for epsilon in (0.025, 0.1, 0.75, 3.0)
    ),
    *(
        (name, epsilon, None)
        for name in ("purchase-substitute", "texas-substitute")
        for epsilon in (0.025, 0.75)
    ),
)


def run(
    folder: Path, command: str, *, seeds: int, quick: bool, workers: int, say: Callable[[str], None]
) -> None:
    """Measure every case that is not stored yet."""
    results = Results(folder, "frontier", command)
    cases = [("digits", 0.75, None)] if quick else CASES
    only = os.environ.get("COUNTERVEIL_ONLY")
    missing = [
        (name, epsilon, order, seed)
        for seed in range(seeds)
        for name, epsilon, order in cases
        if not (only and name not in only.split(","))
        and not results.has(dataset=name, epsilon=epsilon, asked_order=order, seed=seed)
    ]
    missing.sort(key=lambda case: SLOWEST_FIRST.index(case[0]))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        jobs = {pool.submit(measure_case, *case, quick=quick): case for case in missing}
        for done, job in enumerate(as_completed(jobs), 1):
            for row in job.result():
                results.add(row)
            name, epsilon, _, seed = jobs[job]
            say(f"{done}/{len(missing)}: {name}, ε {epsilon:g}, seed {seed}")


def measure_case(
    dataset: str, epsilon: float, asked_order: int | None, seed: int, *, quick: bool
) -> list[Row]:
    """One release, its answers with both guidances."""
    torch.set_num_threads(1)
    data = load(dataset, seed=seed)
    model = train_target(data, seed=seed)
    started = time.perf_counter()
    veil = Curator(data.schema).release(
        data.train, epsilon, order=asked_order, seed=seed, epochs=1 if quick else None,
        progress=False,
    )  # fmt: skip
    seconds = time.perf_counter() - started
    head: Row = {
        "dataset": dataset,
        "method": "counterveil",
        "mechanism": "functional",
        "epsilon": epsilon,
        "delta": 0.0,
        "seed": seed,
        "asked_order": asked_order,
        "order": 2 if len(veil.statement.accesses) == 3 else 1,
        "release_seconds": seconds,
        "mse": reconstruction_error(veil, data.test),
        "mse_of_pooled_mean": _pooled_mean_error(data),
    }
    return [
        {**head, **_with_model(veil, model, data, seed)},
        {**head, **_with_surrogate(veil, model, data)},
    ]


def _with_model(veil: Veil, model: Any, data: Dataset, seed: int) -> Row:
    queries, reference = _queries(data)
    explainer = Explainer(veil, model)
    explainer.explain(queries.head(2), progress=False)  # warm up
    started = time.perf_counter()
    result = explainer.explain(queries, progress=False)
    seconds = (time.perf_counter() - started) / len(queries)
    row = {"guidance": "model", **measure(result, reference), "seconds_per_query": seconds}
    # Polished answers lie near the query whatever the population: to compare populations, and with
    # the paper, the same without polish.
    plain = measure(
        explainer.explain(queries, method="iterations", polish=False, progress=False), reference
    )
    for name in ("distance", "plausibility"):
        row[f"{name}_unpolished"] = plain[name]
    classes = data.schema.label.classes
    if len(classes) > 2:
        rng = np.random.default_rng(seed)
        shift = rng.integers(1, len(classes), len(queries))
        targets = [classes[(now + by) % len(classes)] for now, by in
                   zip(result.predicted, shift, strict=True)]  # fmt: skip
        row["flip_ratio_specified"] = explainer.explain(queries, targets, progress=False).flip_ratio
    return row


def _with_surrogate(veil: Veil, model: Any, data: Dataset) -> Row:
    """The person names the class that was not given; f is asked only when all is over."""
    queries, reference = _queries(data)
    judge = adapt(model, data.schema)
    decided = judge.log_proba_rows(Encoding(data.schema).pick(queries))
    first = decided.argmax(dim=1)
    runner_up = decided.scatter(1, first[:, None], -torch.inf).argmax(dim=1)
    targets = [data.schema.label.classes[int(number)] for number in runner_up]
    result = Explainer(veil, guidance="surrogate").explain(queries, targets, progress=False)
    agreed = judge.log_proba_rows(result.rows).argmax(dim=1) == runner_up
    row = {"guidance": "surrogate", **measure(result, reference)}
    row["flip_ratio_by_surrogate"] = row["flip_ratio"]
    row["flip_ratio"] = float((agreed.numpy() & result.valid).mean())
    return row


def _queries(data: Dataset) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows to explain, and other real rows to compare the answers with."""
    count = min(QUERIES, len(data.test) // 2)
    return data.test.head(count), data.test.iloc[count:]


def _pooled_mean_error(data: Dataset) -> float:
    encoding = Encoding(data.schema)
    mean = encoding.encode(data.train).mean(axis=0)
    return float(((encoding.encode(data.test.head(2000)) - mean) ** 2).mean())
