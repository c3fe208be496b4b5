"""`table-ad`: the paper's table of average distances: ten counterfactuals a query.

The mean L2 distance from query to counterfactual over all answers that f accepts, of ten asked for.
`paper` is searched as published, again with features of earlier answers held; `answers_per_query`
says how many different answers there were. 100 held-out queries, 50 of pictures and sets of bits,
fewer for slow methods: `queries`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from counterveil_lab.experiments import peers, releases
from counterveil_lab.experiments.exam import AS_PUBLISHED, Exam
from counterveil_lab.experiments.runner import Say, datasets_of, only, repetitions, run_cases
from counterveil_lab.experiments.table_fr import parts
from counterveil_lab.experiments.tables import write_table
from counterveil_lab.results import Results, Row

ANSWERS = 10
QUERIES = {"mixed": 100, "image": 50, "binary": 50}
PUBLISHED = {
    "dice-gradient": ("1.32", "2.51", "2.02", "2.89", "2.90", "2.50"),
    "cadex-0": ("0.61", "1.54", "1.23", "1.81", "1.70", "2.10"),
    "cchvae": ("1.66", "2.68", "2.27", "3.04", "3.20", "2.70"),
    "revise": ("1.61", "2.70", "2.19", "3.09", "3.30", "2.60"),
    "paper, ε 0.025": ("1.62", "2.63", "2.25", "2.99", "3.00", "2.60"),
}


def run(
    folder: Path, command: str, *, seeds: int, quick: bool, workers: int, say: Say,
    datasets: Sequence[str] | None = None, mechanisms: Sequence[str] | None = None,
    add: bool = False,
) -> None:  # fmt: skip
    """Measure every case that is not stored yet."""
    results = Results(folder, "table-ad", command, keep=add)
    cases = [
        {"dataset": name, "part": part, "epsilon": epsilon, "seed": seed}
        for seed in repetitions(quick, seeds)
        for name in datasets_of(quick, datasets)
        for part, epsilon in parts(name, quick)
        if part != "dpsgd"
    ]
    try:
        run_cases(results, only(cases, "part", mechanisms), measure_case, workers=workers, say=say,
                  quick=quick)  # fmt: skip
    finally:
        write_table(results.rows, folder / "table-ad.md", ("distance",), PUBLISHED, full=100)


def measure_case(
    dataset: str, part: str, epsilon: float | None, seed: int, *, quick: bool
) -> list[Row]:
    """All rows of one part."""
    data = releases.data_for(dataset, seed, quick=quick)
    model = releases.target_for(data, seed)
    k = 3 if quick else ANSWERS
    exam = Exam.of(data, model, seed, queries=5 if quick else QUERIES[data.schema.family])
    if epsilon is None:
        asked = peers.QUICK if quick else peers.TEN_ANSWERS[data.schema.family]
        return [
            {"method": baseline.name, **about, **exam.theirs_of_several(baseline, count, k)}
            for baseline, count, about in peers.peers(exam, part, seed, asked, quick=quick)
        ]
    made = releases.release(data, part, epsilon, seed, quick=quick)
    head = {"method": "counterveil", "mechanism": part, "delta": releases.delta_of(part),
            "epochs": made.epochs}  # fmt: skip
    explainer = releases.explainer_for(made.veil, model, quick=quick)
    way = AS_PUBLISHED if part == "paper" else {}
    rows = [{**head, "guidance": "model", **exam.ours_of_several(explainer, k, **way)}]
    if made.veil.surrogate is not None:
        explainer = releases.explainer_for(made.veil, guidance="surrogate")
        rows.append({**head, "guidance": "surrogate", **exam.ours_of_several(explainer, k)})
    return rows
