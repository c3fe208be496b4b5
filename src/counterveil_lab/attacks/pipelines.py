"""Shadow pipelines: a shadow of f, an explainer of the same kind for it, and what that gives."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from counterveil.veil import Veil
from counterveil_lab.attacks import shadows
from counterveil_lab.attacks.candidates import Pool
from counterveil_lab.attacks.defences import ByVeil, Defence, RandomLabels, build
from counterveil_lab.attacks.protocol import Arena, Size
from counterveil_lab.attacks.stack import Stack

SHORT_EPOCHS, SHORT_STEPS = 10, 500  # of shadow explainers, at most


def shadow_defences(
    arena: Arena, defence: Defence, pool: Pool, stack: Stack, inside: Tensor, size: Size,
    epsilon: float | None, veils: dict[int, Veil],
) -> list[Defence]:  # fmt: skip
    """The same kind of explainer for each shadow of f, made from the rows that this shadow saw."""
    short = replace(
        size,
        epochs=min(size.epochs or SHORT_EPOCHS, SHORT_EPOCHS),
        warm_steps=min(size.warm_steps or SHORT_STEPS, SHORT_STEPS),
    )
    stated, delta = _budget(defence)
    made = []
    for number, kept in enumerate(inside.numpy()):
        game = replace(
            arena.defended(shadows.one_of(stack, number)),
            d1=pool.frame[kept].reset_index(drop=True),
            seed=arena.seed + 1000 * (number + 1),
        )
        one = build(defence.name, game, epsilon=epsilon or stated, size=short,
                    veil=veils.get(number), delta=delta)  # fmt: skip
        if isinstance(one, ByVeil):
            veils[number] = one.explainer.veil
        made.append(one)
    return made


def _budget(defence: Defence) -> tuple[float, float]:
    """ε and δ of the defence's own veil; what is not stated is taken for 1 and 0."""
    own = defence.own if isinstance(defence, RandomLabels) else defence
    if not isinstance(own, ByVeil):
        return 1.0, 0.0
    statement = own.explainer.veil.statement
    return statement.epsilon or 1.0, statement.delta
