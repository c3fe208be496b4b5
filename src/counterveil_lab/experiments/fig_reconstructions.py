"""`fig-reconstructions`: the paper's figure of digits reconstructed at several ε.

Held-out pictures, one a class, through the autoencoders of `paper` and `functional`. A row holds
the error of each picture; the pictures are in fig-reconstructions.npz. `epochs` of `paper`: fewer
than published.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from counterveil_lab.experiments import releases
from counterveil_lab.experiments.pictures import PICTURES, grey, image_of, keeper, picture_dataset
from counterveil_lab.experiments.runner import Say, draw, only, run_cases
from counterveil_lab.results import Results, Row
from counterveil_lab.targets import encoded

EPSILONS: tuple[releases.Epsilon, ...] = (releases.NO_NOISE, 0.75, 0.1, 0.025, 0.005, 5e-4)
SEED = 0


def run(
    folder: Path, command: str, *, seeds: int, quick: bool, workers: int, say: Say,
    datasets: Sequence[str] | None = None, mechanisms: Sequence[str] | None = None,
    add: bool = False,
) -> None:  # fmt: skip
    """Reconstruct with every autoencoder that is not stored yet; one seed, whatever `seeds`."""
    name = picture_dataset(quick, datasets, say)
    if name is None:
        say("no pictures: neither mnist nor digits was asked for")
        return
    results = Results(folder, "fig-reconstructions", command, keep=add)
    cases = [
        {"dataset": name, "mechanism": mechanism, "epsilon": epsilon, "seed": SEED}
        for mechanism in ("paper", "functional")
        for epsilon in ((0.75,) if quick else EPSILONS)
        if not (mechanism == "functional" and epsilon == releases.NO_NOISE)
    ]
    store = keeper(folder / "fig-reconstructions.npz")
    try:
        run_cases(results, only(cases, "mechanism", mechanisms), measure_case, workers=workers,
                  say=say, store=store, quick=quick)  # fmt: skip
    finally:
        draw(paint, results, folder, say)


def measure_case(
    dataset: str, mechanism: str, epsilon: releases.Epsilon, seed: int, *, quick: bool
) -> list[Row]:
    """Ten pictures and what an autoencoder makes of them."""
    data = releases.data_for(dataset, seed, quick=quick)
    made = releases.release(data, mechanism, epsilon, seed, quick=quick)
    points, classes = encoded(data.test, data.schema)
    chosen = [int((classes == digit).nonzero()[0, 0]) for digit in range(10)]
    shown, image = points[chosen], image_of(data.schema)
    with torch.no_grad():
        again = made.veil.autoencoder(shown)
    errors = (again - shown).square().mean(dim=1)
    return [
        {
            "method": "counterveil",
            "delta": releases.delta_of(mechanism),
            "epochs": made.epochs,
            "mse": float(errors.mean()),
            **{f"mse_{digit}": float(error) for digit, error in enumerate(errors)},
            PICTURES: {
                f"{dataset} originals": grey(shown.numpy(), image),
                key(dataset, mechanism, epsilon): grey(np.asarray(again), image),
            },
        }
    ]


def key(dataset: str, mechanism: str, epsilon: releases.Epsilon) -> str:
    """The name of an array."""
    return f"{dataset} {mechanism} {epsilon}"


def paint(rows: Sequence[Row], folder: Path) -> None:
    """The figure, from stored rows and pictures."""
    from counterveil_lab.experiments import drawing
    from counterveil_lab.experiments.pictures import read

    stored = read(folder / "fig-reconstructions.npz")
    strips = [("original", stored[f"{rows[0]['dataset']} originals"])]
    order = sorted(rows, key=lambda row: (row["mechanism"] != "paper",
                                          -drawing.place_of(row["epsilon"])))  # fmt: skip
    for row in order:
        picture = stored[key(row["dataset"], row["mechanism"], row["epsilon"])]
        strips.append((drawing.words_of(row), picture))
    drawing.save(drawing.strips(strips), folder / "fig-reconstructions")
