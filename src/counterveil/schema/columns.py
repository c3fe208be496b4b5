"""Single columns of a table: cells as numbers or as positions in a list of values, and back.

Columns are plain arrays, of numpy or of pandas. The usual types are taken in the quickest way, for
a single row should cost little; all others in the way of pandas. An illegal cell is an error that
names row and column, and never the value: it may be private.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from functools import cached_property, lru_cache, partial
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import StrictBool, StrictInt, StrictStr

from counterveil.errors import DataError
from counterveil.lazy import Lazy

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = Lazy("pandas")

Array = np.ndarray[Any, np.dtype[Any]]
Category = StrictBool | StrictInt | StrictStr
MISSING_VALUE = 0.5  # where a number that is missing rests in the unit cube
LARGEST_WHOLE = 1 << 53  # up to which floats tell whole numbers apart
NUMBERS, WHOLE = "iuf", "iu"  # numpy's kinds of numbers, and of whole ones


class Coded:
    """A column as the position of each row's cell in a short list of cells; -1 where it is missing.

    `codes`: whole numbers (rows,). `cells`: a plain array of the cells; equal ones may stand twice.
    """

    dtype = np.dtype(object)

    def __init__(self, codes: Array, cells: Any) -> None:
        self.codes, self.cells = codes, cells

    def __len__(self) -> int:
        return len(self.codes)

    def spread(self, of_cells: Array, of_missing: Any) -> Array:
        """What each row has, where each cell and a missing one have that."""
        return np.append(of_cells, np.asarray(of_missing, of_cells.dtype))[self.codes]


class BadCellError(Exception):
    """Illegal cells of a column, for one reason: their rows in the table at hand, from 0.

    `in_schema`: what could be done about it in the schema, by whoever can still change that.
    `offer`: which value may be meant, from the row.
    """

    def __init__(
        self,
        rows: Sequence[int],
        column: str,
        why: str,
        in_schema: str = "",
        offer: Callable[[int], str] | None = None,
    ) -> None:
        super().__init__(rows, column, why)
        self.rows, self.column = rows, column
        self._why, self._in_schema, self._offer = why, in_schema, offer

    def why(self, row: int, *, private: bool) -> str:
        """The reason, and what to do. Where rows are `private`, it is the same for every value."""
        if private:
            return self._why + self._in_schema
        return self._why + (self._offer(row) if self._offer else "")


def refuse_cells(
    bad: Any, column: str, why: str, in_schema: str = "", offer: Callable[[int], str] | None = None
) -> None:
    """Raise a BadCellError for the rows that are marked in `bad`, if there are any."""
    rows = np.flatnonzero(np.asarray(bad)).tolist()
    if rows:
        raise BadCellError(rows, column, why, in_schema, offer)


@contextmanager
def row_numbers_in_errors(row_numbers: Array | None, *, private: bool) -> Iterator[None]:
    """Turn a bad cell into a DataError with the row's number in the whole table, the first being 1.

    `row_numbers`: the place (from 0) of each row in the whole table; None where this is all of it.
    `private`: whether the rows are.
    """
    try:
        yield
    except BadCellError as bad:
        row, more = bad.rows[0], len(bad.rows) - 1
        why = bad.why(row, private=private)
        row = row if row_numbers is None else int(row_numbers[row])
        others = f" ({more} more rows like it)" if more else ""
        raise DataError(f"row {row + 1}, column {bad.column!r}: {why}{others}") from None


def arrays_of(frame: pd.DataFrame) -> list[Any]:
    """The columns as plain arrays: of numpy where the type is one of numpy's."""
    # A Series a column costs more than all the rest of encoding a row.
    quick = getattr(frame, "_iter_column_arrays", None)
    if quick is not None:
        return list(quick())
    return [array_of(column) for _, column in frame.items()]


def array_of(column: Any) -> Any:
    """A column as a plain array: of numpy where the type is one of numpy's."""
    if not isinstance(column, pd.Series):
        return column
    return column.to_numpy() if isinstance(column.dtype, np.dtype) else column.array


def _is_nullable(column: Any) -> bool:
    kinds = pd.arrays
    return isinstance(column, (kinds.IntegerArray, kinds.FloatingArray, kinds.ArrowExtensionArray))


def frame_of(arrays: Sequence[Any], names: pd.Index[Any]) -> pd.DataFrame:
    """A frame of plain arrays, which it takes as they are; its rows are numbered from 0."""
    index = pd.RangeIndex(len(arrays[0]))
    # Most of the time for a single row goes into looking for what is known here.
    quick = getattr(pd.DataFrame, "_from_arrays", None)
    if quick is not None:
        return quick(list(arrays), names.view(), index, verify_integrity=False)
    frame = pd.DataFrame(dict(enumerate(arrays)), index=index, copy=False)
    frame.columns = names.view()
    return frame


def numbers_of(column: Any, called: Mapping[str, Any] | None = None) -> tuple[Array, Array]:
    """Cells as float64, NaN where a cell is missing or no number; and which cells are missing.

    What a cell becomes depends on that cell alone, whatever the type of its column: 7, 7.0 and "7"
    are the same number. So one odd cell cannot change how the others are read. `called`: numbers
    by what people call them.
    """
    if isinstance(column, Coded):
        numbers, empty = numbers_of(column.cells, called)
        return column.spread(numbers, math.nan), column.spread(empty, True)
    if isinstance(column, np.ndarray) and column.dtype.kind in NUMBERS:
        numbers = column.astype(np.float64)
        return numbers, np.isnan(numbers)
    if _is_nullable(column) and column.dtype.kind in NUMBERS:
        return column.to_numpy(np.float64, na_value=np.nan), np.asarray(column.isna())
    series = pd.Series(column, dtype=column.dtype)
    empty = empty_cells(series)
    if column.dtype.kind == "c":  # complex numbers are none here
        numbers = np.full(len(series), math.nan)
    elif pd.api.types.is_numeric_dtype(series) and not pd.api.types.is_bool_dtype(series):
        numbers = series.to_numpy(np.float64, na_value=np.nan)
    else:
        numbers = _cell_by_cell(series, partial(number_of, called=called), math.nan)
    return numbers, empty


def _cell_by_cell(series: pd.Series[Any], of_cell: Callable[[Any], Any], of_missing: Any) -> Array:
    """What each cell has; of a column of texts, equal ones are looked at once."""
    kind = type(of_missing)
    if isinstance(series.dtype, pd.StringDtype):
        places, texts = pd.factorize(series)  # a missing cell has the place -1, the last
        return np.array([*map(of_cell, texts.to_numpy(object)), of_missing], dtype=kind)[places]
    return np.array([of_cell(cell) for cell in series.astype(object).to_numpy()], dtype=kind)


def empty_cells(series: pd.Series[Any]) -> Array:
    """Which cells are missing."""
    try:
        return series.isna().to_numpy()
    except ArithmeticError:  # a decimal that cannot be compared
        return np.array([cell is None or cell is pd.NA or cell is pd.NaT for cell in series])


def number_of(cell: Any, called: Mapping[str, Any] | None = None) -> float:
    """The number in one cell, NaN where there is none. Texts are read as Python writes numbers.

    `called`: numbers by what people call them.
    """
    cell = cell.item() if isinstance(cell, np.generic) else cell
    if called and isinstance(cell, str) and cell in called:
        return float(called[cell])
    if isinstance(cell, str):
        if "_" in cell or not cell.isascii():  # Python's own liberties: 1_000, Arabic digits
            return math.nan
    elif not isinstance(cell, (Real, Decimal)):
        return math.nan
    try:
        return float(cell)
    except (ValueError, TypeError):
        return math.nan
    except OverflowError:
        return math.inf if cell > 0 else -math.inf


def check_distinct(name: str, values: tuple[Category, ...], at_least: int) -> None:
    """A ValueError where `values` are too few, or one of them is listed twice."""
    if len(values) < at_least:
        raise ValueError(f"{name!r}: needs at least {at_least} different values")
    if len(set(values)) < len(values):
        raise ValueError(f"{name!r}: a value is listed twice")


def _written(cell: Any) -> str:
    """How a cell is written whatever its type: True, "true", 1.0 and "1" are 1.

    Nothing is written like a number that is not finite: its text is empty.
    """
    if isinstance(cell, str) and cell.strip().lower() in ("true", "false"):
        cell = cell.strip().lower() == "true"
    number = number_of(cell)
    if math.isfinite(number) and number.is_integer() and abs(number) <= LARGEST_WHOLE:
        return str(int(number))
    return str(cell) if math.isfinite(number) or isinstance(cell, str) else ""


class ValueList:
    """A closed list of values: which of them the cells of a column are, and columns of them.

    `names`: pairs of a value and what people call it; a cell with that name is that value, unless
    it is written like another one.
    """

    def __init__(
        self, values: tuple[Any, ...], names: tuple[tuple[Category, str], ...] = ()
    ) -> None:
        self._values = values
        self._positions = {value: position for position, value in enumerate(values)}
        self._names = np.array([*values, None], dtype=object)  # the last is a missing value
        self._types = {type(value) for value in values}
        self._texts = {each: i for each, i in self._positions.items() if isinstance(each, str)}
        self._others = {
            _written(each): i for each, i in self._positions.items() if not isinstance(each, str)
        }
        for value, name in names:
            if self.place(name) < 0:
                self._texts[name] = self._positions[value]
        self._kinds = ""  # numpy's kinds of the columns that are taken quickly
        if self._types == {str}:
            with suppress(UnicodeError):  # half of a surrogate pair
                "".join(values).encode()
                self._kinds = "O"
        elif self._types == {bool}:
            self._kinds = "b"
        elif self._types == {int} and all(abs(value) <= LARGEST_WHOLE for value in values):
            self._kinds = NUMBERS

    @cached_property
    def _column(self) -> Any:
        """The values as a column of the type that pandas finds for them."""
        if self._kinds == "O":
            return pd.Series(self._names).infer_objects().array
        return np.array(self._values, dtype=bool if self._kinds == "b" else np.int64)

    def codes(self, column: Any) -> tuple[Array, bool]:
        """The position of each cell in the list, and whether all of them are in it.

        A missing cell has the position after the last one, and what is not in the list has -1. A
        cell of another type than the value counts as that value if it is written alike: "1" and
        1.0 are 1, "true" is True, 7 is "7" ("07" is not). It depends on the cell alone, not on
        its column.
        """
        if isinstance(column, Coded):
            of_cells, _ = self.codes(column.cells)
            spread = column.spread(of_cells, len(self._values))
            return spread, bool(((spread >= 0) & (spread < len(self._values))).all())
        found = self._look_up(column)
        if found is not None and -1 not in found:
            return np.array(found, dtype=np.intp), True
        series = pd.Series(column, dtype=column.dtype)
        empty = empty_cells(series)
        codes: Array | None = None if found is None else np.array(found, dtype=np.intp)
        if codes is None or not empty[codes < 0].all():
            codes = _cell_by_cell(series, self.place, -1)  # -1: not in the list
        return np.where(empty, len(self._values), codes), False

    def place(self, cell: Any) -> int:
        """The position of one cell; -1 if it is not in the list."""
        cell = cell.item() if isinstance(cell, np.generic) else cell
        if not isinstance(cell, (str, Real, Decimal)):
            return -1
        written = _written(cell)
        place = self._others.get(written, -1)
        if place < 0 and isinstance(cell, bool):
            place = self._texts.get(str(cell), -1)
        elif place < 0 or isinstance(cell, str):
            place = self._texts.get(cell if isinstance(cell, str) else written, place)
        return place

    def _look_up(self, column: Any) -> list[int] | None:
        """The positions of cells of the usual types; None for a column of another one."""
        if self._kinds == "O" and isinstance(column, pd.Categorical):
            found = self._look_up(column.categories.to_numpy())
            return None if found is None else np.array([*found, -1])[column.codes].tolist()
        if self._kinds == "O" and isinstance(column.dtype, pd.StringDtype):
            column = column.to_numpy(object)
        elif self._kinds == NUMBERS and _is_nullable(column):
            column = numbers_of(column)[0] if column.dtype.kind in NUMBERS else column
        if not isinstance(column, np.ndarray) or column.dtype.kind not in self._kinds:
            return None
        position = self._positions.get
        try:
            return [position(cell, -1) for cell in column.tolist()]
        except (TypeError, ValueError):  # a cell that cannot be looked up
            return None

    def column(self, codes: Array) -> Any:
        """A column of values by position; the position after the last one is a missing value."""
        # A missing value alone, or among what is no text, changes the type of the column.
        if self._kinds and len(codes):
            last = len(self._values) - 1
            if len(codes) == 1 and codes[0] <= last:
                return self._column[codes[0] : codes[0] + 1].copy()
            if codes.max() <= last or (self._kinds == "O" and codes.min() <= last):
                return self._column.take(codes)
        return pd.Series(self._names[codes]).infer_objects()


@lru_cache(maxsize=4096, typed=True)  # by type as well, for (False, True) equals (0, 1)
def value_list(*values: Category, names: tuple[tuple[Category, str], ...] = ()) -> ValueList:
    """The ValueList of `values` with these names, made once for each."""
    return ValueList(values, names)
