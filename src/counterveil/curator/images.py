"""Images: what to sum with which share of the budget, and the summing.

Class sums of the low frequencies of the cosine transform, in whole numbers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from counterveil.curator.coefficients import BoundedSums
from counterveil.curator.noise import NoiseSource
from counterveil.curator.plan import Plan, drowning, record_of
from counterveil.curator.table import PrivateTable
from counterveil.population.images import Frequencies
from counterveil.privacy import Budget
from counterveil.privacy.record import NoisyRecord
from counterveil.schema import Schema


def plan_images(schema: Schema, rows: int, budget: Budget, records: int) -> Plan:
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
    warnings = drowning(rows, classes, 2 * l1 * records / budget.epsilon / fixed_point / 10)
    plan = Plan("image", 1, (budget.epsilon,), budget.delta, records, reasons, warnings)
    return replace(plan, frequencies=frequencies, l1_clip=l1, l2_clip=l2, fixed_point=fixed_point)


def measure_images(table: PrivateTable, plan: Plan, noise: NoiseSource) -> NoisyRecord:
    frequencies = Frequencies(table.schema.images[0], plan.frequencies)
    width, classes = frequencies.width, len(table.schema.label.classes)
    private_sums = BoundedSums(width, classes, plan.l1_clip, plan.l2_clip**2, plan.fixed_point)
    for private_points, private_classes in table.private_batches():
        private_sums.add(frequencies.whole(private_points, plan.fixed_point), private_classes)
    what = f"counts and sums of {width} frequencies for {classes} classes"
    bound, budget = private_sums.sensitivity(plan.records), Budget(plan.epsilons[0], plan.delta)
    sums = noise.perturb("sums", what, private_sums.sums, bound, budget)
    return record_of(table, plan, sums)
