"""Experiments with pictures: `fig-reconstructions` and `fig-case`; and GradCAM.

`fig-reconstructions`: held-out pictures, one a class, through the autoencoders of `paper` and
`functional` at several ε, with the error of each. `fig-case`: 9s explained towards 5, and where f
looks when it gives an answer its class (GradCAM). `paper` is shown as published: the last iterate,
whatever f says of it (`valid` tells); `functional` by the search for the nearest, before and after
polish, and, released with a δ so that its population can draw, by the search for believable
answers. A row of `fig-case` has the numbers of one picture, the example that is shown, and as
`mean_*` their means over many.

The pictures themselves are in NAME.npz beside the rows.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from counterveil.encoding import Array
from counterveil.errors import RequestError
from counterveil.models import adapt
from counterveil.schema import Pixels, Schema
from counterveil_lab.datasets import DatasetMissing, load
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.runner import Case, Experiment, Options
from counterveil_lab.product import last_iterates, log_proba_at
from counterveil_lab.results import PICTURES, Row, pictures_of
from counterveil_lab.targets import encoded

EPSILONS: tuple[releases.Epsilon, ...] = (releases.NO_NOISE, 1.0, 0.75, 0.1, 0.025, 0.005, 5e-4)
CASE_EPSILONS = (0.025, 0.5, 0.75)  # the paper shows 0.5
FROM, TO = 9, 5
CASES = 100  # pictures that the means of fig-case are over
NOISE, STROKE = 0.05, 0.25  # of white: a noisy pixel, and all pixels of a stroke, are brighter
SEED = 0
WHITE = 255
WAYS = {"paper": ("published",), "functional": ("unpolished", "polished")}
DELTA = 1e-6  # of a release whose population is to draw
OPTIONS: dict[str, dict[str, Any]] = {
    "unpolished": {"method": "iterations", "polish": False},
    "polished": {"prefer": "nearest"},
    "believable": {"prefer": "believable"},
}


def grey(points: Array, image: Pixels) -> Array:
    """Encoded pictures, or maps from 0 to 1, as bytes of shape (pictures, height, breadth)."""
    whole = np.round(WHITE * np.asarray(points).clip(0, 1)).astype(np.uint8)
    return whole.reshape(-1, image.height, image.breadth)


def image_of(schema: Schema) -> Pixels:
    (image,) = schema.features
    assert isinstance(image, Pixels)
    return image


def picture_dataset(options: Options) -> str | None:
    """MNIST, or digits where its file is absent, or none where neither was asked for."""
    wanted = [name for name in ("mnist", "digits") if name in (options.datasets or (name,))]
    if options.quick or wanted == ["digits"]:
        return "digits"
    if not wanted:
        return None
    try:
        load("mnist")
    except DatasetMissing as error:
        options.say(f"digits in the place of mnist: {error}")
        return "digits"
    return "mnist"


def cases(epsilons: Sequence[releases.Epsilon], options: Options) -> Iterator[Case]:
    """Both mechanisms at every ε; one seed, whatever `seeds`."""
    name = picture_dataset(options)
    if name is None:
        options.say("no pictures: neither mnist nor digits was asked for")
        return
    for mechanism in ("paper", "functional"):
        for epsilon in (0.75,) if options.quick else epsilons:
            if mechanism == "paper" or epsilon != releases.NO_NOISE:
                case = {"dataset": name, "mechanism": mechanism, "epsilon": epsilon}
                yield {**case, "seed": SEED}


def cases_of_case_study(options: Options) -> Iterator[Case]:
    """The same, and `functional` with a δ."""
    for case in cases(CASE_EPSILONS, options):
        yield case
        if case["mechanism"] == "functional":
            yield {**case, "delta": DELTA}


def measure_reconstructions(
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
    row: Row = {**releases.head_of(made, mechanism), "mse": float(errors.mean())}
    row |= {f"mse_{digit}": float(error) for digit, error in enumerate(errors)}
    row[PICTURES] = {
        f"{dataset} originals": grey(shown.numpy(), image),
        f"{dataset} {mechanism} {epsilon}": grey(np.asarray(again), image),
    }
    return [row]


def measure_case_study(
    dataset: str,
    mechanism: str,
    epsilon: float,
    seed: int,
    delta: float | None = None,
    *,
    quick: bool,
) -> list[Row]:
    """Each way to explain held-out 9s that f takes for 9s, or any where it knows none."""
    data = releases.data_for(dataset, seed, quick=quick)
    model, image = releases.target_for(data, seed), image_of(data.schema)
    judge = adapt(model, data.schema)
    points, classes = encoded(data.test, data.schema)
    nines = classes == FROM
    known = nines & (log_proba_at(judge, points).argmax(dim=1) == FROM)
    numbers = (known if known.any() else nines).nonzero()[:CASES, 0]
    queries, targets = points[numbers], torch.full_like(numbers, TO)
    veil = releases.release(data, mechanism, epsilon, seed, delta=delta, quick=quick).veil
    _, explainer = next(releases.explainers_for(veil, model))
    rows = []
    for way in WAYS[mechanism] if delta is None else ("believable",):
        if way == "published":
            answers = last_iterates(explainer, queries, targets)
        else:
            asked = data.test.iloc[numbers.tolist()]
            result = explainer.explain(asked, TO, progress=False, **OPTIONS[way])
            answers = torch.as_tensor(judge.encoding.encode(result.rows), dtype=torch.float32)
        log_proba = log_proba_at(judge, answers)
        given = log_proba.argmax(dim=1)
        seen = gradcam(model, answers, given, image)
        measured = {
            "valid": given == TO,
            "probability": log_proba[:, TO].exp(),
            "probability_before": log_proba_at(judge, queries)[:, TO].exp(),
            "distance": (answers - queries).norm(dim=1),
            **shares_of(seen, "changes", (answers != queries).reshape(seen.shape)),
            **shares_of(seen, "noise", noisy_pixels(answers, image)),
        }
        row: Row = {"method": "counterveil", "guidance": "model", "way": way}
        row |= {"delta": veil.statement.delta, "query": int(numbers[0]), "target": TO}
        row |= {"f_says": int(given[0]), "queries": len(numbers)}
        row |= {name: values[0].item() for name, values in measured.items()}
        row |= {
            f"mean_{name}": float(values.float().nanmean()) for name, values in measured.items()
        }
        wrong = given != TO  # as in the picture that the paper shows
        row |= {
            f"misled_{name}": float(measured[name][wrong].nanmean())
            for name in ("gradcam_on_noise", "noise_area")
        }
        row[PICTURES] = {
            f"{data.schema.name} query": grey(queries[:1].numpy(), image),
            f"{dataset} {mechanism} {way} {epsilon}": np.concatenate(
                [grey(each[:1].numpy(), image) for each in (answers, seen)]
            ),
        }
        rows.append(row)
    return rows


def shares_of(seen: Tensor, name: str, pixels: Tensor) -> dict[str, Tensor]:
    """The share of each map that lies on some pixels, and the share of the picture they take.

    `seen`: maps of GradCAM, (pictures, height, breadth); `pixels`: which pixels, of the same shape.
    Both results have the shape (pictures,); the first is NaN where a map is 0 everywhere.
    """
    on_pixels, total = (maps.sum(dim=(1, 2)) for maps in (seen * pixels, seen))
    return {f"gradcam_on_{name}": on_pixels / total, f"{name}_area": pixels.float().mean((1, 2))}


def noisy_pixels(points: Tensor, image: Pixels) -> Tensor:
    """Pixels brighter than `NOISE` that are more than a pixel away from every stroke.

    Any 2 × 2 pixels that are all brighter than `STROKE` are part of a stroke. `points`: encoded
    pictures of one channel, one a row. The result has the shape (pictures, height, breadth).
    """
    pool = nn.functional.max_pool2d
    pictures = points.reshape(-1, 1, image.height, image.breadth)
    strokes = -pool(-pictures, 2, stride=1) > STROKE  # by the upper left pixel of the 2 × 2
    near = pool(nn.functional.pad(strokes.float(), (2, 2, 2, 2)), 4, stride=1) > 0
    return ((pictures > NOISE) & ~near)[:, 0]


def gradcam(model: nn.Module, points: Tensor, classes: Tensor, image: Pixels) -> Tensor:
    """GradCAM (Selvaraju 2017): where a convolutional network looks when it gives a class.

    The maps of the last convolution, each weighted by the mean gradient of the class's score over
    it, summed, cut at 0, and brought to the size of the picture. `points`: encoded pictures, one a
    row; `classes`: the number of the class asked for, for each. The result has the shape
    (pictures, height, breadth); the highest value of each map is 1, or all are 0.
    """
    convolutions = [each for each in model.modules() if isinstance(each, nn.Conv2d)]
    if not convolutions:
        raise RequestError("GradCAM needs a network with a convolution")
    seen: list[Tensor] = []

    def keep(_: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> Tensor:
        seen.append(output.detach().requires_grad_(True))
        return seen[-1]

    hook = convolutions[-1].register_forward_hook(keep)
    try:
        with torch.enable_grad():
            scores = model(points).gather(1, classes[:, None]).sum()
            (gradient,) = torch.autograd.grad(scores, seen[0])
    finally:
        hook.remove()
    maps = (gradient.mean(dim=(2, 3), keepdim=True) * seen[0].detach()).sum(dim=1).relu()
    size = (image.height, image.breadth)
    large = nn.functional.interpolate(maps[:, None], size, mode="bilinear", align_corners=False)
    maps = large[:, 0]
    return maps / maps.amax(dim=(1, 2), keepdim=True).clamp(min=torch.finfo(maps.dtype).tiny)


def paint_reconstructions(rows: Sequence[Row], folder: Path) -> None:
    from counterveil_lab import figures, figures_experiments

    stored = pictures_of(rows)
    strips = [("original", stored[f"{rows[0]['dataset']} originals"])]
    falling = sorted(rows, key=lambda row: -figures_experiments.place_of(row["epsilon"]))
    for row in sorted(falling, key=lambda row: bool(row["mechanism"] != "paper")):
        picture = stored[f"{row['dataset']} {row['mechanism']} {row['epsilon']}"]
        strips.append((figures_experiments.words_of(row), picture))
    figures.save(figures_experiments.strips(strips), folder / "fig-reconstructions")


def paint_case_study(rows: Sequence[Row], folder: Path) -> None:
    from counterveil_lab import figures, figures_experiments

    stored = pictures_of(rows)
    lines = []
    for row in rows:
        (query,) = stored[f"{row['dataset']} query"]
        name = f"{row['dataset']} {row['mechanism']} {row['way']} {row['epsilon']}"
        words = f"{figures_experiments.words_of(row)}, {row['way']}\nf says {row['f_says']}"
        lines.append((words, query, *stored[name]))
    figures.save(figures_experiments.case_study(lines), folder / "fig-case")


FIG_RECONSTRUCTIONS = Experiment(
    "the paper's figure of digits reconstructed at several ε.",
    partial(cases, EPSILONS),
    measure_reconstructions,
    paint=paint_reconstructions,
)
FIG_CASE = Experiment(
    "the paper's case study: 9s explained towards 5, and where f looks.",
    cases_of_case_study,
    measure_case_study,
    paint=paint_case_study,
)
