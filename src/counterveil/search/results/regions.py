"""Regions as they are told: which values of a changed feature work, and in words.

A region is about one feature, with the rest of the answer as it is. Two features that both move
within their regions may leave the target class. `region_finder.py` finds regions.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from counterveil.hints import either
from counterveil.schema import Schema
from counterveil.search.results.wording import Change

EXACT = "exact"
MOST_NAMED = 5  # categories of a region in a sentence
WORDS = {
    "en": {
        "least": "at least {low}",
        "most": "at most {high}",
        "between": "between {low} and {high}",
        "or": "or",
        "quotes": "“”",
        "stays": "as it is now",
        "unknown": "unknown",
    },
    "de": {
        "least": "mindestens {low}",
        "most": "höchstens {high}",
        "between": "zwischen {low} und {high}",
        "or": "oder",
        "quotes": "„“",
        "stays": "wie bisher",
        "unknown": "unbekannt",
    },
}


@dataclass(frozen=True)
class Region:
    """The values of one changed column that work.

    - `low`, `high`: of a number, both included.
    - `values`: of a category, without the person's own; `stays`: whether that works, too.
    - `checked`: how; see the module.
    - `told`: low and high as they are told to people: rounded inward, to values that work.
    """

    column: str
    low: float | None = None
    high: float | None = None
    values: tuple[Any, ...] = ()
    stays: bool = False
    checked: str = EXACT
    told: tuple[float, float] | None = None

    @property
    def record(self) -> dict[str, Any]:
        """As plain values for JSON."""
        ends = {"low": self.low, "high": self.high}
        return {
            "column": self.column,
            **({"values": list(self.values), "stays": self.stays} if self.values else ends),
            "checked": self.checked,
        }

    def holds(self, value: Any) -> bool:
        """Whether a value is in it."""
        if self.low is None or self.high is None:
            return value in self.values
        return value is not None and self.low <= value <= self.high


def in_words(schema: Schema, region: Region, change: Change, language: str = "en") -> str:
    """The values of a region as people say them: "at least 52", "sales or technical support".

    "as it is now" where the person's own value works, with the rest of the answer as it is: the
    change makes the answer surer. "" where no other value works. Of many categories the answer's
    own and a few more are named.
    """
    column, before, after = change
    words = WORDS[language]

    def text(value: Any) -> str:
        return value_text(schema.shown_value(column, value), language)

    if region.stays or region.holds(before):
        return words["stays"]
    if region.told is None or region.low is None or region.high is None:
        others = [value for value in region.values if value != after]
        some = [quoted(text(value), language) for value in (after, *others[: MOST_NAMED - 1])]
        return either(some, words["or"]) if others else ""
    if region.low == region.high:
        return ""
    low, high = region.told
    least, most = schema.feature(column).number_range or (low, high)
    way = "between" if low > least and high < most else "least" if low > least else "most"
    return words[way].format(low=text(low), high=text(high))


def quoted(text: str, language: str) -> str:
    """A value in a list: in quotation marks where it has a comma, an "and" or an "or" itself."""
    is_open = any(mark in text for mark in (", ", " and ", " or ", " und ", " oder "))
    marks = WORDS[language]["quotes"]
    return f"{marks[0]}{text}{marks[1]}" if is_open else text


def value_text(value: Any, language: str = "en") -> str:
    """A plain value in full, as people of a language write it.

    >>> value_text(1234.5), value_text(1234.5, "de"), value_text(None, "de")
    ('1,234.5', '1.234,5', 'unbekannt')
    """
    if value is None:
        return WORDS[language]["unknown"]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    text = f"{Decimal(repr(value)):,f}".removesuffix(".0")
    return text.translate(str.maketrans(",.", ".,")) if language == "de" else text
