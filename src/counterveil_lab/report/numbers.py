"""Means over seeds with their intervals, and as many digits as those allow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from counterveil_lab.results import Row
from counterveil_lab.seeds import t95

REPEATS = ("seed", "run")
NO_NOISE = math.inf
UNSETTLED = ", inside the noise"


@dataclass(frozen=True)
class Mean:
    """A mean over n repetitions; `half` is half of the 95 % t-interval, None for n = 1."""

    value: float
    half: float | None
    n: int

    def texts(self, decimals: int, scale: float = 1.0) -> tuple[str, str]:
        """Value and interval; at most `decimals` places, fewer where the interval is wide.

        No interval for one repetition, nor where all agree in the digits shown.
        """
        value = self.value * scale
        if self.half is None:
            return fixed(value, decimals), ""
        half = self.half * scale
        places = min(decimals, places_of(half))
        spread = fixed(half, places)
        return fixed(value, places), f"± {spread}" if spread.strip("0.") else ""

    @property
    def text(self) -> str:
        """For sentences."""
        return " ".join(filter(None, self.texts(3)))

    def against(self, printed: str) -> str:
        """The mean beside a printed number, and whether the seeds tell the two apart."""
        unsettled = self.half is not None and abs(self.value - float(printed)) < self.half
        return f"{self.text}, printed {printed}{UNSETTLED if unsettled else ''}"

    @property
    def unsettled(self) -> str:
        """Words to put behind a difference that the seeds do not tell from none."""
        return UNSETTLED if self.half is not None and abs(self.value) < self.half else ""

    def overlaps(self, other: Mean) -> str:
        """Words to put behind a comparison that the seeds do not settle."""
        if self.half is None or other.half is None:
            return ""
        return UNSETTLED if abs(self.value - other.value) < self.half + other.half else ""


def mean_of(values: Sequence[float]) -> Mean | None:
    """The mean and its t-interval; None for nothing."""
    n = len(values)
    if not n:
        return None
    centre = math.fsum(values) / n
    if n == 1:
        return Mean(centre, None, 1)
    variance = math.fsum((value - centre) ** 2 for value in values) / (n - 1)
    return Mean(centre, t95(n - 1) * math.sqrt(variance / n), n)


def average(rows: Iterable[Row], column: str) -> Mean | None:
    """The mean of `column` over seeds (or runs); rows of one seed are averaged first."""
    groups: dict[Any, list[float]] = {}
    for row in rows:
        value = number(row.get(column))
        if value is not None and math.isfinite(value):
            key = tuple(row.get(name) for name in REPEATS)
            groups.setdefault(key, []).append(value)
    return mean_of([math.fsum(group) / len(group) for group in groups.values()])


def number(value: Any) -> float | None:
    """A stored value as a float; None for null, words and NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if math.isnan(value) else float(value)


def word(row: Row, name: str) -> str:
    """A stored value as text, "" where there is none."""
    value = row.get(name)
    return "" if value is None else str(value)


def epsilon_of(row: Row) -> float | None:
    """ε of a row: infinity for no noise, None where the method knows no ε."""
    value = row.get("epsilon")
    return NO_NOISE if value in {"none", "inf", "Infinity"} else number(value)


def pick(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """Rows with these values; ε is compared as a number."""
    by_epsilon = "epsilon" in wanted
    epsilon = wanted.pop("epsilon", None)
    found = rows if isinstance(rows, list) else list(rows)
    for name, value in wanted.items():
        found = [row for row in found if row.get(name) == value]
    return [row for row in found if epsilon_of(row) == epsilon] if by_epsilon else found


def distinct(rows: Iterable[Row], column: str) -> list[Any]:
    """The values of a column in the order in which they come, null left out."""
    found = {row.get(column): None for row in rows}
    return [value for value in found if value is not None]


def groups(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    """Rows by key, in the order in which the keys come."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def places_of(half: float) -> int:
    """Decimal places at which an interval keeps one digit, or two if they begin below 3.55."""
    if half <= 0 or not math.isfinite(half):
        return 12
    power = math.floor(math.log10(half))
    leading = half / 10**power
    return max(0, (1 if leading < 3.55 else 0) - power)


def fixed(value: float, decimals: int) -> str:
    """A number with thousands marked, and no minus before a zero."""
    text = f"{value:,.{decimals}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text


def significant(value: float, digits: int = 3) -> str:
    """A number of any size with so many digits that mean something."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    power = math.floor(math.log10(abs(value)))
    return fixed(round(value, digits - 1 - power), max(0, digits - 1 - power))


def show_epsilon(value: float | None) -> str:
    """ε in words."""
    if value is None:
        return "–"
    return "no noise" if math.isinf(value) else f"{value:g}"
