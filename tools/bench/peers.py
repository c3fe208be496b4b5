"""The parts `peers` and `warm-up` of `bench search`, and what all parts share.

`peers`: published methods beside counterveil: one f, the same queries towards the same classes, one
run on one core. dice-ml takes seconds a query: it is timed on ten, and judged by 25.
`warm-up`: the same on four datasets, with what a method learns before its first answer:
`milliseconds_of_N` is a query's share of learning and asking, N queries in all. dice-ml is left out
on images, where a query takes it minutes.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from itertools import chain
from statistics import median
from typing import Any

from bench import SLOW_S, head
from counterveil.curator import Curator
from counterveil.search import Explainer
from counterveil.search.options import Prefer
from counterveil.veil import Veil
from counterveil_lab.baselines import Baseline, Cadex, Cchvae, Dice, Revise, train_vae
from counterveil_lab.datasets import DatasetMissing, load
from counterveil_lab.evaluation import Evaluation
from counterveil_lab.experiments.peers import CompleteDice, dice
from counterveil_lab.metrics import measure, timed
from counterveil_lab.results import Row
from counterveil_lab.targets import train_target

EPSILON = 0.75
WARM_UP_ON = ("adult", "hospital", "homecredit", "mnist")
SHARED_OVER = (500, 50_000)  # queries
ALGORITHM_2 = 300  # iterations
WIDE, WIDE_ASKED = 200, 40  # encoded numbers, beyond which C-CHVAE and REVISE get so few queries
Ask = Callable[[int, int], object]  # asks the queries from start to stop
METHODS: dict[str, dict[str, Any]] = {
    "counterveil": {"prefer": "nearest"},
    "counterveil-unpolished": {"polish": False},
    "algorithm-2": {"method": "iterations", "iterations": ALGORITHM_2, "polish": False},
}


@dataclass(frozen=True)
class Size:
    """How much to measure; dice-ml takes seconds a query and gets fewer."""

    epsilons: tuple[float, ...] = (0.025, 0.75)
    queries: int = 500
    train: int | None = None
    epochs: int | None = None
    vae_epochs: int = 10
    repeats: int = 15
    dice_timed: int = 10
    dice_asked: int = 25
    datasets: tuple[str, ...] = WARM_UP_ON


_SMALL = Size(epsilons=(0.75,), queries=20, train=2000, epochs=1, vae_epochs=1, repeats=2)
QUICK = replace(_SMALL, dice_timed=1, dice_asked=1, datasets=("digits",))


def evaluation_of(name: str, seed: int, size: Size) -> Evaluation:
    """A dataset with f trained and queries held out."""
    data = load(name, seed=seed)
    data = replace(data, train=data.train.head(size.train or len(data.train)))
    return Evaluation.of(data, train_target(data, seed=seed), seed, queries=size.queries)


def release(evaluation: Evaluation, epsilon: float, seed: int, size: Size) -> Veil:
    """A veil of the training rows."""
    curator, train = Curator(evaluation.data.schema), evaluation.data.train
    return curator.release(train, epsilon, seed=seed, epochs=size.epochs, progress=False)


def warm_up(explainer: Explainer, prefer: Prefer) -> float:
    """Seconds until an explainer has learnt one of its searches."""
    return timed(partial(explainer.warm_up, prefer=prefer, progress=False))[1]


def seconds(ask: Ask, batch: int, asked: int, repeats: int, *, warm: int = 1) -> Row:
    """Median seconds a query of calls `ask(start, stop)` with `batch` queries, others in each call.

    By the clock, and of the processor: the same on one thread, unless others use the machine too.
    The first `warm` calls do not count; slow calls are repeated three times.
    """
    by_clock, by_processor = [], []
    for number in range(-warm, repeats):
        start = number * batch % (asked - batch + 1)
        clock, processor = time.perf_counter(), time.process_time()
        ask(start, start + batch)
        by_clock.append(time.perf_counter() - clock)
        by_processor.append(time.process_time() - processor)
        if number >= 2 and sum(by_clock) > SLOW_S:
            break
    return {
        "seconds_per_query": median(by_clock[warm:]) / batch,
        "cpu_seconds_per_query": median(by_processor[warm:]) / batch,
    }


def peers(size: Size, seeds: int) -> Iterator[Row]:
    """Times with the first seed, quality with every one.

    `times_counterveil`: over counterveil's own time (polished, guidance model) at the same batch
    and ε; methods without an ε are compared with the slower of the two.
    """
    for seed in range(seeds):
        evaluation = evaluation_of("adult", seed, size)
        slowest: dict[int, float] = {}
        for epsilon in size.epsilons:
            own: dict[int, float] = {}
            for row in _counterveil(evaluation, epsilon, seed, size):
                own.setdefault(row["batch"], row["seconds_per_query"])
                yield {**row, "times_counterveil": row["seconds_per_query"] / own[row["batch"]]}
            slowest = {batch: max(own[batch], slowest.get(batch, 0)) for batch in own}
        for row in _baselines(evaluation, seed, size, _batches(size, seed)):
            yield {**row, "times_counterveil": row["seconds_per_query"] / slowest[row["batch"]]}


def _batches(size: Size, seed: int) -> tuple[int, ...]:
    return (size.queries, 10, 1) if seed == 0 else (size.queries,)


def _counterveil(evaluation: Evaluation, epsilon: float, seed: int, size: Size) -> Iterator[Row]:
    veil = release(evaluation, epsilon, seed, size)
    for guidance in ("model", "surrogate"):
        of_f = {"model": evaluation.model} if guidance == "model" else {"guidance": "surrogate"}
        explainer = Explainer(veil, **of_f)
        learning = {"warm_up_seconds": warm_up(explainer, "nearest")}
        for method in METHODS if guidance == "model" else ("counterveil",):
            ask: Ask = partial(evaluation.explain, explainer, **METHODS[method])
            result = evaluation.explain(explainer, **METHODS[method])
            quality = measure(result, evaluation.reference)
            quality["flip_ratio"] = float(evaluation.accepted(result).mean())
            for batch in _batches(size, seed):
                row = head("adult", method, epsilon, seed, guidance)
                row |= {"batch": batch, "timed_queries": batch * size.repeats}
                row |= seconds(ask, batch, size.queries, size.repeats)
                yield {**row, **(quality if batch == size.queries else {}), **learning}


def _baselines(
    evaluation: Evaluation, seed: int, size: Size, batches: tuple[int, ...]
) -> Iterator[Row]:
    schema, train = evaluation.data.schema, evaluation.data.train
    given = schema, evaluation.judge, train
    vae, spent = timed(partial(train_vae, train, schema, seed=seed, epochs=size.vae_epochs))
    baselines: list[Baseline] = [Cadex(*given), Cadex(*given, threshold=0.5)]
    baselines += [Cchvae(*given, seed=seed, vae=vae), Revise(*given, seed=seed, vae=vae)]
    if find_spec("dice_ml") is not None and schema.family == "mixed":
        baselines += [dice(evaluation, method, seed) for method in ("random", "gradient")]
    for baseline in baselines:
        is_dice = isinstance(baseline, (Dice, CompleteDice))
        asked = size.dice_asked if is_dice else size.queries
        if schema.width > WIDE and isinstance(baseline, (Cchvae, Revise)):
            asked = min(asked, WIDE_ASKED)
        learning = {"warm_up_seconds": spent} if isinstance(baseline, (Cchvae, Revise)) else {}
        ask = partial(evaluation.explain_by, baseline)
        quality = {**ask(0, asked).metrics(evaluation.reference), "quality_queries": asked}
        for batch in batches:
            count = min(batch, size.dice_timed if is_dice else asked)
            repeats = 1 if batch > 1 else 3
            row = head("adult", baseline.name, None, seed)
            row |= {"batch": batch, "timed_queries": count * repeats}
            row |= seconds(ask, count, asked, repeats, warm=0)
            yield {**row, **(quality if batch == size.queries else {}), **learning}


def with_warm_up(size: Size, seeds: int) -> Iterator[Row]:
    """One seed, ε = .75, the usual queries in one call."""
    for name in size.datasets:
        try:
            evaluation = evaluation_of(name, 0, size)
        except DatasetMissing:
            continue
        own = _own_searches(evaluation, name, size)
        for row in chain(own, _baselines(evaluation, 0, size, (size.queries,))):
            learnt, each = row.get("warm_up_seconds") or 0.0, row["seconds_per_query"]
            told: Row = {**row, "dataset": name, "warm_up_seconds": learnt}
            for queries in SHARED_OVER:
                told[f"milliseconds_of_{queries}"] = 1000 * (learnt / queries + each)
            yield told


def _own_searches(evaluation: Evaluation, name: str, size: Size) -> Iterator[Row]:
    veil = release(evaluation, EPSILON, 0, size)
    for method, options in {"counterveil-believable": {"prefer": "believable"}, **METHODS}.items():
        explainer = Explainer(veil, evaluation.model)
        prefer: Prefer = options.get("prefer", "nearest")
        learns = options.get("method") != "iterations"
        row = {**head(name, method, EPSILON), "batch": size.queries}
        row["warm_up_seconds"] = warm_up(explainer, prefer) if learns else 0
        ask: Ask = partial(evaluation.explain, explainer, **options)
        row |= seconds(ask, size.queries, size.queries, size.repeats)
        yield row | measure(evaluation.explain(explainer, **options), evaluation.reference)
