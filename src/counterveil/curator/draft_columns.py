"""The feature that fits a column, for the draft of a schema, and what is left to decide of it."""

import datetime
import math
import numbers
import re
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal

import numpy as np
import pandas as pd

from counterveil.curator import column_names
from counterveil.encoding import Array
from counterveil.errors import DataError
from counterveil.hints import named
from counterveil.schema import Binary, Categorical, Category, Numeric

Drafted = Numeric | Categorical | Binary
Kind = Literal["bool", "number", "text", "date"]
Column = Any  # of pandas: the present cells of one column

MANY = 20  # different cells from which a column may hold identifiers
LARGEST = 1e15  # as in the schema: up to it floats tell whole numbers apart
MONTH = r"(jan|feb|m[aä]r|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz])[a-z]*\.?"
TIME = r"([ T]+\d{1,2}:\d{2}.*)?"
DATE = re.compile(
    rf"(\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|\d{{4}}-\d{{2}}|\d{{1,2}}[-/.]\d{{1,2}}[-/.](\d{{4}}|\d{{2}})"
    rf"|\d{{1,2}}\.?[ -]{MONTH}[ ,-]*\d{{2,4}}|{MONTH} \d{{1,2}},? \d{{4}}){TIME}"
    r"|\d{1,2}:\d{2}(:\d{2})?",
    re.IGNORECASE,
)
PLAIN = re.compile(r"[+-]?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?|[+-]?\.\d+")
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
    "of a row, name it in the release, which then protects people instead of rows"
)
TOO_MANY = (
    f"has over {MOST_CATEGORIES} different values; group them, by the first digits or letters"
)


class Decide(StrEnum):
    """What a person has to decide of the columns {}, in this order."""

    BOUNDS = "bounds of {}: they are those of the rows; put the public ones"
    CATEGORIES = "categories of {}: list all that a form allows, seen here or not"
    PERSONAL = "immutable, as the name says something personal: {}"
    GOOD = "which way is better for the person, as the name says: {}"
    MUTABLE = 'what else no answer may change: add "immutable": true, or a "direction"'
    CODES = "{}: numbers taken for codes; give them the kind of numbers if they are amounts"
    AMOUNTS = "{}: taken for amounts; give them a kind with a list of values if they are codes"
    STEPS = "steps that would suit people: {}"
    EMPTY = "{}: most cells are empty; leave out what says nothing so"
    NINES = "{}: nines at one end, such as 999: a code for missing?"
    SPELLINGS = "{}: texts that differ in capitals or spaces only"


Decisions = defaultdict[Decide, list[str]]  # what to decide, and of which columns


def in_words(decisions: Decisions) -> Iterator[str]:
    """A sentence for each kind of decision that the table asks for."""
    return (each.value.format(named(decisions[each])) for each in Decide if decisions[each])


class UnfitColumnError(DataError):
    """A column that cannot be a feature: why, and what to do."""


def is_constant(column: Column) -> bool:
    """Whether a column says nothing: one value, or none."""
    cells = column.dropna().tolist()
    try:
        different = len(set(cells))
    except TypeError:  # lists and the like
        different = len(set(map(repr, cells)))
    if different + bool(column.isna().any()) < 2:
        return True
    # One number and empty cells: a category, unless it has decimals.
    one = cells[0]
    return different == 1 and isinstance(one, (float, Decimal)) and one % 1 != 0


def kind_of_cells(values: Column) -> Kind:
    """What the present `values` of a column are; one kind only."""
    one_of_each_type = {type(value): value for value in values.tolist()}
    kinds = {_kind_of(value) for value in one_of_each_type.values()}
    if None in kinds:
        raise UnfitColumnError("holds something else than numbers, texts and truth values")
    if len(kinds) > 1:
        listed = " and ".join(sorted(f"{kind}s" for kind in kinds))
        raise UnfitColumnError(f"mixes {listed}; make it one of the two")
    kind = kinds.pop() or "text"
    texts = {text.strip() for text in set(values)} if kind == "text" else ()
    return "date" if texts and all(map(DATE.fullmatch, texts)) else kind


def are_plain_numbers(values: Column) -> bool:
    """Whether texts are numbers, too many to be categories; with zeros in front they are codes."""
    texts = {text.strip() for text in set(values)}
    return len(texts) > MANY and all(map(PLAIN.fullmatch, texts))


def _kind_of(value: Any) -> Kind | None:
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    if isinstance(value, (numbers.Real, Decimal)):
        return "number"
    if isinstance(value, (datetime.date, datetime.time, datetime.timedelta, pd.Period)):
        return "date"
    return "text" if isinstance(value, str) else None


def as_numbers(values: Column) -> Array:
    """Present cells as float64; an UnfitColumnError where that loses something."""
    if values.dtype.kind in "iuf":
        number = values.to_numpy(np.float64)
    else:
        number = np.array([float(value) for value in values], dtype=np.float64)
    if not np.isfinite(number).all():
        raise UnfitColumnError("holds infinite numbers; drop these rows or empty them")
    if (np.abs(number) > LARGEST).any():
        raise UnfitColumnError(
            "holds numbers beyond 1e15, which are not told apart exactly; use a larger unit"
        )
    return number


def are_whole(number: Array) -> bool:
    return bool((number == np.round(number)).all())


def distinct(values: Column, kind: Kind) -> tuple[Category, ...]:
    """The different values in order, as JSON can hold them."""
    if kind == "bool":
        return tuple(bool(value) for value in sorted(set(values)))
    if kind == "number":
        number = as_numbers(values)
        if not are_whole(number):
            raise UnfitColumnError("has categories with decimals; make them texts")
        return tuple(int(value) for value in np.unique(number))
    return tuple(sorted(set(values)))


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
        decisions[Decide.EMPTY].append(name)
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
        decisions[Decide.CODES] += [name] if len(different) > 2 else []
        return _of_values(name, tuple(int(value) for value in different), missing)
    low, high = float(different[0]), float(different[-1])
    if whole and len(different) <= FEW_ROWS and not column_names.names_an_amount(name):
        decisions[Decide.AMOUNTS].append(name)
    step = _step(number, whole)
    if step is not None:
        decisions[Decide.STEPS].append(f"{step:,.15g} for {name}")
    if _ends_in_a_code(number):
        decisions[Decide.NINES].append(name)
    return Numeric(name=name, lower=low, upper=high, integer=whole, missing=missing)


def _draft_categories(
    name: str, values: Column, kind: Kind, missing: bool, decisions: Decisions
) -> Drafted:
    categories = distinct(values, kind)
    if kind == "text":
        _refuse_texts(name, values, len(categories))
        folded = {str(each).strip().casefold() for each in categories}
        if len(folded) < len(categories):
            decisions[Decide.SPELLINGS].append(name)
    elif len(categories) > MOST_CATEGORIES:
        raise UnfitColumnError(TOO_MANY)
    return _of_values(name, categories, missing)


def _of_values(name: str, categories: tuple[Category, ...], missing: bool) -> Drafted:
    """The feature of these values; of two, one that says no comes first."""
    if len(categories) == 2 and not missing:
        first, second = categories
        if str(second).strip().lower() in NO and str(first).strip().lower() not in NO:
            first, second = second, first
        return Binary(name=name, values=(first, second))
    return Categorical(name=name, categories=categories, missing=missing)


def _refuse_identifier(name: str, number: Array, different: int) -> None:
    is_amount = column_names.names_an_amount(name)
    all_differ = different == len(number) > MANY and not is_amount
    if all_differ and number.max() - number.min() < 1.05 * len(number):
        raise UnfitColumnError("numbers the rows")
    named_so = column_names.names_an_identifier(name) and different > max(MANY, len(number) / 10)
    is_long = all_differ and number.min() >= 1e8  # of nine digits and more
    if named_so or is_long:
        raise UnfitColumnError(AN_IDENTIFIER)


def _refuse_texts(name: str, values: Column, different: int) -> None:
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


def _are_codes(name: str, number: Array, different: Array) -> bool:
    """Whether whole numbers are codes: by the name; or few, far apart, often and not round."""
    if column_names.names_a_code(name):
        return True
    if column_names.names_an_amount(name) or different[0] < 100:
        return False
    few = 3 <= len(different) <= MANY and len(number) >= 5 * len(different)
    apart = (different[-1] - different[0]) > 3 * len(different)
    return few and apart and _shared_divisor(different) == 1


def _are_days(number: Array) -> bool:
    """Whether whole numbers are days such as 20260131."""
    year, rest = np.divmod(number, 10_000)
    month, day = np.divmod(rest, 100)
    good = (year >= 1850) & (year < 2150) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    return bool(good.all())


def _ends_in_a_code(number: Array) -> bool:
    """Whether the largest or the smallest number is one such as 999 or -99, far from the others."""
    for end, others in (
        (number.max(), number[number < number.max()]),
        (-number.min(), -number[number > number.min()]),
    ):
        nines = end >= 99 and float(end).is_integer() and set(str(int(end))) == {"9"}
        if nines and len(others) and end > 2 * max(others.max(), 1):
            return True
    return False


def _step(number: Array, whole: bool) -> float | None:
    """A round step for people: about a fiftieth of the middle four fifths; None below 5."""
    low, high = np.quantile(number, (0.1, 0.9))
    size = (high - low) / STEPS_IN_SPREAD
    if size < 5:
        return None
    power = 10.0 ** math.floor(math.log10(size))
    step = power * max((part for part in (1, 2, 5) if part * power <= size), default=0.5)
    shared = _shared_divisor(number) if whole else 1
    return float(shared) if step < shared <= 10 * step else float(step)


def _shared_divisor(number: Array) -> int:
    """The largest whole number that divides all of these."""
    return int(np.gcd.reduce(number.astype(np.int64)))


def with_rules(feature: Drafted, decisions: Decisions) -> Drafted:
    """The feature, immutable where its name says that it is personal, or with its good way."""
    attribute = column_names.personal_attribute(feature.name)
    if attribute is None:
        way = column_names.better_way(feature.name) if feature.ordered else None
        if way is None:
            return feature
        decisions[Decide.GOOD].append(f"{feature.name} ({way})")
        return feature.model_copy(update={"good": way})
    named_so = feature.name.casefold() == attribute
    decisions[Decide.PERSONAL].append(feature.name if named_so else f"{feature.name} ({attribute})")
    return feature.model_copy(update={"immutable": True})
