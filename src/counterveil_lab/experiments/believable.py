"""Whether answers can be believed, beside published methods that look at the real rows.

People whom f refuses ask for the class that they want, with personal features fixed. All methods
get the same people, the same f and the same fixed features; `counterveil_lab.believability` judges
what they answer and says what the columns mean. There are three kinds of f, and besides them the
private model of each veil, which is asked about the people whom it refuses itself, and is judged by
twins of the network: models of the real rows.

The part `functional` asks for believable answers, `nearest` for the nearest ones, `surrogate` for
believable ones without asking f, and `free` lets personal features change too.

Settings were chosen on the split of seed 0; the splits of the seeds from 1 on are measured.
`prefer`: what our search looks for. Slow methods get fewer queries: `queries` says how many. What a
method learns before its first answer is in `warm_up_seconds`; releases and the training of f are
not counted. dice-ml's k-d tree looks for the query's fixed values among the ten nearest rows alone.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import pandas as pd
import torch

from counterveil.encoding import Array
from counterveil.models import adapt
from counterveil.schema import Schema
from counterveil.search import Explainer, Explanations
from counterveil.veil import Veil
from counterveil_lab.baselines import Baseline, Cadex, Cchvae, Nice, Revise, Vae, train_vae
from counterveil_lab.baselines.dice import Method
from counterveil_lab.baselines.nice import Reward
from counterveil_lab.believability import KINDS, WISHES, Judges
from counterveil_lab.evaluation import AS_PUBLISHED
from counterveil_lab.experiments import peers, releases
from counterveil_lab.experiments.runner import Case, Experiment, Options, combined, figure
from counterveil_lab.metrics import timed
from counterveil_lab.results import Row

FIRST_SEED = 1  # seed 0 is for choosing
TABLES = ("adult", "hospital", "homecredit", "months")
EPSILONS = (0.025, 0.1, 0.75, 3.0)
PUBLISHED_EPSILON = 0.75
PRIVATE = "private model"  # in the place of a kind of f
NEAREST, SURROGATE, FREE = "nearest", "surrogate", "free"  # of the functional mechanism
PEERS = ("nice", "cadex", "vae", "dice")
DICE: dict[Method, int] = {"random": 100, "kdtree": 20, "genetic": 20}  # queries
REWARDS: tuple[Reward, ...] = ("none", "sparsity", "proximity", "plausibility")
VAE_EPOCHS = 10
TREE_QUERIES, TREE_SHELLS = 100, 200  # of C-CHVAE where f is slow
QUICK_QUERIES, QUICK_SLOW = 20, 2
Answer = Callable[[pd.DataFrame], tuple[pd.DataFrame, Array]]


def cases(options: Options) -> Iterator[Case]:
    """Every table, kind of f and method; the private model at every ε."""
    epsilons = (PUBLISHED_EPSILON,) if options.quick else EPSILONS
    asking = [(part, epsilon) for part in ("functional", NEAREST) for epsilon in epsilons]
    others = [
        *((SURROGATE, epsilon) for epsilon in epsilons),
        *((part, PUBLISHED_EPSILON) for part in (FREE, "paper")),
        *((part, None) for part in PEERS),
    ]
    names, kinds = options.names(TABLES, ("adult",)), (*KINDS, PRIVATE)
    for case in combined(seed=options.splits(FIRST_SEED), dataset=names, kind=kinds):
        for part, epsilon in asking if case["kind"] == PRIVATE else [*asking, *others]:
            yield {**case, "part": part, "epsilon": epsilon}


def measure_case(
    dataset: str, kind: str, part: str, epsilon: float | None, seed: int, *, quick: bool
) -> list[Row]:
    known = next((each for each in KINDS if each == kind), KINDS[0])
    judges = Judges.of(dataset, seed, known, quick=quick)
    if epsilon is None:
        return [_score_peer(judges, *asked) for asked in _peers(judges, part, seed, quick=quick)]
    if part == FREE:
        judges = replace(judges, fixed=())
    mechanism = "paper" if part == "paper" else "functional"
    made = releases.release(judges.data, mechanism, epsilon, seed, quick=quick)
    head = {**releases.head_of(made, mechanism), "mechanism": part if part == FREE else mechanism}
    guidance = "surrogate" if part == SURROGATE else "model"
    if kind == PRIVATE:
        judges, guidance = judges.of_model(made.veil.model(classes="even")), PRIVATE
        if not len(judges.queries):
            return [{**head, "guidance": guidance, "queries": 0}]
    explainer = _explainer(made.veil, judges, guidance)
    prefer = "nearest" if part == NEAREST else "believable"
    head |= {"guidance": guidance, "prefer": prefer}
    options: dict[str, Any] = {"prefer": prefer}
    if part == "paper":
        head["prefer"], options = "as published", {**AS_PUBLISHED, "prefer": "nearest"}
    return [head | _score(judges, partial(_explained, explainer, judges, **options))]


def _explainer(veil: Veil, judges: Judges, guidance: str) -> Explainer:
    """Whom the queries ask."""
    if guidance == "surrogate":
        return Explainer(veil, guidance="surrogate")
    return Explainer(veil, judges.model if guidance == PRIVATE else judges.f)


def _explained(
    explainer: Explainer, judges: Judges, queries: pd.DataFrame, **options: Any
) -> tuple[pd.DataFrame, Array]:
    """What an explainer answers, and which rows it calls answers."""
    result: Explanations = explainer.explain(
        queries, target=judges.target, immutable=judges.fixed, progress=False, **options
    )
    return result.rows, result.valid


def _score(judges: Judges, answer: Answer, warm_up: float = 0.0, count: int | None = None) -> Row:
    """The metrics of the answers to the first `count` queries; the first call is a warm-up."""
    queries = judges.queries.head(count or len(judges.queries))
    if not warm_up:
        _, warm_up = timed(lambda: answer(queries.head(2)))
    (rows, valid), seconds = timed(lambda: answer(queries))
    return {**judges.score(rows, valid, seconds), "warm_up_seconds": warm_up}


def _score_peer(judges: Judges, build: Callable[[], Baseline], count: int, about: Row) -> Row:
    """The metrics of a baseline asked the first `count` queries; `about` is added to its row.

    What it takes to build is its warm-up, with the seconds of `about` for what was built before.
    """
    method, seconds = timed(build)
    warm_up = about.pop("seconds_before", 0.0) + seconds

    def answer(queries: pd.DataFrame) -> tuple[pd.DataFrame, Array]:
        answers = method.explain(queries, torch.full((len(queries),), judges.target_number))
        return answers.rows, answers.found

    return {"method": method.name, **about, **_score(judges, answer, warm_up, count)}


def _peers(
    judges: Judges, part: str, seed: int, *, quick: bool
) -> Iterator[tuple[Callable[[], Baseline], int, Row]]:
    """How each method of a part is built, the number of its queries, and what its row says."""
    schema, train = with_fixed(judges.data.schema, judges.fixed), judges.data.train
    model, most = adapt(judges.model, schema), QUICK_QUERIES if quick else len(judges.queries)
    given = schema, model, train
    if part == "nice":
        for reward in REWARDS[:-1]:
            yield partial(Nice, *given, seed=seed, reward=reward), most, {}
    if part == "cadex" and model.differentiable:
        for threshold in (0.0, 0.5):
            yield partial(Cadex, *given, threshold=threshold), most, {}
    if part == "vae":
        vae, seconds = _vae(judges.data.name, seed, quick)
        before: Row = {"seconds_before": seconds}
        known: dict[str, Any] = {"seed": seed, "vae": vae}
        last = REWARDS[-1]
        yield partial(Nice, *given, reward=last, **known), most, dict(before)
        slow = not model.differentiable
        few, shells = (min(most, TREE_QUERIES), TREE_SHELLS) if slow else (most, 1000)
        few, shells = (QUICK_SLOW, 20) if quick else (few, shells)
        yield partial(Cchvae, *given, shells=shells, **known), few, {**before, "shells": shells}
        if model.differentiable:
            iterations = 50 if quick else 1000
            yield partial(Revise, *given, iterations=iterations, **known), most, dict(before)
    if part == "dice":
        for method, count in DICE.items():
            build = partial(peers.any_dice, *given, judges.model, method=method, seed=seed)
            yield build, QUICK_SLOW if quick else min(most, count), {}


@lru_cache(maxsize=1)
def _vae(dataset: str, seed: int, quick: bool) -> tuple[Vae, float]:
    """The autoencoder that three methods share, and the seconds that it took to train."""
    data = releases.data_for(dataset, seed, quick=quick)
    epochs = 1 if quick else VAE_EPOCHS
    return timed(lambda: train_vae(data.train, data.schema, seed=seed, epochs=epochs))


def with_fixed(schema: Schema, fixed: tuple[str, ...]) -> Schema:
    """The schema in which these features are immutable."""
    held = {each.name: each.immutable or each.name in fixed for each in schema.features}
    features = (each.model_copy(update={"immutable": held[each.name]}) for each in schema.features)
    return schema.model_copy(update={"features": tuple(features)})


def _why_not(case: Case) -> str | None:
    if case["dataset"] not in WISHES:
        return f"without {case['dataset']}: no class is known there that a person wants"
    return peers.why_no_dice() if case["part"] == "dice" else None


BELIEVABLE = Experiment(
    "whether answers can be believed: twins of f, another model and real rows judge them.",
    cases,
    measure_case,
    paint=figure("figures", "quality_over_epsilon", "believable"),
    why_not=_why_not,
    chosen_by=("part",),
)
