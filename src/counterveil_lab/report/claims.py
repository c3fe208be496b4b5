"""Claims of the paper and of ours, and what stored rows decide about them.

The claims stand in sections.toml. One is decided case by case, mostly dataset by dataset. A case is
not settled where the intervals of the two means that it compares overlap: then it counts neither
for the claim nor against it. A claim holds where every case is settled and holds. It fails where
none holds and one speaks against it, and holds in part where some hold and some do not. It is not
settled where nothing speaks against it, but some cases are not settled.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import combinations, product
from operator import eq, ge, gt, le, lt
from statistics import median, median_high
from typing import Any, NamedTuple

import pandas as pd

from counterveil_lab import paper_values
from counterveil_lab.report.frames import ANSWERS, Mean, means, select, with_values
from counterveil_lab.report.pivots import as_text


class State(StrEnum):
    """What became of a claim."""

    HOLDS = "holds"
    PARTLY = "holds in part"
    FAILS = "does not hold"
    UNSETTLED = "not settled"
    OPEN = "not measured"


class Outcome(NamedTuple):
    """How a claim came out in one case."""

    held: bool
    numbers: str
    settled: bool = True


Means = Mapping[str, Mean]
Outcomes = Mapping[str, Outcome]
Holds = Callable[[float, float], bool]
Decide = Callable[..., Outcomes]
Deciders = Mapping[str, tuple[Decide, Sequence[str]]]  # with the columns that are needed


@dataclass(frozen=True)
class Claim:
    """A claim in words, its rule in words, and the function that applies it to described rows.

    Rows without a value in a column of `needs` are left out.
    """

    text: str
    rule: str
    decide: Decide
    of_paper: bool = False
    cases: str = "datasets"
    needs: Sequence[str] = ()


@dataclass(frozen=True)
class Verdict:
    """A claim and where it holds."""

    claim: Claim
    state: State
    detail: str


def judge(claim: Claim, frame: pd.DataFrame) -> Verdict:
    """Decide a claim by described rows."""
    rows = with_values(frame, claim.needs)
    outcomes = claim.decide(rows) if len(rows) else {}
    if not outcomes:
        return Verdict(claim, State.OPEN, "no rows to decide it by")
    loose = {case: it for case, it in outcomes.items() if not it.settled}
    bad = {case: it for case, it in outcomes.items() if it.settled and not it.held}
    good = {case: it for case, it in outcomes.items() if it.settled and it.held}
    if bad:
        state = State.PARTLY if good else State.FAILS
    else:
        state = State.UNSETTLED if loose else State.HOLDS
    told = good if len(outcomes) <= 3 else {}
    parts = [f"{len(good)} of {len(outcomes)} {claim.cases}" + (": " if told else "") + _told(told)]
    parts += [f"not on {_told(bad)}"] if bad else []
    parts += [f"not settled on {_told(loose)}"] if loose else []
    return Verdict(claim, state, "; ".join(parts))


def _told(outcomes: Outcomes) -> str:
    return "; ".join(f"{case} ({it.numbers})" for case, it in outcomes.items())


def claims_of(spec: Mapping[str, Any], deciders: Deciders) -> list[Claim]:
    """The claims of an entry in sections.toml: one, or one for each combination in `each`."""
    head = {name: spec[name] for name in ("rule", "of_paper", "cases") if name in spec}
    rest = {name: value for name, value in spec.items() if name not in {*head, "text", "each"}}
    decide, needs = deciders[rest.pop("decide", "comparison")]
    each = spec.get("each", {})
    chosen = [dict(zip(each, values, strict=True)) for values in product(*each.values())]
    head["needs"] = needs
    return [
        Claim(spec["text"].format(**more), decide=partial(decide, **rest, **more), **head)
        for more in chosen
    ]


# Means by case, and comparisons of them.

DATASET, DATASET_EPSILON = ("dataset name",), ("dataset name", "epsilon")
REDUCERS: dict[str, Callable[[list[float]], float]] = {
    "max": max,
    "min": min,
    "median": median,
    "median_high": median_high,
}
HOLDS: dict[str, Holds] = {">": gt, ">=": ge, "<": lt, "<=": le, "==": eq}


def named(
    frame: pd.DataFrame, column: str, by: Sequence[str] = DATASET, scale: float = 1
) -> dict[str, Mean]:
    """Means of a column by the name of a case; datasets and ε in their order."""
    order = [name for name in ("dataset place", "epsilon") if name in frame]
    rows = frame.sort_values(order, kind="stable") if order else frame
    return {_joined(by, key): it.times(scale) for key, it in means(rows, by, column).items()}


def beside(frame: pd.DataFrame, column: str, by: Sequence[str] = DATASET) -> dict[str, Mean]:
    """The paper's numbers beside a column, where the rows behind both are the same."""
    rows = select(frame, dataset=paper_values.SAME_DATA)
    return {
        _joined(by, key): Mean(float(text), said=text)
        for key, part in rows.groupby(list(by))
        if (text := part[f"printed {column}"].iloc[0])
    }


def _joined(by: Sequence[str], key: Sequence[Any]) -> str:
    parts = zip(by, key, strict=True)
    return ", ".join(f"ε {part:g}" if name == "epsilon" else as_text(part) for name, part in parts)


def side(
    frame: pd.DataFrame,
    column: str | Sequence[str],
    by: Sequence[str] = DATASET,
    scale: float = 1,
    over: str = "",
    printed: bool = False,
    end: str = "",
    answering: bool = False,
    **where: Any,
) -> Means:
    """One side of a comparison: means of a column by case, over the rows with these values.

    With two columns the second is the flip ratio to a specified class. `over` takes of each dataset
    (or of all) the max, min, median or median_high of the means. `printed` takes the paper's
    numbers, `end` the rows of the largest (max) or smallest (min) ε of each dataset, `answering`
    those of methods that answer nearly all queries. Without columns to go `by` there is one mean
    for all cases, called "".
    """
    rows = select(frame, **where)
    if answering and "flip_ratio" in rows:
        share = rows.groupby(["dataset", "method name", "ε"]).flip_ratio.transform("mean")
        rows = rows[~(share < ANSWERS)]
    if end and len(rows):
        low, high = (rows.groupby("dataset").epsilon.transform(name) for name in ("min", "max"))
        rows = rows[(rows.epsilon == (low if end == "min" else high)) & (low < high)]
    if not by:
        rows, by = rows.assign(all=""), ("all",)
    if over:
        return _over(rows, str(column), by, scale, REDUCERS[over])
    first, *others = [column] if isinstance(column, str) else column
    found = beside(rows, first, by) if printed else named(rows, first, by, scale)
    for name in others:
        more = beside(rows, name, by) if printed else named(rows, name, by, scale)
        found |= {f"{case}, specified": it for case, it in more.items()}
    return found


def _over(
    rows: pd.DataFrame,
    column: str,
    by: Sequence[str],
    scale: float,
    reducer: Callable[[list[float]], float],
) -> Means:
    """The largest (or smallest, or middle) of the means of each value of the first column in `by`.

    With a single column in `by` it is one for all cases, called "".
    """
    found: dict[str, list[Mean]] = {}
    for key, it in means(rows, by, column).items():
        case, *rest = ["", *key] if len(by) == 1 else key
        mean, said = it.times(scale), ", ".join(as_text(part) for part in rest)
        mean = replace(mean, said=f"{mean} of {said}")
        found.setdefault(as_text(case), []).append(mean)
    chosen = {case: reducer([it.value for it in every]) for case, every in found.items()}
    return {
        case: next((it for it in found[case] if it.value == value), Mean(value))
        for case, value in chosen.items()
    }


def compare(
    ours: Means,
    theirs: Means,
    holds: Holds,
    digits: int = 12,
    factor: float = 1,
    slack: float = 0,
) -> dict[str, Outcome]:
    """Each of our means against the one of the same case, or against the one for all cases.

    Ours is rounded and compared with `factor` times theirs less `slack`. It is settled where the
    intervals do not overlap. Whether all cases counted came out alike needs no interval.
    """
    outcomes = {}
    for case, a in ours.items():
        b = theirs.get(case, theirs.get(""))
        if b is not None:
            bar = b.times(factor, slack)
            held = holds(round(a.value, digits), bar.value)
            outcomes[case] = Outcome(held, f"{a} against {b}", holds is eq or not overlap(a, bar))
    return outcomes


def overlap(a: Mean, b: Mean) -> bool:
    """Whether two intervals overlap; one that is not there is the value alone."""
    (low, high), (other_low, other_high) = a.ends, b.ends
    return low < other_high and other_low < high


def comparison(
    frame: pd.DataFrame,
    *,
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    holds: str,
    digits: int = 12,
    factor: float = 1,
    slack: float = 0,
) -> Outcomes:
    """A comparison as sections.toml has it, see `compare`; `theirs` may be `values` by case."""
    given = {case: Mean(value) for case, value in theirs.get("values", {}).items()}
    others = given or side(frame, **theirs)
    return compare(side(frame, **ours), others, HOLDS[holds], digits, factor, slack)


def falls_with_epsilon(frame: pd.DataFrame, *, mechanism: str) -> Outcomes:
    """Whether the error falls as ε grows: the ends in order, and nearly all pairs of ε."""
    outcomes = {}
    for case, part in select(frame, mechanism=mechanism, noisy=True).groupby("dataset name"):
        found = means(part.sort_values("epsilon"), ["epsilon"], "mse")
        points = [(epsilon, it.value) for (epsilon,), it in found.items()]
        pairs = [a > b for (_, a), (_, b) in combinations(points, 2)]
        if pairs:
            (low, first), (high, last) = points[0], points[-1]
            words = f"{first:.3g} at ε {low:g}, {last:.3g} at {high:g}, "
            words += f"{sum(pairs)} of {len(pairs)} pairs in order"
            held = first > last and sum(pairs) >= 0.8 * len(pairs)
            ends = list(found.values())
            outcomes[str(case)] = Outcome(held, words, not overlap(ends[0], ends[-1]))
    return outcomes


DECIDERS: Deciders = {
    "comparison": (comparison, ()),
    "falls_with_epsilon": (falls_with_epsilon, ("dataset name", "mse")),
}
