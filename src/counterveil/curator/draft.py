"""A first schema from a table, for a person to edit.

A draft looks at the data: its bounds and categories are those of the rows. Nothing built on it is
private until a person has replaced them by public knowledge. The draft says so itself
(`"drafted": true`), and so does every statement of a Veil made from it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pandas as pd
from pandas.api import types

from counterveil.errors import DataError
from counterveil.schema import Binary, Categorical, Category, Label, Numeric, Schema
from counterveil.tables import as_frame

MOST_CATEGORIES = 200
NOTE = (
    "DRAFT read off the data. Replace every bound and category by what is publicly known (a form, "
    'a code book, the law), mark what people cannot change with "immutable": true, and then '
    'remove this note and "drafted".'
)


def draft_schema(
    private_table: Any, label: str, *, exclude: Collection[str] = (), name: str = "table"
) -> Schema:
    """A schema that fits the rows of `private_table`, marked as a draft."""
    frame = as_frame(private_table)
    if len(frame) == 0:
        raise DataError("the table is empty; a draft needs rows to look at")
    for column in (label, *exclude):
        if column not in frame.columns:
            known = ", ".join(str(name) for name in frame.columns[:12])
            raise DataError(f"no column {column!r} in the table; it has: {known}")
    columns = [column for column in frame.columns if column != label and column not in exclude]
    if not columns:
        raise DataError("no column is left for a feature; exclude fewer")
    return Schema(
        name=name,
        note=NOTE,
        drafted=True,
        label=Label(name=label, classes=_classes(frame[label], label)),
        features=tuple(_draft_feature(str(column), frame[column]) for column in columns),
    )


def _classes(column: pd.Series[Any], name: str) -> tuple[Category, ...]:
    if column.isna().any():
        row = int(column.isna().to_numpy().argmax()) + 1
        raise DataError(f"row {row}, column {name!r}: the label is missing; drop the row first")
    values = _distinct(column)
    if len(values) < 2:
        raise DataError(f"label {name!r} has one class only; counterfactuals need at least two")
    if len(values) > 1000:
        raise DataError(f"label {name!r} has over 1000 values; is it a class at all?")
    return values


def _draft_feature(name: str, column: pd.Series[Any]) -> Numeric | Categorical | Binary:
    missing = bool(column.isna().any())
    if column.nunique() + missing < 2:
        raise DataError(f"column {name!r} is constant; leave it out with --exclude {name}")
    values = column.dropna()
    if types.is_numeric_dtype(values) and not types.is_bool_dtype(values):
        if not missing and set(values.unique()) == {0, 1}:
            return Binary(name=name)
        whole = bool((values == values.round()).all())
        if values.nunique() > 1:
            return Numeric(
                name=name,
                lower=float(values.min()),
                upper=float(values.max()),
                integer=whole,
                missing=missing,
            )
    categories = _distinct(values)
    if len(categories) > MOST_CATEGORIES:
        raise DataError(
            f"column {name!r} has over {MOST_CATEGORIES} different texts: an identifier or free "
            f"text? leave it out with --exclude {name}"
        )
    if len(categories) == 2 and not missing:
        return Binary(name=name, values=(categories[0], categories[1]))
    return Categorical(name=name, categories=categories, missing=missing)


def _distinct(column: pd.Series[Any]) -> tuple[Category, ...]:
    """The different values in order, as JSON can hold them."""
    if types.is_bool_dtype(column):
        return tuple(bool(value) for value in sorted(column.unique()))
    if types.is_numeric_dtype(column):
        whole = column.astype(float)
        if bool((whole == whole.round()).all()):
            return tuple(int(value) for value in sorted(column.unique()))
    return tuple(sorted({str(value) for value in column.unique()}))
