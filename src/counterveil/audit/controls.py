"""Positive controls: mechanisms with a known fault, which an audit worth its name must catch.

| control | the fault |
|---|---|
| halved sensitivity | noise of scale Δ/(2ε) where Δ/ε was due: the true ε is twice the claim |
| halved noise of gradients | `dpsgd`: half of the calibrated noise on every step |
| halved noise of codes | `dpsgd`: half of the calibrated noise on the sums of codes |
| data-dependent min/max | bounds of a number are those of the rows, so one row moves every bin |
| un-noised prototypes | the population is private, the prototypes are means of the private rows |

Mechanism `paper` has the last fault, too. A control that is not caught says that the audit had too
few draws, or is broken.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.audit import dpsgd, neighbours
from counterveil.audit.functional import SHARP, differing, likelihood_scores, listen, moved_sums
from counterveil.audit.game import Claim, Effort, Game, Scores
from counterveil.audit.neighbours import CLASSES, schema_of
from counterveil.audit.pair import Pair
from counterveil.audit.releases import networks_of, release
from counterveil.curator.dpsgd import installed
from counterveil.curator.functional import make_plan, measure
from counterveil.curator.table import PrivateTable
from counterveil.networks import Autoencoder, class_means
from counterveil.population import population_of
from counterveil.privacy import Budget
from counterveil.schema import Numeric

Released = Callable[[int], tuple[Autoencoder, Tensor]]  # an encoder and prototypes of D (0), D' (1)


def games(epsilon: float, effort: Effort) -> Iterator[Game]:
    """One game against each control of `functional`, and of `dpsgd` where Opacus is installed."""
    pair, budget, draws = neighbours.one_feature(), Budget(epsilon), effort.draws

    def halved() -> Scores:
        rng = effort.rng(epsilon, "half")
        return likelihood_scores(moved_sums(pair, budget), draws, rng, noise_share=0.5)

    def learnt_bounds() -> Scores:
        """Scores of counts over bins between the least and the greatest number of the rows.

        The far number of D lies among the others in D', so that every record changes its bin.
        """
        heard = []
        for last in (101.0, 11.0):
            numbers = [*np.linspace(1, 11, 40), last]
            schema = schema_of(Numeric(name="x", lower=min(numbers), upper=max(numbers)))
            labels = [CLASSES[row % 2] for row in range(len(numbers))]
            table = PrivateTable(pd.DataFrame({"x": numbers, "label": labels}), schema)
            heard.append(listen(table, make_plan(schema, len(numbers), budget)))
        return likelihood_scores(differing(*heard), draws, effort.rng(epsilon, "bounds"))

    def unnoised(table: int) -> tuple[Autoencoder, Tensor]:
        """An autoencoder from a private population, and prototypes that are exact class means."""
        population = population_of(pair.schema, measure(pair.tables[table], pair.plan(budget)))
        networks = networks_of(population, pair.schema)
        return networks.autoencoder, exact_means(pair, networks.autoencoder, table)

    game = partial(Game, view="coefficients", claim=Claim(epsilon), draws=draws)
    yield game("control: halved sensitivity", pair=pair.name, scores=halved)
    yield game("control: data-dependent min/max", pair="one far number", scores=learnt_bounds)
    yield _known_rows_game("control: un-noised prototypes", pair, epsilon, effort, unnoised)
    if installed():
        yield from dpsgd_games(epsilon, effort)


def dpsgd_games(epsilon: float, effort: Effort) -> Iterator[Game]:
    """All of the budget on one kind of step of `dpsgd`, and half of the noise that is due."""
    budget, draws = Budget(epsilon, SHARP), effort.draws
    claim, rng = Claim(epsilon, SHARP), partial(effort.rng, "dpsgd", epsilon)
    (pair, schedule), *_ = dpsgd.SCHEDULES.items()

    def gradients() -> Scores:
        training = dpsgd.canary_training(schedule, budget)
        return dpsgd.step_scores(training, draws, rng("half gradients"), noise_share=0.5)

    def codes() -> Scores:
        parts = dpsgd.moved_codes(budget)
        return likelihood_scores(parts, draws, rng("half codes"), noise_share=0.5)

    yield Game("control: halved noise of gradients", "gradients", pair, claim, draws, gradients)
    name = "control: halved noise of codes"
    yield Game(name, "sums of codes", dpsgd.CODES, claim, draws, codes)


def paper_game(epsilon: float, effort: Effort) -> Game:
    """The game against mechanism `paper`, whose prototypes are exact means of encoded rows."""
    pair = neighbours.one_feature()

    def released(table: int) -> tuple[Autoencoder, Tensor]:
        veil = release(pair, Budget(epsilon), "paper", table)
        return veil.autoencoder, veil.prototypes

    return _known_rows_game("paper", pair, epsilon, effort, released)


def exact_means(pair: Pair, autoencoder: Autoencoder, table: int) -> Tensor:
    """Class means of the encoded rows of D (table 0) or of D' (1) (Eq. prot_construct)."""
    points, labels = (torch.as_tensor(values) for values in pair.tables[table].private_rows())
    return class_means(autoencoder, points.float(), labels, len(pair.schema.label.classes))


def _known_rows_game(
    mechanism: str, pair: Pair, epsilon: float, effort: Effort, released: Released
) -> Game:
    """The game of an adversary who knows both tables and is given an encoder and prototypes.

    It computes the exact class means of D and of D': 1 if the prototypes are nearer to those of D',
    −1 if to those of D, 0 if neither. Noise in the encoder's training does not help.
    """
    runs = effort.runs

    def scores() -> Scores:
        found = np.zeros((2, runs))
        for table, run in np.ndindex(2, runs):
            autoencoder, prototypes = released(table)
            one, two = ((exact_means(pair, autoencoder, x) - prototypes).norm() for x in (0, 1))
            found[table, run] = np.sign(float(one) - float(two))
        return found[0], found[1]

    view = "autoencoder + prototypes"
    return Game(mechanism, view, pair.name, Claim(epsilon), runs, scores)
