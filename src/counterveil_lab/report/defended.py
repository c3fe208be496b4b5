"""Defences by name, and their rows among those of the attacks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from counterveil_lab.report.numbers import distinct, epsilon_of, number, pick
from counterveil_lab.report.ways import in_order
from counterveil_lab.results import Row

DEFENCES = {
    "none": "predictions alone",
    "dice-gradient": "DiCE, gradient",
    "dice-kdtree": "DiCE, nearest training rows",
    "no-noise": "no noise",
    "no-noise-published": "no noise, published search",
    "paper": "`paper`",
    "functional-model": "`functional`, guidance `model`",
    "functional-surrogate": "`functional`, guidance `surrogate`",
    "elsewhere-surrogate": "control: a veil of people f never saw, guidance `surrogate`",
    "random-labels": "control: classes at random",
    "random-labels-surrogate": "control: classes at random, guidance `surrogate`",
    "dp-model": "f itself by DP-SGD",
    "cf-k": "CF-K",
}
Source = tuple[str, float | None]  # a defence and its ε


def names_of(rows: Sequence[Row]) -> list[str]:
    """Datasets in the paper's order."""
    return in_order(str(name) for name in distinct(rows, "dataset"))


def sources(rows: Iterable[Row], defence: str | None = None) -> list[Source]:
    """Defences with their ε, in the order of `DEFENCES`."""
    order = list(DEFENCES)
    found = {(str(row["defence"]), epsilon_of(row)) for row in rows if row.get("defence")}
    return sorted(
        (one for one in found if defence in {None, one[0]}),
        key=lambda one: (order.index(one[0]) if one[0] in order else 99, one[0], one[1] or 0),
    )


def source_name(source: Source) -> str:
    """A defence for people."""
    name, epsilon = source
    return DEFENCES.get(name, name) + ("" if epsilon is None else f", ε {epsilon:g}")


def of(rows: Iterable[Row], source: Source, **more: object) -> list[Row]:
    """The rows of one defence at one ε."""
    return pick(rows, defence=source[0], epsilon=source[1], **more)


def base(
    rows: Sequence[Row], source: Source, attacker: str = "base-n", **more: object
) -> list[Row]:
    """Predictions alone: measured beside a defence or, where they were not, beside the others.

    With dp-model f is another, and so is its base.
    """
    own = of(rows, source, attacker=attacker, **more)
    others = pick(rows, attacker=attacker, **more)
    return own or [row for row in others if row.get("defence") != "dp-model"]


def largest(rows: Sequence[Row]) -> float | None:
    """The largest number of queries."""
    return max((c for row in rows if (c := number(row.get("queries"))) is not None), default=None)
