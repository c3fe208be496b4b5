"""`--where NAME=VALUE`: one row on the command line, or which rows of a file to explain."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from counterveil.encoding import Array, Encoding
from counterveil.errors import RequestError
from counterveil.hints import did_you_mean, named
from counterveil.schema import Schema
from counterveil.schema.columns import array_of, number_of, numbers_of, value_list
from counterveil.tables import MISSING, read_table


def asked_rows(queries: Path | None, where: list[str] | None, schema: Schema) -> pd.DataFrame:
    """The rows to explain.

    Those of the file `queries`; those of them that match every `where`, with their numbers in the
    file, from 1, as the index `row`; or, without a file, one row of the values that `where` gives.
    """
    if queries is None and not where:
        raise RequestError("give --queries FILE, or one row: --where NAME=VALUE for each feature")
    if queries is None:
        return _row_of(_pairs(where or [], schema.columns), schema)
    table = read_table(queries, schema)
    if not where:
        return table
    pairs = _pairs(where, [str(name) for name in table.columns])
    chosen = _matching(table, pairs, queries, schema.text_columns)
    table.index = pd.RangeIndex(1, len(table) + 1, name="row")
    return table[chosen]


def without_bad_rows(table: pd.DataFrame, schema: Schema) -> tuple[pd.DataFrame, list[str]]:
    """The rows that the schema allows, and what is wrong with each of the others.

    Where there are others, the index `row` has the numbers of the rows in the file, from 1. Without
    a single good row the first mistake is a DataError.
    """
    bad = Encoding(schema).bad_rows(table)
    if not bad or len(bad) == len(table):
        return table, []
    if table.index.name != "row":
        table = table.set_axis(pd.RangeIndex(1, len(table) + 1, name="row"), axis=0)
    told = [f"row {table.index[row]}, {why}" for row, why in bad.items()]
    return table.drop(index=table.index[[*bad]]), told


def _pairs(where: list[str], columns: Any) -> dict[str, str]:
    """Names and values; a RequestError for what is not NAME=VALUE or gives a name twice."""
    pairs: dict[str, str] = {}
    for given in where:
        name, sign, value = (part.strip() for part in given.partition("="))
        if not sign or not name:
            raise RequestError(f"--where {given}: write it as NAME=VALUE, such as age=39")
        another = re.search(r",([^,=]+)=", value)
        if another and another[1].strip() in columns:
            raise RequestError(f"--where {given}: give {another[1].strip()} a --where of its own")
        if name in pairs:
            raise RequestError(f"--where {name} is given twice")
        pairs[name] = value
    return pairs


def _row_of(pairs: dict[str, str], schema: Schema) -> pd.DataFrame:
    """The row of these values. Columns and values may be called what people call them."""
    called = {schema.shown_name(column): column for column in schema.columns}
    called |= {column: column for column in schema.columns}
    for name in pairs:
        if name not in called:
            known = f"the veil has: {named(schema.columns)}{did_you_mean(name, called)}"
            raise RequestError(f"--where {name}: no such feature; {known}")
    values: dict[str, Any] = {called[name]: value for name, value in pairs.items()}
    absent = [
        f"{feature.name} ({feature.values_in_words})"
        for feature in schema.features
        if not set(feature.columns) <= values.keys()
    ]
    if absent:
        raise RequestError(
            f"--where gives no value for {'; '.join(absent[:12])}"
            f"{f'; … ({len(absent) - 12} more)' if len(absent) > 12 else ''}"
        )
    row = {name: None if value in MISSING else value for name, value in values.items()}
    table = pd.DataFrame([row], dtype=object)
    for why in Encoding(schema).bad_rows(table).values():
        for typed, name in ((typed, called[typed]) for typed in pairs if typed != called[typed]):
            if why.startswith(f"column {name!r}: "):
                raise RequestError(f"--where {typed}: {why.partition(': ')[2]}")
    return table


def _matching(
    table: pd.DataFrame, pairs: dict[str, str], path: Path, text: Collection[str]
) -> Array:
    """Which rows of `table` have all of these values, (rows,). `text`: columns of texts."""
    chosen = np.ones(len(table), dtype=bool)
    for name, value in pairs.items():
        if name not in table.columns:
            known = f"{path} has: {named(table.columns)}{did_you_mean(name, table.columns)}"
            raise RequestError(f"--where {name}: no such column; {known}")
        chosen &= _is_like(table[name], value, is_text=name in text)
    if not chosen.any():
        told = " and ".join(f"{name}={value}" for name, value in pairs.items())
        raise RequestError(f"--where: no row of {path} has {told}")
    return chosen


def _is_like(column: Any, value: str, *, is_text: bool) -> Array:
    """Which cells are written like `value`: an empty value is missing.

    "17" and "17.0" are 17, unless the schema has texts there.
    """
    if value in MISSING:
        return np.asarray(column.isna())
    codes, _ = value_list(value).codes(array_of(column))
    like = np.asarray(codes == 0)
    if not is_text:
        like |= numbers_of(array_of(column))[0] == number_of(value)
    return like
