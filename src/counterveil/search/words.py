"""Cells and changes as a person reads them, as plain values, and as the content of a file."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from counterveil.errors import RequestError
from counterveil.privacy import Level, Statement
from counterveil.schema import Category, Schema

Change = tuple[str, Any, Any]  # column, before, after


def show(value: Any, digits: int = 4) -> str:
    """A cell as a person reads it, with `digits` digits of what comes in fractions."""
    if value is None:
        return "unknown"
    if isinstance(value, float):
        large = abs(value) >= 10_000
        return f"{value:,.{digits - 4}f}" if large else f"{value:,.{digits}g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def show_both(before: Any, after: Any) -> tuple[str, str]:
    """Two different cells with as many digits as it takes to tell them apart."""
    for digits in range(4, 18):
        texts = show(before, digits), show(after, digits)
        if texts[0] != texts[1]:
            return texts
    return repr(before), repr(after)


def condition(schema: Schema, changes: Sequence[Change]) -> str:
    """What would have to be different, to be read after "if"; pixels are only counted."""
    pixels = pixel_columns(schema)
    shown = [(column, *show_both(*values)) for column, *values in changes if column not in pixels]
    parts = [f"{column} were {after} instead of {before}" for column, before, after in shown]
    painted = len(changes) - len(shown)
    if painted:
        parts.append(f"{painted} of {len(pixels)} pixels were different")
    return join(parts)


def opening(now: Category, goal: Category, statement: Statement) -> str:
    """Who says what, and what it could be brought to say."""
    if statement.level is Level.END_TO_END:
        return f"The model was not asked. The veil's surrogate would say {goal}"
    return f"The model says {now}. It would say {goal}"


def alternatives(
    schema: Schema,
    start: str,
    answers: Sequence[tuple[int, float, list[Change]]],
) -> str:
    """Several answers to one query, each with its rank and the probability of the goal."""
    lines = [start]
    for rank, probability, changes in answers:
        words = f"if {condition(schema, changes)} ({probability:.0%} sure)."
        lines.append(f"  ({rank}) {'Or: ' if len(lines) > 1 else ''}{words}")
    return "\n".join(lines)


def pixel_columns(schema: Schema) -> set[str]:
    """The columns that are dots of an image."""
    return {column for image in schema.images for column in image.columns}


def whole_columns(schema: Schema) -> set[str]:
    """The columns that hold whole numbers."""
    return {column for feature in schema.features if feature.is_whole for column in feature.columns}


def join(parts: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join((", ".join(parts[:-1]), parts[-1])) if len(parts) > 1 else "".join(parts)


def plain(value: Any, whole: bool = False) -> Any:
    """A cell as a value of Python; None for a missing one, an integer where it is `whole`."""
    if pd.isna(value):
        return None
    single = value.item() if isinstance(value, np.generic) else value
    if isinstance(single, Decimal):
        single = float(single)
    return int(single) if whole and isinstance(single, float) else single


def same(before: Any, after: Any) -> bool:
    """Whether two plain cells are the same; True is not 1."""
    return bool(before == after) and isinstance(before, bool) == isinstance(after, bool)


def free(name: str, taken: Collection[str]) -> str:
    """`name`, or a longer one that is not taken."""
    while name in taken:
        name = f"counterveil_{name}"
    return name


def file_content(table: pd.DataFrame, path: str | os.PathLike[str]) -> bytes:
    """`table` as the name of the file asks for."""
    kind = Path(path).suffix.lower()
    if kind == ".csv":
        return table.to_csv(index=False).encode()
    if kind == ".parquet":
        try:
            return table.to_parquet(index=False)
        except pa.ArrowException:
            raise RequestError("a column mixes texts and numbers, which Parquet cannot hold; "
                               "write .csv or .json instead") from None  # fmt: skip
    if kind == ".json":
        records = [
            dict(zip(table.columns, map(plain, values), strict=True))
            for values in zip(*(table[column] for column in table.columns), strict=True)
        ]
        return json.dumps(records, ensure_ascii=False, indent=2).encode()
    raise RequestError(f"{path}: name the file .csv, .parquet or .json")
