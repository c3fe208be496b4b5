"""`fig-attribute`: does the model, or what is extracted from it, give away a person's race?

Everything else about the person is known. Each number stands beside imputation, the same classifier
without any model's answers, and beside people who were not in the training rows; `advantage` is the
difference to imputation in balanced accuracy. Rows with a `value` give precision and recall of it.

Controls: `disjoint` (those called members were never trained on), `overfitted` (f knows 300 rows by
heart) and `memoriser`, an f that is sure of the rows it has seen and of nothing else: there the
attack must succeed.

The paper has this figure for Texas alone, prints no numbers, and compares with no imputation.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from counterveil_lab.attacks import controls, inference
from counterveil_lab.attacks.attribute import SENSITIVE
from counterveil_lab.attacks.candidates import BY_HEART, overfitted
from counterveil_lab.attacks.defences import sharing
from counterveil_lab.attacks.extraction import budget_of
from counterveil_lab.attacks.headlines import attribute_sentence, attribute_table
from counterveil_lab.attacks.protocol import Arena
from counterveil_lab.experiments.fig_membership import PARTS, parts_of, size_of
from counterveil_lab.experiments.runner import Say, draw, only, repetitions, run_cases
from counterveil_lab.results import Results, Row

NAME = "fig-attribute"
DATASETS = ("adult", "hospital")
PAPER_PRINTS: dict[str, float] = {}  # of this figure the text gives no number
CONTROLS = {"none": tuple(PARTS), "disjoint": ("none",), "overfitted": ("none",),
            "memoriser": ("none",)}  # fmt: skip


def run(
    folder: Path, command: str, *, seeds: int, quick: bool, workers: int, say: Say,
    datasets: tuple[str, ...] | None = None, mechanisms: Sequence[str] | None = None,
    add: bool = False,
) -> None:  # fmt: skip
    """Measure every case that is not stored yet; say what follows. `mechanisms`: parts."""
    results = Results(folder, NAME, command, keep=add)
    names = datasets or (("adult",) if quick else DATASETS)
    having = [name for name in names if name in DATASETS]
    if left := sorted(set(names) - set(having)):
        say(f"without {', '.join(left)}: only {', '.join(DATASETS)} have the attribute {SENSITIVE}")
    cases = [
        {"dataset": name, "control": control, "part": part, "seed": seed}
        for part in PARTS
        for name in having
        for control in CONTROLS
        for seed in repetitions(quick, seeds)
        if part in CONTROLS[control] and part in parts_of(name, quick)
    ]
    run_cases(results, only(cases, "part", mechanisms), measure_case, workers=workers, say=say,
              quick=quick)  # fmt: skip
    if results.rows:
        for line in attribute_table(results.rows):
            say(attribute_sentence(line))
        for words in controls.spoken(controls.of_attribute(results.rows)):
            say(words)
    draw(_paint, results, folder, say)


def measure_case(dataset: str, control: str, part: str, seed: int, *, quick: bool) -> list[Row]:
    """Attribute inference with f and with f' of each defence of a part."""
    size = size_of(dataset, quick)
    arena = Arena.of(dataset, seed, size, disjoint=control == "disjoint")
    recipe = BY_HEART if control == "overfitted" else None
    if recipe is not None:
        arena = overfitted(arena)
    if control == "memoriser":
        rows = inference.on_memoriser(arena, size)
        return [{"defence": "none", "epsilon": None, **row} for row in rows]
    if part == "none":
        rows = inference.on_attribute(arena, None, size, _silent, recipe)
        return [{"defence": "none", "epsilon": None, **row} for row in rows]
    defences, epsilon = PARTS[part]
    return [
        {"defence": defence.name, **budget_of(defence.name, epsilon), **row}
        for defence in sharing(defences, arena, epsilon, size)
        for row in inference.on_attribute(arena, defence, size, _silent)
        if row["target"] != "f" or defence.name == "dp-model"  # otherwise f is that of "none"
    ]


def _silent(words: str) -> None:
    pass


def _paint(rows: Sequence[Row], folder: Path) -> None:
    from counterveil_lab.attacks.forest import attribute_figure
    from counterveil_lab.figures import save

    save(attribute_figure(rows), folder / NAME)
