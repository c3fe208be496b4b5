"""The part `objective` of `bench search`: the amortised search beside Algorithm 2, everywhere.

L_cs at the δ of each way, and what the nearest legal rows of ψ^Dec(ρ_s + δ) are worth with nothing
repaired, tried again or polished; then whole answers, as people get them, by either way.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pandas as pd
import torch
from torch import Tensor

from counterveil.amortiser import is_free
from counterveil.encoding import Encoding
from counterveil.models import Rows, TargetModel
from counterveil.search import Explainer
from counterveil.search.amortise import learn_for
from counterveil.search.answer import Questions
from counterveil.search.latent import search
from counterveil.search.objective import SearchObjective, Weights
from counterveil.search.snap import Snap
from counterveil.veil import Veil
from counterveil_lab import floor as limits
from counterveil_lab.bench_peers import Setting, Size, head
from counterveil_lab.datasets import DatasetMissing
from counterveil_lab.metrics import measure
from counterveil_lab.results import Row
from counterveil_lab.targets import encoded

EPSILON = 0.75


def objective(size: Size, seeds: int) -> Iterator[Row]:
    """Every dataset that is there."""
    for name in size.datasets:
        for seed in range(seeds):
            try:
                setting = Setting.of(name, seed, size)
            except DatasetMissing:
                continue
            veil = setting.release(EPSILON, seed, size)
            for method, row in (*_raw(setting, veil, size), *_whole(setting, veil, size)):
                yield {**head(name, method, EPSILON, seed), "batch": len(setting.queries), **row}


def _raw(setting: Setting, veil: Veil, size: Size) -> Iterator[tuple[str, Row]]:
    device = torch.device("cpu")
    snap, weights = Snap(Encoding(veil.schema), device), Weights.of(veil.schema.family)
    started = time.perf_counter()
    amortiser = learn_for(veil, setting.judge, weights, snap, device=device, progress=False)
    learning = time.perf_counter() - started
    questions = questions_of(setting.queries, setting.judge)
    asked = SearchObjective(
        model=setting.judge,
        autoencoder=veil.autoencoder,
        weights=weights,
        queries=questions.queries,
        targets=questions.targets,
        all_prototypes=veil.prototypes,
        box=questions.box,
    )
    free = is_free(asked.box.lower, asked.box.upper)
    for method in ("amortised", "amortised, refined", "algorithm-2"):
        started = time.perf_counter()
        if method == "algorithm-2":
            delta = search(asked, size.iterations)
        else:
            delta = amortiser(asked.queries, asked.targets, free)
        if method == "amortised, refined":
            delta = search(asked, size.iterations // 5, start=delta)
        each = (time.perf_counter() - started) / len(asked.queries)
        worth = _worth(asked, delta, snap)
        yield method, {"seconds_per_query": each, "warm_up_seconds": learning, **worth}


def _whole(setting: Setting, veil: Veil, size: Size) -> Iterator[tuple[str, Row]]:
    explainer = Explainer(veil, setting.model)
    explainer.warm_up(progress=False)
    for method, way in (("amortised, whole", {}), ("algorithm-2, whole", {"method": "iterations"})):
        started = time.perf_counter()
        result = setting.ask(explainer, 0, len(setting.queries), **way)
        each = (time.perf_counter() - started) / len(setting.queries)
        yield method, {"seconds_per_query": each, **measure(result, setting.reference)}


def questions_of(queries: pd.DataFrame, judge: TargetModel) -> Questions:
    """Each query towards the class that f finds next likely."""
    points = encoded(queries, judge.schema)[0]
    with torch.no_grad():
        targets = judge.ask(Rows.of_points(points, judge.encoding)).argsort(dim=1)[:, -2]
    return Questions(points, targets, limits.boxes_of(points, judge.encoding))


@torch.no_grad()
def _worth(asked: SearchObjective, delta: Tensor, snap: Snap) -> Row:
    rows = snap(asked.counterfactual(delta), asked.box)
    found = (
        asked.model.ask(Rows.of_points(rows, asked.model.encoding)).argmax(dim=1) == asked.targets
    )
    distance = torch.linalg.vector_norm((rows - asked.queries)[found], dim=1)
    return {
        "objective": float(asked(delta).mean()),
        "flip_ratio": float(found.float().mean()),
        "distance": float(distance.mean()),
    }
