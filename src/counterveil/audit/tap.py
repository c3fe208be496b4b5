"""A tap on the mechanism: which exact numbers got which noise.

An audit that computed the coefficients its own way would test its own reading of the mechanism. The
tap runs `functional.measure` itself and listens at the one place where noise is added and at the
one where a tree of pairs is chosen. It answers with what it heard instead of noisy numbers, so that
one run tells everything; a second run may be given the answers of a first, which is what it takes
to compare two worlds that agree on all they have released so far.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from counterveil.curator import functional
from counterveil.curator.coefficients import Sensitivity
from counterveil.curator.noise import Noise
from counterveil.curator.plan import Plan
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array


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


def listen(table: PrivateTable, plan: Plan, before: Heard | None = None) -> Heard:
    """Run `measure` without noise and report; with `before`, answer as in that run."""
    heard = Heard()
    real_perturb, real_choice = functional.perturb, functional.choose_tree
    signature = inspect.signature(real_perturb)

    def perturb(*given: Any, **named: Any) -> Any:
        arguments = signature.bind(*given, **named).arguments
        _, noise, access = real_perturb(*given, **named)
        exact = np.array(arguments["exact"])
        number = len(heard.stages)
        heard.stages.append(Stage(arguments["what"], exact, arguments["sensitivity"], noise))
        answer = exact if before is None else before.stages[number].exact
        return answer.astype(np.float64), noise, access

    def choose(*given: Any, **named: Any) -> Any:
        number = len(heard.choices)
        heard.choices.append(partial(real_choice, *given, **named))
        tree = heard.choices[number]() if before is None else before.chosen[number]
        heard.chosen.append(tree)
        return tree

    with ExitStack() as taps:
        taps.enter_context(replaced(functional, "perturb", perturb))
        taps.enter_context(replaced(functional, "choose_tree", choose))
        functional.measure(table, plan)
    return heard


@contextmanager
def replaced(module: Any, name: str, stand_in: Any) -> Iterator[None]:
    """`stand_in` in the place of what `module` calls `name`, for as long as this lasts."""
    original = getattr(module, name)
    setattr(module, name, stand_in)
    try:
        yield
    finally:
        setattr(module, name, original)
