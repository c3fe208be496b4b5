"""The feature that fits a column, for the draft of a schema, and what is left to decide of it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np
import pandas as pd

from counterveil.curator import column_names
from counterveil.curator.draft_cells import (
    MANY,
    Column,
    Kind,
    Numbers,
    UnfitColumnError,
    are_plain_numbers,
    are_whole,
    as_numbers,
    distinct,
    is_constant,
    kind_of_cells,
)
from counterveil.hints import named
from counterveil.schema import Binary, Categorical, Numeric, Schema

Drafted = Numeric | Categorical | Binary

MOST_CATEGORIES = 200
FEW_ROWS = 10  # so few texts may all differ and still be categories
NEARLY_ALL = 0.9  # of the cells are different: an identifier or free text
LONG_TEXT = 40  # letters, on average
MUCH_MISSING = 0.5  # of the cells
STEPS_IN_SPREAD = 50  # a step for people is about this part of the middle four fifths
DECORATED = re.compile(  # a number with a currency, a percent sign or separators of thousands
    r"[+-]?[$€£¥]?\s*[+-]?(\d{1,3}([,.' \u00a0\u202f]\d{3})+|\d+)([.,]\d+)?"
    r"\s*(%|[$€£¥]|EUR|USD|CHF)?",
    re.IGNORECASE,
)
SIMPLE = re.compile(r"[+-]?\d+(\.\d+)?")
NO = {"no", "n", "false", "f", "none", "never", "negative", "neg", "absent", "off", "nein", "bad"}
AN_IDENTIFIER = (
    "is an identifier: it tells rows or people apart and explains nothing; if it names the person "
    "of a row, give it to release as --unit-column"
)
TOO_MANY = (
    f"has over {MOST_CATEGORIES} different values; group them, by the first digits or letters"
)


class Decisions:
    """What was guessed, column by column, and what a person has to look at."""

    def __init__(self) -> None:
        self.codes: list[str] = []  # whole numbers taken for codes
        self.amounts: list[str] = []  # few whole numbers taken for amounts
        self.personal: list[str] = []
        self.steps: list[str] = []
        self.empty: list[str] = []  # most of their cells
        self.nines: list[str] = []  # at one end of the numbers
        self.spellings: list[str] = []  # texts that differ in capitals or spaces only

    def in_words(self, schema: Schema) -> Iterator[str]:
        """A sentence for each kind of decision that the table asks for."""
        wide = [each.name for each in schema.features if each.number_range is not None]
        listed = [each.name for each in schema.features if each.number_range is None]
        told = (
            (wide, "bounds of {}: they are those of the rows; put the public ones"),
            (listed, "categories of {}: list all that a form allows, seen here or not"),
            (self.personal, "immutable, as the name says something personal: {}"),
            (
                schema.columns,
                'what else no answer may change: add "immutable": true, or a "direction"',
            ),
            (self.codes, '{}: numbers taken for codes; "numeric" if they are amounts'),
            (self.amounts, '{}: taken for amounts; "categorical" if they are codes'),
            (self.steps, "steps that would suit people: {}"),
            (self.empty, "{}: most cells are empty; leave out what says nothing so"),
            (self.nines, "{}: nines at one end, such as 999: a code for missing?"),
            (self.spellings, "{}: texts that differ in capitals or spaces only"),
        )
        return (words.format(named(names)) for names, words in told if names)


def draft_feature(name: str, column: Column, decisions: Decisions) -> Drafted:
    """The feature that fits a column; an UnfitColumnError where there is none."""
    if isinstance(column.dtype, pd.StringDtype):
        column = column.astype(object)  # which is several times quicker to go through
    if is_constant(column):
        raise UnfitColumnError("is constant")
    missing, values = bool(column.isna().any()), column.dropna()
    kind = kind_of_cells(values)
    if kind == "date":
        raise UnfitColumnError(
            "holds dates; to use them, make them a number, such as days before a fixed day"
        )
    if kind == "text" and are_plain_numbers(values):
        kind = "number"
    if kind == "bool" and missing:
        feature: Drafted = Categorical(name=name, categories=(False, True), missing=True)
    elif kind == "number" and not isinstance(column.dtype, pd.CategoricalDtype):
        feature = _draft_number(name, values, missing, decisions)
    else:
        feature = _draft_categories(name, values, kind, missing, decisions)
    if column.isna().mean() > MUCH_MISSING:
        decisions.empty.append(name)
    return feature


def _draft_number(name: str, values: Column, missing: bool, decisions: Decisions) -> Drafted:
    number = as_numbers(values)
    whole, different = are_whole(number), np.unique(number)
    if not missing and set(different) == {0, 1}:
        return Binary(name=name)
    if whole:
        _refuse_identifier(name, number, len(different))
        if len(different) > FEW_ROWS and _are_days(number):
            raise UnfitColumnError(
                "holds dates, written as whole numbers; to use them, make them days before a fixed "
                "day"
            )
    are_two = len(different) == 2 and different[1] - different[0] == 1
    if len(different) == 1 or (whole and (are_two or _are_codes(name, number, different))):
        if len(different) > MOST_CATEGORIES:
            raise UnfitColumnError(TOO_MANY)
        decisions.codes += [name] if len(different) > 2 else []
        categories = tuple(int(value) for value in different)
        if len(categories) == 2 and not missing:
            return Binary(name=name, values=(categories[0], categories[1]))
        return Categorical(name=name, categories=categories, missing=missing)
    low, high = float(different[0]), float(different[-1])
    if whole and len(different) <= FEW_ROWS and not column_names.names_an_amount(name):
        decisions.amounts.append(name)
    step = _step(number, whole)
    if step is not None:
        decisions.steps.append(f"{step:,.15g} for {name}")
    if _ends_in_a_code(number):
        decisions.nines.append(name)
    return Numeric(name=name, lower=low, upper=high, integer=whole, missing=missing)


def _draft_categories(
    name: str, values: Column, kind: Kind, missing: bool, decisions: Decisions
) -> Drafted:
    categories = distinct(values, kind)
    if kind == "text":
        _refuse_texts(name, values, len(categories))
        folded = {str(each).strip().casefold() for each in categories}
        if len(folded) < len(categories):
            decisions.spellings.append(name)
    elif len(categories) > MOST_CATEGORIES:
        raise UnfitColumnError(TOO_MANY)
    if len(categories) == 2 and not missing:
        first, second = categories
        if str(second).strip().lower() in NO and str(first).strip().lower() not in NO:
            first, second = second, first
        return Binary(name=name, values=(first, second))
    return Categorical(name=name, categories=categories, missing=missing)


def _refuse_identifier(name: str, number: Numbers, different: int) -> None:
    """Refuse whole numbers that tell rows or people apart."""
    is_amount = column_names.names_an_amount(name)
    all_differ = different == len(number) > MANY and not is_amount
    if all_differ and number.max() - number.min() < 1.05 * len(number):
        raise UnfitColumnError("numbers the rows")
    named_so = column_names.names_an_identifier(name) and different > max(MANY, len(number) / 10)
    is_long = all_differ and number.min() >= 1e8  # of nine digits and more
    if named_so or is_long:
        raise UnfitColumnError(AN_IDENTIFIER)


def _refuse_texts(name: str, values: Column, different: int) -> None:
    """Refuse texts that are no categories."""
    written = {text.strip() for text in set(values)}
    if all(map(DECORATED.fullmatch, written)) and not all(map(SIMPLE.fullmatch, written)):
        raise UnfitColumnError(
            "holds numbers with commas, spaces or signs such as % and $; write them as plain "
            "numbers, 1234.5"
        )
    is_identifier = column_names.names_an_identifier(name)
    if is_identifier and different > max(MANY, len(values) / 10):
        raise UnfitColumnError(AN_IDENTIFIER)
    if column_names.names_a_code(name) and different > MOST_CATEGORIES:
        raise UnfitColumnError(TOO_MANY)
    if len(values) > FEW_ROWS and different >= NEARLY_ALL * len(values):
        raise UnfitColumnError(
            "holds a different text in nearly every row: an identifier or free text"
        )
    if different > MANY and sum(map(len, values)) > LONG_TEXT * len(values):
        raise UnfitColumnError("holds free text; to use it, make categories of it")
    if different > MOST_CATEGORIES:
        raise UnfitColumnError(TOO_MANY)


def _are_codes(name: str, number: Numbers, different: Numbers) -> bool:
    """Whether whole numbers are codes: by the name; or few, far apart, often and not round."""
    if column_names.names_a_code(name):
        return True
    if column_names.names_an_amount(name) or different[0] < 100:
        return False
    few = 3 <= len(different) <= MANY and len(number) >= 5 * len(different)
    apart = (different[-1] - different[0]) > 3 * len(different)
    return few and apart and _shared_divisor(different) == 1


def _are_days(number: Numbers) -> bool:
    """Whether whole numbers are days such as 20260131."""
    year, rest = np.divmod(number, 10_000)
    month, day = np.divmod(rest, 100)
    good = (year >= 1850) & (year < 2150) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    return bool(good.all())


def _ends_in_a_code(number: Numbers) -> bool:
    """Whether the largest or the smallest number is one such as 999 or -99, far from the others."""
    for end, others in (
        (number.max(), number[number < number.max()]),
        (-number.min(), -number[number > number.min()]),
    ):
        nines = end >= 99 and float(end).is_integer() and set(str(int(end))) == {"9"}
        if nines and len(others) and end > 2 * max(others.max(), 1):
            return True
    return False


def _step(number: Numbers, whole: bool) -> float | None:
    """A round step for people: about a fiftieth of the middle four fifths; None below 5."""
    low, high = np.quantile(number, (0.1, 0.9))
    size = (high - low) / STEPS_IN_SPREAD
    if size < 5:
        return None
    power = 10.0 ** math.floor(math.log10(size))
    step = power * max(part for part in (1, 2, 5) if part * power <= size)
    shared = _shared_divisor(number) if whole else 1
    return float(shared) if step < shared <= 10 * step else float(step)


def _shared_divisor(number: Numbers) -> int:
    """The largest whole number that divides all of these."""
    return int(np.gcd.reduce(number.astype(np.int64)))


def with_rules(feature: Drafted, decisions: Decisions) -> Drafted:
    """The feature, immutable where its name says that it is personal."""
    attribute = column_names.personal_attribute(feature.name)
    if attribute is None:
        return feature
    named_so = feature.name.casefold() == attribute
    decisions.personal.append(feature.name if named_so else f"{feature.name} ({attribute})")
    return feature.model_copy(update={"immutable": True})
