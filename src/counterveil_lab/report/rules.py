"""Rules by which rows decide a claim. Each is a small function; none knows a result in advance."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from counterveil_lab.report.blocks import State, Verdict
from counterveil_lab.report.numbers import UNSETTLED
from counterveil_lab.report.ways import dataset_name

IN_ORDER = 0.8  # of all pairs of ε
CLOSE = 0.005  # flip ratios of 500 queries that differ by less are called the same


def tally(
    claim: str,
    outcomes: Mapping[str, tuple[bool, str]],
    rule: str,
    *,
    whose: str = "ours",
    unit: str = "datasets",
    aside: str = "",
) -> Verdict:
    """Holds where every outcome is true, fails where none is; says which are not, and why.

    `outcomes`: case -> (whether it holds there, the numbers); `aside` is said in any case.
    """
    if not outcomes:
        return Verdict(claim, State.OPEN, aside or "No rows to decide it by", rule, whose)
    bad = {case: numbers for case, (good, numbers) in outcomes.items() if not good}
    good = {case: numbers for case, (fine, numbers) in outcomes.items() if fine}
    total = len(outcomes)
    if not bad:
        state, words = State.HOLDS, f"On {total} of {total} {unit}"
        words += f": {listed(good)}" if total <= 3 else ""
    elif not good:
        state, words = State.FAILS, f"On none of {total} {unit}: {listed(bad)}"
    else:
        state, words = State.PARTLY, f"On {len(good)} of {total} {unit}; not on {listed(bad)}"
    unsettled = sum(UNSETTLED in numbers for _, numbers in outcomes.values())
    noise = f"in {unsettled} of {total} the seeds do not settle it" if unsettled else ""
    return Verdict(claim, state, "; ".join(filter(None, (words, noise, aside))), rule, whose)


def listed(cases: Mapping[str, str]) -> str:
    """`Adult: 0.91 against 0.92; MNIST: …`."""
    return "; ".join(
        f"{dataset_name(case)} ({numbers})" if numbers else dataset_name(case)
        for case, numbers in cases.items()
    )


def falls_with_epsilon(curve: Mapping[float, float]) -> tuple[bool, str] | None:
    """Whether y falls as ε grows: the ends in order, and nearly all pairs of ε as well."""
    points = sorted(curve.items())
    if len(points) < 2:
        return None
    values = [value for _, value in points]
    pairs = [(i, j) for i in range(len(values)) for j in range(i + 1, len(values))]
    right = sum(values[i] > values[j] for i, j in pairs)
    numbers = (
        f"{values[0]:.3g} at ε {points[0][0]:g}, {values[-1]:.3g} at {points[-1][0]:g}, "
        f"{right} of {len(pairs)} pairs in order"
    )
    return values[0] > values[-1] and right >= IN_ORDER * len(pairs), numbers


def rises(values: list[float]) -> bool:
    """Whether each value is at least the one before."""
    return all(a <= b for a, b in pairwise(values))


ORDER_RULE = (
    "the error at the smallest ε is above that at the largest, "
    f"and at least {IN_ORDER:.0%} of all pairs of ε are in order"
)
