"""`fig-tradeoff`: what answers are worth to people, against what they are worth to a thief of f.

One veil of Adult. An answer serves a person if f accepts it (`flip_ratio`); it serves a thief if
the model that he builds agrees with f (`fidelity`, the strongest attacker). Two things move both:
the `margin`, how sure of an answer the search must be, and the guidance: f itself, or the surrogate
of the veil, which knows nothing of f.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from counterveil.curator import Curator
from counterveil_lab.attacks.defences import ByVeil, build
from counterveil_lab.attacks.extraction import extract
from counterveil_lab.attacks.protocol import FULL, QUICK, Arena
from counterveil_lab.experiments.runner import Say, draw, repetitions, run_cases
from counterveil_lab.results import Results, Row

NAME = "fig-tradeoff"
EPSILON = 0.75
MARGINS = (0.0, 0.6, 0.7, 0.8, 0.9, 0.95)
QUERIES = 500
GUIDANCES = {"model": "functional-model", "surrogate": "functional-surrogate"}
SETTINGS = (("known", "probabilities"), ("known", "labels"))


def run(
    folder: Path, command: str, *, seeds: int, quick: bool, workers: int, say: Say,
    datasets: tuple[str, ...] | None = None, add: bool = False,
) -> None:  # fmt: skip
    """Measure every case that is not stored yet."""
    results = Results(folder, NAME, command, keep=add)
    cases = [
        {"dataset": name, "seed": seed}
        for name in datasets or ("adult",)
        for seed in repetitions(quick, seeds)
    ]
    run_cases(results, cases, measure_case, workers=workers, say=say, quick=quick)
    draw(_paint, results, folder, say)


def measure_case(dataset: str, seed: int, *, quick: bool) -> list[Row]:
    """Both guidances at every margin, on one veil."""
    size = replace(QUICK if quick else FULL, queries=(QUERIES,))
    arena = Arena.of(dataset, seed, size)
    veil = Curator(arena.schema).release(
        arena.d1, EPSILON, seed=seed, epochs=size.epochs, progress=False
    )
    rows: list[Row] = []
    for guidance, name in GUIDANCES.items():
        defence = build(name, arena, epsilon=EPSILON, size=size, veil=veil)
        assert isinstance(defence, ByVeil)
        for margin in MARGINS[::5] if quick else MARGINS:
            asked = replace(defence, way={"margin": margin})
            found = extract(asked, size, epsilon=EPSILON, settings=SETTINGS)
            rows += [{"guidance": guidance, "margin": margin, **row} for row in found]
    return rows


def _paint(rows: Sequence[Row], folder: Path) -> None:
    from counterveil_lab.attacks.pictures import tradeoff_figure
    from counterveil_lab.figures import save

    save(tradeoff_figure(rows), folder / NAME)
