"""Why a model fails: the one column and value that it cannot take, found by asking it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

from counterveil.schema import Feature, Schema

FEW = 20  # rows that are looked at one by one
Fails = Callable[[pd.DataFrame], bool]


def what_it_cannot_take(
    fails: Fails, table: pd.DataFrame, legal: pd.DataFrame, schema: Schema
) -> str:
    """Which value of which column the model fails on, and the remedy; "" where it is none alone.

    `fails(rows)`: whether the model fails on rows in original units. `table`: rows on which it
    does. `legal`: some rows that the schema allows. Only values that the schema
    lists are told: a number may be private.
    """
    bad = _a_failing_row(fails, table)
    good = next((row for row in _singly(table.head(FEW), legal) if not fails(row)), None)
    if bad is None or good is None:
        return ""
    for feature in schema.features:
        for column in feature.columns:
            if fails(good.assign(**{column: bad[column].array})):
                return _said(feature, column, bad[column].iloc[0])
    return ""


def _a_failing_row(fails: Fails, table: pd.DataFrame) -> pd.DataFrame | None:
    """One row of `table` on which the model fails by itself: halves are asked about."""
    while len(table) > 1:
        half = len(table) // 2
        halves = (table.iloc[:half], table.iloc[half:])
        failing = next((each for each in halves if fails(each)), None)
        if failing is None:
            return None
        table = failing
    return table.reset_index(drop=True) if len(table) and fails(table) else None


def _singly(*tables: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Every row of the tables, as a table of its own."""
    for rows in tables:
        for place in range(len(rows)):
            yield rows.iloc[[place]].reset_index(drop=True)


def _said(feature: Feature, column: str, value: Any) -> str:
    """What is wrong with a value of a column, and what to do."""
    again = "and fit it again, or release a veil whose schema"
    if pd.isna(value):
        return (
            f"it cannot take a missing {column!r}: put an imputer (SimpleImputer) into its "
            f"pipeline {again} has none missing there"
        )
    if feature.values is None:
        low, high = (f"{end:,.15g}" for end in feature.number_range or (0, 0))
        return (
            f"it cannot take a number of {column!r} that the schema allows, {low} to {high}: "
            f"mend it {again} has narrower bounds there"
        )
    return (
        f"it cannot take {value!r} of {column!r}, which it may never have seen: give its encoder "
        f'handle_unknown="ignore" {again} leaves that value out'
    )
