"""A first schema from a table, for a person to edit.

A draft looks at the data: its bounds and categories are those of the rows. Nothing built on it is
private until a person has replaced them by public knowledge. The draft says so itself
(`"drafted": true`), and so does every statement of a Veil made from it.

A column that cannot be a feature is left out, with the reason and what to do. What a table cannot
tell is guessed from names (`column_names`), and every guess is on the list of what a person must
decide.
"""

import os
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from counterveil.curator import column_names, draft_columns
from counterveil.curator.draft_columns import Column, Decide, Drafted, UnfitColumnError
from counterveil.errors import DataError
from counterveil.hints import spelt_otherwise
from counterveil.schema import Category, Label, Schema
from counterveil.tables import SEPARATORS, as_frame, csv_batches, csv_columns, read_table

MOST_CLASSES = 1000
CLASSES_OF_A_LABEL = range(2, 21)  # of a column that is suggested as the label
NOTE = (
    "DRAFT read off the data. Replace every bound and category by what is publicly known (a form, "
    'a code book, the law), mark what people cannot change with "immutable": true, and then '
    'remove this note and "drafted".'
)


@dataclass(frozen=True)
class Draft:
    """A draft of the columns that can be features. All of it tells about the rows.

    `left_out`: the other columns, each with the reason and what to do. `decisions`: what a person
    has to decide before anything is released; `hints`: those about one column by itself.
    """

    schema: Schema
    left_out: dict[str, str]
    decisions: tuple[str, ...]
    hints: dict[str, tuple[str, ...]]


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
    hints: dict[str, tuple[str, ...]] = {}
    decisions: draft_columns.Decisions = defaultdict(list)
    for place, column in enumerate(frame.columns, 1):
        if column == label or column in exclude:
            continue
        if not isinstance(column, str) or not column.strip():
            left_out[f"column {place}"] = "has no name; to use it, give it one in words"
            continue
        found: draft_columns.Decisions = defaultdict(list)
        try:
            feature = draft_columns.draft_feature(column, frame[column], found)
        except UnfitColumnError as error:
            left_out[column] = str(error)
            continue
        features.append(draft_columns.with_rules(feature, found))
        if found:
            hints[column] = tuple(draft_columns.in_words(found))
        for decision, names in found.items():
            decisions[decision] += names
    if not features:
        why = "; ".join(f"{column!r} {words}" for column, words in [*left_out.items()][:2])
        raise DataError(f"no column of the table can be a feature{': ' if why else ''}{why}")
    predicted, kept = Label(name=label, classes=classes), tuple(features)
    schema = Schema(name=name, note=NOTE, drafted=True, label=predicted, features=kept)
    for each in features:
        limits = Decide.CATEGORIES if each.number_range is None else Decide.BOUNDS
        decisions[limits].append(each.name)
    decisions[Decide.MUTABLE] += schema.columns
    return Draft(schema, left_out, tuple(draft_columns.in_words(decisions)), hints)


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
        kind = draft_columns.kind_of_cells(column)
        number = draft_columns.as_numbers(column) if kind == "number" else None
    except UnfitColumnError as error:
        raise DataError(f"label {name!r} {error}") from None
    if kind == "date":
        raise DataError(f"label {name!r} holds dates; a label is a class, such as yes and no")
    if number is not None and not draft_columns.are_whole(number):
        raise DataError(
            f"label {name!r} holds numbers with decimals, which are no classes; "
            "cut it into classes first, such as low and high"
        )
    values = draft_columns.distinct(column, kind)
    if len(values) < 2:
        raise DataError(f"label {name!r} has one class only; counterfactuals need at least two")
    if len(values) > MOST_CLASSES:
        raise DataError(f"label {name!r} has over {MOST_CLASSES} values; is it a class at all?")
    return values
