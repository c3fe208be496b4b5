"""`table-extraction`: how well f can be rebuilt from predictions and counterfactuals.

The paper's table, with what it lacks: fidelity beside accuracy, controls, adaptive attackers, and
an f that names its class alone. Every defence meets every attacker of `attacks.extraction` at 250
to 2,000 queries; a row is one of them. `part` tells what was measured together. Pictures get fewer
queries, steps and settings; dice-ml, which takes seconds a query, is asked on Adult alone and less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from counterveil_lab.attacks import controls
from counterveil_lab.attacks.defences import sharing
from counterveil_lab.attacks.extraction import SETTINGS, extract
from counterveil_lab.attacks.protocol import FULL, QUICK, Arena, Size
from counterveil_lab.attacks.verdicts import headline
from counterveil_lab.experiments.runner import Say, draw, only, repetitions, run_cases
from counterveil_lab.results import Results, Row

NAME = "table-extraction"
DATASETS = ("adult", "hospital", "mnist")
FUNCTIONAL = ("functional-model", "functional-surrogate")
# What is measured together, with the ε: defences that share a veil, or one by itself.
PARTS: dict[str, tuple[tuple[str, ...], float]] = {
    "dice-gradient": (("dice-gradient",), 0.0),
    "dice-kdtree": (("dice-kdtree",), 0.0),
    "functional-0.75": ((*FUNCTIONAL, "random-labels", "random-labels-surrogate"), 0.75),
    "functional-0.025": (FUNCTIONAL, 0.025),
    "elsewhere-0.75": (("elsewhere-surrogate",), 0.75),
    "paper-0.025": (("paper",), 0.025),
    "dp-model": (("dp-model",), 0.0),
    "no-noise": (("no-noise", "no-noise-published"), 0.0),
    "cf-k": (("cf-k",), 0.0),
}
# dice-ml takes no missing values, and no cell of a table as wide as Hospital holds 5 rows (cf-k).
ADULT_ONLY = frozenset({"dice-gradient", "dice-kdtree", "cf-k"})
PICTURES = frozenset({"mnist", "digits"})
ON_TABLES = frozenset(
    {"random-labels", "random-labels-surrogate", "no-noise-published"}
)  # controls: tables are enough
PICTURE_PARTS = ("functional-0.75", "paper-0.025", "no-noise")
PICTURE_SETTINGS = (("known", "probabilities"), ("known", "labels"))
NEEDS = {"dice-gradient": "dice_ml", "dice-kdtree": "dice_ml", "dp-model": "opacus"}
QUICK_PARTS = ("functional-0.75", "no-noise", "dice-kdtree", "dp-model", "cf-k")


def run(
    folder: Path, command: str, *, seeds: int, quick: bool, workers: int, say: Say,
    datasets: tuple[str, ...] | None = None, mechanisms: Sequence[str] | None = None,
    add: bool = False,
) -> None:  # fmt: skip
    """Measure every case that is not stored yet; say what follows."""
    results = Results(folder, NAME, command, keep=add)
    missing = {part: package for part, package in NEEDS.items() if find_spec(package) is None}
    for part, package in missing.items():
        say(f"without {part}: it needs the package {package}; pip install 'counterveil[lab,dpsgd]'")
    cases = [
        {"dataset": name, "part": part, "seed": seed}
        for part in PARTS
        if part not in missing
        for name in datasets or (("adult",) if quick else DATASETS)
        for seed in repetitions(quick, seeds)
        if part in parts_of(name, quick)
    ]
    run_cases(results, only(cases, "part", mechanisms), measure_case, workers=workers, say=say,
              quick=quick)  # fmt: skip
    if results.rows:
        for words in headline(results.rows).sentences:
            say(words)
        for words in controls.spoken(controls.of_extraction(results.rows)):
            say(words)
    draw(_paint, results, folder, say)


def parts_of(dataset: str, quick: bool) -> tuple[str, ...]:
    """What is measured of a dataset: `ADULT_ONLY` is not for others."""
    if dataset in PICTURES:
        return PICTURE_PARTS
    parts = QUICK_PARTS if quick else tuple(PARTS)
    return tuple(part for part in parts if dataset == "adult" or part not in ADULT_ONLY)


def size_of(dataset: str, quick: bool) -> Size:
    """Pictures take a convolution a step: fewer of them."""
    size = QUICK if quick else FULL
    if dataset in PICTURES and not quick:
        return replace(size, queries=(250, 1000), test=2000, uniform=1000, steps=400, batch=64)
    return size


def measure_case(dataset: str, part: str, seed: int, *, quick: bool) -> list[Row]:
    """All attackers on the defences of one part."""
    size = size_of(dataset, quick)
    arena = Arena.of(dataset, seed, size)
    defences, epsilon = PARTS[part]
    settings = PICTURE_SETTINGS if dataset in PICTURES else SETTINGS
    if dataset in PICTURES:
        defences = tuple(name for name in defences if name not in ON_TABLES)
    return [
        row
        for defence in sharing(defences, arena, epsilon, size)
        for row in extract(defence, size, epsilon=epsilon, settings=settings)
    ]


def _paint(rows: Sequence[Row], folder: Path) -> None:
    from counterveil_lab.attacks.pictures import extraction_figure
    from counterveil_lab.figures import save

    save(extraction_figure(rows), folder / NAME)
