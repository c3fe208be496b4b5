"""A first schema from a table, for a person to edit.

A draft looks at the data: its bounds and categories are those of the rows. Nothing built on it is
private until a person has replaced them by public knowledge. The draft says so itself
(`"drafted": true`), and so does every statement of a Veil made from it.

A column that cannot be a feature is left out, with the reason and what to do: identifiers, dates,
free text, constants, numbers that are written with commas or signs. What a table cannot tell is
guessed from names (`column_names`), and every guess is on the list of what a person must decide.
"""

from __future__ import annotations

import datetime
import math
import numbers
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from counterveil.curator import column_names
from counterveil.errors import DataError
from counterveil.hints import named, spelt_otherwise
from counterveil.schema import Binary, Categorical, Category, Label, Numeric, Schema
from counterveil.tables import SEPARATORS, as_frame, csv_batches, csv_columns, read_table

Kind = Literal["bool", "number", "text", "date"]
Column = Any  # of pandas: the present cells of one column
Numbers = np.ndarray[Any, np.dtype[np.float64]]
Drafted = Numeric | Categorical | Binary

MOST_CATEGORIES = 200
MOST_CLASSES = 1000
CLASSES_OF_A_LABEL = range(2, 21)  # of a column that is suggested as the label
FEW_ROWS = 10  # so few texts may all differ and still be categories
MANY = 20  # different cells from which a column may hold identifiers
NEARLY_ALL = 0.9  # of the cells are different: an identifier or free text
LONG_TEXT = 40  # letters, on average
LARGEST = 1e15  # as in the schema: up to it floats tell whole numbers apart
MUCH_MISSING = 0.5  # of the cells
STEPS_IN_SPREAD = 50  # a step for people is about this part of the middle four fifths
MONTH = r"(jan|feb|m[aä]r|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz])[a-z]*\.?"
TIME = r"([ T]+\d{1,2}:\d{2}.*)?"
DATE = re.compile(
    rf"(\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|\d{{4}}-\d{{2}}|\d{{1,2}}[-/.]\d{{1,2}}[-/.](\d{{4}}|\d{{2}})"
    rf"|\d{{1,2}}\.?[ -]{MONTH}[ ,-]*\d{{2,4}}|{MONTH} \d{{1,2}},? \d{{4}}){TIME}"
    r"|\d{1,2}:\d{2}(:\d{2})?",
    re.IGNORECASE,
)
DECORATED = re.compile(  # a number with a currency, a percent sign or separators of thousands
    r"[+-]?[$€£¥]?\s*[+-]?(\d{1,3}([,.' \u00a0\u202f]\d{3})+|\d+)([.,]\d+)?"
    r"\s*(%|[$€£¥]|EUR|USD|CHF)?",
    re.IGNORECASE,
)
SIMPLE = re.compile(r"[+-]?\d+(\.\d+)?")
PLAIN = re.compile(r"[+-]?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?|[+-]?\.\d+")
NO = {"no", "n", "false", "f", "none", "never", "negative", "neg", "absent", "off", "nein", "bad"}
AN_IDENTIFIER = (
    "is an identifier: it tells rows or people apart and explains nothing; if it names the person "
    "of a row, give it to release as --unit-column"
)
TOO_MANY = (
    f"has over {MOST_CATEGORIES} different values; group them, by the first digits or letters"
)
NOTE = (
    "DRAFT read off the data. Replace every bound and category by what is publicly known (a form, "
    'a code book, the law), mark what people cannot change with "immutable": true, and then '
    'remove this note and "drafted".'
)


class UnfitColumnError(DataError):
    """A column that cannot be a feature: why, and what to do."""


@dataclass(frozen=True)
class Draft:
    """A draft of the columns that can be features.

    `left_out`: the other columns, each with the reason and what to do. `decisions`: what a person
    has to decide before anything is released, a sentence each. All of it tells about the rows.
    """

    schema: Schema
    left_out: dict[str, str]
    decisions: tuple[str, ...]


def read_for_draft(path: str | os.PathLike[str]) -> pd.DataFrame:
    """The table in a file. In a CSV file, codes with zeros in front ("00712") stay texts."""
    frame, source = read_table(path), Path(path)
    if source.suffix.lower() not in SEPARATORS:
        return frame
    columns = csv_columns(source)
    texts = pd.concat(list(csv_batches(source, columns, 1_000_000, columns)), ignore_index=True)
    for place, name in enumerate(columns):
        cells = texts.iloc[:, place].dropna().astype(str)
        if pd.api.types.is_numeric_dtype(frame[name]) and cells.str.match(r"0\d").any():
            frame[name] = texts.iloc[:, place]
    return frame


def draft_schema(
    private_table: Any, label: str | None, *, exclude: Collection[str] = (), name: str = "table"
) -> Draft:
    """A schema that fits the rows of `private_table`, marked as a draft.

    `label`: the column that the model predicts; None is refused, with a suggestion.
    """
    frame = as_frame(private_table)
    if len(frame) == 0:
        raise DataError("the table is empty; a draft needs rows to look at")
    _check_names(frame, label, exclude)
    assert label is not None
    classes = _classes(frame[label], label)
    features: list[Drafted] = []
    left_out: dict[str, str] = {}
    decisions = Decisions()
    for place, column in enumerate(frame.columns, 1):
        if column == label or column in exclude:
            continue
        if not isinstance(column, str) or not column.strip():
            left_out[f"column {place}"] = "has no name; to use it, give it one in words"
            continue
        try:
            feature = _draft_feature(column, frame[column], decisions)
        except UnfitColumnError as error:
            left_out[column] = str(error)
        else:
            features.append(_with_rules(feature, decisions))
    if not features:
        why = "; ".join(f"{column!r} {words}" for column, words in [*left_out.items()][:2])
        raise DataError(f"no column of the table can be a feature{': ' if why else ''}{why}")
    schema = Schema(
        name=name,
        note=NOTE,
        drafted=True,
        label=Label(name=label, classes=classes),
        features=tuple(features),
    )
    return Draft(schema, left_out, tuple(decisions.in_words(schema)))


def _check_names(frame: pd.DataFrame, label: str | None, exclude: Collection[str]) -> None:
    """Refuse a label, or a column to leave out, that is not in the table."""
    if label is None:
        raise DataError(f"which column does the model predict? Give --label{_suggestion(frame)}")
    for column in (label, *exclude):
        if column not in frame.columns:
            # Not which columns there are: without a header line, those are values of a row.
            found = spelt_otherwise(column, frame.columns)
            raise DataError(
                f"no column {column!r} in the table, which has {len(frame.columns)} columns"
                f"{found or '; check the spelling, and that the first line names the columns'}"
                f"{_suggestion(frame) if column == label and not found else ''}"
            )


def _suggestion(frame: pd.DataFrame) -> str:
    """Which columns may be the label, to end a message with; or nothing.

    A name is quoted only if it is a usual one for a label and no cell of its column: without a
    header line, the names are the cells of the first row.
    """
    found: list[tuple[float, str]] = []
    for name in frame.columns:
        alike = column_names.like_a_label(name) if isinstance(name, str) else 0.0
        count = _number_of_classes(frame[name]) if alike else 0
        if count and name not in set(map(str, frame[name])):
            found.append((-alike, f"{name!r} ({count} classes)"))
    told = [words for _, words in sorted(found)[:3]]
    last = _number_of_classes(frame.iloc[:, -1])
    if last and not any(words.startswith(f"{frame.columns[-1]!r} ") for words in told):
        told.append(f"the last column ({last} classes)")
    return f"; it may be {' or '.join(told)}" if told else ""


def _number_of_classes(column: Column) -> int:
    """How many classes a column has that could be the label; 0 if it could not."""
    try:
        count = len(_classes(column, ""))
    except DataError:
        return 0
    return count if count in CLASSES_OF_A_LABEL else 0


def _classes(column: Column, name: str) -> tuple[Category, ...]:
    if column.isna().any():
        row = int(column.isna().to_numpy().argmax()) + 1
        raise DataError(f"row {row}, column {name!r}: the label is missing; drop the row first")
    try:
        kind = _kind(column)
        number = _as_numbers(column) if kind == "number" else None
    except UnfitColumnError as error:
        raise DataError(f"label {name!r} {error}") from None
    if kind == "date":
        raise DataError(f"label {name!r} holds dates; a label is a class, such as yes and no")
    if number is not None and not _whole(number):
        raise DataError(
            f"label {name!r} holds numbers with decimals, which are no classes; "
            "cut it into classes first, such as low and high"
        )
    values = _distinct(column, kind)
    if len(values) < 2:
        raise DataError(f"label {name!r} has one class only; counterfactuals need at least two")
    if len(values) > MOST_CLASSES:
        raise DataError(f"label {name!r} has over {MOST_CLASSES} values; is it a class at all?")
    return values


# --- What a column is ---


class Decisions:
    """What was guessed, column by column, and what a person has to look at."""

    def __init__(self) -> None:
        self.codes: list[str] = []  # whole numbers taken for codes
        self.amounts: list[str] = []  # few whole numbers taken for amounts
        self.fixed: list[str] = []
        self.ages: list[str] = []
        self.steps: list[str] = []
        self.empty: list[str] = []  # most of their cells
        self.nines: list[str] = []  # at one end of the numbers
        self.spellings: list[str] = []  # texts that differ in capitals or spaces only

    def in_words(self, schema: Schema) -> Iterator[str]:
        """A sentence for each kind of decision that the table asks for."""
        wide = [each.name for each in schema.features if each.number_range is not None]
        listed = [each.name for each in schema.features if each.number_range is None]
        if wide:
            yield f"bounds of {named(wide)}: they are those of the rows; put the public ones"
        if listed:
            yield f"categories of {named(listed)}: list all that a form allows, seen here or not"
        if self.fixed:
            yield f"{named(self.fixed)}: taken as immutable, by the name"
        if self.ages:
            yield f"{named(self.ages)}: may only increase in an answer, by the name"
        yield 'what else no answer may change: add "immutable": true, or a "direction"'
        if self.codes:
            yield f'{named(self.codes)}: numbers taken for codes; "numeric" if they are amounts'
        if self.amounts:
            yield f'{named(self.amounts)}: taken for amounts; "categorical" if they are codes'
        if self.steps:
            yield f"steps that would suit people: {named(self.steps)}"
        if self.empty:
            yield f"{named(self.empty)}: most cells are empty; leave out what says nothing so"
        if self.nines:
            yield f"{named(self.nines)}: nines at one end, such as 999: a code for missing?"
        if self.spellings:
            yield f"{named(self.spellings)}: texts that differ in capitals or spaces only"


def _draft_feature(name: str, column: Column, decisions: Decisions) -> Drafted:
    """The feature that fits a column; an UnfitColumnError where there is none."""
    if isinstance(column.dtype, pd.StringDtype):
        column = column.astype(object)  # which is several times quicker to go through
    if _is_constant(column):
        raise UnfitColumnError("is constant")
    missing, values = bool(column.isna().any()), column.dropna()
    kind = _kind(values)
    if kind == "date":
        raise UnfitColumnError(
            "holds dates; to use them, make them a number, such as days before a fixed day"
        )
    if kind == "text" and _are_plain_numbers(values):
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
    number = _as_numbers(values)
    whole, different = _whole(number), np.unique(number)
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
    categories = _distinct(values, kind)
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


def _with_rules(feature: Drafted, decisions: Decisions) -> Drafted:
    """The feature with what its name says about people."""
    if column_names.names_what_people_cannot_change(feature.name):
        decisions.fixed.append(feature.name)
        return feature.model_copy(update={"immutable": True})
    if feature.is_one_number and column_names.names_an_age(feature.name):
        decisions.ages.append(feature.name)
        return feature.model_copy(update={"direction": "increase"})
    return feature


# --- Cells ---


def _is_constant(column: Column) -> bool:
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


def _kind(values: Column) -> Kind:
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


def _are_plain_numbers(values: Column) -> bool:
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


def _as_numbers(values: Column) -> Numbers:
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


def _whole(number: Numbers) -> bool:
    return bool((number == np.round(number)).all())


def _distinct(values: Column, kind: Kind) -> tuple[Category, ...]:
    """The different values in order, as JSON can hold them."""
    if kind == "bool":
        return tuple(bool(value) for value in sorted(set(values)))
    if kind == "number":
        number = _as_numbers(values)
        if not _whole(number):
            raise UnfitColumnError("has categories with decimals; make them texts")
        return tuple(int(value) for value in np.unique(number))
    return tuple(sorted(set(values)))
