"""What an ONNX graph wants to be fed: one tensor, or a named tensor for each column."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from counterveil.encoding import Array
from counterveil.errors import ModelError
from counterveil.models.base import Inputs, column_called, values_of
from counterveil.schema import Feature, Schema

FLOATS = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
WHOLE = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}  # what cannot hold a missing value
TEXT = "tensor(string)"
Feed = Callable[[Any], dict[str, Array]]


@dataclass(frozen=True)
class Feeding:
    """How inputs become tensors. `batch`: the number of rows, where the graph fixes it."""

    over_rows: bool
    feed: Feed
    batch: int | None


def feeding_of(
    wanted: Sequence[Any], schema: Schema, inputs: Inputs, missing_text: str | None
) -> Feeding:
    """The form that the graph's inputs `wanted` have; what fits no form is an error."""
    fixed = {given.shape[0] for given in wanted if given.shape and _size(given.shape[0])}
    batch = fixed.pop() if len(fixed) == 1 else None
    columns = [column_called(given.name, schema.columns) for given in wanted]
    if inputs != "encoding" and all(column is not None for column in columns):
        features = {feature.name: feature for feature in schema.features}
        named = [(given, features.get(str(column)), str(column))
                 for given, column in zip(wanted, columns, strict=True)]  # fmt: skip
        return Feeding(True, _by_column(named, missing_text), batch)
    if len(wanted) != 1:
        stray = next(
            (given.name for given, column in zip(wanted, columns, strict=True) if column is None),
            wanted[0].name if wanted else "",
        )
        raise ModelError(
            f"the ONNX model has {len(wanted)} inputs and {stray!r} is no column of the schema; "
            "name the inputs as the columns, or export one float tensor over the encoding"
        )
    return _one_tensor(wanted[0], schema, inputs, batch)


def _one_tensor(given: Any, schema: Schema, inputs: Inputs, batch: int | None) -> Feeding:
    if given.type not in FLOATS:
        raise ModelError(
            f"the ONNX model's input {given.name!r} is a {given.type}; "
            "over the encoding it must be a tensor of floats"
        )
    rest = tuple(given.shape[1:])
    known = math.prod(rest) if all(_size(size) for size in rest) else None
    count = len(schema.columns)
    over_rows = inputs == "rows" or (inputs == "auto" and known == count != schema.width)
    width = count if over_rows else schema.width
    if not rest or known not in {None, width}:
        raise ModelError(
            f"the ONNX model takes {known or 'unknown'} numbers a row, "
            f"the encoding of the schema has {schema.width}; export the model of this schema"
        )
    shape = rest if known else (width,)
    dtype = FLOATS[given.type]

    def feed(table: Any) -> dict[str, Array]:
        if over_rows:
            table = table[list(schema.columns)].to_numpy(np.float64, na_value=np.nan)
        return {given.name: np.asarray(table, dtype=dtype).reshape(len(table), *shape)}

    return Feeding(over_rows, feed, batch)


def _by_column(named: Sequence[tuple[Any, Feature | None, str]], missing_text: str | None) -> Feed:
    for given, feature, _ in named:
        _check_column(given, feature)
        if given.type == TEXT and missing_text is None and getattr(feature, "missing", False):
            raise _unfit(
                given,
                "the schema's column may be missing, and ONNX has no missing text; say which text "
                "the model takes for it: OnnxModel(..., missing_text='')",
            )

    def feed(rows: pd.DataFrame) -> dict[str, Array]:
        return {
            given.name: _cells(rows[column], given.type, feature, missing_text).reshape(
                (len(rows),) + (1,) * (len(given.shape) - 1)
            )
            for given, feature, column in named
        }

    return feed


def _check_column(given: Any, feature: Feature | None) -> None:
    values = values_of(feature)
    if given.type == TEXT and values is None:
        raise _unfit(given, "the schema's column holds numbers")
    if given.type not in {TEXT, *FLOATS, *WHOLE}:
        raise _unfit(given, "it must hold text, floats or whole numbers")
    if given.type != TEXT and values is not None and any(isinstance(v, str) for v in values):
        raise _unfit(given, "the schema's column holds text")
    if given.type in WHOLE and feature is not None and feature.missing:
        raise _unfit(given, "the schema's column may be missing; export it as floats")
    fractions = feature is not None and feature.values is None and not feature.is_whole
    if given.type in WHOLE and fractions:
        raise _unfit(given, "the schema's column is not 'integer'")
    if math.prod(size for size in given.shape[1:] if _size(size)) != 1:
        raise _unfit(given, "it must be one value a row")


def _unfit(given: Any, why: str) -> ModelError:
    return ModelError(f"the ONNX model's input {given.name!r} is a {given.type}: {why}")


def _cells(
    column: pd.Series[Any], kind: str, feature: Feature | None, missing_text: str | None
) -> Array:
    if kind != TEXT:
        numbers = column.astype("Float64").to_numpy(np.float64, na_value=np.nan)
        return np.asarray(numbers, dtype=FLOATS.get(kind) or WHOLE[kind])
    if all(type(value) is int for value in values_of(feature) or ()):
        column = column.astype("Int64")  # 2.0 of a table with gaps is the category 2
    return column.astype(object).where(column.notna(), missing_text).map(str).to_numpy(object)


def _size(size: Any) -> bool:
    """Whether the graph fixes a dimension; a name or None leaves it open."""
    return isinstance(size, int) and size > 0
