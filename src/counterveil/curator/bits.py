"""Bit sets: what to sum with which share of the budget, and the summing.

Every record is cut to a few ones by a public rule; then the sums of each bit, pooled and by class.
"""

from functools import partial

import numpy as np

from counterveil.curator.coefficients import BoundedSums, VectorSums, fill
from counterveil.curator.noise import NoiseSource
from counterveil.curator.plan import Plan, drowning, less_noise, record_of
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array
from counterveil.errors import InternalError
from counterveil.privacy import Budget, Rho
from counterveil.privacy.budget import amount_of, rest_of, with_amount
from counterveil.privacy.record import NoisyRecord, Sensitivity
from counterveil.schema import Schema


def plan_bits(schema: Schema, rows: int, budget: Budget, records: int) -> Plan:
    """Shares out ε or, with a δ, ρ, unless Laplace noise on the sums of classes is smaller."""
    bits, classes = len(schema.features), len(schema.label.classes)
    ones = max(4, round(0.05 * bits))
    scale = 2 * (ones + 1) * records / (0.5 * budget.epsilon)
    # Where a class is too small for its sums to be seen at all, the pooled ones get nearly all.
    pooled = 0.5 if rows / classes > scale else 0.9
    whole = less_noise(budget, 1 - pooled, Sensitivity.of_sums(ones + 1, ones + 1, records))
    total, number = amount_of(whole), "ρ" if isinstance(whole, Rho) else "ε"
    amounts = pooled * total, rest_of(total, pooled * total)
    shares = tuple(with_amount(whole, amount) for amount in amounts)
    reasons = (
        f"{bits} bits: each record is cut to {ones} ones (5 % of the bits, a public rule)",
        f"{rows / classes:.0f} rows a class against noise of scale {scale:.0f}: {pooled:.0%} of "
        f"{number} on the pooled sum of each bit, the rest on the sums of {classes} classes",
    )
    warnings = drowning(rows, classes, scale)
    return Plan("binary", 1, shares, records, reasons, warnings, ones=ones)


def measure_bits(table: PrivateTable, plan: Plan, noise: NoiseSource) -> NoisyRecord:
    bits, classes = table.encoding.width, len(table.schema.label.classes)
    private_sums = BoundedSums(bits, classes, plan.ones, plan.ones, count_weight=1)
    fill(table, VectorSums(partial(keep_ones, most=plan.ones), private_sums))
    private_pooled = private_sums.sums[:, 1:].sum(axis=0)  # column 0 holds the counts
    for_pooled, for_sums = plan.shares
    if for_pooled is None or for_sums is None:
        raise InternalError("a plan of bits has two steps")
    what = f"pooled sums of {bits} bits"
    bound = Sensitivity.of_sums(plan.ones, plan.ones, plan.records)
    pooled = noise.perturb("pooled", what, private_pooled, bound, for_pooled)
    what = f"counts and sums of {bits} bits for {classes} classes"
    bound = private_sums.sensitivity(plan.records)
    sums = noise.perturb("sums", what, private_sums.sums, bound, for_sums)
    return record_of(table, plan, pooled, sums)


def keep_ones(rows: Array, most: int) -> Array:
    """Bits with at most `most` ones a row. Which ones stay depends on the row itself and on public
    dice, never on another row: otherwise one record could move what is kept of all the others.
    """
    rows, bits = rows.astype(np.int64), rows.shape[1]
    dice = np.random.default_rng(0)
    rank, weights = dice.permutation(bits), dice.integers(0, 1 << 30, bits)
    full = np.flatnonzero(rows.sum(axis=1) > most)
    kept = rows.copy()
    if len(full):
        crowded = rows[full]
        turn = (crowded @ weights) % bits
        order = np.where(crowded > 0, rank[(np.arange(bits) + turn[:, None]) % bits], bits)
        limit = np.partition(order, most - 1, axis=1)[:, most - 1 : most]
        kept[full] = crowded * (order <= limit)
    return kept
