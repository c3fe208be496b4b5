"""Claims of the paper and of ours, and what stored rows decide about them.

The claims stand in sections.toml. One is decided case by case, mostly dataset by dataset: it holds
where every case holds and fails where none does. A case is unsettled where the intervals of the two
means that it compares overlap, so that the seeds do not tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import combinations, product
from operator import eq, ge, gt, le, lt
from statistics import median
from typing import Any, NamedTuple

import pandas as pd

from counterveil_lab import paper_values
from counterveil_lab.report.pivots import ANSWERS, PEERS, Mean, as_text, means, select, with_values


class State(StrEnum):
    """What became of a claim."""

    HOLDS = "holds"
    PARTLY = "holds in part"
    FAILS = "does not hold"
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
    bad = {case: it for case, it in outcomes.items() if not it.held}
    total = len(outcomes)
    state = State.PARTLY if 0 < len(bad) < total else State.FAILS if bad else State.HOLDS
    told = bad or (outcomes if total <= 3 else {})
    words = f"{total - len(bad)} of {total} {claim.cases}"
    words += ("; not on " if bad else ": ") if told else ""
    words += "; ".join(f"{case} ({it.numbers})" for case, it in told.items())
    loose = sum(not it.settled for it in outcomes.values())
    return Verdict(claim, state, f"{words}; unsettled in {loose}" if loose else words)


def claims_of(spec: Mapping[str, Any], deciders: Deciders) -> list[Claim]:
    """The claims of an entry in sections.toml: one, or one for each combination in `each`."""
    head = {name: spec[name] for name in ("rule", "of_paper", "cases") if name in spec}
    rest = {name: value for name, value in spec.items() if name not in {*head, "text", "each"}}
    decide, needs = deciders[rest.pop("decide", "comparison")]
    each = spec.get("each", {})
    chosen = [dict(zip(each, values, strict=True)) for values in product(*each.values())]
    return [
        Claim(
            spec["text"].format(**more), decide=partial(decide, **rest, **more), needs=needs, **head
        )
        for more in chosen
    ]


# Means by case, and comparisons of them.

DATASET, DATASET_EPSILON = ("dataset name",), ("dataset name", "epsilon")
GROUPS = {
    "latent": ("cchvae", "revise"),
    "rows": ("dice-gradient", "dice-random", "cadex-0", "cadex-0.5"),
    "all": tuple(PEERS),
}
HOLDS: dict[str, Holds] = {">": gt, ">=": ge, "<": lt, "<=": le, "==": eq}


def named(
    frame: pd.DataFrame, column: str, by: Sequence[str] = DATASET, scale: float = 1
) -> dict[str, Mean]:
    """Means of a column by the name of a case; datasets and ε in their order."""
    order = [name for name in ("dataset place", "epsilon") if name in frame]
    rows = frame.sort_values(order, kind="stable") if order else frame
    return {
        _joined(by, key): Mean(scale * it.value, scale * it.half, it.n)
        for key, it in means(rows, by, column).items()
    }


def beside(frame: pd.DataFrame, column: str, by: Sequence[str] = DATASET) -> dict[str, Mean]:
    """The paper's numbers beside a column, where the rows behind both are the same."""
    rows = select(frame, dataset=paper_values.SAME_DATA)
    return {
        _joined(by, key): Mean(float(text), 0.0, said=text)
        for key, part in rows.groupby(list(by))
        if (text := part[f"printed {column}"].iloc[0])
    }


def _joined(by: Sequence[str], key: Sequence[Any]) -> str:
    parts = zip(by, key, strict=True)
    return ", ".join(f"ε {part:g}" if name == "epsilon" else as_text(part) for name, part in parts)


def peers(
    frame: pd.DataFrame, column: str, methods: Iterable[str], largest: bool
) -> dict[str, Mean]:
    """The largest or smallest mean of other methods, by dataset."""
    found: dict[str, list[Mean]] = {}
    for method in methods:
        for case, it in named(select(frame, method=method), column).items():
            said = f"{it.value:.3g} of {PEERS[method]}"
            found.setdefault(case, []).append(replace(it, said=said))
    which = max if largest else min
    return {case: which(every, key=lambda it: it.value) for case, every in found.items()}


def side(
    frame: pd.DataFrame,
    column: str | Sequence[str],
    by: Sequence[str] = DATASET,
    scale: float = 1,
    printed: bool = False,
    end: str = "",
    **where: Any,
) -> Means:
    """One side of a comparison: means of a column by case, over the rows with these values.

    With two columns the second is the flip ratio to a specified class. `printed` takes the paper's
    numbers instead, `end` the rows of the largest (max) or smallest (min) ε of each dataset.
    Without columns to go `by` there is one mean for all cases, called "".
    """
    rows = select(frame, **where)
    if end and len(rows):
        low, high = (rows.groupby("dataset").epsilon.transform(name) for name in ("min", "max"))
        rows = rows[(rows.epsilon == (low if end == "min" else high)) & (low < high)]
    if not by:
        rows, by = rows.assign(all=""), ("all",)
    first, *others = [column] if isinstance(column, str) else column
    found = beside(rows, first, by) if printed else named(rows, first, by, scale)
    for name in others:
        more = beside(rows, name, by) if printed else named(rows, name, by, scale)
        found |= {f"{case}, specified": it for case, it in more.items()}
    return found


def compare(ours: Means, theirs: Means, holds: Holds) -> dict[str, Outcome]:
    """Each of our means against the one of the same case, or against the one for all cases."""
    outcomes = {}
    for case, a in ours.items():
        b = theirs.get(case, theirs.get(""))
        if b is not None:
            apart = a.value == b.value or not abs(a.value - b.value) < a.half + b.half
            outcomes[case] = Outcome(holds(a.value, b.value), f"{a} against {b}", apart)
    return outcomes


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
    """A comparison as sections.toml has it: of ours, rounded, with `factor` theirs less `slack`.

    `theirs` may be given `values`, or the largest or smallest mean of a group of `peers`.
    """
    if "values" in theirs:
        other: Means = {case: Mean(value, 0.0) for case, value in theirs["values"].items()}
    elif "peers" in theirs:
        rows = _answering(frame) if theirs.get("answering") else frame
        other = peers(rows, theirs["column"], GROUPS[theirs["peers"]], theirs["largest"])
    else:
        other = side(frame, **theirs)
    rule = HOLDS[holds]
    return compare(
        side(frame, **ours), other, lambda a, b: rule(round(a, digits), factor * b - slack)
    )


def _answering(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of methods that answer nearly all queries of a dataset."""
    if "flip_ratio" not in frame:
        return frame
    share = frame.groupby(["dataset", "method name", "ε"]).flip_ratio.transform("mean")
    return frame[~(share < ANSWERS)]


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
            outcomes[str(case)] = Outcome(held, words)
    return outcomes


def most_peers_beaten(frame: pd.DataFrame) -> Outcomes:
    """Whether `paper` at ε 0.75 flips more than most other methods."""
    ours = side(frame, "flip_ratio", mechanism="paper", guidance="model", epsilon=0.75)
    theirs = [side(frame, "flip_ratio", method=method) for method in PEERS]
    outcomes = {}
    for case, it in ours.items():
        below = [it.value > each[case].value for each in theirs if case in each]
        words = f"{sum(below)} of {len(below)} methods below"
        outcomes[case] = Outcome(2 * sum(below) > len(below), words)
    return outcomes


def latent_faster(frame: pd.DataFrame) -> Outcomes:
    """The median time of searches in the latent space against that of searches among rows."""
    paper = side(frame, "seconds", mechanism="paper", guidance="model")
    sides = []
    for group, more in (("latent", [paper]), ("rows", [])):
        every = [*(side(frame, "seconds", method=method) for method in GROUPS[group]), *more]
        found = {case: [o[case].value for o in every if case in o] for o in every for case in o}
        sides.append({case: Mean(median(values)) for case, values in found.items()})
    return compare(*sides, lt)


def peers_above_ours(frame: pd.DataFrame, *, column: str, scale: float = 1) -> Outcomes:
    """Every other method against our slowest or farthest ε, in the largest call."""
    rows = select(frame, part="peers")
    rows = rows[rows.batch == rows.batch.max()]
    rows = _answering(rows) if column == "distance" else rows
    own = side(rows, column, ("epsilon",), scale, method="counterveil", guidance="model")
    worst = max(own.values(), key=lambda it: it.value, default=None)
    theirs = side(rows, column, ("method name",), scale, method=tuple(PEERS))
    return compare(theirs, {"": worst}, gt) if worst else {}


def pictures(frame: pd.DataFrame, *, mechanism: str, valid: bool) -> Outcomes:
    """Whether f gives pictures the class that was asked for."""
    return {
        f"{row.way}, ε {row.epsilon:g}": Outcome(bool(row.valid) == valid, f"f says {row.f_says:g}")
        for row in select(frame, mechanism=mechanism).itertuples()
    }


# The audit and the release.


def refuted(frame: pd.DataFrame, *, faulty: bool, by: Sequence[str]) -> Outcomes:
    """Claims that at least one game refutes, or (sound mechanisms) that no game does."""
    games = frame[frame.mechanism.str.startswith(("paper", "control")) == faulty]
    return {
        " at ε ".join(as_text(part) for part in key): Outcome(
            bool(found.any()) == faulty, f"{found.sum():g} of {len(found)} games refute it"
        )
        for key, found in games.groupby(list(by), sort=False).refuted
    }


def reaches_claimed(frame: pd.DataFrame) -> Outcomes:
    """Whether the game finds most of the claimed ε where the noise is no larger than it must be."""
    games = select(frame, mechanism="functional", view="coefficients")
    best = games[games.claimed_epsilon >= 0.5].groupby("claimed_epsilon").bound.max()
    return {
        f"ε {claimed:g}": Outcome(bound >= 0.8 * claimed, f"{bound:.2f} certified")
        for claimed, bound in best.items()
    }


def same_memory(frame: pd.DataFrame) -> Outcomes:
    """Peak memory of the largest table against the next."""
    peaks = side(frame.sort_values("rows").tail(2), "peak_memory_mib", ("rows",))
    if len(peaks) < 2:
        return {}
    (_, less), (case, more) = peaks.items()
    return compare({case: more}, {"": less}, lambda a, b: a <= 1.1 * b)


DECIDERS: Deciders = {
    "comparison": (comparison, ()),
    "falls_with_epsilon": (falls_with_epsilon, ("dataset name", "mse")),
    "most_peers_beaten": (most_peers_beaten, ()),
    "latent_faster": (latent_faster, ()),
    "peers_above_ours": (peers_above_ours, ("part", "batch", "method")),
    "pictures": (pictures, ("way", "valid", "f_says")),
    "refuted": (refuted, ("mechanism", "view", "refuted", "claimed_epsilon")),
    "reaches_claimed": (reaches_claimed, ("mechanism", "view", "bound", "claimed_epsilon")),
    "same_memory": (same_memory, ("rows", "peak_memory_mib")),
}
