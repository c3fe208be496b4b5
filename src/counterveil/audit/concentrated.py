"""What a ρ of zero-concentrated DP is worth in ε and δ, by a computation of the audit's own.

A ρ-zCDP mechanism is (ε, δ)-DP with δ = exp((α−1)(αρ−ε))/(α−1)·(1−1/α)^α for every α > 1 (Canonne,
Kamath and Steinke 2020, Corollary 13). The best α is found by golden sections.

>>> round(delta_of(0.01, 0.5), 9)
3.5059e-05
>>> round(epsilon_of(0.01, delta_of(0.01, 0.5)), 6)
0.5
"""

import math
from collections.abc import Iterable
from fractions import Fraction

from counterveil.privacy import Budget, Rho, Share

HAIR = 1 + 1e-9  # what rounding may add to δ
GOLDEN = (math.sqrt(5) - 1) / 2


def delta_of(rho: float, epsilon: float) -> float:
    """The least δ at ε of all mechanisms of this ρ, as the bound above has it."""

    def log_delta(log_order: float) -> float:
        order = math.exp(log_order)  # α − 1
        shrunk = (order + 1) * math.log1p(1 / order)  # of (1−1/α)^−α
        return order * ((order + 1) * rho - epsilon) - log_order - shrunk

    low, high = -30.0, 30.0  # the bound falls and then rises in α
    for _ in range(200):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        low, high = (low, right) if log_delta(left) < log_delta(right) else (left, high)
    return math.exp(min(0.0, log_delta(low)))


def epsilon_of(rho: float, delta: float) -> float:
    """The least ε at δ."""
    low, high = 0.0, 1.0
    while delta_of(rho, high) > delta:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(rho, middle) > delta else (low, middle)
    return high


def overspent(shares: Iterable[Share], budget: Budget) -> str:
    """How far the steps with these shares spend more than `budget` together; nothing if not.

    Shares of ε and δ add up in exact arithmetic. Shares of ρ add up to one that must give (ε, δ).
    """
    steps = list(shares)
    if any(isinstance(share, Rho) for share in steps):
        rho = sum((Fraction(share.rho) for share in steps if isinstance(share, Rho)), Fraction(0))
        if not all(isinstance(share, Rho) for share in steps):
            return "some steps spend ρ and others ε"
        if delta_of(float(rho), budget.epsilon) > budget.delta * HAIR:
            return "the shares of ρ add up to more than ε and δ allow"
        return ""
    spent = [share for share in steps if isinstance(share, Budget)]
    if sum((Fraction(share.epsilon) for share in spent), Fraction(0)) > Fraction(budget.epsilon):
        return "the shares of ε add up to more than ε"
    if sum((Fraction(share.delta) for share in spent), Fraction(0)) > Fraction(budget.delta):
        return "the shares of δ add up to more than δ"
    return ""
