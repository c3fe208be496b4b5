"""`targets`: how good the target models are, beside what the paper prints.

Held-out rows. Classes are weighted evenly in training, which costs accuracy on skewed data:
balanced accuracy is the mean over classes, and `majority_share` what naming the largest class
would score.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import torch

from counterveil_lab.datasets import LOADERS
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.runner import Say, datasets_of, repetitions, run_cases
from counterveil_lab.results import Results, Row
from counterveil_lab.targets import ROWS_AT_A_TIME, encoded


def run(
    folder: Path, command: str, *, seeds: int, quick: bool, workers: int, say: Say,
    datasets: Sequence[str] | None = None, add: bool = False,
) -> None:  # fmt: skip
    """Train every target model that is not stored yet."""
    results = Results(folder, "targets", command, keep=add)
    names = datasets_of(quick, datasets or (None if quick else tuple(LOADERS)))
    cases = [{"dataset": name, "seed": seed} for seed in repetitions(quick, seeds)
             for name in names]  # fmt: skip
    run_cases(results, cases, measure_case, workers=workers, say=say, quick=quick)


@torch.no_grad()
def measure_case(dataset: str, seed: int, *, quick: bool) -> list[Row]:
    """One f."""
    data = releases.data_for(dataset, seed, quick=quick)
    started = time.perf_counter()
    with torch.enable_grad():
        model = releases.target_for(data, seed)
    seconds = time.perf_counter() - started
    points, classes = encoded(data.test, data.schema)
    said = torch.cat([model(part).argmax(dim=1) for part in points.split(ROWS_AT_A_TIME)])
    counts = torch.bincount(classes, minlength=len(data.schema.label.classes))
    right = torch.bincount(classes[said == classes], minlength=len(counts))
    there = counts > 0
    return [
        {
            "method": "target",
            "rows": len(data.train),
            "test_rows": len(data.test),
            "accuracy": float(right.sum() / counts.sum()),
            "balanced_accuracy": float((right[there] / counts[there]).mean()),
            "majority_share": float(counts.max() / counts.sum()),
            "paper_accuracy": data.paper_accuracy,
            "seconds": seconds,
        }
    ]
