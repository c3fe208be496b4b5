"""Cases of the product: what goes in is made in `tiny`, what comes out is named by each case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from counterveil import Explainer, Rules, networks
from counterveil.build import TRAININGS
from counterveil.curator import dpsgd, functional, paper
from counterveil.curator.noise import NoiseSource, calibrate
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array, Encoding
from counterveil.models import Rows, adapt
from counterveil.population import MixedPopulation, population_of
from counterveil.privacy import Budget, Share
from counterveil.privacy.record import Measurement, Sensitivity, spent_by
from counterveil.search.options import SearchOptions
from counterveil_lab.behaviour.tiny import (
    BITS,
    CPU,
    IMAGE,
    MIXED,
    SCHEMAS,
    model,
    points,
    record,
    rows,
    veil,
)

RULES = Rules(
    max_changes=4,
    costs={"income": 2.0},
    steps={"income": 5},
    direction={"income": "increase"},
    allowed={"rent": (0, 90)},
    relations=[["rent", "<=", "income"]],
    together=[["rent", "member"]],
)
MANY = 1_000_000  # rows that a plan is made for: so many that it takes all steps


def encoding() -> Any:
    """Encoded and compact rows, labels, and the rows that any points decode to, of each family."""
    found = []
    for schema in SCHEMAS:
        coder, table = Encoding(schema), rows(schema, 12)
        encoded = coder.encode(table)
        anywhere = np.random.default_rng(1).random((6, schema.width))
        found += [encoded, coder.labels(table), coder.compact(encoded)]
        found += [coder.decode(encoded), coder.decode(anywhere)]
    return found


def training() -> Any:
    """What an autoencoder, a dense and a convolutional f~ give after a few steps, in float64."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        some, images, classes = points(MIXED, 60), points(IMAGE, 60), torch.arange(60) % 2
        coder = networks.Autoencoder.new(MIXED.width, (6, 3), 0)

        def loss_of(numbers: torch.Tensor) -> torch.Tensor:
            return (coder(some[numbers]) - some[numbers]).square().mean()

        networks.fit(coder, loss_of, len(some), epochs=2, batch=16, rate=5e-3, seed=1)
        learn: Any = partial(networks.train_surrogate, epochs=2, seed=0)
        dense = learn(some, classes, 2, hidden=(4,))(some[:4])
        seen = learn(images, classes, 2, hidden=(2, 3, 4), image=IMAGE.images[0])(images[:4])
        means = networks.class_means(coder, some, classes, 2)
        return [coder(some[:4]), means, dense, seen, networks.ARCHITECTURES, TRAININGS]
    finally:
        torch.set_default_dtype(usual)


def population() -> Any:
    """Rows drawn from P~ of each family and class shares; of a mixed table also its densities."""
    found: list[Any] = []
    for schema in SCHEMAS:
        people = population_of(schema, record(schema))
        drawn, classes = people.sample(30, np.random.default_rng(2))
        found += [drawn, classes, people.class_share]
        if isinstance(people, MixedPopulation):
            density = people.log_density(Encoding(schema).encode(rows(schema, 12)))
            found += [density, people.percentiles(0), people.percentiles(1, of_class=1)]
    return found


def models() -> Any:
    """Log-probabilities of a network, an estimator and a function, and of the private models."""
    from sklearn.linear_model import LogisticRegression

    table, released = rows(MIXED, 12), veil(MIXED)
    asked = Rows.of_frame(table, Encoding(MIXED))
    to_the_end = LogisticRegression(tol=1e-10, max_iter=10_000)  # on every machine the same
    fitted = to_the_end.fit(points(MIXED, 60).numpy(), rows(MIXED, 60)["loan"])
    answers: list[Any] = [
        adapt(each, MIXED).ask(asked) for each in (model(MIXED), fitted, _by_income)
    ]
    answers += [released.model(weigh).predict_proba(table) for weigh in ("even", "population")]
    return answers + [veil(each).model().predict_proba(rows(each, 6)) for each in (BITS, IMAGE)]


def _by_income(table: Any) -> Array:
    granted = (np.asarray(table["income"], dtype=float) + 1) / 102
    return np.stack([1 - granted, granted], axis=1)


def believable() -> Any:
    """Believable answers: of a mixed table by each guidance, without rules and with; of images."""
    found, released = list[Any](), veil(MIXED)
    for explainer in (Explainer(released, model(MIXED)), Explainer(released, guidance="surrogate")):
        found += [_asked(explainer, k=2), _asked(explainer, rules=RULES, target="granted")]
    return [*found, _asked(Explainer(veil(IMAGE), model(IMAGE)))]


def nearest() -> Any:
    """Nearest answers by Algorithm 2, in full and as published; of a mixed table with rules."""
    found, by = list[Any](), {"prefer": "nearest", "method": "iterations"}
    for schema in SCHEMAS:
        explainer = Explainer(veil(schema), model(schema))
        ask = partial(_asked, explainer, **by, iterations=40)
        found += [ask(), ask(keep="last", polish=False)]
        if schema is MIXED:
            found += [ask(k=2), ask(rules=RULES, target="granted")]
        if schema is BITS:  # as many iterations, and by the method, that are usual
            usual = explainer.options(SearchOptions(prefer="nearest"))
            found += [_asked(explainer, **by), getattr(usual, "method", by["method"])]
    return found


def _asked(explainer: Explainer, **options: Any) -> Any:
    """The summary of the answers to a few queries, with what they are worth, and the changes."""
    queries = rows(explainer.veil.schema, 5, seed=6)
    given = explainer.explain(queries, progress=False, **options)
    changes = given.changes().drop(columns=["low", "high", "values"])
    return [given.summary().drop(columns="reason", errors="ignore"), changes]


def regions() -> Any:
    """Regions of answers in a mixed table: of a network, and of the private model."""
    released, queries = veil(MIXED), rows(MIXED, 5, seed=6)
    found = [
        Explainer(released, each).explain(queries, "granted", progress=False)
        for each in (model(MIXED), None)
    ]
    return [each.region_of(at) for each in found for at in each.found.tolist()]


class Quiet(NoiseSource):
    """A source of noise that adds none and chooses the highest score."""

    def perturb(
        self, name: str, what: str, exact: Array, sensitivity: Sensitivity, share: Share
    ) -> Measurement:
        noise = calibrate(sensitivity.l1, sensitivity.l2, share)
        spent = spent_by(noise.share)
        return Measurement(name, what, exact, sensitivity, noise.kind, noise.scale, **spent)

    def choose(self, scores: Sequence[int], sensitivity: int, share: Share) -> int:
        return int(np.argmax(scores))


def mechanism() -> Any:
    """Plans, exact sums with their sensitivity and noise, P~ of them, and prototypes of `paper`.

    Of each family, with and without δ. Words are left out.
    """
    found: list[Any] = []
    for schema in SCHEMAS:
        for budget in (Budget(1.0), Budget(1.0, 1e-6)):
            plan = functional.make_plan(schema, MANY, budget, records=2)
            table = rows(schema, 60).assign(who=np.arange(60) // 3)
            private = PrivateTable(table, schema, unit_column="who", max_records=2)
            noisy = functional.measure(private, plan, Quiet())
            told = replace(plan, reasons=(), warnings=())
            # A plan without groups is the plan that it was before there were any.
            found.append([value for name, value in vars(told).items() if name != "groups" or value])
            found += [replace(each, what="") for each in noisy.measurements]
            if not noisy.features:
                found.append(population_of(schema, noisy).sample(20, np.random.default_rng(0)))
    private, short = PrivateTable(rows(MIXED, 60), MIXED), networks.Architecture((6, 3), 1, 16)
    by: Any = {"seed": 0, "device": CPU, "noise": lambda scale, size: torch.full((size,), scale)}
    for budget in (Budget(1.0), Budget(float("inf"))):
        found.append(paper.build_prototypes(private, budget, short, **by)[1])
    found += [dpsgd.split(Budget(1.0, 1e-6)), dpsgd.CodeSums(3, 2).sensitivity]
    return [*found, dpsgd.ARCHITECTURES, dpsgd.CLIP]


def audit() -> Any:
    """What games certify about noise of the stated scale and about less, and what checks find."""
    from counterveil.audit import checks, concentrated, neighbours
    from counterveil.audit.functional import likelihood_scores, moved_sums
    from counterveil.audit.game import Claim, play

    pair, budget, found = neighbours.wide(), Budget(1.0), list[Any]()
    moved = moved_sums(pair, budget)
    for share in (1.0, 0.2):
        rng = np.random.default_rng(0)
        scores = likelihood_scores(moved, 2000, rng, noise_share=share)
        found += [scores[0][:9], play(*scores, Claim(1.0))]
    for check in (checks.noise_alone, checks.adds_by_itself, checks.noise_is_enough):
        found.append(list(check(pair, budget)))
    return [*found, concentrated.epsilon_of(0.1, 1e-6), checks.gaussian_delta(1.0, 1.0)]
