"""The plan: what to measure with which share of the budget, from public numbers alone.

Rows, classes, cells, ε and δ are public, so the plan costs nothing and can be printed before a
single row is read. It gives its reasons, and warns where class structure must drown in the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from counterveil.curator.noise import calibrate
from counterveil.population.mixed import Grid
from counterveil.privacy import Budget
from counterveil.privacy.budget import rest_of
from counterveil.privacy.record import Sensitivity
from counterveil.schema import Schema

FINE, COARSE = 64, 16  # bins of a number: for its own counts, and for pairs
SHARE_CHOICE = 0.05  # of ε, for choosing the tree
SHARE_PAIRS = 0.30  # of ε, for the pairs; the rest is for single features, which tell classes apart
ORDER_TWO_FROM = 0.08  # rows in an average cell of a pair, over the noise scale
ROWS_A_BIN = 2.0  # expected rows of a class in a bin, over the noise scale


@dataclass(frozen=True)
class Plan:
    """What to measure. `epsilons` are the shares of the steps, in order; they add up to ε."""

    family: str
    order: int
    epsilons: tuple[float, ...]
    delta: float
    records: int
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    fine: int = 1  # mixed: bins of a number for its own counts
    coarse: int = 1  # mixed: bins of a number for pairs
    ones: int = 0  # bits: at most so many a record
    frequencies: int = 0  # images: side of the square of low frequencies
    l1_clip: int = 0
    l2_clip: int = 0
    fixed_point: int = 1

    def text(self) -> str:
        """The plan in words."""
        lines = [f"measure order {self.order} counts" if self.family == "mixed" else "measure sums"]
        lines += [f"  - {reason}" for reason in self.reasons]
        lines += [f"  ! {warning}" for warning in self.warnings]
        return "\n".join(lines)


def make_plan(
    schema: Schema, rows: int, budget: Budget, *, records: int = 1, order: int | None = None
) -> Plan:
    """The plan for a table of `rows` rows. `order` overrules the choice for mixed tables.

    The shares add up to at most the decimals that ε and δ are written as.
    """
    budget = budget.rounded_down()
    if schema.family == "mixed":
        return _plan_mixed(schema, rows, budget, records, order)
    if schema.family == "binary":
        return _plan_bits(schema, rows, budget, records)
    return _plan_image(schema, rows, budget, records)


def _plan_mixed(schema: Schema, rows: int, budget: Budget, records: int, order: int | None) -> Plan:
    features, classes = len(schema.features), len(schema.label.classes)
    cells = np.array([merge.max() + 1 for merge in Grid(schema, FINE).merged(COARSE)])
    epsilon = budget.epsilon
    signal, cells_of_pair = 0.0, 0.0
    if features > 1:
        cells_of_pair = float(np.outer(cells, cells)[np.triu_indices(features, 1)].mean())
        tables = Sensitivity.of_counts(features - 1, records)
        noise = calibrate(tables.l1, tables.l2, SHARE_PAIRS * epsilon, budget.delta / 2)
        signal = rows / (classes * cells_of_pair) / math.sqrt(noise.variance / 2)
    chosen = 2 if signal >= ORDER_TWO_FROM else 1
    compared = "at least" if chosen == 2 else "under"
    reasons = [
        f"an average cell of (class, pair) expects {rows / (classes * cells_of_pair):.0f} rows, "
        f"{signal:.2g} times the noise scale: {compared} {ORDER_TWO_FROM:g}, so order {chosen}"
        if features > 1
        else "one feature has no pairs: order 1"
    ]
    if order is not None and order != chosen:
        reasons.append(f"order {order} was asked for all the same")
    order = min(order or chosen, 2 if features > 1 else 1)
    if order == 1:
        shares: tuple[float, ...] = (epsilon,)
        reasons.append(f"all of ε on {features} tables (class, feature)")
    else:
        shares = SHARE_CHOICE * epsilon, SHARE_PAIRS * epsilon
        shares = (rest_of(epsilon, *shares), *shares)
        reasons.append(
            f"ε: {shares[0] / epsilon:.0%} on {features} tables (class, feature), "
            f"{SHARE_CHOICE:.0%} on choosing a tree, {SHARE_PAIRS:.0%} on its "
            f"{features - 1} tables (class, pair)"
        )
    scale = Sensitivity.of_counts(features, records).l1 / shares[0]
    fine = int(np.clip(rows / (classes * ROWS_A_BIN * scale), COARSE // 2, FINE))
    reasons.append(
        f"{fine} bins a number: {rows / (classes * fine):.0f} rows of a class in an average bin, "
        f"noise scale {scale:.0f}"
    )
    why, warnings = tuple(reasons), _drowning(rows, classes, scale)
    return Plan("mixed", order, shares, budget.delta, records, why, warnings, fine, COARSE)


def _drowning(rows: int, classes: int, scale: float) -> tuple[str, ...]:
    warning = (
        f"{rows / classes:.0f} rows a class against noise of scale {scale:.0f}: what tells the "
        "classes apart drowns; expect pooled answers"
    )
    return (warning,) if rows / classes < 10 * scale else ()


def _plan_bits(schema: Schema, rows: int, budget: Budget, records: int) -> Plan:
    bits, classes = len(schema.features), len(schema.label.classes)
    ones = max(4, round(0.05 * bits))
    scale = 2 * (ones + 1) * records / (0.5 * budget.epsilon)
    # Where a class is too small for its sums to be seen at all, the pooled ones get nearly all.
    pooled = 0.5 if rows / classes > scale else 0.9
    shares = (pooled * budget.epsilon, rest_of(budget.epsilon, pooled * budget.epsilon))
    reasons = (
        f"{bits} bits: each record is cut to {ones} ones (5 % of the bits, a public rule)",
        f"{rows / classes:.0f} rows a class against noise of scale {scale:.0f}: {pooled:.0%} of ε "
        f"on the pooled sum of each bit, the rest on the sums of {classes} classes",
    )
    warnings = _drowning(rows, classes, scale)
    return Plan("binary", 1, shares, budget.delta, records, reasons, warnings, ones=ones)


def _plan_image(schema: Schema, rows: int, budget: Budget, records: int) -> Plan:
    side = min(schema.images[0].height, schema.images[0].breadth)
    classes = len(schema.label.classes)
    # Frequencies beyond the one whose expected size meets the noise only add noise.
    frequencies = int(np.clip(round(2 * (rows * budget.epsilon / classes) ** 0.25), 4, side // 2))
    frequencies = min(frequencies, side)
    fixed_point = 16
    l1, l2 = round(fixed_point * 1.0 * frequencies * side / 4), fixed_point * side // 2
    reasons = (
        f"the {frequencies}x{frequencies} lowest frequencies of the cosine transform, in units of "
        f"1/{fixed_point}",
        f"each image cut to L1 norm {l1 / fixed_point:g} and L2 norm {l2 / fixed_point:g}: public "
        "bounds from its size",
    )
    warnings = _drowning(rows, classes, 2 * l1 * records / budget.epsilon / fixed_point / 10)
    plan = Plan("image", 1, (budget.epsilon,), budget.delta, records, reasons, warnings)
    return replace(plan, frequencies=frequencies, l1_clip=l1, l2_clip=l2, fixed_point=fixed_point)
