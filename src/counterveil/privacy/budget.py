"""The privacy parameters of one release, as a value that cannot be meaningless."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from counterveil.errors import BudgetError


@dataclass(frozen=True)
class Budget:
    """ε and δ, checked. `math.inf` means that no noise is added at all: never private.

    >>> Budget(0.75)
    Budget(epsilon=0.75, delta=0.0)
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not _is_number(self.epsilon) or math.isnan(self.epsilon) or self.epsilon <= 0:
            raise BudgetError("epsilon must be a number above 0, for example 0.75")
        if not _is_number(self.delta) or not 0 <= self.delta < 1:
            raise BudgetError("delta must be at least 0 and below 1, for example 1e-6")
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))

    @property
    def adds_noise(self) -> bool:
        """False only for the reference without noise."""
        return math.isfinite(self.epsilon)

    def __str__(self) -> str:
        if not self.adds_noise:
            return "no noise"
        return f"ε = {self.epsilon:g}" + (f", δ = {self.delta:g}" if self.delta else "")


def rest_of(total: float, *parts: float) -> float:
    """What is left of `total`, rounded down: in exact arithmetic all add up to at most `total`."""
    exact = Fraction(total) - sum(map(Fraction, parts))
    rest = float(exact)
    while Fraction(rest) > exact:
        rest = math.nextafter(rest, -math.inf)
    if rest <= 0:
        raise BudgetError(f"a budget of {total:g} is too small to be shared out")
    return rest


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
