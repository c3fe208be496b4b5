"""Games on the noisy numbers of mechanism `dpsgd`.

The adversary sees every noisy sum of gradients of a training, and every noisy sum of codes. The
proof of DP-SGD allows an adversary who chooses the loss, and so does this game. The network is one
weight, and the loss of a record is the weight times the record's number, so that the number is the
gradient. All records have gradient 0 but one, the canary, whose gradient is far beyond the clip: it
points one way in D and the other way in D'. The mechanism's own training runs on these records,
with an optimiser that writes down the sums before and after its noise. The codes of the sums lie at
opposite corners of the unit cube: what is proved of the sums holds for any encoder. The score is
the exact log-likelihood ratio of D' and D.

At a usual δ, such as 1e-6, what a Gaussian leaks up to its ε lies in events that draws hardly ever
see: with 100,000 of them at ε = 1, half of the noise is barely caught. At δ = 0.01 it is caught
with ease. So every ε is played at both.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import nn

from counterveil.audit.fast_noise import Steps, draw_steps, log_ratio_of_steps
from counterveil.audit.functional import Instrument, Moved, differing, likelihood_scores
from counterveil.audit.game import Claim, Dice, Effort, Game, Scores
from counterveil.audit.neighbours import Pair
from counterveil.audit.releases import outcome_games, view_games
from counterveil.curator import dpsgd
from counterveil.curator.dpsgd import CodeSums, NoisyTraining, Schedule
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array
from counterveil.networks import seeded
from counterveil.privacy import Budget

SHARP = 1e-2
DELTAS = (1e-6, SHARP)
GRADIENTS = (-1e3, 1e3)  # of the canary in D and in D', before they are clipped
LATENT = 16  # numbers in a code
ROWS = 20
TINY = replace(dpsgd.ARCHITECTURES["mixed"], encoder=(4, 2), epochs=1, batch=ROWS)
SCHEDULES = {
    "a canary in every batch": Schedule.of(TINY, ROWS),
    "a canary in some batches": Schedule.of(replace(TINY, batch=5, epochs=2), ROWS),
}
CODES = "codes at opposite corners"


def games(budget: Budget, effort: Effort) -> Iterator[Game]:
    """The games against one (ε, δ). Real releases are played where they can show something.

    A release splits its budget over three steps and adds up what each of them may spend, which
    leaves more room than it needs. So each kind of step is also played alone, with all of (ε, δ).
    """
    rng = partial(effort.rng, "dpsgd", budget.epsilon, budget.delta)
    draws, few, some = effort.draws, max(20, effort.draws // 100), max(20, effort.draws // 20)
    game = partial(Game, "dpsgd", claim=Claim(budget.epsilon, budget.delta))

    def trace(pair: str) -> Scores:
        """Scores of all that a release gives away: every step of both trainings, and the sums."""
        dice, schedule = rng("trace", pair), SCHEDULES[pair]
        for_autoencoder, for_prototypes, for_surrogate = dpsgd.split(budget)
        scores = np.array(step_scores(canary_training(schedule, for_autoencoder), draws, dice))
        surrogate = canary_training(schedule, for_surrogate, dpsgd.SURROGATE_CLIP)
        scores += step_scores(surrogate, draws, dice)
        scores += likelihood_scores(moved_codes(for_prototypes), draws, dice)
        return scores[0], scores[1]

    def steps(pair: str) -> Scores:
        return step_scores(canary_training(SCHEDULES[pair], budget), draws, rng("steps", pair))

    def codes() -> Scores:
        return likelihood_scores(moved_codes(budget), draws, rng("codes"))

    def real_codes() -> Scores:
        return likelihood_scores(moved_codes(budget), some)

    def attempt(_: Pair, table: PrivateTable) -> None:
        dpsgd.release(table, budget, TINY, seed=0, device=torch.device("cpu"))

    for pair, schedule in SCHEDULES.items():
        real = partial(step_scores, canary_training(schedule, budget), few)
        yield game("all steps and sums", pair, draws=draws, scores=partial(trace, pair))
        yield game("gradients, all of ε", pair, draws=draws, scores=partial(steps, pair))
        yield game("gradients, the curator's training", pair, draws=few, scores=real)
    yield game("sums of codes, all of ε", CODES, draws=draws, scores=codes)
    yield game("sums of codes, the curator's sampler", CODES, draws=some, scores=real_codes)
    if budget.delta == SHARP:
        yield from view_games("dpsgd", budget, effort)
        yield from outcome_games("dpsgd", budget, effort.runs, attempt)


def canary_training(schedule: Schedule, budget: Budget, clip: float = dpsgd.CLIP) -> NoisyTraining:
    """A training on records that have no gradient, except the canary."""
    return NoisyTraining("a training for the audit", schedule, budget, clip)


@cache
def heard_training(training: NoisyTraining, noise_share: float = 1.0) -> Steps:
    """The canary's clipped gradients and the noise of a step, from trainings on D and on D'.

    A `noise_share` below 1 is a fault: the training gets this share of the noise that is due.
    """
    clipped: list[float] = []
    deviations: set[float] = set()
    for table in (0, 1):
        seen: set[float] = set()
        while not seen:  # the canary may have been in no batch
            exact, _, deviation = _train(training, table, noise_share)
            seen = set(exact.tolist()) - {0.0}
            deviations.update(deviation.tolist())
        clipped += seen
    (one, two), (deviation,) = clipped, deviations
    return Steps(one, two, deviation, training.schedule.rate, training.schedule.steps)


def real_steps(training: NoisyTraining, table: int, runs: int, noise_share: float = 1.0) -> Array:
    """Noisy sums of gradients, (runs, steps), of trainings by the mechanism itself."""
    return np.stack([_train(training, table, noise_share)[1] for _ in range(runs)])


def step_scores(
    training: NoisyTraining, draws: int, rng: Dice = None, *, noise_share: float = 1.0
) -> Scores:
    """Scores of all steps of a training: fast noise from `rng`, or real trainings without one."""
    steps = heard_training(training, noise_share)
    one, two = (
        draw_steps(steps, table, draws, rng)
        if rng is not None
        else real_steps(training, table, draws, noise_share)
        for table in (0, 1)
    )
    return log_ratio_of_steps(steps, one), log_ratio_of_steps(steps, two)


def moved_codes(budget: Budget) -> list[Moved]:
    """The sums of codes that differ where a record's code moves from one corner to the other."""
    heard = []
    for code in (0.0, 1.0):
        sums, instrument = CodeSums(LATENT, 2), Instrument()
        sums.add(np.full((1, LATENT), code), np.array([0]))
        sums.release(budget, instrument)
        heard.append(instrument)
    return differing(*heard)


def _train(training: NoisyTraining, table: int, noise_share: float) -> Array:
    """One training by the mechanism, (3, steps): sums before and after noise, its deviation."""
    from opacus.optimizers import DPOptimizer

    heard: list[tuple[float, float, float]] = []

    class Listener(DPOptimizer):  # type: ignore[misc]
        """The mechanism's optimiser, which also writes down its sums."""

        def __init__(self, *given: Any, noise_multiplier: float, **named: Any) -> None:
            super().__init__(*given, noise_multiplier=noise_share * noise_multiplier, **named)

        def add_noise(self) -> None:
            (weight,) = self.params
            exact = weight.summed_grad.item()
            super().add_noise()
            heard.append((exact, weight.grad.item(), self.noise_multiplier * self.max_grad_norm))

    schedule = training.schedule
    private_numbers = torch.zeros(round(schedule.expected / schedule.rate), 1)
    private_numbers[-1] = GRADIENTS[table]
    network = seeded(lambda: nn.Linear(1, 1, bias=False), 0)

    def loss_of(rows: torch.Tensor) -> torch.Tensor:
        return network(private_numbers[rows]).sum()

    dpsgd.train(network, loss_of, training, optimiser_class=Listener)
    return np.array(heard).T
