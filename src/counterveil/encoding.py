"""Rows <-> points of the unit cube, by the rules of the Schema alone. Nothing is fitted.

How a feature is encoded is up to its kind (`features.py`). A value that the schema does not allow
is an error that names row (the first is 1) and column, and never the value: it may be private.

The private side cannot have such errors, for they would tell about rows. There every value has a
place (`strict=False`), which depends on that value and the schema alone: a number beyond its bounds
goes to the nearest one, and is rounded where it must be whole; what is no number, no category of
the list or missing counts as missing where the schema allows that, and otherwise as the middle of
the bounds, the first category, the first of two values, or a pixel of 0.
"""

import math
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from counterveil.errors import DataError
from counterveil.hints import like, spelt_otherwise
from counterveil.schema import Feature, Schema, columns
from counterveil.schema.columns import MISSING_VALUE, NUMBERS, Array
from counterveil.tables import as_frame

MOST_LAYOUTS = 8  # of tables that are known again

__all__ = ["MISSING_VALUE", "Array", "Block", "Encoding"]


class Block(NamedTuple):
    """Where a feature is: its columns in the table, and its encoded columns, start to stop."""

    feature: Feature
    places: slice
    at: slice
    start: int
    stop: int

    @property
    def categories(self) -> slice:
        """Of a one-hot feature, the encoded columns of all but a missing value."""
        return slice(self.start, self.stop - self.feature.missing)

    @property
    def missing_flag(self) -> int | None:
        """Of a number that may be missing, the encoded column that says so."""
        return self.stop - 1 if self.feature.missing and not self.feature.one_hot else None


class _Bits:
    """All binary features whose values are whole numbers, taken at once: there may be hundreds."""

    def __init__(self, bits: Sequence[Block]) -> None:
        self.places = [block.places.start for block in bits]
        at = [block.start for block in bits]
        run = slice(at[0], at[0] + len(at)) if at else slice(0)
        # A slice is quicker than a list, where the columns follow one another.
        self._at: slice | list[int] = run if at == list(range(run.stop))[run] else at
        values = np.array([block.feature.values for block in bits], dtype=np.int64)
        self._no, self._yes = values.reshape(-1, 2, 1).swapaxes(0, 1)

    def encode(self, arrays: Sequence[Any], points: Array) -> bool:
        """Fill in their columns of `points`; False where a column is not as usual."""
        given = [arrays[place] for place in self.places]
        if not given:
            return True
        if not all(isinstance(each, np.ndarray) and each.dtype.kind in NUMBERS for each in given):
            return False
        cells = points[:, self._at].T
        for i, column in enumerate(given):
            cells[i] = column
        yes = cells == self._yes
        legal = bool((yes | (cells == self._no)).all())
        points[:, self._at] = yes.T
        return legal

    def decode(self, points: Array) -> Array:
        """Their columns of the table, as the rows of an array."""
        return np.where(points.T[self._at] >= 0.5, self._yes, self._no)


class Encoding:
    """How the rows of one schema become points of the unit cube, and back.

    `private`: whether the rows are. Messages then offer no value that is like one of a row, and say
    what can be done in the schema, which is fixed once there is a veil.
    """

    def __init__(self, schema: Schema, *, private: bool = False) -> None:
        self.schema, self._private = schema, private
        self.width = schema.width
        self._names = schema.columns
        self._index = pd.Index(list(self._names))
        blocks: list[Block] = []
        place = start = 0
        for feature in schema.features:
            last, stop = place + len(feature.columns), start + feature.width
            blocks.append(Block(feature, slice(place, last), slice(start, stop), start, stop))
            place, start = last, stop
        self.blocks = tuple(blocks)
        self._bits = _Bits([block for block in blocks if _is_plain_bit(block.feature)])
        self._others = [block for block in blocks if not _is_plain_bit(block.feature)]
        # Column indices of tables that are known again, each with the places of the schema's.
        self._known = [(self._index, list(range(len(self._names))))]

    def encode(self, table: Any, row_numbers: Array | None = None, *, strict: bool = True) -> Array:
        """Rows of `table` as float64 of shape (rows, width); for `strict` see the module.

        `row_numbers`: the rows' places (from 0) in a larger table, for messages.
        """
        return self.encode_arrays(self.arrays(table), row_numbers, strict=strict)

    def encode_arrays(
        self, arrays: Sequence[Any], row_numbers: Array | None = None, *, strict: bool = True
    ) -> Array:
        """The same for rows whose columns are given as plain arrays, in the schema's order."""
        points = np.zeros((len(arrays[0]), self.width))
        blocks = self._others if self._bits.encode(arrays, points) else self.blocks
        with columns.row_numbers_in_errors(row_numbers, private=self._private):
            for block in blocks:
                block.feature.encode(arrays[block.places], points[:, block.at], strict=strict)
        return points

    def bad_rows(self, table: Any) -> dict[int, str]:
        """The rows that the schema does not allow, by their places from 0, each with a reason."""
        arrays, found = self.arrays(table), dict[int, str]()
        for feature, places, span, *_ in self.blocks:
            left, bad = np.arange(len(arrays[0])), True
            while bad and len(left):
                cells, bad = [column.take(left) for column in arrays[places]], False
                try:
                    feature.encode(cells, np.zeros((len(left), span.stop - span.start)))
                except columns.BadCellError as error:
                    for at in error.rows:
                        why = error.why(at, private=self._private)
                        found.setdefault(int(left[at]), f"column {error.column!r}: {why}")
                    left, bad = np.delete(left, error.rows), True
        return dict(sorted(found.items()))

    def compact_arrays(self, arrays: Sequence[Any], features: Collection[int]) -> list[Any]:
        """Rows in compact form: a column (rows,) for each feature, None but for `features`.

        The position of a category, 0 or 1, or a number in the unit interval, NaN where it is
        missing: as much as the point says, in fewer columns. Not strict: every value has a place.
        """
        return [
            block.feature.compact(arrays[block.places], strict=False) if place in features else None
            for place, block in enumerate(self.blocks)
        ]

    def compact(self, points: Array) -> list[Array]:
        """Points (rows, width) in compact form: a column (rows,) for each feature."""
        columns = []
        for block in self.blocks:
            mine = points[:, block.at]
            if block.feature.one_hot:
                columns.append(mine.argmax(axis=1))
            elif block.missing_flag is not None:
                columns.append(np.where(mine[:, 1] >= 0.5, np.nan, mine[:, 0]))
            else:
                whole = block.feature.number_range is None
                columns.append((mine[:, 0] >= 0.5).astype(np.intp) if whole else mine[:, 0])
        return columns

    def encode_changes(self, arrays: Sequence[Any], before: Sequence[Any], points: Array) -> Array:
        """The same where only some columns are not those of rows `before`, encoded as `points`."""
        encoded = points.copy()
        for feature, places, at, *_ in self.blocks:
            if any(new is not old for new, old in zip(arrays[places], before[places], strict=True)):
                encoded[:, at] = 0
                with columns.row_numbers_in_errors(None, private=self._private):
                    feature.encode(arrays[places], encoded[:, at])
        return encoded

    def arrays(self, table: Any) -> list[Any]:
        """The feature columns of `table` as plain arrays, in the schema's order; no copies."""
        frame, places = self._fitting(table)
        given = columns.arrays_of(frame)
        return [given[place] for place in places]

    def frame(self, arrays: Sequence[Any]) -> pd.DataFrame:
        return columns.frame_of(arrays, self._index)

    def pick(self, table: Any) -> pd.DataFrame:
        """The feature columns in the schema's order; further columns are left aside."""
        return self.frame([array.copy() for array in self.arrays(table)])

    def _fitting(self, table: Any) -> tuple[pd.DataFrame, list[int]]:
        """The table as a frame that has the columns, and where they are."""
        known = self._known if isinstance(table, pd.DataFrame) else []
        places = next((places for index, places in known if index.is_(table.columns)), None)
        frame = table if places is not None else as_frame(table, self.schema)
        if places is None:
            place = {self.schema.column_called(name): i for i, name in enumerate(frame.columns)}
            place |= {name: i for i, name in enumerate(frame.columns)}
            self.check_columns(place)
            places = [place[name] for name in self._names]
            self._known = [(frame.columns.view(), places), *self._known[: MOST_LAYOUTS - 1]]
        if len(frame) == 0:
            raise DataError("the table is empty; it needs at least one row")
        return frame, places

    def labels(self, table: Any, row_numbers: Array | None = None, *, strict: bool = True) -> Array:
        """Class numbers (rows,); without `strict`, -1 for a label that is not in the set."""
        frame = as_frame(table)
        self._check_label(frame.columns)
        column = columns.arrays_of(frame[[self.schema.label.name]])[0]
        return self.labels_of(column, row_numbers, strict=strict)

    def labels_of(
        self, column: Any, row_numbers: Array | None = None, *, strict: bool = True
    ) -> Array:
        """The same of the label's column as a plain array."""
        label = self.schema.label
        codes, _ = label.value_list.codes(column)
        if not strict:
            return np.where(codes == len(label.classes), -1, codes)
        missing = "the label is missing; drop the row or fill it in"
        unknown = "not one of the label classes in the schema"
        with columns.row_numbers_in_errors(row_numbers, private=self._private):
            columns.refuse_cells(codes == len(label.classes), label.name, missing)
            columns.refuse_cells(codes < 0, label.name, unknown)
        return codes

    def check_columns(self, names: Collection[str], *, label: bool = False) -> None:
        """That a table with columns `names` has those of the schema."""
        present = set(names)
        absent = [column for column in self._names if column not in present]
        if absent:
            lacking, it = f"column {absent[0]!r} is missing from the table", "it"
            if len(absent) > 1:
                more = f"{absent[0]!r} and {len(absent) - 1} more"
                lacking, it = f"columns {more} are missing from the table", "them"
            if self._private:
                spelt = spelt_otherwise(absent[0], present)
                raise DataError(f"{lacking}{spelt}; add {it}, or take {it} out of the schema")
            near = like(absent[0], present - {*self._names})
            raise DataError(f"{lacking}{'; add ' + it if near is None else f'; it has {near!r}'}")
        if label:
            self._check_label(names)

    def _check_label(self, names: Collection[str]) -> None:
        if self.schema.label.name not in names:
            lacking = f"label column {self.schema.label.name!r} is missing from the table"
            raise DataError(f"{lacking}; add it, or correct 'label' in the schema")

    @cached_property
    def dtypes(self) -> list[Any]:
        """The types of the columns that `decode` gives."""
        return self.decode(np.zeros((1, self.width))).dtypes.tolist()

    def decode(self, points: Array) -> pd.DataFrame:
        """Legal points (rows, width) back to rows in original units."""
        points = np.asarray(points)
        decoded: list[Any] = [None] * len(self._names)
        together = bool(self._bits.places) and len(points) > 0
        if together:
            for place, column in zip(self._bits.places, self._bits.decode(points), strict=True):
                decoded[place] = column
        for block in self._others if together else self.blocks:
            decoded[block.places] = block.feature.decode(points[:, block.at])
        if all(isinstance(column, np.ndarray) and column.dtype == np.int64 for column in decoded):
            frame = pd.DataFrame(np.array(decoded).T, copy=False)
            frame.columns = self._index.view()
            return frame
        return self.frame([columns.array_of(each) for each in decoded])


def without_float_noise(feature: Feature, values: Any) -> Any:
    """Decoded numbers to a ten-millionth of their span: the search computes in float32."""
    bounds = feature.number_range
    if bounds is None or feature.is_whole:
        return values
    digits = 7 - math.ceil(math.log10(bounds[1] - bounds[0]))
    return np.round(values, digits) if -300 < digits < 300 else values


def _is_plain_bit(feature: Feature) -> bool:
    values: tuple[Any, ...] = feature.values or ()
    whole = all(type(value) is int and abs(value) <= columns.LARGEST_WHOLE for value in values)
    return bool(values) and whole and not feature.one_hot
