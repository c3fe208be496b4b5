"""A tap on the mechanism: which exact numbers got which noise.

An audit that computed the coefficients its own way would test its own reading of the mechanism. The
tap runs `functional.measure` itself with a noise source that listens. It answers with what it heard
instead of noisy numbers, so that one run tells everything; a second run may be given the answers of
a first, which is what it takes to compare two worlds that agree on all they have released so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from counterveil.curator import functional
from counterveil.curator.noise import EXACT, Noise, calibrate
from counterveil.curator.plan import Plan
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array
from counterveil.privacy import Budget
from counterveil.privacy.record import Measurement, Sensitivity


@dataclass(frozen=True)
class Stage:
    """One vector of exact sums, and what the mechanism does to it."""

    what: str
    exact: Array
    sensitivity: Sensitivity
    noise: Noise


@dataclass
class Heard:
    """All that was heard in one run: vectors in order, and choices that can be made again."""

    stages: list[Stage] = field(default_factory=list)
    choices: list[Callable[[], Any]] = field(default_factory=list)
    chosen: list[Any] = field(default_factory=list)
    picks: list[int] = field(default_factory=list)


@dataclass
class Listener:
    """Answers with the exact numbers it hears, or with those that `before` heard."""

    before: Heard | None = None
    repeat_choices: bool = True
    heard: Heard = field(default_factory=Heard)

    def perturb(
        self, name: str, what: str, exact: Array, sensitivity: Sensitivity, budget: Budget
    ) -> Measurement:
        noise = calibrate(sensitivity.l1, sensitivity.l2, budget.epsilon, budget.delta)
        number = len(self.heard.stages)
        self.heard.stages.append(Stage(what, np.array(exact), sensitivity, noise))
        answer = exact if self.before is None else self.before.stages[number].exact
        return Measurement(
            name, what, answer, sensitivity, noise.kind, noise.scale, noise.epsilon, noise.delta
        )

    def choose(self, scores: Sequence[int], sensitivity: int, epsilon: float) -> int:
        if self.before is None or not self.repeat_choices:
            pick = EXACT.choose(scores, sensitivity, epsilon)
        else:
            pick = self.before.picks[len(self.heard.picks)]
        self.heard.picks.append(pick)
        return pick


def listen(table: PrivateTable, plan: Plan, before: Heard | None = None) -> Heard:
    """Run `measure` without noise and report; with `before`, answer as in that run."""
    listener = Listener(before)
    heard = listener.heard
    tree = functional.measure(table, plan, listener).find("tree")
    if tree is not None:
        answers = before or heard

        def again() -> Any:
            # A choice that was made stands: the pairs along another tree have other sizes.
            counts = Listener(Heard(answers.stages[:1]), repeat_choices=False)
            try:
                functional.measure(table, plan, counts)
            except IndexError:
                return tuple(counts.heard.picks)
            raise AssertionError("the mechanism measured nothing after its choice")

        heard.choices.append(again)
        heard.chosen.append(tree.values.tolist())
    return heard
