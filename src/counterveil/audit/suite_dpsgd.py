"""Which games are played against mechanism `dpsgd`.

At a usual δ, such as 1e-6, what a Gaussian leaks up to its ε lies in events that draws hardly ever
see: with 100,000 at ε = 1, half of the noise is barely caught. At δ = 0.01 the same calibration can
be held against its claim, and half of the noise is caught with ease. So every ε is played at both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial

import numpy as np
import torch

from counterveil.audit import gradients, worlds
from counterveil.audit.coefficients import Scores, by_curator, by_twin, likelihood_scores
from counterveil.audit.contest import Effort, Game
from counterveil.audit.controls import halved_codes, halved_gradients
from counterveil.audit.game import Claim
from counterveil.audit.gradients import Training
from counterveil.audit.releases import VIEWS, outcome_scores, view_scores
from counterveil.curator import dpsgd
from counterveil.curator.dpsgd import Schedule
from counterveil.curator.table import PrivateTable
from counterveil.privacy import Budget

SHARP = 1e-2
DELTAS = (1e-6, SHARP)
ROWS = 20
TINY = replace(dpsgd.ARCHITECTURES["mixed"], encoder=(4, 2), epochs=1, batch=ROWS)
SCHEDULES = {
    "a canary in every batch": Schedule.of(TINY, ROWS),
    "a canary in some batches": Schedule.of(replace(TINY, batch=5, epochs=2), ROWS),
}
CODES = "codes at opposite corners"


def games(budget: Budget, effort: Effort) -> Iterator[Game]:
    """The games against one (ε, δ). Real releases are played where they can show something.

    A release splits its budget over three steps and adds up what each is allowed, which leaves more
    room than it needs. So each kind of step is also played by itself, with all of (ε, δ).
    """
    for_autoencoder, for_prototypes, for_surrogate = dpsgd.split(budget)
    rng = partial(effort.rng, "dpsgd", budget.epsilon, budget.delta)

    def trace(pair: str) -> Scores:
        """All steps of both trainings and the sums between them."""
        dice = rng("trace", pair)
        parts = [
            gradients.step_scores(
                gradients.heard_training(Training(SCHEDULES[pair], share, clip)), effort.draws, dice
            )
            for share, clip in (
                (for_autoencoder, dpsgd.CLIP),
                (for_surrogate, dpsgd.SURROGATE_CLIP),
            )
        ]
        parts.append(_code_scores(for_prototypes, effort.draws, dice))
        one, two = np.sum(parts, axis=0)
        return one, two

    def steps(training: Training, pair: str) -> Scores:
        heard = gradients.heard_training(training)
        return gradients.step_scores(heard, effort.draws, rng("steps", pair))

    claim = _claim(budget)
    for pair, schedule in SCHEDULES.items():
        yield Game("dpsgd", "all steps and sums", pair, claim, effort.draws, partial(trace, pair))
        training = Training(schedule, budget, dpsgd.CLIP)
        yield Game("dpsgd", "gradients, all of ε", pair, claim, effort.draws,
                   partial(steps, training, pair))  # fmt: skip
        few = max(20, effort.draws // 100)
        yield Game("dpsgd", "gradients, the curator's training", pair, claim, few,
                   partial(gradients.real_step_scores, training, few))  # fmt: skip
    yield Game("dpsgd", "sums of codes, all of ε", CODES, claim, effort.draws,
               lambda: _code_scores(budget, effort.draws, rng("codes")))  # fmt: skip
    some = max(20, effort.draws // 20)
    yield Game("dpsgd", "sums of codes, the curator's sampler", CODES, claim, some,
               lambda: _code_scores(budget, some))  # fmt: skip
    if budget.delta == SHARP:
        yield from _release_games(budget, effort)


def control_games(epsilon: float, effort: Effort) -> Iterator[Game]:
    """All of the budget on one kind of step, and half of the noise that is due."""
    budget = Budget(epsilon, SHARP)
    rng = partial(effort.rng, "dpsgd", epsilon)
    (pair, schedule), *_ = SCHEDULES.items()
    steps = partial(halved_gradients, Training(schedule, budget, dpsgd.CLIP), effort.draws)
    yield Game("control: halved noise of gradients", "gradients", pair, _claim(budget),
               effort.draws, partial(steps, rng("half gradients")))  # fmt: skip
    sums = partial(halved_codes, budget, effort.draws)
    yield Game("control: halved noise of codes", "sums of codes", CODES, _claim(budget),
               effort.draws, partial(sums, rng("half codes")))  # fmt: skip


def _release_games(budget: Budget, effort: Effort) -> Iterator[Game]:
    worst = worlds.one_feature()

    @cache
    def released() -> dict[str, Scores]:
        return view_scores(worst, budget, "dpsgd", effort.runs)

    def seen(view: str) -> Scores:
        return released()[view]

    def attempt(table: PrivateTable) -> object:
        return dpsgd.release(table, budget, TINY, seed=0, device=torch.device("cpu"))

    for view in VIEWS:
        yield Game("dpsgd", view, worst.name, _claim(budget), effort.runs, partial(seen, view))
    for pair in (worlds.last_of_its_class(), worlds.last_of_its_kind()):
        yield Game("dpsgd", "outcome", pair.name, _claim(budget), effort.runs,
                   partial(outcome_scores, pair, attempt, effort.runs))  # fmt: skip


def _code_scores(budget: Budget, draws: int, rng: np.random.Generator | None = None) -> Scores:
    """By the twin with `rng`, by the curator's sampler without."""
    sample = by_curator if rng is None else by_twin(rng)
    return likelihood_scores([gradients.moved_codes(budget)], draws, sample)


def _claim(budget: Budget) -> Claim:
    return Claim(budget.epsilon, budget.delta)
