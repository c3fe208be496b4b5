"""What a model's decisions, and the answers to them, are like for groups of people."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, astuple, dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri

from counterveil.encoding import Array
from counterveil.errors import RequestError
from counterveil.files import write_whole
from counterveil.intervals import Estimate, clopper_pearson
from counterveil.pages import TEMPLATES, notebook_table
from counterveil.privacy import Statement
from counterveil.search.results.wording import DecidedBy

ERROR = 0.05  # the probability that an interval misses
LEAST_PEOPLE = 30  # whom a number is about
LEAST_KNOWN = 15  # people that what is known of a group must be worth
ALL, REFUSED, ANSWERS = "all people", "the refused", "answers"  # whom a number is about
TOO_FEW, NOT_KNOWN = "too few to tell", "not known"


class Measure(NamedTuple):
    """One number of a group. `is_share`: of people; otherwise a mean. `most`: it can be."""

    name: str
    title: str
    of: str
    is_share: bool = True
    most: float = 1.0


MEASURES = (
    Measure("refused", "refused", ALL),
    Measure("answered", "has an answer", REFUSED),
    Measure("impossible", "proved impossible", REFUSED),
    Measure("effort", "effort", ANSWERS, is_share=False, most=math.inf),
    Measure("changes", "changes", ANSWERS, is_share=False, most=math.inf),
    Measure("stability", "stability", ANSWERS, is_share=False),
    Measure("agreement", "private model agrees", ANSWERS),
)
MEANINGS = (
    "Refused: the model does not give them the class that was asked for.",
    "Effort: the sum of the differences of percentiles; another category counts 1.",
    "Stability: the share of a committee of similar models that accepts an answer.",
)


@dataclass(frozen=True)
class Known:
    """What is known of one number of a group.

    `mean` and `deviation` of those that were `asked`. `people`: how many stand behind the veil that
    the number is about. `noise`: by how much noise in the veil's record may move it. `like`: what
    the veil cannot know of a group counts as if it were known from so many people alone.
    """

    mean: float
    deviation: float
    asked: int
    people: float
    noise: float
    like: float

    @classmethod
    def of(
        cls, measure: Measure, values: Array, people: float, noise: float, like: float
    ) -> Known | None:
        """Of what people were told; None where the number is about nobody."""
        if not len(values):
            return None
        mean, deviation = float(values.mean()), float(values.std())
        if measure.is_share:  # thirty of thirty are no certainty: as if one more were of each kind
            near = (values.sum() + 1) / (len(values) + 2)
            deviation = float(np.sqrt(near * (1 - near)))
        return cls(mean, max(deviation, 1e-3), len(values), people, noise, like)

    @property
    def veil_error(self) -> float:
        """By how much the veil may be off, one standard deviation."""
        return float(np.hypot(self.noise, self.deviation / self.like**0.5))

    @property
    def worth(self) -> float:
        """How many people, if they alone were drawn and asked, would tell as much."""
        lacking = 1 / self.asked + 1 / self.people + (self.veil_error / self.deviation) ** 2
        return float(1 / lacking)


@dataclass(frozen=True)
class Cell:
    """A number with its interval, or `why` there is none."""

    measure: Measure
    known: Known | None = None
    why: str = ""

    @classmethod
    def of(cls, measure: Measure, known: Known | None) -> Cell:
        """Too few people, or too little knowledge of them, make no number."""
        if known is None or known.asked < LEAST_PEOPLE or known.people < LEAST_PEOPLE:
            return cls(measure, known, TOO_FEW)
        return cls(measure, known, NOT_KNOWN if known.worth < LEAST_KNOWN else "")

    @cached_property
    def estimate(self) -> Estimate | None:
        """With a confidence of 95 %, for people like these."""
        if self.why or self.known is None:
            return None
        mean, worth = self.known.mean, self.known.worth
        if self.measure.is_share:
            return Estimate(mean, *clopper_pearson(mean * worth, worth, ERROR / 2))
        from scipy.stats import t  # takes a second to load

        half = float(t.isf(ERROR / 2, worth - 1)) * self.known.deviation / math.sqrt(worth)
        return Estimate(mean, max(0.0, mean - half), min(mean + half, self.measure.most))

    @property
    def text(self) -> str:
        """As a person reads it: 54 % (50 to 58)."""
        found = self.estimate
        if found is None:
            return self.why
        if not self.measure.is_share:
            return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"
        return f"{100 * found.value:.0f} % ({100 * found.low:.0f} to {100 * found.high:.0f})"

    def to_dict(self) -> dict[str, Any]:
        """Value, low and high; or why there is none."""
        return {"why": self.why} if self.estimate is None else asdict(self.estimate)


@dataclass(frozen=True)
class GroupFigures:
    """A group: its values, by column, and what is known of it.

    `share`: of all people.
    """

    values: dict[str, Any]
    share: float
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        """The values side by side: sex = female, race = Black."""
        return ", ".join(f"{column} = {value}" for column, value in self.values.items())

    @property
    def of(self) -> tuple[str, ...]:
        """The columns that make it."""
        return tuple(self.values)

    @property
    def veil_error(self) -> float | None:
        """By how much the veil may be off about the share that is refused; None if not known."""
        cell = self.cells[0]
        return None if cell.why or cell.known is None else cell.known.veil_error


@dataclass(frozen=True)
class Gap:
    """The widest gap in one number between two groups of the same columns."""

    measure: Measure
    of: tuple[str, ...]
    low: str
    high: str
    estimate: Estimate

    @property
    def is_sure(self) -> bool:
        """Whether there is a gap at all, with a confidence of 95 %."""
        return self.estimate.low > 0

    @property
    def text(self) -> str:
        """In one sentence."""
        factor, unit = (100, " points") if self.measure.is_share else (1, "")
        digits = 0 if self.measure.is_share else 2
        gap, low, high = (
            f"{factor * each:.{digits}f}"
            for each in (self.estimate.value, self.estimate.low, self.estimate.high)
        )
        told = f"{self.measure.title}: {gap}{unit} ({low} to {high}) more for {self.high} than for "
        return f"{told}{self.low}"


def _gap(low: Estimate, high: Estimate, pairs: int) -> Estimate:
    """The difference of two estimates, with an interval for the widest of so many differences.

    Each errs by itself: the squares of the halves of their intervals add up (Newcombe 1998).
    """
    wider = float(ndtri(ERROR / 2 / pairs) / ndtri(ERROR / 2))
    down = wider * math.hypot(high.value - high.low, low.high - low.value)
    up = wider * math.hypot(high.high - high.value, low.value - low.low)
    gap = high.value - low.value
    return Estimate(gap, max(0.0, gap - down), gap + up)


@dataclass(frozen=True)
class Fairness:
    """A model's decisions and the answers to them, by groups, with intervals of 95 %.

    `target`: the class that people want, as it is called. `exact`: whether real people were asked
    about, who were given; otherwise they were drawn from the veil. `signed`: who signed the veil.
    """

    table: str
    target: str
    decided_by: DecidedBy
    statement: Statement
    exact: bool
    groups: tuple[GroupFigures, ...]
    signed: str = "unsigned"

    @cached_property
    def gaps(self) -> tuple[Gap, ...]:
        """The widest gap of every measure, for each choice of columns.

        Its interval is as wide as if every pair of groups had been looked at, for it was.
        """
        found = []
        for of, (place, measure) in product(self.choices, enumerate(MEASURES)):
            cells = [(group.name, group.cells[place]) for group in self.groups if group.of == of]
            told = [(each.estimate, name) for name, each in cells if each.estimate is not None]
            if len(told) > 1:
                told.sort(key=lambda each: each[0].value)
                (low, whose), (high, others) = told[0], told[-1]
                pairs = len(told) * (len(told) - 1) // 2
                found.append(Gap(measure, of, whose, others, _gap(low, high, pairs)))
        return tuple(found)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """Those that any group has."""
        return tuple(
            measure
            for place, measure in enumerate(MEASURES)
            if any(group.cells[place].known is not None for group in self.groups)
        )

    @property
    def how(self) -> str:
        """Whom the numbers are about, and what they promise."""
        if self.exact:
            return (
                "EXACT AND PRIVATE: these are numbers of the people who were given; no noise was "
                "added, and no ε covers them"
            )
        return f"people drawn from the veil: {self.statement.headline}"

    @property
    def choices(self) -> tuple[tuple[str, ...], ...]:
        """The columns that make groups: one, or two together."""
        return tuple(dict.fromkeys(group.of for group in self.groups))

    @property
    def headings(self) -> tuple[str, ...]:
        """Of `rows`."""
        more = () if self.exact else ("veil off by",)
        return ("group", "of all", *more, *(each.title for each in self.measures))

    def rows(self, of: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        """A line for each group as a person reads it; of all, or of those that columns make.

        What the veil may be off by is one standard deviation of the share that is refused.
        """
        found = []
        for group in (each for each in self.groups if not of or each.of == of):
            told = [cell.text for cell in group.cells if cell.measure in self.measures]
            error = group.veil_error
            more = [] if self.exact else ["" if error is None else f"{100 * error:.0f} points"]
            found.append((group.name, f"{100 * group.share:.1f} %", *more, *told))
        return found

    def _repr_html_(self) -> str:
        return notebook_table(
            f"Fairness: {self.table}",
            [("wanted", self.target), *(("gap", gap.text) for gap in self.gaps[:8])],
            headings=self.headings,
            rows=self.rows(),
            warning=self.how if self.exact else "",
        )

    def frame(self) -> pd.DataFrame:
        """A row for each group and measure: its number, interval, or why there is none."""
        return pd.DataFrame(
            {
                "columns": ", ".join(group.of),
                "group": group.name,
                "share": group.share,
                "measure": cell.measure.name,
                **cell.to_dict(),
            }
            for group in self.groups
            for cell in group.cells
            if cell.measure in self.measures
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values for JSON."""
        return {
            "table": self.table,
            "target": self.target,
            "private": self.exact,
            "how": self.how,
            "decided_by": self.decided_by.value,
            "confidence": 1 - ERROR,
            "groups": [
                {
                    "values": {name: str(value) for name, value in group.values.items()},
                    "share": group.share,
                    "veil_error": group.veil_error,
                    "measures": {
                        cell.measure.name: cell.to_dict()
                        for cell in group.cells
                        if cell.measure in self.measures
                    },
                }
                for group in self.groups
            ],
            "gaps": [
                {"measure": gap.measure.name, "columns": gap.of, "low": gap.low, "high": gap.high}
                | {"gap": asdict(gap.estimate)}
                for gap in self.gaps
            ],
        }

    def to_html(self) -> str:
        """A page for people, of one file: bars with their intervals, gaps, and the promise."""
        return TEMPLATES.get_template("fairness.html").render(
            title=f"Fairness: {self.table}",
            result=self,
            meanings=(*MEANINGS, self.decided_by.meaning),
        )

    def bars(self, measure: Measure) -> list[tuple[GroupFigures, Cell, list[float]]]:
        """Every group with its number, low and high end in percent of the widest; [] for none."""
        cells = [group.cells[MEASURES.index(measure)] for group in self.groups]
        ends = [astuple(cell.estimate) if cell.estimate else () for cell in cells]
        widest = max((high for *_, high in filter(None, ends)), default=1.0)
        widest = widest if math.isinf(measure.most) else measure.most
        bars = [[100 * each / widest for each in some] for some in ends]
        return list(zip(self.groups, cells, bars, strict=True))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a page (.html), everything (.json) or the table (.csv)."""
        ending = Path(path).suffix.lower()
        if ending == ".html":
            content = self.to_html()
        elif ending == ".json":
            content = json.dumps(self.to_dict(), ensure_ascii=False, indent=2) + "\n"
        elif ending == ".csv":
            content = self.frame().to_csv(index=False)
        else:
            raise RequestError(f"{path}: name the file .html, .json or .csv")
        write_whole(path, content.encode("utf-8", "replace"))
