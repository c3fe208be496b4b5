"""Positive controls: mechanisms with a known fault, which an audit worth its name must catch.

| control | the fault |
|---|---|
| halved sensitivity | noise of scale Δ/(2ε) where Δ/ε was due |
| halved noise of gradients | `dpsgd`: half of the calibrated noise on every step |
| halved noise of codes | `dpsgd`: half of the calibrated noise on the sums of codes |
| data-dependent min/max | bounds of a number are those of the rows, so one row moves every bin |
| un-noised prototypes | the population is private, the prototypes are means of the private rows |

Mechanism `paper` has the last fault, too. A control that is not caught says nothing about the
control: it says that the audit had too few draws, or is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.audit import dpsgd, neighbours
from counterveil.audit.functional import (
    COEFFICIENTS,
    Moved,
    differing,
    likelihood_scores,
    listen,
    moved_sums,
)
from counterveil.audit.game import Claim, Effort, Game, Scores
from counterveil.audit.neighbours import CLASSES, Pair
from counterveil.audit.releases import SHORT, release
from counterveil.build import fit_networks
from counterveil.curator.dpsgd import installed
from counterveil.curator.functional import measure
from counterveil.curator.plan import make_plan
from counterveil.curator.table import PrivateTable
from counterveil.networks import Autoencoder, class_means
from counterveil.population import population_of
from counterveil.privacy import Budget
from counterveil.schema import Label, Numeric, Schema

PROTOTYPES = "autoencoder + prototypes"


def games(epsilon: float, effort: Effort) -> Iterator[Game]:
    """One game against each control of `functional`, and of `dpsgd` where Opacus is installed."""
    pair, budget = neighbours.one_feature(), Budget(epsilon)
    draws, runs, rng = effort.draws, effort.runs, partial(effort.rng, epsilon)

    def halved() -> Scores:
        return likelihood_scores(_halved(moved_sums(pair, budget)), draws, rng("half"))

    def bounds() -> Scores:
        return likelihood_scores(learnt_bounds(budget), draws, rng("bounds"))

    game = partial(Game, claim=Claim(epsilon))
    yield game("control: halved sensitivity", COEFFICIENTS, pair.name, draws=draws, scores=halved)
    name, far = "control: data-dependent min/max", "one far number"
    yield game(name, COEFFICIENTS, far, draws=draws, scores=bounds)
    scores = partial(known_rows_scores, pair, partial(unnoised_prototypes, pair, budget), runs)
    name = "control: un-noised prototypes"
    yield game(name, PROTOTYPES, pair.name, draws=runs, scores=scores)
    if installed():
        yield from dpsgd_games(epsilon, effort)


def dpsgd_games(epsilon: float, effort: Effort) -> Iterator[Game]:
    """All of the budget on one kind of step of `dpsgd`, and half of the noise that is due."""
    budget, draws = Budget(epsilon, dpsgd.SHARP), effort.draws
    rng, game = partial(effort.rng, "dpsgd", epsilon), partial(Game, claim=Claim.of(budget))
    (pair, schedule), *_ = dpsgd.SCHEDULES.items()

    def gradients() -> Scores:
        training = dpsgd.canary_training(schedule, budget)
        return dpsgd.step_scores(training, draws, rng("half gradients"), noise_share=0.5)

    def codes() -> Scores:
        return likelihood_scores(_halved(dpsgd.moved_codes(budget)), draws, rng("half codes"))

    name = "control: halved noise of gradients"
    yield game(name, "gradients", pair, draws=draws, scores=gradients)
    name = "control: halved noise of codes"
    yield game(name, "sums of codes", dpsgd.CODES, draws=draws, scores=codes)


def paper_games(epsilon: float, effort: Effort) -> Iterator[Game]:
    """The game against mechanism `paper`, whose prototypes are exact means of encoded rows."""
    pair = neighbours.one_feature()

    def released(table: int) -> tuple[Autoencoder, Tensor]:
        veil = release(pair, Budget(epsilon), "paper", table)
        return veil.autoencoder, veil.prototypes

    scores = partial(known_rows_scores, pair, released, effort.runs)
    yield Game("paper", PROTOTYPES, pair.name, Claim(epsilon), effort.runs, scores)


def _halved(parts: list[Moved]) -> list[Moved]:
    """The same sums with half of the noise that is due: the true ε is twice the claimed one."""
    return [
        replace(part, measurement=replace(part.measurement, scale=part.measurement.scale / 2))
        for part in parts
    ]


def learnt_bounds(budget: Budget) -> list[Moved]:
    """Counts over bins between the least and the greatest number of the rows.

    D has one number far from all others. In D' it lies among them, so the bins are finer and every
    record changes its bin. The adversary sees the noisy counts alone, not even the bounds.
    """
    heard = []
    for last in (101.0, 11.0):
        numbers = [*np.linspace(1, 11, 40), last]
        schema = Schema(
            name="audit",
            features=(Numeric(name="x", lower=min(numbers), upper=max(numbers)),),
            label=Label(name="label", classes=CLASSES),
        )
        labels = [CLASSES[row % 2] for row in range(len(numbers))]
        table = PrivateTable(pd.DataFrame({"x": numbers, "label": labels}), schema)
        heard.append(listen(table, make_plan(schema, len(numbers), budget)))
    return differing(*heard)


def unnoised_prototypes(pair: Pair, budget: Budget, table: int) -> tuple[Autoencoder, Tensor]:
    """An autoencoder from a private population, and prototypes that are exact class means."""
    record = measure(pair.tables[table], pair.plan(budget))
    population, device = population_of(pair.schema, record), torch.device("cpu")
    networks = fit_networks(population, pair.schema, seed=0, device=device, training=SHORT)
    return networks.autoencoder, exact_means(pair, networks.autoencoder, table)


def exact_means(pair: Pair, autoencoder: Autoencoder, table: int) -> Tensor:
    """Class means of the encoded rows of D (table 0) or of D' (1) (Eq. prot_construct)."""
    points, labels = (torch.as_tensor(values) for values in pair.tables[table].private_rows())
    return class_means(autoencoder, points.float(), labels, len(pair.schema.label.classes))


def known_rows_scores(
    pair: Pair, released: Callable[[int], tuple[Autoencoder, Tensor]], runs: int
) -> Scores:
    """Scores by an adversary who knows both tables and is given an encoder and prototypes.

    With the encoder it computes the exact class means of D and of D' and looks which of them were
    released: 1 if the prototypes are nearer to those of D', −1 if to those of D, 0 if neither.
    Noise in the encoder's training is no protection against it. `released` makes an encoder and
    prototypes for D (0) or for D' (1).
    """
    scores = np.zeros((2, runs))
    for table, run in np.ndindex(2, runs):
        autoencoder, prototypes = released(table)
        one, two = ((exact_means(pair, autoencoder, x) - prototypes).norm() for x in (0, 1))
        scores[table, run] = np.sign(float(one) - float(two))
    return scores[0], scores[1]
