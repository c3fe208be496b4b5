"""`counterveil demo`: the whole way, on the embedded Adult table.

Train f -> release Veils over a range of ε -> explain 500 held-out rows -> report.html. Everything
made on the way stays in the folder, so that the other commands can be tried on it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import pandas as pd
import torch
from torch import nn

from counterveil.curator import Curator
from counterveil.demo.adult import adult_schema, adult_split, train_target
from counterveil.encoding import Encoding
from counterveil.errors import DataError
from counterveil.files import write_whole
from counterveil.models import save_exported
from counterveil.progress import progress_bar
from counterveil.report import Curve, Measurement, demo_page
from counterveil.schema import Schema
from counterveil.search import Explainer, Explanations
from counterveil.veil import Veil

CURVE = (1.0, 0.75, 0.5, 0.1, 0.05, 0.025, 0.005, 5e-4)
COMPARED = (math.inf, 0.75, 0.025)
SHOWN_AT = 0.75
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
    folder: Path, *, queries: int, epochs: int, seed: int, workers: int, say: Callable[[str], None]
) -> Outcome:
    """Run the demo into `folder`."""
    torch.set_num_threads(1)  # the networks are small: a second thread only gets in the way
    schema, split = adult_schema(), adult_split(seed)
    asked = split.test.head(queries)
    say(f"training the model to be explained on {len(split.train):,} rows of the 1994 census")
    model = train_target(split.train, schema, seed=seed)
    accuracy = _accuracy(model, split.test, schema)
    say(f"its accuracy on held-out rows: {accuracy:.3f} (classes weighted evenly)")
    say(f"releasing {len(CURVE) + 1} veils with the paper's mechanism, {epochs} epochs each")
    veils = dict(_release_all(seed, epochs, workers))
    errors = {epsilon: reconstruction_error(veil, split.test) for epsilon, veil in veils.items()}
    say(f"explaining {len(asked)} held-out rows at each ε")
    measurements = [
        _measure(veils[epsilon], model, asked, epsilon, errors[epsilon]) for epsilon in COMPARED
    ]
    shown = three_to_show(
        Explainer(veils[SHOWN_AT], model).explain(asked, immutable=FIXED, progress=False)
    )
    curve = Curve(CURVE, tuple(errors[epsilon] for epsilon in CURVE), errors[math.inf])
    facts = {
        "training rows": f"{len(split.train):,}",
        "queries": f"{len(asked)}",
        "accuracy of the model": f"{accuracy:.3f}",
        "epochs": f"{epochs} (the paper: 300)",
    }
    report = write_whole(
        folder / "report.html", demo_page(measurements, curve, shown, facts, FIXED).encode()
    )
    _leave_for_trying(folder, schema, asked, model, veils)
    return Outcome(accuracy, measurements, curve, shown, report)


def _release_all(seed: int, epochs: int, workers: int) -> Iterator[tuple[float, Veil]]:
    """One process a veil: the networks are too small for a process to use two cores."""
    epsilons = (math.inf, *CURVE)
    with (
        progress_bar("releasing", len(epsilons)) as tick,
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
    ):
        jobs = {pool.submit(_release_one, epsilon, seed, epochs): epsilon for epsilon in epsilons}
        for done, job in enumerate(as_completed(jobs), 1):
            tick(done, "veils")
            yield jobs[job], job.result()


def _release_one(epsilon: float, seed: int, epochs: int) -> Veil:
    torch.set_num_threads(1)
    train = adult_split(seed).train
    return Curator(adult_schema()).release(train, epsilon, seed=seed, epochs=epochs, progress=False)


def _measure(
    veil: Veil, model: nn.Module, asked: pd.DataFrame, epsilon: float, error: float
) -> Measurement:
    explainer = Explainer(veil, model)
    started = time.perf_counter()
    result = explainer.explain(asked, progress=False)
    seconds = time.perf_counter() - started
    return Measurement(
        name="without noise (reference)" if math.isinf(epsilon) else f"ε = {epsilon:g}",
        epsilon=epsilon,
        reconstruction=error,
        flip_ratio=result.flip_ratio,
        distance=result.mean_distance,
        legal=legal_share(result.frame(), veil.schema),
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
    folder: Path, schema: Schema, asked: pd.DataFrame, model: nn.Module, veils: dict[float, Veil]
) -> None:
    """Files for `inspect` and `explain`: a schema, queries, the model, the compared veils."""
    schema.save(folder / "adult.schema.json")
    write_whole(folder / "queries.csv", asked.to_csv(index=False).encode())
    for epsilon in COMPARED:
        name = "no-noise" if math.isinf(epsilon) else f"{epsilon:g}"
        veils[epsilon].save(folder / f"adult-{name}.veil")
    save_exported(model, schema, folder / "model.pt2")
