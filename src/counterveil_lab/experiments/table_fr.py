"""`table-fr`: the paper's table of flip ratios: every method, every dataset.

500 held-out queries, legal rows only, unspecified and, with many classes, a class drawn at random.
Mechanism `paper` is searched as published (last iterate, nothing repaired); `functional` with both
guidances; `dpsgd` at ε .75, δ 1e-6, where a release takes less than ten minutes. Methods without an
ε promise no privacy, and slow ones get fewer queries: `queries` says how many. `epochs`: of the
paper's autoencoder, fewer than published. CADEX at .5 differs from 0 only where there are
categories.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from counterveil_lab.experiments import peers, releases
from counterveil_lab.experiments.exam import AS_PUBLISHED, QUERIES, QUICK_QUERIES, Exam
from counterveil_lab.experiments.runner import Say, datasets_of, only, repetitions, run_cases
from counterveil_lab.experiments.tables import write_table
from counterveil_lab.results import Results, Row

EPSILONS = (0.025, 0.75)
PUBLISHED: dict[str, tuple[str, ...]] = {  # unspecified/specified, as printed
    "dice-gradient": ("0.972", "0.892", "0.902", "0.812/0.204", "0.778/0.056", "0.656/0.018"),
    "cadex-0": ("0.926", "0.810", "0.878", "0.724/0.138", "0.744/0.028", "0.624/0.012"),
    "cchvae": ("0.946", "0.838", "0.862", "0.788/0.412", "0.822/0.126", "0.728/0.104"),
    "revise": ("0.902", "0.788", "0.832", "0.682/0.316", "0.734/0.166", "0.764/0.138"),
    "paper, ε 0.025": ("0.918", "0.826", "0.868", "0.756/0.720", "0.722/0.382", "0.706/0.370"),
    "paper, ε 0.75": ("0.968", "0.884", "0.908", "0.790/0.742", "0.772/0.406", "0.736/0.402"),
}


def run(
    folder: Path, command: str, *, seeds: int, quick: bool, workers: int, say: Say,
    datasets: Sequence[str] | None = None, mechanisms: Sequence[str] | None = None,
    add: bool = False,
) -> None:  # fmt: skip
    """Measure every case that is not stored yet."""
    results = Results(folder, "table-fr", command, keep=add)
    names = datasets_of(quick, datasets)
    for reason in reasons(names):
        say(reason)
    cases = [
        {"dataset": name, "part": part, "epsilon": epsilon, "seed": seed}
        for seed in repetitions(quick, seeds)
        for name in names
        for part, epsilon in parts(name, quick)
    ]
    try:
        run_cases(results, only(cases, "part", mechanisms), measure_case, workers=workers, say=say,
                  quick=quick)  # fmt: skip
    finally:
        write_table(results.rows, folder / "table-fr.md", ("flip_ratio", "flip_ratio_specified"),
                    PUBLISHED)  # fmt: skip


def reasons(datasets: Sequence[str]) -> list[str]:
    """Why some methods are not in the table, or not on every dataset."""
    every = [peers.why_no_dice(), *(releases.why_not("dpsgd", name) for name in datasets)]
    return [reason for reason in dict.fromkeys(every) if reason]


def parts(dataset: str, quick: bool) -> list[tuple[str, float | None]]:
    """What is measured of a dataset, with the ε of each; each part is a case of its own."""
    private: list[tuple[str, float | None]] = [
        (mechanism, epsilon)
        for mechanism in ("paper", "functional")
        for epsilon in (EPSILONS[1:] if quick else EPSILONS)
    ]
    without = {"dpsgd": releases.why_not("dpsgd", dataset), "dice": peers.why_no_dice()}
    every = [*private, ("dpsgd", 0.75), *((part, None) for part in peers.PARTS)]
    return [(part, epsilon) for part, epsilon in every if not without.get(part)]


def measure_case(
    dataset: str, part: str, epsilon: float | None, seed: int, *, quick: bool
) -> list[Row]:
    """All rows of one part."""
    data = releases.data_for(dataset, seed, quick=quick)
    model = releases.target_for(data, seed)
    exam = Exam.of(data, model, seed, queries=QUICK_QUERIES if quick else QUERIES)
    if epsilon is None:
        asked = peers.QUICK if quick else peers.ONE_ANSWER[data.schema.family]
        return [
            {"method": baseline.name, **about, **exam.theirs(baseline, count)}
            for baseline, count, about in peers.peers(exam, part, seed, asked, quick=quick)
        ]
    made = releases.release(data, part, epsilon, seed, quick=quick)
    head = {"method": "counterveil", "mechanism": part, "delta": releases.delta_of(part),
            "epochs": made.epochs, "release_seconds": made.seconds}  # fmt: skip
    way = AS_PUBLISHED if part == "paper" else {}
    explainer = releases.explainer_for(made.veil, model, quick=quick)
    rows = [{**head, "guidance": "model", **exam.ours(explainer, **way)}]
    if made.veil.surrogate is not None:
        explainer = releases.explainer_for(made.veil, guidance="surrogate")
        rows.append({**head, "guidance": "surrogate", **exam.ours(explainer)})
    return rows
