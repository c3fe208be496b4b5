"""Flip ratios, distances and times of every method: `table-fr`, `table-ad` and `fig-time`.

`table-fr` and `table-ad` are the paper's tables, on held-out queries, legal rows only. `functional`
also with guidance `surrogate`; `dpsgd` at ε .75, δ 1e-6. Slow methods get fewer queries: `queries`
says how many. dice-ml is asked until a time is over: `limited_by`.

In `table-fr` veils of `paper` and `functional` are searched in two ways (`search`): as published
(last iterate, nothing repaired, nothing polished) and in full, so that what the mechanism does can
be told from what the search does. `table-ad` asks for ten answers a query and
takes means over all of them that f accepts; each mechanism has its own search there.

`fig-time` is the paper's figure: seconds for ten queries, five runs of each method, one thread, one
process for all methods of a dataset and seed. Training, releases and what an explainer learns once
are not counted. dice-ml is timed on fewer queries (`timed_queries`) and counted up to ten. Times
compare inside one run of the command alone: `run`. On Adult, `paper` is also timed over ε and
without noise, 500 queries in a call (`part`).
"""

from collections.abc import Callable, Iterator
from functools import partial
from statistics import fmean
from typing import Any

import pandas as pd

from counterveil_lab.evaluation import AS_PUBLISHED, QUERIES, Evaluation
from counterveil_lab.experiments import peers, releases
from counterveil_lab.experiments.runner import Case, Experiment, Options, combined, figure
from counterveil_lab.metrics import timed
from counterveil_lab.paper_values import DATASETS
from counterveil_lab.results import Row

ORDER = (*DATASETS, "purchase-substitute", "texas-substitute", "digits")
PUBLISHED, FULL_SEARCH = "published", "full"
SEARCHES: dict[str, dict[str, Any]] = {PUBLISHED: AS_PUBLISHED, FULL_SEARCH: {}}
EPSILONS = (0.025, 0.75)
QUICK_QUERIES = 20
ANSWERS, QUICK_ANSWERS = 10, 3
SEVERAL_QUERIES = {"mixed": 100, "image": 50, "binary": 50}
QUICK_SEVERAL_QUERIES = 5

TIMED_QUERIES, RUNS = 10, 5
TIMED_EPSILON = 0.75
NOISES: tuple[releases.Epsilon, ...] = (releases.NO_NOISE, 1.0, 0.75, 0.025, 5e-4)
OVER_EPSILON = "over ε"  # what `part` says of a row with the time at one of these
DICE_QUERIES, DICE_RUNS = 1, 3
DICE_SECONDS = 60.0  # for one method on one dataset, one seed and one kind of class
Ask = Callable[[int, int], object]


def flip_cases(options: Options) -> Iterator[Case]:
    """Each mechanism at each ε, and each family of baselines, on every dataset."""
    private = [(part, epsilon) for part in ("paper", "functional") for epsilon in EPSILONS]
    private = [pair for pair in private if not options.quick or pair[1] == EPSILONS[-1]]
    for seed in options.repetitions:
        for name in options.names():
            for part, epsilon in [*private, ("dpsgd", 0.75), *((p, None) for p in peers.PARTS)]:
                yield {"dataset": name, "part": part, "epsilon": epsilon, "seed": seed}


def _why_not(case: Case) -> str | None:
    if case["part"] == "dice":
        return peers.why_no_dice()
    return releases.why_not(case["part"], case["dataset"])


def measure_answers(
    dataset: str, part: str, epsilon: float | None, seed: int, *, several: bool, quick: bool
) -> list[Row]:
    """One answer a query, or `several`, from all methods of one part."""
    data = releases.data_for(dataset, seed, quick=quick)
    family, k = data.schema.family, (QUICK_ANSWERS if quick else ANSWERS) if several else 1
    queries = SEVERAL_QUERIES[family] if several else QUERIES
    asked = (peers.TEN_ANSWERS if several else peers.ONE_ANSWER)[family]
    if quick:
        queries, asked = QUICK_SEVERAL_QUERIES if several else QUICK_QUERIES, peers.QUICK
    evaluation = Evaluation.of(data, releases.target_for(data, seed), seed, queries)
    if epsilon is None:
        limit = DICE_SECONDS if part == "dice" else None
        return [
            {"method": baseline.name, **about}
            | evaluation.score_baseline(baseline, count, k, limit=limit)
            for baseline, count, about in peers.peers(evaluation, part, seed, asked, quick=quick)
        ]
    made = releases.release(data, part, epsilon, seed, quick=quick)
    head = {**releases.head_of(made, part), "mechanism": part}
    if not several:
        head["release_seconds"] = made.seconds
    rows = []
    for guidance, explainer in releases.explainers_for(made.veil, evaluation.model):
        for search in _searches(part, guidance, several=several):
            scores = evaluation.score_explainer(explainer, k, **SEARCHES[search])
            rows.append({**head, "guidance": guidance, "search": search, **scores})
    return rows


def _searches(mechanism: str, guidance: str, *, several: bool) -> tuple[str, ...]:
    """How a veil is searched; the first is that of the mechanism itself."""
    own = PUBLISHED if mechanism == "paper" else FULL_SEARCH
    if several or guidance == "surrogate" or mechanism == "dpsgd":
        return (own,)
    return own, FULL_SEARCH if own == PUBLISHED else PUBLISHED


def time_cases(options: Options) -> Iterator[Case]:
    return combined(seed=options.repetitions, dataset=options.names(quick=("digits",)))


def measure_times(dataset: str, seed: int, *, quick: bool) -> list[Row]:
    queries = TIMED_QUERIES * (RUNS + 1)
    evaluation = releases.evaluation_for(dataset, seed, quick=quick, queries=queries)
    rows = []
    for row, ask in _timed_methods(evaluation, seed, quick):
        slow = row["method"].startswith("dice")
        count = DICE_QUERIES if slow else TIMED_QUERIES
        runs = 2 if quick else DICE_RUNS if slow else RUNS
        if not slow:
            ask(0, count)  # a first call loads and learns
        starts = [number * count for number in range(1, runs + 1)]  # other queries in every run
        times = [timed(partial(ask, start, start + count))[1] for start in starts]
        scale = TIMED_QUERIES / count
        row |= {"timed_queries": count, "runs": len(times), "seconds_for_ten": fmean(times) * scale}
        row["least_seconds_for_ten"] = min(times) * scale
        row["most_seconds_for_ten"] = max(times) * scale
        rows.append({**row, "seconds_per_query": fmean(times) / count})
    return rows + (_times_over_epsilon(seed, quick) if dataset == "adult" else [])


def _times_over_epsilon(seed: int, quick: bool) -> list[Row]:
    """How long the published search takes on veils of rising noise."""
    evaluation, rows = releases.evaluation_for("adult", seed, quick=quick), []
    for epsilon in NOISES:
        veil = releases.release(evaluation.data, "paper", epsilon, seed, quick=quick).veil
        _, explainer = next(releases.explainers_for(veil, evaluation.model))
        evaluation.explain(explainer, stop=2, **AS_PUBLISHED)  # a first call loads and learns
        _, seconds = timed(partial(evaluation.explain, explainer, **AS_PUBLISHED))
        row: Row = {"method": "counterveil", "mechanism": "paper", "epsilon": epsilon}
        row |= {"guidance": "model", "part": OVER_EPSILON}
        rows.append({**row, "seconds_per_query": seconds / len(evaluation.queries)})
    return rows


def _timed_methods(evaluation: Evaluation, seed: int, quick: bool) -> Iterator[tuple[Row, Ask]]:
    for mechanism in ("paper", "functional"):
        veil = releases.release(evaluation.data, mechanism, TIMED_EPSILON, seed, quick=quick).veil
        head = {"method": "counterveil", "mechanism": mechanism, "epsilon": TIMED_EPSILON}
        head["delta"] = releases.delta_of(mechanism)
        for guidance, explainer in releases.explainers_for(veil, evaluation.model):
            (search, *_) = _searches(mechanism, guidance, several=True)
            ask = partial(evaluation.explain, explainer, **SEARCHES[search])
            yield {**head, "guidance": guidance}, ask
    for part in peers.PARTS:
        if part == "dice" and peers.why_no_dice():
            continue
        for baseline, _, about in peers.peers(evaluation, part, seed, peers.QUICK, quick=quick):
            yield {"method": baseline.name, **about}, partial(evaluation.explain_by, baseline)
        for method in peers.dice_methods(evaluation.data.schema)[1:] if part == "dice" else ():
            another = peers.dice(evaluation, method, seed)
            yield {"method": another.name}, partial(evaluation.explain_by, another)


def name_of(row: Row) -> str:
    """The method of a row in words: mechanism, guidance and ε of ours."""
    if pd.isna(row.get("mechanism")):
        return str(row["method"])
    words = f"{row['mechanism']}{' (surrogate)' if row.get('guidance') == 'surrogate' else ''}"
    own = PUBLISHED if row["mechanism"] == "paper" else FULL_SEARCH
    if row.get("search") not in {None, own}:
        words += f", {row['search']} search"
    return words if pd.isna(row.get("epsilon")) else f"{words}, ε {row['epsilon']}"


TABLE_FR = Experiment(
    "the paper's table of flip ratios: every method, every dataset.",
    flip_cases,
    partial(measure_answers, several=False),
    why_not=_why_not,
    chosen_by=("part",),
)
TABLE_AD = Experiment(
    "the paper's table of average distances: ten counterfactuals a query.",
    lambda options: (case for case in flip_cases(options) if case["part"] != "dpsgd"),
    partial(measure_answers, several=True),
    why_not=_why_not,
    chosen_by=("part",),
)
FIG_TIME = Experiment(
    "the paper's figure of time costs: seconds for ten queries, five runs of each method.",
    time_cases,
    measure_times,
    paint=figure("figures_experiments", "times", "fig-time"),
    chosen_by=(),
    stamped=True,
)
