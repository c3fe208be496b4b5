"""A first schema from a table, for a person to edit.

A draft looks at the data: its bounds and categories are those of the rows. Nothing built on it is
private until a person has replaced them by public knowledge. The draft says so itself
(`"drafted": true`), and so does every statement of a Veil made from it.
"""

from __future__ import annotations

import datetime
import numbers
import shlex
from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pandas as pd

from counterveil.errors import DataError
from counterveil.schema import Binary, Categorical, Category, Label, Numeric, Schema
from counterveil.tables import as_frame

Kind = Literal["bool", "number", "text", "date"]

MOST_CATEGORIES = 200
MOST_CLASSES = 1000
FEW_ROWS = 10  # so few texts may all differ and still be categories
LARGEST = 1e15  # as in the schema: up to it floats tell whole numbers apart
DATE = r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}.*)?"
NOTE = (
    "DRAFT read off the data. Replace every bound and category by what is publicly known (a form, "
    'a code book, the law), mark what people cannot change with "immutable": true, and then '
    'remove this note and "drafted".'
)


class UnfitColumnError(DataError):
    """A column that cannot be a feature. `why` says what it is, without the remedy."""

    def __init__(self, column: str, why: str, remedy: str) -> None:
        super().__init__(f"column {column!r} {why}{remedy}")
        self.why = why


@dataclass(frozen=True)
class Draft:
    """A draft of the columns that can be features. `left_out`: the others, each with the reason."""

    schema: Schema
    left_out: dict[str, str]


def draft_schema(
    private_table: Any, label: str, *, exclude: Collection[str] = (), name: str = "table"
) -> Schema:
    """A schema that fits the rows of `private_table`, marked as a draft."""
    frame, columns, classes = _checked(private_table, label, exclude)
    constant = [column for column in columns if _is_constant(frame[column])]
    if constant:
        are, them = ("is", "it") if len(constant) == 1 else ("are", "them")
        listed = f"column{'s' if len(constant) > 1 else ''} {', '.join(map(repr, constant))}"
        raise DataError(f"{listed} {are} constant; leave {them} out with {_excluding(constant)}")
    features = [_draft_feature(column, frame[column]) for column in columns]
    return _draft(name, Label(name=label, classes=classes), features)


def draft_what_fits(
    private_table: Any, label: str, *, exclude: Collection[str] = (), name: str = "table"
) -> Draft:
    """As `draft_schema`, without the columns that cannot be features."""
    frame, columns, classes = _checked(private_table, label, exclude)
    features: list[Numeric | Categorical | Binary] = []
    left_out: dict[str, str] = {}
    for column in columns:
        try:
            if _is_constant(frame[column]):
                raise UnfitColumnError(column, "is constant", "")
            features.append(_draft_feature(column, frame[column]))
        except UnfitColumnError as error:
            left_out[column] = error.why
    if not features:
        raise DataError("no column of the table can be a feature; see counterveil schema draft")
    return Draft(_draft(name, Label(name=label, classes=classes), features), left_out)


def _checked(
    private_table: Any, label: str, exclude: Collection[str]
) -> tuple[pd.DataFrame, list[str], tuple[Category, ...]]:
    """The table as a frame, the columns for features, and the classes of the label."""
    frame = as_frame(private_table)
    if len(frame) == 0:
        raise DataError("the table is empty; a draft needs rows to look at")
    for place, column in enumerate(frame.columns, 1):
        if not isinstance(column, str) or not column:
            raise DataError(f"column number {place} has no name in words; give it one")
    for column in (label, *exclude):
        if column not in frame.columns:
            # Not which columns there are: without a header line, those are values of a row.
            raise DataError(
                f"no column {column!r} in the table, which has {len(frame.columns)} columns; check "
                "the spelling, and that the first line names the columns"
            )
    columns = [column for column in frame.columns if column != label and column not in exclude]
    if not columns:
        raise DataError("no column is left for a feature; exclude fewer")
    return frame, columns, _classes(frame[label], label)


def _draft(name: str, label: Label, features: Collection[Numeric | Categorical | Binary]) -> Schema:
    return Schema(name=name, note=NOTE, drafted=True, label=label, features=tuple(features))


def _classes(column: pd.Series[Any], name: str) -> tuple[Category, ...]:
    if column.isna().any():
        row = int(column.isna().to_numpy().argmax()) + 1
        raise DataError(f"row {row}, column {name!r}: the label is missing; drop the row first")
    kind = _kind(column, name)
    if kind == "date":
        raise DataError(f"label {name!r} holds dates; a label is a class, such as yes and no")
    if kind == "number" and not _whole(_as_numbers(column, name)):
        raise DataError(
            f"label {name!r} holds numbers with decimals, which are no classes; "
            "cut it into classes first, such as low and high"
        )
    values = _distinct(column, kind, name)
    if len(values) < 2:
        raise DataError(f"label {name!r} has one class only; counterfactuals need at least two")
    if len(values) > MOST_CLASSES:
        raise DataError(f"label {name!r} has over {MOST_CLASSES} values; is it a class at all?")
    return values


def _is_constant(column: pd.Series[Any]) -> bool:
    present = column.dropna().astype(object)
    different = len({repr(value) if value.__hash__ is None else value for value in present})
    if different + bool(column.isna().any()) < 2:
        return True
    # One number and empty cells: a category, unless it has decimals.
    one = present.iloc[0]
    return different == 1 and isinstance(one, (float, Decimal)) and one % 1 != 0


def _draft_feature(name: str, column: pd.Series[Any]) -> Numeric | Categorical | Binary:
    missing, values = bool(column.isna().any()), column.dropna()
    kind = _kind(values, name)
    if kind == "date":
        remedy = "; turn them into a number, such as days since a fixed day, or leave it out with "
        raise UnfitColumnError(name, "holds dates", remedy + _excluding([name]))
    if kind == "bool" and missing:
        return Categorical(name=name, categories=(False, True), missing=True)
    if kind == "number" and not isinstance(column.dtype, pd.CategoricalDtype):
        number = _as_numbers(values, name)
        if not missing and set(np.unique(number)) == {0, 1}:
            return Binary(name=name)
        low, high = float(number.min()), float(number.max())
        if low < high:
            return Numeric(
                name=name, lower=low, upper=high, integer=_whole(number), missing=missing
            )
    categories = _distinct(values, kind, name)
    if len(categories) > MOST_CATEGORIES:
        why = f"has over {MOST_CATEGORIES} different texts: an identifier or free text?"
        raise UnfitColumnError(name, why, f" leave it out with {_excluding([name])}")
    if kind == "text" and len(categories) == len(values) > FEW_ROWS:
        why = "holds a different text in every row: an identifier?"
        raise UnfitColumnError(name, why, f" leave it out with {_excluding([name])}")
    if len(categories) == 2 and not missing:
        return Binary(name=name, values=(categories[0], categories[1]))
    return Categorical(name=name, categories=categories, missing=missing)


def _kind(values: pd.Series[Any], name: str) -> Kind:
    """What the present `values` of a column are; one kind only."""
    kinds = {_kind_of(value) for value in values.astype(object)}
    if None in kinds:
        why = "holds something else than numbers, texts and truth values"
        raise UnfitColumnError(name, why, f"; leave it out with {_excluding([name])}")
    if len(kinds) > 1:
        listed = " and ".join(sorted(f"{kind}s" for kind in kinds))
        raise UnfitColumnError(name, f"mixes {listed}", "; make it one of the two")
    (kind,) = kinds
    if kind == "text" and bool(values.astype(str).str.fullmatch(DATE).all()):
        return "date"
    return kind or "text"


def _kind_of(value: Any) -> Kind | None:
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    if isinstance(value, (numbers.Real, Decimal)):
        return "number"
    if isinstance(value, (datetime.date, datetime.time, datetime.timedelta, pd.Period)):
        return "date"
    return "text" if isinstance(value, str) else None


def _as_numbers(values: pd.Series[Any], name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    number = values.astype(object).map(float).to_numpy(np.float64)
    if not np.isfinite(number).all():
        remedy = "; drop these rows or empty them"
        raise UnfitColumnError(name, "holds infinite numbers", remedy)
    if (np.abs(number) > LARGEST).any():
        why = "holds numbers beyond 1e15, which are not told apart exactly"
        remedy = f"; use a larger unit, or leave it out with {_excluding([name])}"
        raise UnfitColumnError(name, why, remedy)
    return number


def _whole(number: np.ndarray[Any, np.dtype[np.float64]]) -> bool:
    return bool((number == np.round(number)).all())


def _distinct(values: pd.Series[Any], kind: Kind, name: str) -> tuple[Category, ...]:
    """The different values in order, as JSON can hold them."""
    if kind == "bool":
        return tuple(bool(value) for value in sorted(set(values)))
    if kind == "number":
        number = _as_numbers(values, name)
        if not _whole(number):
            raise UnfitColumnError(name, "has categories with decimals", "; make them texts")
        return tuple(int(value) for value in np.unique(number))
    return tuple(sorted({str(value) for value in values}))


def _excluding(columns: list[str]) -> str:
    return " ".join(f"--exclude {shlex.quote(column)}" for column in columns)
