"""What an ε buys, from public numbers: the plan, and how large its noise is beside the rows."""

from __future__ import annotations

import math
from typing import Any

from counterveil.curator.noise import calibrate
from counterveil.curator.plan import Plan
from counterveil.privacy import Budget
from counterveil.privacy.record import Sensitivity
from counterveil.schema import Schema

STEPS = ("ranges", "singles", "tree", "pairs", "products", "spikes")  # of a plan for mixed tables
GOOD, FAIR = 0.02, 0.1  # noise on a count, as a share of the rows of an average class


def plan_as_dict(schema: Schema, plan: Plan, budget: Budget) -> dict[str, Any]:
    """The plan for the page.

    `noise`: how far a count is off, in rows (one standard deviation); `share`: that beside the rows
    of an average class; `grade`: good, fair or poor by that share. Only mixed tables have them.
    `bought`: which steps the plan can afford.
    """
    content: dict[str, Any] = {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "order": plan.order,
        "reasons": list(plan.reasons),
        "warnings": list(plan.warnings),
        "units": plan.units,
    }
    if plan.family != "mixed":
        return content
    bought = [name for name, share in zip(STEPS, plan.shares, strict=True) if share is not None]
    counts = Sensitivity.of_counts(len(schema.features), plan.records)
    share_of_singles = plan.shares[STEPS.index("singles")]
    assert share_of_singles is not None, "single features are always counted"
    noise = math.sqrt(calibrate(counts.l1, counts.l2, share_of_singles).variance)
    share = noise * len(schema.label.classes) / plan.units
    grade = "good" if share <= GOOD else "fair" if share <= FAIR else "poor"
    return {**content, "bought": bought, "noise": noise, "share": share, "grade": grade}
