"""`fig-images`: what a network learns from images of P~ alone, and what these images look like.

For each ε at δ = 1e-6, by random features where the plan affords them and by low frequencies: the
share of held-out real images that the veil's surrogate, which has seen samples of P~ only, puts
into their class. Every row is a release of its own, with its own noise; a GPU trains it if there is
one. The pictures, one a class, are in fig-images.npz beside the rows.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from counterveil.curator import Curator
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.images import grey, image_of
from counterveil_lab.experiments.runner import Case, Experiment, Options
from counterveil_lab.metrics import timed
from counterveil_lab.results import PICTURES, Row, pictures_of
from counterveil_lab.targets import classes_of, encoded

EPSILONS = (3.0, 0.75, 0.1, 0.025)
DELTA = 1e-6
ORDERS = {"features": None, "frequencies": 1}  # what the curator is asked for


def cases(options: Options) -> Iterator[Case]:
    """Every draw of the noise, dataset, basis and ε: a run that is cut short has some of each."""
    for seed in options.repetitions:
        for dataset in options.names(("mnist", "digits"), ("digits",)):
            for asked in ORDERS:
                for epsilon in (3.0,) if options.quick else EPSILONS:
                    yield {"dataset": dataset, "asked": asked, "epsilon": epsilon, "seed": seed}


def measure(dataset: str, asked: str, epsilon: float, seed: int, *, quick: bool) -> list[Row]:
    """The accuracy of the surrogate of one release on real images, and some of its images."""
    data = releases.data_for(dataset, 0, quick=quick)
    curator = Curator(data.schema, device="auto")
    order, epochs = ORDERS[asked], 2 if quick else None
    started = time.process_time()
    veil, seconds = timed(
        lambda: curator.release(
            data.train, epsilon, DELTA, order=order, seed=seed, epochs=epochs, progress=False
        )
    )
    busy = time.process_time() - started
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
        "delta": DELTA,
        "device": curator.device.type,
        "seconds": seconds,
        "processor_seconds": busy,
        PICTURES: {f"{dataset} {epsilon} {asked}": grey(shown, image_of(data.schema))},
    }
    return [row]


def paint(rows: Sequence[Row], folder: Path) -> None:
    """The sheet of images over ε, from stored rows and pictures."""
    from counterveil_lab import figures, figures_experiments

    stored = pictures_of(rows)
    strips = []
    for name, pictures in stored.items():
        dataset, epsilon, asked = name.split()
        mine = [row for row in rows if _key(row) == (dataset, asked, float(epsilon))]
        if mine:
            words = f"{dataset}, ε = {float(epsilon):g}, {mine[0]['basis']}\n"
            scores = [row["accuracy"] for row in mine]
            strips.append((f"{words}accuracy {np.mean(scores):.3f}", pictures))
    figures.save(figures_experiments.strips(strips), folder / "fig-images")


def sentences(rows: Sequence[Row]) -> Iterator[str]:
    """Mean and worst accuracy for each dataset, basis and ε."""
    for key in dict.fromkeys(map(_key, rows)):
        found = [row for row in rows if _key(row) == key]
        scores = torch.tensor([row["accuracy"] for row in found])
        asked = "" if found[0]["basis"] == key[1] else f" (asked for {key[1]})"
        yield (
            f"{key[0]}, ε = {key[2]:g}, {found[0]['basis']}{asked}: accuracy {scores.mean():.3f}, "
            f"worst {scores.min():.3f} of {len(found)}"
        )


def _key(row: Row) -> tuple[str, str, float]:
    return row["dataset"], row["asked"], row["epsilon"]


FIG_IMAGES = Experiment(
    "what is learnt from images of P~ alone, on real ones; and a sheet of them over ε.",
    cases,
    measure,
    paint=paint,
    sentences=sentences,
    chosen_by=(),
)
