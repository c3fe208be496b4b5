"""`paper-adult`: the paper's mechanism on Adult, over ε, trained as long as published.

Reconstruction error on held-out rows, flip ratio and distance of 500 held-out queries on legal
rows (the last iterate of Algorithm 2, snapped), for every ε of the paper's figure and table,
several seeds each. A seed fixes split, target model and initial weights; the noise is drawn anew
from the operating system.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

from counterveil.curator import Curator
from counterveil.search import Explainer
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.exam import AS_PUBLISHED
from counterveil_lab.experiments.runner import Say, only, repetitions, run_cases
from counterveil_lab.metrics import legal_share, reconstruction_error
from counterveil_lab.results import Results, Row

EPSILONS = (releases.NO_NOISE, 1.0, 0.75, 0.5, 0.1, 0.05, 0.025, 0.005, 5e-4)
QUERIES = 500


def run(
    folder: Path, command: str, *, seeds: int, quick: bool, workers: int, say: Say,
    datasets: Sequence[str] | None = None, add: bool = False,
) -> None:  # fmt: skip
    """Measure every (ε, seed) that is not stored yet."""
    results = Results(folder, "paper-adult", command, keep=add)
    cases = [
        {"dataset": "adult", "mechanism": "paper", "epsilon": epsilon, "seed": seed}
        for seed in repetitions(quick, seeds)
        for epsilon in EPSILONS
    ]
    run_cases(results, only(cases, "dataset", datasets), measure_case, workers=workers, say=say,
              quick=quick)  # fmt: skip


def measure_case(
    dataset: str, mechanism: str, epsilon: releases.Epsilon, seed: int, *, quick: bool
) -> list[Row]:
    """One release and its answers."""
    data = releases.data_for(dataset, seed, quick=quick)
    model = releases.target_for(data, seed)
    epochs = 2 if quick else 300
    noise = math.inf if epsilon == releases.NO_NOISE else float(epsilon)
    veil = Curator(data.schema).release(
        data.train, noise, mechanism=mechanism, seed=seed, epochs=epochs, progress=False
    )
    explainer, queries = Explainer(veil, model), data.test.head(QUERIES)
    explainer.explain(queries.head(2), progress=False, **AS_PUBLISHED)  # warm up
    started = time.perf_counter()
    result = explainer.explain(queries, progress=False, **AS_PUBLISHED)
    seconds = time.perf_counter() - started
    return [
        {
            "method": "counterveil",
            "guidance": "model",
            "epochs": epochs,
            "mse": reconstruction_error(veil, data.test),
            "flip_ratio": result.flip_ratio,
            "legal": legal_share(result.frame(), data.schema),
            "distance": result.mean_distance,
            "changed_features": float(result.changed[result.valid].mean()),
            "seconds_per_query": seconds / QUERIES,
        }
    ]
