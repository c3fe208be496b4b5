"""`frontier`: how good the answers of each mechanism are at each ε, on every dataset.

500 held-out queries, legal rows only. Flip ratio for the model's own runner-up class and, with many
classes, for a class drawn at random (`specified`); distance; plausibility (mean distance to the
nearest held-out real record); and the same with guidance `surrogate`, where the target model is not
consulted at all and is only asked afterwards whether it would agree. The search is the product's
for every mechanism, so that what differs is the veil; `table-fr` has the paper's own search.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from counterveil.encoding import Encoding
from counterveil.models import Rows, adapt
from counterveil.veil import Veil
from counterveil_lab.datasets import Dataset
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.runner import Case, Say, draw, only, repetitions, run_cases
from counterveil_lab.metrics import measure, reconstruction_error
from counterveil_lab.results import Results, Row

QUERIES = 500
WIDE = ("purchase-substitute", "texas-substitute")
NARROW = ("adult", "hospital", "homecredit", "mnist", "digits")


def run(
    folder: Path, command: str, *, seeds: int, quick: bool, workers: int, say: Say,
    datasets: Sequence[str] | None = None, mechanisms: Sequence[str] | None = None,
    add: bool = False,
) -> None:  # fmt: skip
    """Measure every case that is not stored yet."""
    results = Results(folder, "frontier", command, keep=add)
    chosen = quick_cases() if quick else full_cases()
    chosen = only(only(chosen, "dataset", datasets), "mechanism", mechanisms)
    without = [releases.why_not(case["mechanism"], case["dataset"]) for case in chosen]
    for reason in filter(None, dict.fromkeys(without)):
        say(reason)
    cases = [{**case, "seed": seed} for seed in repetitions(quick, seeds)
             for case, reason in zip(chosen, without, strict=True) if not reason]  # fmt: skip
    try:
        run_cases(results, cases, measure_case, workers=workers, say=say, quick=quick)
    finally:
        draw(paint, results, folder, say)


def full_cases() -> list[Case]:
    """What is measured with every seed."""
    four = (0.025, 0.1, 0.75, 3.0)
    return [
        *(_case("adult", "functional", epsilon, order) for epsilon in four for order in (1, 2)),
        *(_case(name, "functional", epsilon) for name in NARROW for epsilon in four),
        *(_case(name, "functional", epsilon) for name in WIDE for epsilon in (0.025, 0.75)),
        *(_case(name, "paper", epsilon) for name in (*NARROW, *WIDE) for epsilon in (0.025, 0.75)),
        *(_case(name, "dpsgd", epsilon) for name in NARROW for epsilon in (0.75, 3.0)),
        *(_case(name, "dpsgd", 0.75) for name in WIDE),
    ]


def quick_cases() -> list[Case]:
    """A look at each mechanism."""
    return [_case("digits", mechanism, 0.75) for mechanism in ("functional", "paper", "dpsgd")]


def _case(dataset: str, mechanism: str, epsilon: float, asked_order: int | None = None) -> Case:
    return {"dataset": dataset, "mechanism": mechanism, "epsilon": epsilon,
            "asked_order": asked_order}  # fmt: skip


def measure_case(
    dataset: str, mechanism: str, epsilon: float, asked_order: int | None, seed: int, *,
    quick: bool,
) -> list[Row]:  # fmt: skip
    """One release, its answers with both guidances."""
    data = releases.data_for(dataset, seed, quick=quick)
    model = releases.target_for(data, seed)
    made = releases.release(data, mechanism, epsilon, seed, order=asked_order, quick=quick)
    head: Row = {
        "method": "counterveil",
        "delta": releases.delta_of(mechanism),
        "order": None,
        "release_seconds": made.seconds,
        "mse": reconstruction_error(made.veil, data.test),
        "mse_of_pooled_mean": releases.pooled_mean_error(data),
    }
    if mechanism == "functional":
        head["order"] = 2 if len(made.veil.statement.accesses) == 3 else 1
    if made.epochs is not None:
        head["epochs"] = made.epochs
    rows = [{**head, **_with_model(made.veil, model, data, seed, quick)}]
    if made.veil.surrogate is not None:
        rows.append({**head, **_with_surrogate(made.veil, model, data)})
    return rows


def _with_model(veil: Veil, model: Any, data: Dataset, seed: int, quick: bool) -> Row:
    queries, reference = _queries(data)
    explainer = releases.explainer_for(veil, model, quick=quick)
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
    decided = judge.ask(Rows.of_frame(Encoding(data.schema).pick(queries), judge.encoding))
    first = decided.argmax(dim=1)
    runner_up = decided.scatter(1, first[:, None], -torch.inf).argmax(dim=1)
    targets = [data.schema.label.classes[int(number)] for number in runner_up]
    explainer = releases.explainer_for(veil, guidance="surrogate")
    result = explainer.explain(queries, targets, progress=False)
    agreed = judge.ask(Rows.of_frame(result.rows, judge.encoding)).argmax(dim=1) == runner_up
    row = {"guidance": "surrogate", **measure(result, reference)}
    row["flip_ratio_by_surrogate"] = row["flip_ratio"]
    row["flip_ratio"] = float((agreed.numpy() & result.valid).mean())
    return row


def _queries(data: Dataset) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows to explain, and other real rows to compare the answers with."""
    count = min(QUERIES, len(data.test) // 2)
    return data.test.head(count), data.test.iloc[count:]


def paint(rows: Sequence[Row], folder: Path) -> None:
    """The figure, from stored rows."""
    from counterveil_lab.experiments import drawing

    drawing.save(drawing.frontier(rows), folder / "frontier")
