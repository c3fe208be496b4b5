"""Frames with the index and the further columns of the caller's table, and cells of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from counterveil.schema import Schema
from counterveil.tables import plain_values

if TYPE_CHECKING:
    from counterveil.search.results.outcome import Outcome


def is_plain(index: pd.Index[Any] | None) -> bool:
    """Whether an index says no more than positions from 0 do."""
    if not isinstance(index, pd.RangeIndex):
        return index is None
    return index.name is None and index.start == 0 and index.step == 1


def index_of_answers(index: pd.Index[Any], k: int) -> pd.Index[Any]:
    """The index of the queries for each of their `k` answers; with k > 1 a level `answer`, from 1.

    A single level without a name is then called `query`.
    """
    if k == 1:
        return index
    ranks = pd.Index(np.tile(np.arange(1, k + 1), len(index)), name="answer")
    named = index.rename(index.name or "query") if index.nlevels == 1 else index
    return pd.DataFrame(index=named.repeat(k)).set_index(ranks, append=True).index


def with_index(frame: pd.DataFrame, index: pd.Index[Any] | None, k: int) -> pd.DataFrame:
    """`frame`, which has `k` rows a query, with the index of the caller's table if it has one."""
    if index is None or is_plain(index):
        return frame
    return frame.set_axis(index_of_answers(index, k), axis=0)


def typed_as(frame: pd.DataFrame, dtypes: Mapping[str, Any]) -> pd.DataFrame:
    """`frame` with these types of its columns, where values fit them without loss.

    Categories in no order gain the values that they lack; columns of objects say nothing.
    """
    found = {}
    for name in map(str, frame.columns):
        column = frame[name]
        dtype = dtypes.get(name, column.dtype)
        if dtype in (column.dtype, object):
            continue
        if isinstance(dtype, pd.CategoricalDtype):
            kinds, known = {type(each) for each in dtype.categories}, set(dtype.categories)
            more = [each for each in column.dropna().unique().tolist() if each not in known]
            if {type(each) for each in more} <= kinds and not dtype.ordered:
                dtype = pd.CategoricalDtype([*dtype.categories, *more])
        with suppress(TypeError, ValueError, OverflowError):
            cast, missing = column.astype(dtype), column.isna()
            same = cast.astype(object)[~missing] == column.astype(object)[~missing]
            if same.all() and (cast.isna() == missing).all():
                found[name] = cast
    return frame.assign(**found)


def cells_of(frame: pd.DataFrame, schema: Schema) -> dict[str, list[Any]]:
    """The columns of a frame as plain values; a row of pandas makes integers floats."""
    return {
        column: plain_values(frame[column], feature.is_whole)
        for feature in schema.features
        for column in feature.columns
    }


def of_caller(result: Outcome, taken: Collection[str]) -> pd.DataFrame:
    """The index of the caller's table, if it says more than positions, and the carried columns.

    One row a query; no column is called like one of the table's or of `taken`.
    """
    found = pd.DataFrame(index=pd.RangeIndex(len(result)))
    if not is_plain(result.index):
        found = pd.DataFrame(index=result.index).reset_index(allow_duplicates=True)
    if result.carried is not None:
        found = pd.concat([found, result.carried], axis=1)
    names = [str(name) for name in found.columns]
    found = found.loc[:, [name not in names[:place] for place, name in enumerate(names)]]
    others = {*result.schema.columns, *taken}
    return found.rename(columns=lambda name: free_name(str(name), others))


def free_name(name: str, taken: Collection[str]) -> str:
    """What a column is called beside columns with other names."""
    while name in taken:
        name = f"counterveil_{name}"
    return name


def or_none(number: float) -> float | None:
    """A number as JSON has it: None for NaN."""
    return None if np.isnan(number) else number
