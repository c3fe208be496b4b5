"""The privacy parameters of one release, as a value that cannot be meaningless."""

from __future__ import annotations

import math
from dataclasses import dataclass

from counterveil.errors import BudgetError


@dataclass(frozen=True)
class Budget:
    """ε, checked. `math.inf` means that no noise is added at all: a reference, never private.

    >>> Budget(0.75)
    Budget(epsilon=0.75)
    """

    epsilon: float

    def __post_init__(self) -> None:
        if isinstance(self.epsilon, bool) or not isinstance(self.epsilon, (int, float)):
            raise BudgetError("epsilon must be a number above 0, for example 0.75")
        if math.isnan(self.epsilon) or self.epsilon <= 0:
            raise BudgetError("epsilon must be a number above 0, for example 0.75")
        object.__setattr__(self, "epsilon", float(self.epsilon))

    @property
    def adds_noise(self) -> bool:
        """False only for the reference without noise."""
        return math.isfinite(self.epsilon)

    def __str__(self) -> str:
        return f"ε = {self.epsilon:g}" if self.adds_noise else "no noise"
