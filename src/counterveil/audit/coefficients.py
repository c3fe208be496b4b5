"""Games at the level of coefficients: the adversary sees every noisy number of the mechanism.

The score is the exact log-likelihood ratio of the two worlds, which no other score can beat. Where
both worlds have the same exact number its noise tells nothing, so only the others are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterveil.audit.game import by_frequency
from counterveil.audit.tap import Heard, Stage, listen
from counterveil.audit.twin import draw, log_ratio
from counterveil.audit.worlds import Pair
from counterveil.curator.noise import Noise, add
from counterveil.encoding import Array
from counterveil.privacy import Budget

CHUNK = 1 << 22  # numbers drawn at a time

Scores = tuple[Array, Array]
Sampler = Callable[["Moved", Array, int], Array]


@dataclass(frozen=True)
class Moved:
    """The exact numbers of a stage that differ between the worlds, and the noise they get."""

    one: Array
    two: Array
    stage: Stage
    noise: Noise


def heard_in_both(pair: Pair, budget: Budget) -> tuple[Heard, Heard]:
    """What the mechanism does in each world, the second agreeing with the first on all answers."""
    table_one, table_two = pair.tables
    plan = pair.plan(budget)
    first = listen(table_one, plan)
    return first, listen(table_two, plan, before=first)


def moved(one: Heard, two: Heard) -> list[Moved]:
    """Stage by stage, what an adversary who knows both tables has to look at."""
    return [
        Moved(stage_one.exact[differs], stage_two.exact[differs], stage_one, stage_one.noise)
        for stage_one, stage_two in zip(one.stages, two.stages, strict=True)
        if (differs := stage_one.exact != stage_two.exact).any()
    ]


def by_twin(rng: np.random.Generator) -> Sampler:
    """Noise from the fast twin."""
    return lambda part, exact, draws: exact + draw(part.noise, (draws, len(exact)), rng)


def by_curator(part: Moved, exact: Array, draws: int) -> Array:
    """Noise from the mechanism's own sampler: slow, and nobody's reading of it."""
    sensitivity = part.stage.sensitivity
    return add(np.tile(exact, (draws, 1)), part.noise, sensitivity.l1, sensitivity.l2)


def likelihood_scores(parts: Sequence[Moved], draws: int, sample: Sampler) -> Scores:
    """log P[seen | D'] − log P[seen | D], drawn in world D and in world D'."""
    worlds = np.zeros((2, draws))
    for part in parts:
        step = max(1, CHUNK // len(part.one))
        for world, exact in enumerate((part.one, part.two)):
            for start in range(0, draws, step):
                some = min(step, draws - start)
                seen = sample(part, exact, some)
                ratio = log_ratio(part.noise, seen, part.one, part.two)
                worlds[world, start : start + some] += ratio
    return worlds[0], worlds[1]


def choice_scores(one: Heard, two: Heard, draws: int) -> Scores:
    """How often each tree is chosen, by the real noisy maximum, all noisy counts being equal."""
    numbers: dict[Any, int] = {}

    def chosen(heard: Heard) -> Array:
        (choose,) = heard.choices
        trees = (choose() for _ in range(draws))
        return np.array([numbers.setdefault(tree, len(numbers)) for tree in trees])

    return by_frequency(chosen(one), chosen(two))
