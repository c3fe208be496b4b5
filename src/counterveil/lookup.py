"""The fast way between the columns of a frame and points, for cells of the usual types.

A `Plan` works out once what a schema asks, and then takes all features of a kind at once. It only
does what it is sure of: a feature with an unusual column, or with a cell that may be illegal, is
left over. `encoding` takes those the general way, one at a time, which also finds the words for an
error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import pandas as pd

from counterveil.schema import Binary, Numeric, Pixels, Schema

Array = np.ndarray[Any, np.dtype[Any]]
NULLABLE = (pd.arrays.IntegerArray, pd.arrays.FloatingArray, pd.arrays.ArrowExtensionArray)
MISSING_VALUE = 0.5
NUMBERS = "iuf"  # numpy's kinds of them
UNKNOWN = -1


@dataclass(frozen=True)
class _Spot:
    """A feature: its number, its first column in the table, and its columns of the points."""

    feature: Any
    number: int
    place: int
    start: int
    stop: int


class _Kind(Protocol):
    """The features of a kind. `read` and `write` are those of the Plan, for them alone."""

    def read(self, arrays: Sequence[Any], points: Array) -> list[int]: ...

    def write(self, points: Array, columns: list[Any]) -> None: ...


class Plan:
    """How the columns of one schema become points, and back."""

    def __init__(self, schema: Schema) -> None:
        self._columns = len(schema.columns)
        self._never: list[int] = []
        groups: dict[type, list[_Spot]] = {_Numbers: [], _Bits: [], _Flags: []}
        self._kinds: list[_Kind] = []
        for spot in _spots(schema):
            kind = _kind(spot.feature)
            if kind is None:
                self._never.append(spot.number)
            elif kind in groups:
                groups[kind].append(spot)
            else:
                self._kinds.append(kind(spot))
        self._kinds += [kind(spots) for kind, spots in groups.items() if spots]

    def read(self, arrays: Sequence[Any], points: Array) -> list[int]:
        """Fill `points`, zeros so far; the numbers of the features left over, in order."""
        left = [number for kind in self._kinds for number in kind.read(arrays, points)]
        return sorted(self._never + left)

    def write(self, points: Array) -> list[Any]:
        """The columns, with None for those of the features left over."""
        columns: list[Any] = [None] * self._columns
        # With no row there is no type to find; other numbers than these are rounded elsewhere.
        if len(points) and points.dtype in {np.dtype(np.float32), np.dtype(np.float64)}:
            for kind in self._kinds:
                kind.write(points, columns)
        return columns


class _Numbers:
    """All numeric features."""

    def __init__(self, spots: list[_Spot]) -> None:
        self._spots = spots
        self._at = _run(spots)
        self._lower = np.array([[spot.feature.lower] for spot in spots])
        self._upper = np.array([[spot.feature.upper] for spot in spots])
        self._whole = np.array([spot.feature.integer for spot in spots])
        self._gaps = np.array([spot.feature.missing for spot in spots])

    def read(self, arrays: Sequence[Any], points: Array) -> list[int]:
        cells = points[:, self._at].T
        sure = _stack([arrays[spot.place] for spot in self._spots], NUMBERS, cells)
        right = (cells >= self._lower) & (cells <= self._upper)
        right &= (cells == np.rint(cells)) | ~self._whole[:, None]
        empty = np.isnan(cells) & self._gaps[:, None]
        sure &= (right | empty).all(axis=1)
        with np.errstate(all="ignore"):  # cells of those left over may be anything
            points[:, self._at] = ((cells - self._lower) / (self._upper - self._lower)).T
        for i in np.flatnonzero(self._gaps):
            start = self._spots[i].start
            points[empty[i], start] = MISSING_VALUE
            points[:, start + 1] = empty[i]
        return [self._spots[i].number for i in np.flatnonzero(~sure)]

    def write(self, points: Array, columns: list[Any]) -> None:
        lower, upper, span = (
            bound.astype(points.dtype)
            for bound in (self._lower, self._upper, self._upper - self._lower)
        )
        numbers = lower + points.T[self._at] * span
        np.rint(numbers, out=numbers, where=self._whole[:, None])
        numbers = np.clip(numbers, lower, upper)
        for spot, column in zip(self._spots, numbers, strict=True):
            if spot.feature.missing:
                column[points[:, spot.start + 1] >= 0.5] = np.nan
            if not spot.feature.integer:
                columns[spot.place] = column
            elif not spot.feature.missing:
                columns[spot.place] = column.astype(np.int64)
            else:
                empty = np.isnan(column)
                column[empty] = 1
                columns[spot.place] = pd.arrays.IntegerArray(column.astype(np.int64), empty)


class _Bits:
    """All binary features whose values are whole numbers."""

    kinds: str = NUMBERS
    dtype: Any = np.int64

    def __init__(self, spots: list[_Spot]) -> None:
        self._spots = spots
        self._at = _run(spots)
        values = np.array([spot.feature.values for spot in spots], dtype=self.dtype)
        self._no, self._yes = values[:, :1], values[:, 1:]

    def read(self, arrays: Sequence[Any], points: Array) -> list[int]:
        cells = points[:, self._at].T
        sure = _stack([arrays[spot.place] for spot in self._spots], self.kinds, cells)
        yes = cells == self._yes
        sure &= (yes | (cells == self._no)).all(axis=1)
        points[:, self._at] = yes.T
        return [self._spots[i].number for i in np.flatnonzero(~sure)]

    def write(self, points: Array, columns: list[Any]) -> None:
        values = np.where(points.T[self._at] >= 0.5, self._yes, self._no)
        for spot, column in zip(self._spots, values, strict=True):
            columns[spot.place] = column


class _Flags(_Bits):
    """All binary features whose values are false and true."""

    kinds = "b"
    dtype = np.bool_


class _Image:
    """The pixels of one feature."""

    def __init__(self, spot: _Spot) -> None:
        self._spot, self._levels = spot, spot.feature.levels
        self._at = slice(spot.start, spot.stop)
        self._places = slice(spot.place, spot.place + spot.stop - spot.start)

    def read(self, arrays: Sequence[Any], points: Array) -> list[int]:
        cells, columns = points[:, self._at], arrays[self._places]
        sure = _stack(columns, NUMBERS, cells.T).all()
        sure = sure and cells.min() >= 0 and cells.max() <= self._levels
        if sure and any(column.dtype.kind == "f" for column in columns):
            sure = (cells == np.rint(cells)).all()
        cells /= self._levels
        return [] if sure else [self._spot.number]

    def write(self, points: Array, columns: list[Any]) -> None:
        values = np.rint(points.T[self._at] * self._levels)
        columns[self._places] = values.astype(np.int64)


class _Names:
    """One feature whose values are all texts, or all whole numbers."""

    def __init__(self, spot: _Spot) -> None:
        self._spot, self._binary = spot, isinstance(spot.feature, Binary)
        values = _values(spot.feature)
        self._text = isinstance(values[0], str)
        self._codes = {value if self._text else float(value): i for i, value in enumerate(values)}
        width = 2 if self._binary else spot.stop - spot.start
        self._gap = len(values) if width > len(values) else UNKNOWN
        self._table = _texts(values) if self._text else np.array(values, dtype=np.int64)

    def read(self, arrays: Sequence[Any], points: Array) -> list[int]:
        column = arrays[self._spot.place]
        try:
            codes = self._find(column)
        except TypeError:  # a cell that cannot be looked up
            codes = None
        if codes is not None and codes.min() < 0:
            codes[np.asarray(pd.isna(column))] = self._gap
            codes = codes if codes.min() >= 0 else None
        if codes is None:
            return [self._spot.number]
        if self._binary:
            points[:, self._spot.start] = codes
        else:
            points[np.arange(len(points)), codes + self._spot.start] = 1.0
        return []

    def _find(self, column: Any) -> Array | None:
        if not self._text:
            cells = np.zeros((1, len(column)))
            return self._look_up(cells[0].tolist()) if _stack([column], NUMBERS, cells)[0] else None
        if isinstance(column, pd.Categorical):
            codes = self._find(column.categories.to_numpy())
            return None if codes is None else np.append(codes, UNKNOWN)[column.codes]
        if isinstance(column.dtype, pd.StringDtype):
            column = column.to_numpy(object)
        return self._look_up(column.tolist()) if column.dtype == object else None

    def _look_up(self, cells: list[Any]) -> Array:
        codes = self._codes
        return np.array([codes.get(cell, UNKNOWN) for cell in cells], dtype=np.intp)

    def write(self, points: Array, columns: list[Any]) -> None:
        unit = points[:, self._spot.start : self._spot.stop]
        codes = (unit[:, 0] >= 0.5).astype(np.intp) if self._binary else unit.argmax(axis=1)
        # A missing value alone, or among what is no text, changes the type of the column.
        if (codes.min() if self._text else codes.max()) < len(self._codes):
            columns[self._spot.place] = self._table.take(codes)


def arrays_of(frame: pd.DataFrame) -> list[Any]:
    """The columns as plain arrays: of numpy where the type is one of numpy's."""
    # A Series a column costs more than all the rest of encoding a row.
    quick = getattr(frame, "_iter_column_arrays", None)
    if quick is not None:
        return list(quick())
    columns = (column for _, column in frame.items())
    return [c.to_numpy() if isinstance(c.dtype, np.dtype) else c.array for c in columns]


def _kind(feature: Any) -> type | None:
    if isinstance(feature, Numeric):
        return _Numbers
    if isinstance(feature, Pixels):
        return _Image
    values = _values(feature)
    types = {type(value) for value in values}
    if types == {bool} and isinstance(feature, Binary):
        return _Flags
    # Beyond 2^53 floats do not tell whole numbers apart.
    if types == {int} and all(abs(value) <= 1 << 53 for value in values):
        return _Bits if isinstance(feature, Binary) else _Names
    return _Names if types == {str} and _texts(values) is not None else None


def _values(feature: Any) -> tuple[Any, ...]:
    return feature.values if isinstance(feature, Binary) else feature.categories


@lru_cache(maxsize=1024)
def _texts(values: tuple[str, ...]) -> Any:
    """The texts and a missing value, of the type that pandas finds for any choice of them."""
    try:
        return pd.Series(np.array([*values, None], dtype=object)).infer_objects().array
    except UnicodeError:  # half of a surrogate pair
        return None


def _spots(schema: Schema) -> Iterator[_Spot]:
    place = start = 0
    for number, feature in enumerate(schema.features):
        width = feature.width
        yield _Spot(feature, number, place, start, start + width)
        place += width if isinstance(feature, Pixels) else 1
        start += width


def _run(spots: list[_Spot]) -> slice | list[int]:
    """The first columns of the points, as a slice where they follow one another."""
    starts = [spot.start for spot in spots]
    run = range(starts[0], starts[0] + len(starts))
    return slice(run.start, run.stop) if starts == list(run) else starts


def _stack(columns: Sequence[Any], kinds: str, cells: Array) -> Array:
    """Put columns of numbers into the rows of `cells`; for which of them that is sound."""
    sure = np.ones(len(columns), dtype=bool)
    for i, column in enumerate(columns):
        if isinstance(column, np.ndarray) and column.dtype.kind in kinds:
            cells[i] = column
        elif isinstance(column, NULLABLE) and column.dtype.kind in kinds:
            cells[i] = column.to_numpy(np.float64, na_value=np.nan)
            sure[i] = (np.isnan(cells[i]) == column.isna()).all()
        else:
            sure[i] = False
    return sure
