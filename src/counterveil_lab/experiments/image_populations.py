"""`fig-images`: what a network learns from images of P~ alone, and what these images look like.

For each ε, at δ = 1e-6 and at δ = 0: the share of held-out real images that the veil's surrogate,
which has seen samples of P~ only, puts into their class. Every row is a release of its own, with
its own noise. The pictures, one a class, are in fig-images.npz beside the rows.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from counterveil.curator import Curator
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.images import PICTURES, grey, image_of, keeper, read
from counterveil_lab.experiments.runner import Case, Experiment, Options
from counterveil_lab.metrics import timed
from counterveil_lab.results import Row
from counterveil_lab.targets import classes_of, encoded

EPSILONS = (3.0, 0.75, 0.1, 0.025)
DELTAS = (1e-6, 0.0)


def cases(options: Options) -> Iterator[Case]:
    """Every dataset, ε, δ and draw of the noise."""
    for dataset in options.names(("mnist", "digits"), ("digits",)):
        for epsilon in (3.0,) if options.quick else EPSILONS:
            for delta in DELTAS:
                for seed in options.repetitions:
                    yield {"dataset": dataset, "epsilon": epsilon, "delta": delta, "seed": seed}


def measure(dataset: str, epsilon: float, delta: float, seed: int, *, quick: bool) -> list[Row]:
    """The accuracy of the surrogate of one release on real images, and some of its images."""
    data = releases.data_for(dataset, 0, quick=quick)
    curator = Curator(data.schema)
    epochs = 2 if quick else None
    veil, seconds = timed(
        lambda: curator.release(
            data.train, epsilon, delta, order=2, seed=seed, epochs=epochs, progress=False
        )
    )
    assert veil.surrogate is not None
    assert veil.record is not None
    points, classes = encoded(data.test, data.schema)
    right = classes_of(veil.surrogate, points) == classes
    evenly = np.full(len(data.schema.label.classes), 1 / len(data.schema.label.classes))
    drawn, labels = veil.population().sample(500, np.random.default_rng(seed), evenly)
    shown = drawn[[int(np.flatnonzero(labels == digit)[0]) for digit in range(len(evenly))]]
    row: Row = {
        "mechanism": "functional",
        "rows": len(data.train),
        "basis": "features" if veil.record.features else "frequencies",
        "numbers": 2 * veil.record.features or veil.record.frequencies**2,
        "accuracy": float(right.float().mean()),
        "seconds": seconds,
        PICTURES: {f"{dataset} {epsilon} {delta}": grey(shown, image_of(data.schema))},
    }
    return [row]


def paint(rows: Sequence[Row], folder: Path) -> None:
    """The sheet of images over ε, from stored rows and pictures."""
    from counterveil_lab import figures, figures_experiments

    stored = read(folder / "fig-images.npz")
    strips = []
    for name, pictures in stored.items():
        dataset, epsilon, delta = name.split()
        mine = [
            row["accuracy"]
            for row in rows
            if (row["dataset"], row["epsilon"], row["delta"])
            == (dataset, float(epsilon), float(delta))
        ]
        if mine:
            words = f"{dataset}, ε = {float(epsilon):g}, δ = {float(delta):g}\n"
            strips.append((f"{words}accuracy {np.mean(mine):.3f}", pictures))
    figures.save(figures_experiments.strips(strips), folder / "fig-images")


def sentences(rows: Sequence[Row]) -> Iterator[str]:
    """Mean and worst accuracy for each dataset, ε and δ."""
    for key in dict.fromkeys((row["dataset"], row["epsilon"], row["delta"]) for row in rows):
        found = [row for row in rows if (row["dataset"], row["epsilon"], row["delta"]) == key]
        scores = torch.tensor([row["accuracy"] for row in found])
        yield (
            f"{key[0]}, ε = {key[1]:g}, δ = {key[2]:g}, {found[0]['basis']}: accuracy "
            f"{scores.mean():.3f}, worst {scores.min():.3f} of {len(found)}"
        )


FIG_IMAGES = Experiment(
    "what is learnt from images of P~ alone, on real ones; and a sheet of them over ε.",
    cases,
    measure,
    paint=paint,
    sentences=sentences,
    chosen_by=(),
    store=lambda folder: keeper(folder / "fig-images.npz"),
)
