"""`counterveil demo`: the whole way, on the embedded Adult table.

Train f -> release Veils over a range of ε, as published and with a proved ε -> explain 500 held-out
rows -> report.html. Everything made on the way stays in the folder, to try the other commands on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd
import torch
from torch import nn

from counterveil.demo.adult import adult_schema, adult_split, train_target
from counterveil.demo.releases import Release, release_all
from counterveil.encoding import Encoding
from counterveil.errors import DataError
from counterveil.files import write_whole
from counterveil.models import save_exported
from counterveil.privacy import Level
from counterveil.report import Curve, Measurement, demo_page
from counterveil.schema import Schema
from counterveil.search import Explainer, Explanations
from counterveil.veil import Veil

CURVE = (1.0, 0.75, 0.5, 0.1, 0.05, 0.025, 0.005, 5e-4)
PAPER = tuple(Release("paper", epsilon) for epsilon in (math.inf, *CURVE))
COMPARED = (
    Release("paper", math.inf), Release("paper", 0.75), Release("paper", 0.025),
    Release("functional", 0.75), Release("functional", 0.025),
)  # fmt: skip
SHOWN = Release("functional", 0.75)
FIXED = ("age", "race", "sex", "marital_status", "relationship")


@dataclass(frozen=True)
class Outcome:
    """What the demo found, for the terminal."""

    accuracy: float
    measurements: list[Measurement]
    curve: Curve
    shown: Explanations
    report: Path


def run_demo(
    folder: Path,
    *,
    queries: int,
    epochs: int,
    warm_steps: int | None,
    seed: int,
    workers: int,
    say: Callable[[str], None],
) -> Outcome:
    """Run the demo into `folder`; explainers learn to search in at most `warm_steps` steps."""
    torch.set_num_threads(1)  # the networks are small: a second thread only gets in the way
    schema, split = adult_schema(), adult_split(seed)
    asked = split.test.head(queries)
    say(f"training the model to be explained on {len(split.train):,} rows of the 1994 census")
    model = train_target(split.train, schema, seed=seed)
    accuracy = _accuracy(model, split.test, schema)
    say(f"its accuracy on held-out rows: {accuracy:.3f} (classes weighted evenly)")
    wanted = tuple(dict.fromkeys((*COMPARED, *PAPER)))
    say(f"releasing {len(wanted)} veils: as published ({epochs} epochs each) and with a proved ε")
    veils = release_all(wanted, seed, epochs, workers)
    say(f"explaining {len(asked)} held-out rows with {len(COMPARED)} of them")
    errors = {which: reconstruction_error(veil, split.test) for which, veil in veils.items()}
    measurements = [
        _measure(which, Explainer(veils[which], model, warm_steps=warm_steps), asked, errors[which])
        for which in COMPARED
    ]
    explainer = Explainer(veils[SHOWN], model, warm_steps=warm_steps)
    shown = three_to_show(explainer.explain(asked, immutable=FIXED, progress=False))
    curve = Curve(CURVE, tuple(errors[Release("paper", e)] for e in CURVE), errors[PAPER[0]])
    facts = {
        "training rows": f"{len(split.train):,}",
        "queries": f"{len(asked)}",
        "accuracy of the model": f"{accuracy:.3f}",
        "epochs of paper": f"{epochs} (published: 300)",
    }
    report = write_whole(
        folder / "report.html", demo_page(measurements, curve, shown, facts, FIXED).encode()
    )
    _leave_for_trying(folder, schema, asked, model, veils)
    return Outcome(accuracy, measurements, curve, shown, report)


def _measure(
    which: Release, explainer: Explainer, asked: pd.DataFrame, error: float
) -> Measurement:
    keep: Literal["best", "last"] = "last" if which.mechanism == "paper" else "best"
    method: Literal["amortised", "iterations"] = "amortised" if keep == "best" else "iterations"
    if method == "amortised":
        explainer.warm_up(progress=False)
    started = time.perf_counter()
    result = explainer.explain(asked, method=method, keep=keep, progress=False)
    seconds = time.perf_counter() - started
    noisy = math.isfinite(which.epsilon)
    return Measurement(
        mechanism=which.mechanism,
        name=f"ε = {which.epsilon:g}" if noisy else "no noise",
        promise="none" if explainer.veil.statement.level is Level.NONE else "proved",
        epsilon=which.epsilon,
        reconstruction=error,
        flip_ratio=result.flip_ratio,
        distance=result.mean_distance,
        legal=legal_share(result.frame(), explainer.veil.schema),
        seconds_per_query=seconds / len(asked),
    )


@torch.no_grad()
def reconstruction_error(veil: Veil, frame: pd.DataFrame) -> float:
    """Mean squared error of ψ on `frame`, over all encoded numbers."""
    points = torch.as_tensor(Encoding(veil.schema).encode(frame), dtype=torch.float32)
    return float((veil.autoencoder(points) - points).square().mean())


def legal_share(rows: pd.DataFrame, schema: Schema) -> float:
    """The share of rows that the schema accepts, each asked by itself."""
    encoding = Encoding(schema)

    def accepts(row: pd.DataFrame) -> bool:
        try:
            encoding.encode(row)
        except DataError:
            return False
        return True

    if not len(rows) or accepts(rows):
        return 1.0
    return sum(accepts(rows.iloc[[number]]) for number in range(len(rows))) / len(rows)


def three_to_show(result: Explanations) -> Explanations:
    """Three refused people who would be granted, with few changes: what one wants to read."""
    table = result.summary()
    towards = table[(table.status == "found") & (result.target == 1)]
    best = towards.sort_values(["changed_features", "distance"])["query"].head(3)
    return result.only(best.to_list() or [0])


@torch.no_grad()
def _accuracy(model: nn.Module, frame: pd.DataFrame, schema: Schema) -> float:
    encoding = Encoding(schema)
    points = torch.as_tensor(encoding.encode(frame), dtype=torch.float32)
    right = model(points).argmax(dim=1) == torch.as_tensor(encoding.labels(frame))
    return float(right.float().mean())


def _leave_for_trying(
    folder: Path, schema: Schema, asked: pd.DataFrame, model: nn.Module, veils: dict[Release, Veil]
) -> None:
    """Files for `inspect` and `explain`: a schema, queries, the model, the compared veils."""
    schema.save(folder / "adult.schema.json")
    write_whole(folder / "queries.csv", asked.to_csv(index=False).encode())
    for which in COMPARED:
        veils[which].save(folder / f"{which.file}.veil")
    save_exported(model, schema, folder / "model.pt2")
