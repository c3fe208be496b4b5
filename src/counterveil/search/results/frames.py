"""Frames of results: made when they are first looked at, with the index of the caller's table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

Frame = pd.DataFrame | Callable[[], pd.DataFrame]


class LazyFrame:
    """A field of a dataclass: a frame, or a function that makes it when it is first looked at.

    Making the frames of a single answer takes as long as a good part of the search. `default`: for
    a field that may be left out.
    """

    def __init__(self, default: Frame | None = None) -> None:
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    def __get__(self, holder: Any, owner: type) -> pd.DataFrame:
        if holder is None:  # a dataclass looks for the default
            if self._default is None:
                raise AttributeError(self._name)
            return self._default  # type: ignore[return-value]
        known = holder.__dict__
        if callable(known[self._name]):
            known[self._name] = known[self._name]()
        frame: pd.DataFrame = known[self._name]
        return frame

    def __set__(self, holder: Any, frame: Frame) -> None:
        holder.__dict__[self._name] = frame


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
