"""The part `peers` of `bench search`: published methods beside it; and what all parts share.

One f, the same queries towards the same classes, one run on one core. None of the other methods
promises any privacy. dice-ml takes seconds a query: it is timed on ten, and judged by 25.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from statistics import median
from typing import Any

import pandas as pd
from torch import Tensor, nn

from counterveil.curator import Curator
from counterveil.models import Rows, TargetModel, adapt
from counterveil.search import Explainer, Explanations
from counterveil.veil import Veil
from counterveil_lab.baselines import Baseline, Cadex, Cchvae, Dice, Revise, train_vae
from counterveil_lab.datasets import LOADERS, Dataset, load
from counterveil_lab.floor import SLOW_S
from counterveil_lab.metrics import measure
from counterveil_lab.results import Row
from counterveil_lab.targets import train_target

ALGORITHM_2 = 300  # iterations
WAYS: dict[str, dict[str, Any]] = {
    "counterveil": {},
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
    largest_batch: int = 16384
    features: tuple[int, ...] = (10, 40, 160, 640, 1500, 4000)
    most_mixed: int = 1500  # a mixed feature has 2.5 numbers
    rows: int = 2000
    datasets: tuple[str, ...] = tuple(LOADERS)
    iterations: int = ALGORITHM_2


QUICK = Size(
    epsilons=(0.75,), queries=20, train=2000, epochs=1, vae_epochs=1, repeats=2,
    dice_timed=1, dice_asked=1, largest_batch=16, features=(10,), rows=200,
    datasets=("digits",), iterations=20,
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """A dataset, f, and what is asked: for each query the class that f finds next likely."""

    data: Dataset
    model: nn.Module
    judge: TargetModel
    queries: pd.DataFrame
    reference: pd.DataFrame
    targets: Tensor

    @classmethod
    def of(cls, name: str, seed: int, size: Size) -> Setting:
        """f trained, queries held out."""
        data = load(name, seed=seed)
        data = replace(data, train=data.train.head(size.train or len(data.train)))
        model = train_target(data, seed=seed)
        judge = adapt(model, data.schema)
        count = min(size.queries, len(data.test) // 2)
        queries, reference = data.test.head(count), data.test.iloc[count:]
        order = judge.ask(Rows.of_frame(judge.encoding.pick(queries), judge.encoding)).argsort(
            dim=1
        )
        return cls(data, model, judge, queries, reference, order[:, -2])

    def release(self, epsilon: float, seed: int, size: Size) -> Veil:
        """A veil of the training rows."""
        return Curator(self.data.schema).release(
            self.data.train, epsilon, seed=seed, epochs=size.epochs, progress=False
        )

    def ask(self, explainer: Explainer, start: int, stop: int, **way: Any) -> Explanations:
        """Answers to some of the queries."""
        classes = self.data.schema.label.classes
        names = [classes[int(number)] for number in self.targets[start:stop]]
        return explainer.explain(self.queries.iloc[start:stop], names, progress=False, **way)


def peers(size: Size, seeds: int) -> Iterator[Row]:
    """Times with the first seed, quality with every one.

    `times_counterveil`: over counterveil's own time (polished, guidance model) at the same batch
    and ε; methods without an ε are compared with the slower of the two.
    """
    for seed in range(seeds):
        setting = Setting.of("adult", seed, size)
        slowest: dict[int, float] = {}
        for epsilon in size.epsilons:
            own: dict[int, float] = {}
            for row in _ours(setting, epsilon, seed, size):
                own.setdefault(row["batch"], row["seconds_per_query"])
                row["times_counterveil"] = row["seconds_per_query"] / own[row["batch"]]
                yield row
            slowest = {batch: max(own[batch], slowest.get(batch, 0)) for batch in own}
        for row in _theirs(setting, seed, size):
            row["times_counterveil"] = row["seconds_per_query"] / slowest[row["batch"]]
            yield row


def _ours(setting: Setting, epsilon: float, seed: int, size: Size) -> Iterator[Row]:
    veil = setting.release(epsilon, seed, size)
    about = head("adult", "counterveil", epsilon, seed)
    for guidance in ("model", "surrogate"):
        explainer = (
            Explainer(veil, setting.model)
            if guidance == "model"
            else Explainer(veil, guidance="surrogate")
        )
        learning = {"warm_up_seconds": warm_up(explainer)}
        for method, way in WAYS.items() if guidance == "model" else [("counterveil", {})]:

            def ask(
                start: int, stop: int, explainer: Explainer = explainer, way: Any = way
            ) -> Explanations:
                return setting.ask(explainer, start, stop, **way)

            result = ask(0, size.queries)
            quality = measure(result, setting.reference)
            if guidance == "surrogate":  # f is asked only when all is over
                agreed = (
                    setting.judge.ask(Rows.of_frame(result.rows, setting.judge.encoding)).argmax(
                        dim=1
                    )
                    == setting.targets
                )
                quality["flip_ratio"] = float((agreed.numpy() & result.valid).mean())
            for batch in (size.queries, *((10, 1) if seed == 0 else ())):
                yield {
                    **about, "method": method, "guidance": guidance,
                    "batch": batch, "timed_queries": batch * size.repeats,
                    **seconds(ask, batch, size.queries, size.repeats),
                    **(quality if batch == size.queries else {}), **learning,
                }  # fmt: skip


def _theirs(setting: Setting, seed: int, size: Size) -> Iterator[Row]:
    schema, judge, train = setting.data.schema, setting.judge, setting.data.train
    started = time.perf_counter()
    vae = train_vae(train, schema, seed=seed, epochs=size.vae_epochs)
    vae_seconds = time.perf_counter() - started
    baselines: list[Baseline] = [
        Cadex(schema, judge, train),
        Cadex(schema, judge, train, threshold=0.5),
        Cchvae(schema, judge, train, seed=seed, vae=vae),
        Revise(schema, judge, train, seed=seed, vae=vae),
    ]
    if find_spec("dice_ml") is not None:
        baselines += [Dice(schema, judge, train, seed=seed, method="random"),
                      Dice(schema, judge, train, seed=seed, method="gradient")]  # fmt: skip
    for baseline in baselines:
        is_dice, learns = isinstance(baseline, Dice), isinstance(baseline, (Cchvae, Revise))
        asked = size.dice_asked if is_dice else size.queries
        timed = size.dice_timed if is_dice else size.queries

        def ask(start: int, stop: int, baseline: Baseline = baseline) -> Any:
            return baseline.explain(setting.queries.iloc[start:stop], setting.targets[start:stop])

        quality = ask(0, asked).metrics(setting.reference)
        for batch in (size.queries, *((10, 1) if seed == 0 else ())):
            count = min(batch, timed)
            repeats = 1 if batch > 1 else 3
            yield {
                **head("adult", baseline.name, None, seed),
                "batch": batch, "timed_queries": count * repeats,
                **seconds(ask, count, asked, repeats, warm=0),
                **({**quality, "quality_queries": asked} if batch == size.queries else {}),
                **({"vae_seconds": vae_seconds} if learns else {}),
            }  # fmt: skip


def head(
    dataset: str, method: str, epsilon: float | None, seed: int = 0, guidance: str | None = "model"
) -> Row:
    """What a row is about; a method without an ε has no mechanism either."""
    private = epsilon is not None
    return {
        "dataset": dataset,
        "method": method,
        "mechanism": "functional" if private else None,
        "guidance": guidance if private else None,
        "epsilon": epsilon,
        "delta": 0.0 if private else None,
        "seed": seed,
    }


def warm_up(explainer: Explainer) -> float:
    """Seconds that the amortised search takes to learn."""
    started = time.perf_counter()
    explainer.warm_up(progress=False)
    return time.perf_counter() - started


def seconds(
    ask: Callable[[int, int], object], batch: int, asked: int, repeats: int, *, warm: int = 1
) -> Row:
    """Median seconds a query of calls with `batch` queries, other ones in every call.

    By the clock, and of the processor: the same on one thread, unless others use the machine too.
    Slow calls are repeated three times.
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
