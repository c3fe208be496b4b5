"""Rows <-> points of the unit cube, by the rules of the Schema alone. Nothing is fitted.

| kind | numbers | meaning |
|---|---|---|
| numeric | 1 | (value - lower) / (upper - lower) |
| numeric, may be missing | 2 | value, and 1 where missing (the value is then 1/2) |
| categorical | one a category | one-hot; a missing value is one more category |
| binary | 1 | 0 or 1 |
| pixels | one a pixel | value / levels |

A value that the schema does not allow is an error that names row (the first is 1) and column, and
never the value: it may be private. `lookup` takes the usual columns of all features at once; what
it leaves over is taken here, feature by feature.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api import types

from counterveil import lookup
from counterveil.errors import DataError
from counterveil.schema import Binary, Categorical, Category, Feature, Numeric, Pixels, Schema
from counterveil.tables import as_frame

Array = np.ndarray[Any, np.dtype[Any]]
MISSING_VALUE = lookup.MISSING_VALUE


@dataclass(frozen=True)
class Block:
    """The encoded columns of one feature."""

    feature: Numeric | Categorical | Binary | Pixels
    start: int

    @property
    def stop(self) -> int:
        return self.start + self.feature.width

    @property
    def at(self) -> slice:
        return slice(self.start, self.stop)


class _Picking(NamedTuple):
    """Where a table with the columns `source` has those of the schema."""

    source: pd.Index[Any]
    places: list[int]
    picked: pd.Index[Any]


class Encoding:
    """How the rows of one schema become points of the unit cube, and back."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.blocks = tuple(_lay_out(schema))
        self.width = schema.width
        self._names = schema.columns
        self._plan = lookup.Plan(schema)
        self._known: tuple[_Picking, ...] = ()

    def encode(self, table: Any, numbers: Array | None = None) -> Array:
        """Rows of `table` as float64 of shape (rows, width).

        `numbers` gives the rows' places (from 0) in a larger table, for messages.
        """
        frame, picking = self._fitting(table)
        arrays = lookup.arrays_of(frame)
        points = np.zeros((len(frame), self.width))
        with _numbered(numbers):
            for left in self._plan.read([arrays[place] for place in picking.places], points):
                block = self.blocks[left]
                points[:, block.at] = _encode_feature(block.feature, frame)
        return points

    def pick(self, table: Any) -> pd.DataFrame:
        """The feature columns in the schema's order; further columns are left aside."""
        frame, picking = self._fitting(table)
        exact = picking.picked is picking.source
        picked = frame.copy() if exact else frame.take(picking.places, axis=1)
        picked.columns = picking.picked.view()
        picked.index = pd.RangeIndex(len(frame))
        return picked

    def _fitting(self, table: Any) -> tuple[pd.DataFrame, _Picking]:
        """The table as a frame that has the columns, and where they are."""
        known = self._known if isinstance(table, pd.DataFrame) else ()
        picking = next((one for one in known if one.source.is_(table.columns)), None)
        frame = table if picking is not None else as_frame(table, self.schema)
        if picking is None:
            self.check_columns(frame.columns)
            picking = _picking(frame.columns.view(), self._names)
            self._known = (picking, _picking(picking.picked, self._names))
        if len(frame) == 0:
            raise DataError("the table is empty; it needs at least one row")
        return frame, picking

    def labels(self, table: Any, numbers: Array | None = None) -> Array:
        """Class numbers (positions in the label set) of the rows of `table`."""
        frame = as_frame(table)
        label = self.schema.label
        self._check_label(frame.columns)
        column = frame[label.name].reset_index(drop=True)
        with _numbered(numbers):
            _refuse(column.isna(), label.name, "the label is missing; drop the row or fill it in")
            codes = _codes(column, label.classes)
            _refuse(codes < 0, label.name, "not one of the label classes in the schema")
        return codes

    def check_columns(self, names: Collection[str], *, label: bool = False) -> None:
        """That a table with columns `names` has those of the schema."""
        present = set(names)
        absent = [column for column in self._names if column not in present]
        if absent:
            more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
            raise DataError(
                f"column {absent[0]!r}{more} is missing from the table; "
                "add it, or take it out of the schema"
            )
        if label:
            self._check_label(names)

    def _check_label(self, names: Collection[str]) -> None:
        if self.schema.label.name not in names:
            raise DataError(
                f"label column {self.schema.label.name!r} is missing from the table; "
                "add it, or correct 'label' in the schema"
            )

    def decode(self, points: Array) -> pd.DataFrame:
        """Legal points back to rows in original units."""
        points = np.asarray(points)
        columns = self._plan.write(points)
        if any(column is None for column in columns):
            named = dict(zip(self._names, columns, strict=True))
            for block in self.blocks:
                if named[block.feature.columns[0]] is None:
                    named.update(decode_feature(block.feature, points[:, block.at]))
            columns = list(named.values())
        if all(isinstance(column, np.ndarray) and column.dtype == np.int64 for column in columns):
            frame = pd.DataFrame(np.array(columns).T, copy=False)
        else:
            frame = pd.DataFrame(dict(enumerate(columns)))
        frame.columns = self._index.view()
        return frame

    @cached_property
    def _index(self) -> pd.Index[Any]:
        return pd.Index(list(self._names))


def _picking(source: pd.Index[Any], names: tuple[str, ...]) -> _Picking:
    place = {name: i for i, name in enumerate(source)}
    places = [place[name] for name in names]
    exact = places == list(range(len(source)))
    return _Picking(source, places, source if exact else source.take(places))


def _lay_out(schema: Schema) -> Iterator[Block]:
    start = 0
    for feature in schema.features:
        yield Block(feature, start)
        start += feature.width


def _encode_feature(feature: Feature, frame: pd.DataFrame) -> Array:
    if isinstance(feature, Pixels):
        return _encode_pixels(feature, frame)
    column = frame[feature.name]
    if isinstance(feature, Numeric):
        return _encode_numeric(feature, column)
    empty = column.isna()
    if isinstance(feature, Binary):
        _refuse(empty, feature.name, "missing value; a binary feature cannot be missing: "
                "declare it categorical with 'missing': true, or fill it in")  # fmt: skip
        codes = _codes(column, feature.values)
        _refuse(codes < 0, feature.name, "neither of the two values in the schema")
        return codes[:, None].astype(np.float64)
    codes = _codes(column, feature.categories)
    if feature.missing:
        codes = np.where(empty, len(feature.categories), codes)
    else:
        _refuse(empty, feature.name, _MISSING)
    _refuse(codes < 0, feature.name, "category not in the schema; add it there or mend the row")
    points: Array = np.eye(feature.width)[codes]
    return points


_MISSING = "missing value; fill it in, or set 'missing': true in the schema"


def _encode_numeric(feature: Numeric, column: pd.Series[Any]) -> Array:
    empty = column.isna().to_numpy()
    if not feature.missing:
        _refuse(empty, feature.name, _MISSING)
    numbers = _numbers(column)
    _refuse(np.isnan(numbers) & ~empty, feature.name, "not a number")
    outside = (numbers < feature.lower) | (numbers > feature.upper)
    bounds = f"outside the bounds {feature.lower:g} to {feature.upper:g} of the schema"
    _refuse(outside & ~empty, feature.name, f"{bounds}; clip the value or widen the bounds")
    if feature.integer:
        whole = "not a whole number; round it, or drop 'integer' from the schema"
        _refuse((numbers != np.round(numbers)) & ~empty, feature.name, whole)
    unit = (numbers - feature.lower) / (feature.upper - feature.lower)
    if not feature.missing:
        return unit[:, None]
    return np.stack([np.where(empty, MISSING_VALUE, unit), empty.astype(np.float64)], axis=1)


def _encode_pixels(feature: Pixels, frame: pd.DataFrame) -> Array:
    try:
        values = frame[list(feature.columns)].to_numpy(np.float64)
    except (ValueError, TypeError):
        raise DataError(
            f"the pixels {feature.name!r} hold something that is not a number"
        ) from None
    with np.errstate(invalid="ignore"):
        bad = ~((values >= 0) & (values <= feature.levels) & (values == np.round(values)))
    if bad.any():
        row, column = (int(i[0]) for i in np.nonzero(bad))
        why = f"pixels are whole numbers from 0 to {feature.levels}"
        raise _BadCellError(row, feature.columns[column], why)
    return values / feature.levels


def _codes(column: pd.Series[Any], values: tuple[Category, ...]) -> Array:
    """Positions in `values`; -1 for what is not there. True is not 1 and "1" is not 1."""
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        index = pd.Index(values, dtype=np.float64)
        return np.asarray(index.get_indexer(pd.Index(_numbers(column))))
    if all(isinstance(value, str) for value in values):
        return np.asarray(pd.Index(list(values)).get_indexer(pd.Index(column)))
    index = pd.Index(list(values), dtype=object)
    return np.asarray(index.get_indexer(pd.Index(column.astype(object))))


def _numbers(column: pd.Series[Any]) -> Array:
    """Cells as float64; NaN where a cell is missing or no number."""
    if types.is_numeric_dtype(column) and not types.is_bool_dtype(column):
        return column.to_numpy(np.float64, na_value=np.nan)
    return pd.to_numeric(column.astype(object), errors="coerce").to_numpy(np.float64)


def decode_feature(feature: Feature, unit: Array) -> dict[str, Any]:
    if isinstance(feature, Pixels):
        values = np.round(unit * feature.levels).astype(np.int64)
        return dict(zip(feature.columns, values.T, strict=True))
    if isinstance(feature, Binary):
        return {feature.name: _pick(feature.values, (unit[:, 0] >= 0.5).astype(int))}
    if isinstance(feature, Categorical):
        return {feature.name: _pick(feature.categories, unit.argmax(axis=1))}
    numbers = feature.lower + unit[:, 0] * (feature.upper - feature.lower)
    numbers = np.clip(
        np.round(numbers) if feature.integer else numbers, feature.lower, feature.upper
    )
    if not feature.missing:
        return {feature.name: numbers.astype(np.int64) if feature.integer else numbers}
    column = pd.Series(np.where(unit[:, 1] >= 0.5, np.nan, numbers))
    return {feature.name: column.astype("Int64") if feature.integer else column}


def _pick(values: tuple[Category, ...], codes: Array) -> pd.Series[Any]:
    """Category names by position; the position after the last one is a missing value."""
    names = np.empty(len(values) + 1, dtype=object)
    names[: len(values)] = values
    names[-1] = None
    return pd.Series(names[codes]).infer_objects()


def _refuse(bad: Any, column: str, why: str) -> None:
    rows = np.flatnonzero(np.asarray(bad))
    if len(rows):
        more = f" ({len(rows) - 1} more rows like it)" if len(rows) > 1 else ""
        raise _BadCellError(int(rows[0]), column, why + more)


class _BadCellError(Exception):
    def __init__(self, row: int, column: str, why: str) -> None:
        super().__init__(row, column, why)
        self.row, self.column, self.why = row, column, why


@contextmanager
def _numbered(numbers: Array | None) -> Iterator[None]:
    """A bad cell as an error with the row's number in the whole table, the first being 1."""
    try:
        yield
    except _BadCellError as bad:
        row = bad.row if numbers is None else int(numbers[bad.row])
        raise DataError(f"row {row + 1}, column {bad.column!r}: {bad.why}") from None
