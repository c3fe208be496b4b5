"""Games against `dpsgd`: the adversary sees every noisy gradient and every noisy sum of codes.

The proof of DP-SGD allows an adversary who chooses the loss and watches every step, and so does
this game. The network is one weight, the loss of a record is the weight times its number, so that
the number is the gradient. All records have gradient 0 but one, the canary: in world D it points
one way, in world D' the other, far beyond the clip. The mechanism's own training runs on it, with a
tap where its optimiser adds the noise. The sums of codes are the mechanism's too, of codes that lie
at opposite corners: what is proved of them holds for any encoder.

The score is the exact log-likelihood ratio of all that was seen. The numbers of a step come from
the tap; for many draws the steps themselves come from a twin: a canary is in a batch with the
probability of the schedule, and the noise is normal. Real trainings are played beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

from counterveil.audit.coefficients import Moved, Scores
from counterveil.audit.tap import Stage, replaced
from counterveil.curator import dpsgd, functional
from counterveil.curator.dpsgd import CodeSums, Schedule
from counterveil.curator.noise import calibrate
from counterveil.encoding import Array
from counterveil.privacy import Budget
from counterveil.terminal import silent
from counterveil.training import seeded

FAR = 1e3  # the canary's gradient before it is cut
LATENT = 16  # numbers in a code
WORLDS = (-FAR, FAR)

_calibrate, _calibrate_training = cache(calibrate), cache(dpsgd.calibrate_training)


@dataclass(frozen=True)
class Training:
    """What the mechanism fixes before it trains, from public numbers."""

    schedule: Schedule
    budget: Budget
    clip: float


@dataclass(frozen=True)
class Steps:
    """What a training does to a canary: its cut gradient in each world, the noise, the batches."""

    one: float
    two: float
    deviation: float
    rate: float
    steps: int


@contextmanager
def calibrated_once() -> Iterator[None]:
    """Calibration takes longer than a tiny release and always answers alike: ask it once."""
    with ExitStack() as taps:
        taps.enter_context(replaced(functional, "calibrate", _calibrate))
        taps.enter_context(replaced(dpsgd, "calibrate_training", _calibrate_training))
        yield


@cache
def heard_training(training: Training) -> Steps:
    """The numbers of a training, from runs of it in both worlds."""
    deviations: set[float] = set()
    cut = []
    for number in WORLDS:
        seen: set[float] = set()
        while not seen:  # the canary may have been in no batch
            exact, _, deviation = _run(training, number)
            seen = set(exact.tolist()) - {0.0}
            deviations.add(deviation)
        (gradient,) = seen
        cut.append(gradient)
    (one, two), (deviation,) = cut, deviations
    return Steps(one, two, deviation, training.schedule.rate, training.schedule.steps)


def real_steps(training: Training, world: int, runs: int) -> Array:
    """Noisy sums of gradients, (runs, steps), of trainings by the mechanism itself."""
    return np.stack([_run(training, WORLDS[world])[1] for _ in range(runs)])


def twin_steps(steps: Steps, world: int, draws: int, rng: np.random.Generator) -> Array:
    """The same from the twin."""
    shape = draws, steps.steps
    inside = rng.random(shape) < steps.rate
    noise = rng.normal(0, steps.deviation, shape)
    return np.asarray(inside * (steps.one, steps.two)[world] + noise)


def log_ratio(steps: Steps, noisy: Array) -> Array:
    """log P[noisy | D'] − log P[noisy | D] over all steps, who is in a batch being unknown."""
    ratio = _against_noise(steps, noisy, steps.two) - _against_noise(steps, noisy, steps.one)
    return np.asarray(ratio.sum(axis=-1))


def _against_noise(steps: Steps, noisy: Array, gradient: float) -> Array:
    """log of (1 − q) + q·φ(noisy − gradient)/φ(noisy), step by step."""
    outside = math.log1p(-steps.rate) if steps.rate < 1 else -math.inf
    gained = gradient * (noisy - gradient / 2) / steps.deviation**2
    return np.asarray(np.logaddexp(outside, math.log(steps.rate) + gained))


def step_scores(steps: Steps, draws: int, rng: np.random.Generator) -> Scores:
    """Scores of trainings by the twin."""
    one, two = (log_ratio(steps, twin_steps(steps, world, draws, rng)) for world in (0, 1))
    return one, two


def real_step_scores(training: Training, runs: int) -> Scores:
    """Scores of trainings by the mechanism itself."""
    steps = heard_training(training)
    one, two = (log_ratio(steps, real_steps(training, world, runs)) for world in (0, 1))
    return one, two


def moved_codes(budget: Budget) -> Moved:
    """The sums of codes that differ where a record's code moves from one corner to the other."""
    one, two = (_heard_sums(code, budget) for code in (0.0, 1.0))
    differs = one.exact != two.exact
    return Moved(one.exact[differs], two.exact[differs], one, one.noise)


def _heard_sums(code: float, budget: Budget) -> Stage:
    heard = []

    def perturb(
        what: str, exact: Array, sensitivity: Any, epsilon: float, delta: float
    ) -> tuple[Array, Any, Any]:
        noisy, noise, access = functional.perturb(what, exact, sensitivity, epsilon, delta)
        heard.append(Stage(what, exact.copy(), sensitivity, noise))
        return noisy, noise, access

    sums = CodeSums(LATENT, 2)
    sums.add(np.full((1, LATENT), code), np.array([0]))
    with calibrated_once(), replaced(dpsgd, "perturb", perturb):
        sums.release(budget)
    (stage,) = heard
    return stage


def _run(training: Training, number: float) -> tuple[Array, Array, float]:
    """One training by the mechanism: exact and noisy sums of every step, deviation of the noise."""
    from opacus.optimizers import DPOptimizer

    schedule = training.schedule
    private_numbers = torch.zeros(round(schedule.expected / schedule.rate), 1)
    private_numbers[-1] = number
    weight = seeded(lambda: nn.Linear(1, 1, bias=False), 0)
    exact: list[float] = []
    noisy: list[float] = []
    deviations: set[float] = set()
    real_noise = DPOptimizer.add_noise

    def add_noise(optimiser: Any) -> None:
        (parameter,) = optimiser.params
        exact.append(parameter.summed_grad.item())
        real_noise(optimiser)
        noisy.append(parameter.grad.item())
        deviations.add(optimiser.noise_multiplier * optimiser.max_grad_norm)

    with calibrated_once(), replaced(DPOptimizer, "add_noise", add_noise):
        dpsgd.train(
            weight,
            lambda rows: weight(private_numbers[rows]).sum(),
            schedule,
            training.budget,
            training.clip,
            "a training for the audit",
            silent,
        )
    (deviation,) = deviations
    return np.array(exact), np.array(noisy), deviation
