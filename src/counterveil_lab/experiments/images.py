"""Experiments with pictures: `fig-reconstructions` and `fig-case`; and GradCAM.

`fig-reconstructions`: held-out pictures, one a class, through the autoencoders of `paper` and
`functional` at several ε. A row holds the error of each picture.

`fig-case`: a 9 explained towards a 5, and where f looks. Query, counterfactual, what changed, and
GradCAM of f towards the 5 on the counterfactual. `paper` is shown as published: the last iterate,
whatever f says of it (`valid` tells). `functional` by the product's search, before and after
polish.

The pictures themselves are in NAME.npz beside the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from counterveil.errors import RequestError
from counterveil.models import TargetModel, adapt
from counterveil.schema import Pixels
from counterveil_lab.experiments import pictures, releases
from counterveil_lab.experiments.runner import Case, Experiment, Options
from counterveil_lab.product import last_iterates, log_proba_at
from counterveil_lab.results import Row
from counterveil_lab.targets import encoded

EPSILONS: tuple[releases.Epsilon, ...] = (releases.NO_NOISE, 0.75, 0.1, 0.025, 0.005, 5e-4)
FROM, TO = 9, 5
SEED = 0
WAYS = {"paper": ("published",), "functional": ("unpolished", "polished")}


def cases(epsilons: Sequence[releases.Epsilon], options: Options) -> Iterator[Case]:
    """Both mechanisms at every ε; one seed, whatever `seeds`."""
    name = pictures.picture_dataset(options.quick, options.datasets, options.say)
    if name is None:
        options.say("no pictures: neither mnist nor digits was asked for")
        return
    for mechanism in ("paper", "functional"):
        for epsilon in (0.75,) if options.quick else epsilons:
            if mechanism == "paper" or epsilon != releases.NO_NOISE:
                case = {"dataset": name, "mechanism": mechanism, "epsilon": epsilon}
                yield {**case, "seed": SEED}


def measure_reconstructions(
    dataset: str, mechanism: str, epsilon: releases.Epsilon, seed: int, *, quick: bool
) -> list[Row]:
    """Ten pictures and what an autoencoder makes of them."""
    data = releases.data_for(dataset, seed, quick=quick)
    made = releases.release(data, mechanism, epsilon, seed, quick=quick)
    points, classes = encoded(data.test, data.schema)
    chosen = [int((classes == digit).nonzero()[0, 0]) for digit in range(10)]
    shown, image = points[chosen], pictures.image_of(data.schema)
    with torch.no_grad():
        again = made.veil.autoencoder(shown)
    errors = (again - shown).square().mean(dim=1)
    row: Row = {**releases.head_of(made, mechanism), "mse": float(errors.mean())}
    row |= {f"mse_{digit}": float(error) for digit, error in enumerate(errors)}
    row[pictures.PICTURES] = {
        f"{dataset} originals": pictures.grey(shown.numpy(), image),
        f"{dataset} {mechanism} {epsilon}": pictures.grey(np.asarray(again), image),
    }
    return [row]


def measure_case_study(
    dataset: str, mechanism: str, epsilon: float, seed: int, *, quick: bool
) -> list[Row]:
    """Each way to explain the first held-out 9 that f takes for a 9, if it knows any."""
    data = releases.data_for(dataset, seed, quick=quick)
    model, image = releases.target_for(data, seed), pictures.image_of(data.schema)
    judge = adapt(model, data.schema)
    points, classes = encoded(data.test.head(1000), data.schema)
    nines = classes == FROM
    known = nines & (log_proba_at(judge, points).argmax(dim=1) == FROM)
    number = int((known if known.any() else nines).nonzero()[0, 0])
    query, target = points[[number]], torch.tensor([TO])
    veil = releases.release(data, mechanism, epsilon, seed, quick=quick).veil
    _, explainer = next(releases.explainers_for(veil, model, quick=quick))
    rows = []
    for way in WAYS[mechanism]:
        if way == "published":
            answer = last_iterates(explainer, query, target)
        else:
            unpolished = {"method": "iterations", "polish": False}
            options: dict[str, Any] = unpolished if way == "unpolished" else {}
            asked = data.test.iloc[[number]]
            result = explainer.explain(asked, TO, progress=False, **options)
            answer = torch.as_tensor(judge.encoding.encode(result.rows), dtype=torch.float32)
        seen = gradcam(model, answer, target, image)
        both = [pictures.grey(each.numpy(), image) for each in (answer, seen)]
        row: Row = {"method": "counterveil", "guidance": "model", "way": way}
        row |= {"delta": releases.delta_of(mechanism), "query": number, "target": TO}
        row |= _judged(judge, query, answer)
        on_changes, total = seen[(answer != query).reshape(seen.shape)].sum(), float(seen.sum())
        row["gradcam_on_changes"] = float(on_changes) / total if total else None
        row[pictures.PICTURES] = {
            f"{data.schema.name} query": pictures.grey(query.numpy(), image),
            f"{dataset} {mechanism} {way} {epsilon}": np.concatenate(both),
        }
        rows.append(row)
    return rows


def _judged(judge: TargetModel, query: Tensor, answer: Tensor) -> Row:
    log_proba = log_proba_at(judge, answer)[0]
    return {
        "f_says": int(log_proba.argmax()),
        "valid": bool(log_proba.argmax() == TO),
        "probability": float(log_proba[TO].exp()),
        "probability_before": float(log_proba_at(judge, query)[0, TO].exp()),
        "distance": float((answer - query).norm()),
    }


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
    """The figure, from stored rows and pictures."""
    from counterveil_lab import figures, figures_experiments

    stored = pictures.read(folder / "fig-reconstructions.npz")
    strips = [("original", stored[f"{rows[0]['dataset']} originals"])]
    for row in sorted(
        rows,
        key=lambda row: (
            row["mechanism"] != "paper",
            -figures_experiments.place_of(row["epsilon"]),
        ),
    ):
        picture = stored[f"{row['dataset']} {row['mechanism']} {row['epsilon']}"]
        strips.append((figures_experiments.words_of(row), picture))
    figures.save(figures_experiments.strips(strips), folder / "fig-reconstructions")


def paint_case_study(rows: Sequence[Row], folder: Path) -> None:
    """The figure, from stored rows and pictures."""
    from counterveil_lab import figures, figures_experiments

    stored = pictures.read(folder / "fig-case.npz")
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
    store=lambda folder: pictures.keeper(folder / "fig-reconstructions.npz"),
)
FIG_CASE = Experiment(
    "the paper's case study: a 9 explained towards a 5, and where f looks.",
    partial(cases, (0.025, 0.75)),
    measure_case_study,
    paint=paint_case_study,
    store=lambda folder: pictures.keeper(folder / "fig-case.npz"),
)
