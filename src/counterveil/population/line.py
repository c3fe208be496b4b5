"""The cells of some numbers of a table, side by side in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from counterveil.schema.cells import NumberCells
from counterveil.schema.columns import Array


class Line:
    """Cells of numbers, given by the place of each feature, in one line of `width`.

    `places`: which features have cells, in order; `starts`: the first cell of each. A row adds 1 to
    one cell of each of them, whatever the other rows are.
    """

    def __init__(self, cells: Mapping[int, NumberCells]) -> None:
        self.places, self.cells = tuple(cells), tuple(cells.values())
        counts = [each.count for each in self.cells]
        self.starts = np.cumsum([0, *counts])[:-1]
        self.width = sum(counts)

    def counts(self, columns: Sequence[Any]) -> Array:
        """How many rows sit in each cell, (width,); rows in compact form (`Encoding.compact`).

        Only the columns of `places` are looked at.
        """
        total = np.zeros(self.width, dtype=np.int64)
        for place, start, cells in zip(self.places, self.starts, self.cells, strict=True):
            mine = np.bincount(cells.codes_of(columns[place]), minlength=cells.count)
            total[start : start + cells.count] = mine
        return total

    def parts(self, values: Array) -> dict[int, Array]:
        """What stands in the cells of each place, of values (width,)."""
        return dict(zip(self.places, np.split(values, self.starts[1:]), strict=True))
