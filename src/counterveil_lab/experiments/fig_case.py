"""`fig-case`: the paper's case study: a 9 explained towards a 5, and where f looks.

Query, counterfactual, what changed, and GradCAM of f towards the 5 on the counterfactual. `paper`
is shown as published: the last iterate, whatever f says of it (`valid` tells). `functional` by the
product's search, before and after polish. Pictures are in fig-case.npz.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterveil.encoding import Array
from counterveil.models import Rows, TargetModel, adapt
from counterveil.schema import Schema
from counterveil.search.constraints import box_around
from counterveil.search.latent import search
from counterveil.search.objective import SearchObjective, Weights
from counterveil.search.snap import Snap
from counterveil.veil import Veil
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.pictures import (
    PICTURES,
    grey,
    image_of,
    keeper,
    picture_dataset,
    read,
)
from counterveil_lab.experiments.runner import Say, draw, only, run_cases
from counterveil_lab.gradcam import gradcam
from counterveil_lab.results import Results, Row
from counterveil_lab.targets import encoded

FROM, TO = 9, 5
SEED = 0
WAYS = {"paper": ("published",), "functional": ("unpolished", "polished")}
ITERATIONS = 300


def run(
    folder: Path, command: str, *, seeds: int, quick: bool, workers: int, say: Say,
    datasets: Sequence[str] | None = None, mechanisms: Sequence[str] | None = None,
    add: bool = False,
) -> None:  # fmt: skip
    """Explain the case in every way that is not stored yet; one seed, whatever `seeds`."""
    name = picture_dataset(quick, datasets, say)
    if name is None:
        say("no pictures: neither mnist nor digits was asked for")
        return
    results = Results(folder, "fig-case", command, keep=add)
    cases = [
        {"dataset": name, "mechanism": mechanism, "epsilon": epsilon, "seed": SEED}
        for mechanism in WAYS
        for epsilon in ((0.75,) if quick else (0.025, 0.75))
    ]
    try:
        run_cases(results, only(cases, "mechanism", mechanisms), measure_case, workers=workers,
                  say=say, store=keeper(folder / "fig-case.npz"), quick=quick)  # fmt: skip
    finally:
        draw(paint, results, folder, say)


def measure_case(
    dataset: str, mechanism: str, epsilon: float, seed: int, *, quick: bool
) -> list[Row]:
    """Each way to explain the first held-out 9 that f takes for a 9, if it knows any."""
    data = releases.data_for(dataset, seed, quick=quick)
    model = releases.target_for(data, seed)
    judge = adapt(model, data.schema)
    points, classes = encoded(data.test.head(1000), data.schema)
    nines = classes == FROM
    known = nines & (judge.ask(Rows.of_points(points, judge.encoding)).argmax(dim=1) == FROM)
    number = int((known if known.any() else nines).nonzero()[0, 0])
    query, target = points[[number]], torch.tensor([TO])
    veil = releases.release(data, mechanism, epsilon, seed, quick=quick).veil
    explainer = releases.explainer_for(veil, model, quick=quick)
    rows = []
    for way in WAYS[mechanism]:
        if way == "published":
            answer = last_iterate(veil, judge, query, target)
        else:
            options: dict[str, Any] = {"method": "iterations", "polish": False}
            result = explainer.explain(data.test.iloc[[number]], TO, progress=False,
                                       **(options if way == "unpolished" else {}))  # fmt: skip
            answer = torch.as_tensor(judge.encoding.encode(result.rows), dtype=torch.float32)
        seen = gradcam(model, answer, target, image_of(data.schema))
        rows.append({
            "method": "counterveil", "guidance": "model", "way": way,
            "delta": releases.delta_of(mechanism), "query": number, "target": TO,
            **_judged(judge, query, answer), "gradcam_on_changes": _share(seen, answer - query),
            PICTURES: _pictures(data.schema, query, answer, seen,
                                key(dataset, mechanism, way, epsilon)),
        })  # fmt: skip
    return rows


def _judged(judge: TargetModel, query: Tensor, answer: Tensor) -> Row:
    log_proba = judge.ask(Rows.of_points(answer, judge.encoding))[0]
    return {
        "f_says": int(log_proba.argmax()),
        "valid": bool(log_proba.argmax() == TO),
        "probability": float(log_proba[TO].exp()),
        "probability_before": float(judge.ask(Rows.of_points(query, judge.encoding))[0, TO].exp()),
        "distance": float((answer - query).norm()),
    }


def _pictures(
    schema: Schema, query: Tensor, answer: Tensor, seen: Tensor, name: str
) -> dict[str, Array]:
    image = image_of(schema)
    both = np.concatenate([grey(answer.numpy(), image), grey(seen.numpy(), image)])
    return {f"{schema.name} query": grey(query.numpy(), image), name: both}


def last_iterate(veil: Veil, judge: TargetModel, query: Tensor, target: Tensor) -> Tensor:
    """The end of Algorithm 2 as a legal row, accepted by f or not."""
    box = box_around(judge.encoding, query.double().numpy())
    objective = SearchObjective(
        judge, veil.autoencoder, Weights.of(veil.schema.family), query, target,
        veil.prototypes, box,
    )  # fmt: skip
    with torch.enable_grad():
        delta = search(objective, ITERATIONS)
    with torch.no_grad():
        return Snap(judge.encoding, torch.device("cpu"))(objective.counterfactual(delta), box)


def _share(seen: Tensor, change: Tensor) -> float | None:
    """How much of what GradCAM shows lies on pixels that the explanation changed."""
    total = float(seen.sum())
    return float(seen[change.reshape(seen.shape) != 0].sum()) / total if total else None


def key(dataset: str, mechanism: str, way: str, epsilon: float) -> str:
    """The name of an array."""
    return f"{dataset} {mechanism} {way} {epsilon}"


def paint(rows: Sequence[Row], folder: Path) -> None:
    """The figure, from stored rows and pictures."""
    from counterveil_lab.experiments import drawing

    stored = read(folder / "fig-case.npz")
    lines = []
    for row in rows:
        (query,) = stored[f"{row['dataset']} query"]
        answer, seen = stored[key(row["dataset"], row["mechanism"], row["way"], row["epsilon"])]
        words = f"{drawing.words_of(row)}, {row['way']}\nf says {row['f_says']}"
        lines.append((words, query, answer, seen))
    drawing.save(drawing.case_study(lines), folder / "fig-case")
