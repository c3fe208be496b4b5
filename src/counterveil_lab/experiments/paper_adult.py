"""`paper-adult`: the paper's mechanism on Adult, over ε.

Reconstruction error on held-out rows, flip ratio and distance of 500 held-out queries on legal
rows (the last iterate of Algorithm 2, snapped), for every ε of the paper's figure and table,
several seeds each. A seed fixes split, target model and initial weights; the noise is drawn anew
from the operating system.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import torch

from counterveil.curator import Curator
from counterveil.demo.adult import adult_schema, adult_split, train_target
from counterveil.demo.run import legal_share, reconstruction_error
from counterveil.search import Explainer
from counterveil_lab.results import Results, Row

EPSILONS = (math.inf, 1.0, 0.75, 0.5, 0.1, 0.05, 0.025, 0.005, 5e-4)
QUERIES = 500


def run(
    folder: Path, command: str, *, seeds: int, quick: bool, workers: int, say: Callable[[str], None]
) -> None:
    """Measure every (ε, seed) that is not stored yet."""
    results = Results(folder, "paper-adult", command)
    epochs = 2 if quick else 300
    wanted = [(epsilon, seed) for seed in range(seeds) for epsilon in EPSILONS]
    missing = [(e, s) for e, s in wanted if not results.has(epsilon=_written(e), seed=s)]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(measure, epsilon, seed, epochs) for epsilon, seed in missing]
        for done, job in enumerate(as_completed(jobs), 1):
            row = job.result()
            results.add(row)
            say(f"{done}/{len(missing)}: ε {row['epsilon']}, seed {row['seed']}: "
                f"MSE {row['mse']:.4f}, flip ratio {row['flip_ratio']:.3f}, "
                f"distance {row['distance']:.2f}")  # fmt: skip


def measure(epsilon: float, seed: int, epochs: int) -> Row:
    """One release and its answers."""
    torch.set_num_threads(1)
    schema, split = adult_schema(), adult_split(seed)
    model = train_target(split.train, schema, seed=seed)
    veil = Curator(schema).release(
        split.train, epsilon, mechanism="paper", seed=seed, epochs=epochs, progress=False
    )
    explainer = Explainer(veil, model)
    explainer.explain(
        split.test.head(2), method="iterations", keep="last", progress=False
    )  # warm up
    started = time.perf_counter()
    result = explainer.explain(
        split.test.head(QUERIES), method="iterations", keep="last", progress=False
    )
    seconds = time.perf_counter() - started
    return {
        "dataset": "adult",
        "method": "counterveil",
        "mechanism": "paper",
        "guidance": "model",
        "epsilon": _written(epsilon),
        "seed": seed,
        "epochs": epochs,
        "mse": reconstruction_error(veil, split.test),
        "flip_ratio": result.flip_ratio,
        "legal": legal_share(result.frame(), schema),
        "distance": result.mean_distance,
        "changed_features": float(result.changed[result.valid].mean()),
        "seconds_per_query": seconds / QUERIES,
    }


def _written(epsilon: float) -> float | str:
    """JSON knows no infinity."""
    return "none" if math.isinf(epsilon) else epsilon
