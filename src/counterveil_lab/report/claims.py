"""Claims of the paper and of ours, and what stored rows decide about them.

The claims stand in sections.toml. One is decided case by case, mostly dataset by dataset, and like
is compared with like: where both sides have rows of the same seeds, by the differences seed by
seed. A case is not settled where the interval of these holds 0 (without common seeds: where the
intervals of the two means overlap), or where a mean is over few answers. A claim of the paper
counts only the paper's datasets; what substitutes and digits show is told beside it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import combinations, product
from math import isnan, nan, sqrt
from operator import eq, ge, gt, le, lt
from statistics import median, median_high
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from counterveil_lab import intervals, paper_values
from counterveil_lab.report.frames import THRESHOLDS, Mean, means, select, with_values
from counterveil_lab.report.pivots import as_text

ASIDE = " (not counted: "


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

    @property
    def short(self) -> str:
        """The detail; what does not count only where there is nothing else."""
        return self.detail if self.state is State.OPEN else self.detail.partition(ASIDE)[0]


def judge(claim: Claim, frame: pd.DataFrame) -> Verdict:
    """Decide a claim by described rows."""
    rows, aside = with_values(frame, claim.needs), ""
    if claim.of_paper and "dataset" in rows:
        counts = rows.dataset.isin([*paper_values.DATASETS])
        others = claim.decide(rows[~counts]) if not counts.all() else {}
        aside = f"{ASIDE}{_told(others, states=True)})" if others else ""
        rows = rows[counts]
    outcomes = claim.decide(rows) if len(rows) else {}
    if not outcomes:
        return Verdict(claim, State.OPEN, f"no rows to decide it by{aside}")
    loose = {case: it for case, it in outcomes.items() if not it.settled}
    bad = {case: it for case, it in outcomes.items() if it.settled and not it.held}
    good = {case: it for case, it in outcomes.items() if it.settled and it.held}
    if bad:
        state = State.PARTLY if good else State.FAILS
    else:
        state = State.UNSETTLED if loose else State.HOLDS
    told = good if claim.of_paper or len(outcomes) <= 3 else {}
    parts = [f"{len(good)} of {len(outcomes)} {claim.cases}" + (": " if told else "") + _told(told)]
    parts += [f"not on {_told(bad)}"] if bad else []
    parts += [f"not settled on {_told(loose)}"] if loose else []
    return Verdict(claim, state, "; ".join(parts) + aside)


def _told(outcomes: Outcomes, *, states: bool = False) -> str:
    said = {case: "not settled" if not it.settled else "yes" if it.held else "no"
            for case, it in outcomes.items()}  # fmt: skip
    return "; ".join(
        f"{case}{f': {said[case]}' if states else ''} ({it.numbers})"
        for case, it in outcomes.items()
    )


def claims_of(spec: Mapping[str, Any], deciders: Deciders) -> list[Claim]:
    """The claims of an entry in sections.toml: one, or one for each combination in `each`."""
    head = {name: spec[name] for name in ("rule", "of_paper", "cases") if name in spec}
    rest = {name: value for name, value in spec.items() if name not in {*head, "text", "each"}}
    rest.pop("picture", None)
    decide, needs = deciders[rest.pop("decide", "comparison")]
    each = spec.get("each", {})
    chosen = [dict(zip(each, values, strict=True)) for values in product(*each.values())]
    head["needs"] = needs
    return [
        Claim(spec["text"].format(**more), decide=partial(decide, **rest, **more), **head)
        for more in chosen
    ]


# Means by case, and comparisons of them.


@dataclass(frozen=True)
class Side:
    """A mean, the values of its seeds, and how many answers it is over (NaN: of no answers)."""

    mean: Mean
    seeds: Mapping[Any, float]
    answers: float = nan

    def times(self, factor: float, less: float = 0.0) -> "Side":
        """The same in another unit: `factor` times all of it, less `less`."""
        seeds = {seed: factor * value - less for seed, value in self.seeds.items()}
        return replace(self, mean=self.mean.times(factor, less), seeds=seeds)


Sides = Mapping[str, Side]
DATASET, DATASET_EPSILON = ("dataset name",), ("dataset name", "epsilon")
REDUCERS: dict[str, Callable[[Iterable[float]], float]] = {
    "max": max,
    "min": min,
    "median": median,
    "median_high": median_high,
}
HOLDS: dict[str, Holds] = {">": gt, ">=": ge, "<": lt, "<=": le, "==": eq}


def named(
    frame: pd.DataFrame, column: str, by: Sequence[str] = DATASET, scale: float = 1
) -> dict[str, Side]:
    """Means of a column by the name of a case; datasets and ε in their order."""
    order = [name for name in ("dataset place", "epsilon") if name in frame]
    rows = frame.sort_values(order, kind="stable") if order else frame
    return {_joined(by, key): it.times(scale) for key, it in sides(rows, by, column).items()}


def sides(frame: pd.DataFrame, by: Sequence[str], column: str) -> dict[tuple[Any, ...], Side]:
    """The mean of a column for each combination of `by`, with its seeds and answers."""
    found = means(frame, by, column)
    if not found:
        return {}
    values = pd.to_numeric(frame[column], errors="coerce").astype(float)
    rows = frame.assign(**{column: values}).dropna(subset=[column])
    seed = rows["seed"] if "seed" in rows else pd.Series(0, rows.index)
    keys = [rows[name] for name in by]
    each = rows[column].groupby([*keys, seed.rename("seed")], sort=False, dropna=False).mean()
    seeds: dict[tuple[Any, ...], dict[Any, float]] = {}
    value: Any
    for whole, value in each.items():
        *key, number = whole if isinstance(whole, tuple) else (whole,)
        seeds.setdefault(tuple(key), {})[number] = value
    counted = _answers(rows).groupby([*keys, seed.rename("seed")], dropna=False).max()
    totals = counted.groupby(level=list(range(len(by))), dropna=False).sum(min_count=1)
    answers = {key if isinstance(key, tuple) else (key,): it for key, it in totals.items()}
    return {
        key: Side(mean, seeds.get(key, {}), answers.get(key, nan)) for key, mean in found.items()
    }


def _answers(rows: pd.DataFrame) -> pd.Series:
    """How many answers each row is a mean over; NaN where it is not of answers."""
    count = pd.Series(nan, rows.index)
    for name in ("quality_queries", "queries"):
        if name in rows:
            count = pd.to_numeric(rows[name], errors="coerce").astype(float).fillna(count)
    for name in ("answers_per_query", "draws"):
        if name in rows:
            count = count * pd.to_numeric(rows[name], errors="coerce").astype(float).fillna(1)
    return count


def beside(frame: pd.DataFrame, column: str, by: Sequence[str] = DATASET) -> dict[str, Side]:
    """The paper's numbers beside a column, where the rows behind both are the same."""
    rows = select(frame, dataset=paper_values.SAME_DATA)
    return {
        _joined(by, key): Side(Mean(float(text), said=text), {})
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
    unsnapped: bool = False,
    **where: Any,
) -> Sides:
    """One side of a comparison: means of a column by case, over the rows with these values.

    With two columns the second is the flip ratio to a specified class. `over` takes of each dataset
    (or of all) the max, min, median or median_high of the means. `printed` takes the paper's
    numbers, `end` the rows of the largest (max) or smallest (min) ε of each dataset, `answering`
    those of methods that answer nearly all queries, `unsnapped` the rows as
    the decoder gives them, where that was measured. Without columns to go `by` there is one mean
    for all cases, called "".
    """
    rows = select(frame, **where)
    if answering and "flip_ratio" in rows:
        share = rows.groupby(["dataset", "method name", "ε"]).flip_ratio.transform("mean")
        rows = rows[~(share < THRESHOLDS["answering"])]
    if end and len(rows):
        low, high = (rows.groupby("dataset").epsilon.transform(name) for name in ("min", "max"))
        rows = rows[(rows.epsilon == (low if end == "min" else high)) & (low < high)]
    if unsnapped and with_values(rows, [f"{column}_unsnapped"]).size:
        column = f"{column}_unsnapped"
    if not by:
        rows, by = rows.assign(all=""), ("all",)
    if over:
        return _over(rows, str(column), by, scale, over)
    first, *others = [column] if isinstance(column, str) else column
    found = beside(rows, first, by) if printed else named(rows, first, by, scale)
    for name in others:
        more = beside(rows, name, by) if printed else named(rows, name, by, scale)
        found |= {f"{case}, specified": it for case, it in more.items()}
    return found


def _over(
    rows: pd.DataFrame, column: str, by: Sequence[str], scale: float, reducer: str
) -> dict[str, Side]:
    """The largest (or smallest, or middle) of the means of each value of the first column in `by`.

    With a single column in `by` it is one for all cases, called "". A middle is taken seed by seed.
    Means over few answers are left out.
    """
    found: dict[str, dict[str, Side]] = {}
    for key, it in sides(rows, by, column).items():
        case, *rest = ["", *key] if len(by) == 1 else key
        if it.answers < THRESHOLDS["answers"]:
            continue
        said = ", ".join(as_text(part) for part in rest)
        found.setdefault(as_text(case), {})[said] = it.times(scale)
    reduced = {}
    for case, every in found.items():
        value = REDUCERS[reducer]([it.mean.value for it in every.values()])
        name, chosen = min(every.items(), key=lambda each: abs(each[1].mean.value - value))
        common = set.intersection(*(set(it.seeds) for it in every.values()))
        if reducer.startswith("median") and common:
            middle = REDUCERS[reducer]
            seeds = {seed: middle([it.seeds[seed] for it in every.values()]) for seed in common}
            reduced[case] = Side(Mean(value), seeds, min(it.answers for it in every.values()))
        else:
            mean = replace(chosen.mean, said=f"{chosen.mean} of {name}")
            reduced[case] = replace(chosen, mean=mean)
    return reduced


def compare(
    ours: Sides, theirs: Sides, holds: Holds, digits: int = 12, factor: float = 1, slack: float = 0
) -> dict[str, Outcome]:
    """Each of our means against the one of the same case, or against the one for all cases.

    Ours is rounded and compared with `factor` times theirs less `slack`. It is settled by the
    interval of the differences seed by seed, or where the two intervals do not overlap. Whether all
    cases counted came out alike needs no interval.
    """
    outcomes = {}
    for case, a in ours.items():
        b = theirs.get(case, theirs.get(""))
        if b is None:
            continue
        bar, words = b.times(factor, slack), f"{a.mean} against {b.mean}"
        gap = difference(a, bar)
        if gap is not None and holds is not eq:
            held = holds(round(gap.value, digits), 0)
            settled = gap.low == gap.high or not gap.low <= 0 <= gap.high
            words = f"{a.mean.alone} against {b.mean.alone}, seed by seed {difference(a, b)}"
        else:
            held = holds(round(a.mean.value, digits), bar.mean.value)
            settled = holds is eq or not overlap(a.mean, bar.mean)
        few = min((it.answers for it in (a, b) if not isnan(it.answers)), default=nan)
        if few < 5 * THRESHOLDS["answers"]:
            words += f"; over {few:.0f} answers"
        settled = settled and not few < THRESHOLDS["answers"]
        outcomes[case] = Outcome(held, words, settled)
    return outcomes


def difference(a: Side, b: Side) -> Mean | None:
    """How much more the first is, seed by seed; None with fewer than two common seeds."""
    common = [seed for seed in a.seeds if seed in b.seeds]
    if len(common) < 2:
        return None
    gaps = pd.Series([a.seeds[seed] - b.seeds[seed] for seed in common]).round(12)
    mean, spread = float(gaps.mean()), float(np.std(gaps, ddof=1)) / sqrt(len(gaps))
    return Mean(mean, *intervals.of_mean(mean, len(gaps), spread), len(gaps))


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
    given = {case: Side(Mean(value), {}) for case, value in theirs.get("values", {}).items()}
    others = given or side(frame, **theirs)
    return compare(side(frame, **ours), others, HOLDS[holds], digits, factor, slack)


def falls_with_epsilon(frame: pd.DataFrame, *, mechanism: str) -> Outcomes:
    """Whether the error falls as ε grows: the ends in order, and nearly all pairs of ε."""
    outcomes = {}
    for case, part in select(frame, mechanism=mechanism, noisy=True).groupby("dataset name"):
        found = sides(part.sort_values("epsilon"), ["epsilon"], "mse")
        points = [(epsilon, it.mean.value) for (epsilon,), it in found.items()]
        pairs = [a > b for (_, a), (_, b) in combinations(points, 2)]
        if pairs:
            first, *_, last = found.values()
            (ends,) = compare({"": first}, {"": last}, gt).values()
            words = f"{first.mean} at ε {points[0][0]:g}, {last.mean} at {points[-1][0]:g}, "
            words += f"{sum(pairs)} of {len(pairs)} pairs in order"
            held = ends.held and sum(pairs) >= THRESHOLDS["pairs_in_order"] * len(pairs)
            outcomes[str(case)] = Outcome(held, words, ends.settled)
    return outcomes


DECIDERS: Deciders = {
    "comparison": (comparison, ()),
    "falls_with_epsilon": (falls_with_epsilon, ("dataset name", "mse")),
}
