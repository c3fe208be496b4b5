"""`fig-membership`: can anyone tell who was in the training rows, from f, from f' or from answers?

The paper's figure with what it lacks: f attacked directly beside f', attacks on the counterfactuals
themselves, linkage of private rows, modern attackers (LiRA, RMIA), and two controls. `disjoint`:
those called members were never trained on, so that every attack must be at chance. `overfitted`: f
knows 300 rows by heart, so that attacks must succeed, and chance elsewhere means something. The
headline is the strongest attacker, picked on other people than those he is then scored on.

The paper prints no numbers: its figure shows accuracies at ε = .025 and 2,000 queries, of which
the text says that attacks nearly fail on all but Purchase and Texas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from counterveil.veil import Veil
from counterveil_lab.attacks import controls, inference
from counterveil_lab.attacks.candidates import BY_HEART, overfitted
from counterveil_lab.attacks.defences import sharing
from counterveil_lab.attacks.extraction import budget_of
from counterveil_lab.attacks.headlines import linkage_sentence, linked, sentence, strongest
from counterveil_lab.attacks.protocol import FULL, QUICK, Arena, Size
from counterveil_lab.experiments.runner import Say, draw, only, repetitions, run_cases
from counterveil_lab.experiments.table_extraction import ADULT_ONLY
from counterveil_lab.results import Results, Row

NAME = "fig-membership"
DATASETS = ("adult", "hospital", "mnist")
PAPER_PRINTS: dict[str, float] = {}  # of this figure the text gives no number
PAPER_SAYS = {"purchase": "protected", "texas": "protected", "adult": "attacks almost fail",
              "hospital": "attacks almost fail", "homecredit": "attacks almost fail",
              "mnist": "attacks almost fail"}  # fmt: skip
# Defences with their ε; those of one part share a veil. "none": f, and f' from predictions alone.
PARTS: dict[str, tuple[tuple[str, ...], float]] = {
    "dice-gradient": (("dice-gradient",), 0.0),
    "functional-0.75": (("functional-model", "functional-surrogate"), 0.75),
    "functional-0.025": (("functional-model",), 0.025),
    "dp-model": (("dp-model",), 0.0),
    "paper-0.025": (("paper",), 0.025),
    "no-noise": (("no-noise", "no-noise-published"), 0.0),
    "dice-kdtree": (("dice-kdtree",), 0.0),
    "cf-k": (("cf-k",), 0.0),
    "none": ((), 0.0),
}
PICTURES = ("functional-0.75", "paper-0.025", "no-noise", "none")
QUICK_PARTS = ("functional-0.75", "no-noise", "dice-kdtree", "none")
CONTROLS = {
    "none": tuple(PARTS),
    "disjoint": ("no-noise", "none"),
    "overfitted": ("functional-0.75", "no-noise", "dice-kdtree", "none"),
}
FEWER_CONTROLS = {**CONTROLS, "disjoint": ("none",), "overfitted": ("none",)}


def run(
    folder: Path, command: str, *, seeds: int, quick: bool, workers: int, say: Say,
    datasets: tuple[str, ...] | None = None, mechanisms: Sequence[str] | None = None,
    add: bool = False,
) -> None:  # fmt: skip
    """Measure every case that is not stored yet; say what follows.

    `mechanisms`: parts, or controls by their names.
    """
    results = Results(folder, NAME, command, keep=add)
    cases = [
        {"dataset": name, "control": control, "part": part, "seed": seed}
        for part in PARTS
        for name in datasets or (("adult",) if quick else DATASETS)
        for control, parts in controls_of(name, quick).items()
        for seed in repetitions(quick, seeds)
        if part in parts and part in parts_of(name, quick)
    ]
    controlled = [case for case in cases if case["control"] != "none"]
    chosen = only(cases, "part", mechanisms)
    chosen += [case for case in only(controlled, "control", mechanisms) if case not in chosen]
    run_cases(results, chosen, measure_case, workers=workers, say=say, quick=quick)
    if results.rows:
        for line in strongest(results.rows):
            say(sentence(line))
        for line in linked(results.rows):
            say(linkage_sentence(line))
        for words in controls.spoken(controls.of_inference(results.rows)):
            say(words)
    draw(_paint, results, folder, say)


def controls_of(dataset: str, quick: bool) -> dict[str, tuple[str, ...]]:
    """Controls of the attacks on f everywhere, of those on counterfactuals on Adult."""
    return CONTROLS if dataset == "adult" and not quick else FEWER_CONTROLS


def parts_of(dataset: str, quick: bool) -> tuple[str, ...]:
    """What is measured of a dataset: `ADULT_ONLY` is not for others."""
    if dataset in {"mnist", "digits"}:
        return PICTURES
    parts = QUICK_PARTS if quick else tuple(PARTS)
    return tuple(part for part in parts if dataset == "adult" or part not in ADULT_ONLY)


def size_of(dataset: str, quick: bool) -> Size:
    """Pictures take a convolution a step, and dice-ml seconds a query: fewer of them."""
    size = replace(QUICK if quick else FULL, slow_queries=10 if quick else 50)
    if dataset in {"mnist", "digits"} and not quick:
        return replace(size, queries=(1000,), steps=400, batch=64, candidates=1000)
    return size


def measure_case(dataset: str, control: str, part: str, seed: int, *, quick: bool) -> list[Row]:
    """Every attack on the defences of one part."""
    size = size_of(dataset, quick)
    arena = Arena.of(dataset, seed, size, disjoint=control == "disjoint")
    recipe = BY_HEART if control == "overfitted" else None
    if recipe is not None:
        arena = overfitted(arena)
    if part == "none":
        rows = inference.on_model(arena, size, _silent, recipe)
        return [{"defence": "none", "epsilon": None, **row} for row in rows]
    defences, epsilon = PARTS[part]
    if dataset in {"mnist", "digits"} or control != "none":
        defences = defences[:1]  # guidance `model` alone: pictures take minutes
    shared: dict[int, Veil] = {}
    return [
        {"defence": defence.name, **budget_of(defence.name, epsilon), **row}
        for defence in sharing(defences, arena, epsilon, size)
        for row in inference.on_defence(
            arena, defence, size, _silent, epsilon=epsilon, recipe=recipe, veils=shared
        )
    ]


def _silent(words: str) -> None:
    pass


def _paint(rows: Sequence[Row], folder: Path) -> None:
    from counterveil_lab.attacks.forest import membership_figure
    from counterveil_lab.figures import save

    save(membership_figure(rows), folder / NAME)
