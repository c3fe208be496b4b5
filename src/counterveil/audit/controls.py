"""Positive controls: mechanisms with a known fault, which an audit worth its name must catch.

| control | the fault |
|---|---|
| halved sensitivity | noise of scale Δ/(2ε) where Δ/ε was due |
| halved noise of gradients | `dpsgd`: half of the calibrated noise on every step |
| halved noise of codes | `dpsgd`: half of the calibrated noise on the sums of codes |
| data-dependent min/max | bounds of a number are those of the rows, so one row moves every bin |
| un-noised prototypes | the population is private, the prototypes are means of the private rows |

The mechanism `paper` is one more. A control that is not caught says nothing about the control:
it says that the audit had too few draws, or is broken.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from counterveil.audit.coefficients import (
    Moved,
    Scores,
    by_twin,
    heard_in_both,
    likelihood_scores,
    moved,
)
from counterveil.audit.gradients import Training, heard_training, moved_codes, step_scores
from counterveil.audit.releases import SHORT, KnownRows
from counterveil.audit.tap import listen
from counterveil.audit.worlds import CLASSES, Pair
from counterveil.build import fit_networks
from counterveil.curator import functional
from counterveil.curator.plan import make_plan
from counterveil.curator.table import PrivateTable
from counterveil.population import population_of
from counterveil.privacy import Budget
from counterveil.schema import Label, Numeric, Schema


def halved_sensitivity(pair: Pair, budget: Budget, draws: int, rng: np.random.Generator) -> Scores:
    """Half of the noise that is due: the true ε is twice the claimed one."""
    parts = [_with_half_the_noise(part) for part in moved(*heard_in_both(pair, budget))]
    return likelihood_scores(parts, draws, by_twin(rng))


def halved_gradients(training: Training, draws: int, rng: np.random.Generator) -> Scores:
    """Half of the noise that `dpsgd` calibrated for its steps."""
    heard = heard_training(training)
    return step_scores(replace(heard, deviation=heard.deviation / 2), draws, rng)


def halved_codes(budget: Budget, draws: int, rng: np.random.Generator) -> Scores:
    """Half of the noise that `dpsgd` calibrated for its sums of codes."""
    part = _with_half_the_noise(moved_codes(budget))
    return likelihood_scores([part], draws, by_twin(rng))


def _with_half_the_noise(part: Moved) -> Moved:
    return replace(part, noise=replace(part.noise, scale=part.noise.scale / 2))


def learnt_bounds(budget: Budget, draws: int, rng: np.random.Generator) -> Scores:
    """Counts over bins between the least and the greatest number of the rows.

    D has one number far from all others, D' has it among them: its bins are finer, and every record
    changes place. The adversary sees the noisy counts alone, not even the bounds.
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
    return likelihood_scores(moved(*heard), draws, by_twin(rng))


def unnoised_prototypes(pair: Pair, budget: Budget, runs: int) -> Scores:
    """Private population, private autoencoder, and prototypes that are exact class means."""
    plan, adversary = pair.plan(budget), KnownRows(pair)
    worlds = np.zeros((2, runs))
    for world, table in enumerate(pair.tables):
        for run in range(runs):
            population = population_of(pair.schema, functional.measure(table, plan))
            made = fit_networks(
                population, pair.schema, seed=0, device=torch.device("cpu"), training=SHORT
            )
            released = adversary.means(made.autoencoder, world)
            worlds[world, run] = adversary.score(made.autoencoder, released)
    return worlds[0], worlds[1]
