"""What the cells of a column are, for a draft: numbers, texts, truth values or dates."""

from __future__ import annotations

import datetime
import numbers
import re
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pandas as pd

from counterveil.errors import DataError
from counterveil.schema import Category

Kind = Literal["bool", "number", "text", "date"]
Column = Any  # of pandas: the present cells of one column
Numbers = np.ndarray[Any, np.dtype[np.float64]]

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


def as_numbers(values: Column) -> Numbers:
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


def are_whole(number: Numbers) -> bool:
    """Whether no number has decimals."""
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
