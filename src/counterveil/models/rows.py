"""Rows to ask a model about."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.encoding import Array, Encoding, without_float_noise
from counterveil.errors import ModelError
from counterveil.schema.columns import WHOLE, array_of, arrays_of, numbers_of

OBJECTS = np.dtype(object)  # of a column whose cells may be of any type


class Rows:
    """Rows to ask a model about, in whichever form the model takes them.

    Rows are given in original units, as a table or as its columns (`from_frame`), or as points of
    the encoding. The other forms are made when they are first asked for, and kept:

    `cells`: the columns of rows in original units as plain arrays, in the schema's order: those
    that were given, with values of the schema's types, or the decoded points.
    `frame`: the same as a frame.
    `encoded`: float64 array of shape (rows, width): the encoded rows, or the points; without noise
    the points of rows as they are given out.
    `points`: float32 tensor of shape (rows, width): the very points that were given (a gradient
    flows through them), or the encoded rows on the CPU.
    `array`: the same as an array, for what is quicker without torch.
    """

    from_frame = False
    without_noise = False
    _given: Sequence[Any]  # columns as they came

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding

    @classmethod
    def of_frame(cls, table: Any, encoding: Encoding) -> Self:
        """Rows in original units. A model gets their values as the schema has them: not "1" for 1.

        A table that the schema does not allow is a `DataError`, at the latest when a model is
        asked.
        """
        rows = cls(encoding)
        rows._given, rows.from_frame = encoding.arrays(table), True
        return rows

    def with_cells(self, cells: Sequence[Any]) -> Self:
        """Rows in original units that share some columns with these, and have others of their own.

        `cells`: all columns, with values of the schema's types; only their own are encoded anew.
        """
        rows = type(self)(self._encoding)
        rows._given, rows.from_frame, rows.cells = cells, True, list(cells)
        rows.encoded = self._encoding.encode_changes(cells, self.cells, self.encoded)
        return rows

    def repeated(self, times: int) -> Self:
        """Rows in original units, each so many times, one after the other."""
        return self if times == 1 else self.select(np.repeat(np.arange(len(self)), times))

    def select(self, at: Array) -> Self:
        """Some rows in original units, by their places; a place may come more than once."""
        rows = type(self)(self._encoding)
        rows.cells = [column.take(at) for column in self.cells]
        rows._given, rows.from_frame, rows.encoded = rows.cells, True, self.encoded[at]
        return rows

    @classmethod
    def of_points(cls, points: Tensor, encoding: Encoding) -> Self:
        """Encoded rows: a float32 tensor of shape (rows, width)."""
        rows = cls(encoding)
        rows.points = points
        return rows

    @classmethod
    def of_array(cls, points: Array, encoding: Encoding, *, without_noise: bool = False) -> Self:
        """Encoded rows: a float32 array of shape (rows, width).

        `without_noise`: numbers have no more digits than float32 holds, as answers are given out:
        a tree that splits at 225,000 is not asked about 225,000.009. So are `encoded` numbers.
        """
        rows = cls.of_points(torch.from_numpy(points), encoding)
        rows.array, rows.without_noise = points, without_noise
        return rows

    def __len__(self) -> int:
        return len(self._given[0] if self.from_frame else self.points)

    @cached_property
    def cells(self) -> list[Any]:
        if not self.from_frame:
            cells = arrays_of(self._encoding.decode(self._given_points))
            if self.without_noise:
                for feature, places, *_ in self._encoding.blocks:
                    cells[places] = [without_float_noise(feature, each) for each in cells[places]]
            return cells
        encoded = self.encoded  # refuses what the schema does not allow
        cells = [column.copy() for column in self._given]
        own, found = self._encoding.dtypes, [column.dtype for column in cells]
        names = any(feature.value_names for feature in self._encoding.schema.features)
        if own == found and OBJECTS not in found and not names:
            return cells
        for feature, places, at, *_ in self._encoding.blocks:
            as_own = found[places] == own[places] and OBJECTS not in found[places]
            if as_own and (found[places.start].kind in WHOLE or not feature.value_names):
                continue
            here = places.start
            if feature.is_one_number and own[here] == np.int64 and found[here].kind in WHOLE:
                cells[here] = cells[here].astype(np.int64)
            elif feature.number_range is not None and not feature.is_whole:
                cells[here] = numbers_of(cells[here])[0]  # decoding would round them
            else:
                cells[places] = [array_of(column) for column in feature.decode(encoded[:, at])]
        return cells

    @cached_property
    def frame(self) -> pd.DataFrame:
        if not self.from_frame and not self.without_noise:
            return self._encoding.decode(self._given_points)
        return self._encoding.frame(self.cells)

    @cached_property
    def encoded(self) -> Array:
        if self.from_frame:
            return self._encoding.encode_arrays(self._given)
        if self.without_noise:
            return self._encoding.encode_arrays(self.cells)
        return self._given_points

    @property
    def _given_points(self) -> Array:
        array: Array = self.points.detach().cpu().double().numpy()
        width = self._encoding.width
        if array.shape[1:] != (width,):
            raise ModelError(f"points must have the shape (rows, {width}), not {array.shape}")
        return array

    @cached_property
    def points(self) -> Tensor:
        return torch.from_numpy(self.array)

    @cached_property
    def array(self) -> Array:
        if self.from_frame:
            return self.encoded.astype(np.float32)
        return self.points.detach().cpu().numpy()
