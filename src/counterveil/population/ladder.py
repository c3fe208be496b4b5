"""The public ladder on which a wide number is first counted, all classes together.

Signed octaves around 0 and cells of equal width: wherever between its bounds the people are, some
cell says so, and wide bounds cost a few cells. Nothing here looks at a row.
"""

from typing import cast

import numpy as np

from counterveil.population.grid import Line
from counterveil.population.numbers import HAIR, ChosenCells, chosen_cells
from counterveil.schema import Numeric, Schema
from counterveil.schema.cells import NumberCells
from counterveil.schema.columns import Array

EVEN, MORE_EVEN = 16, 64  # cells of equal width on a ladder
MORE_FROM = 24  # bins of a number: where noise leaves so many, it leaves more cells of a ladder
OCTAVES = 8  # on either side of 0, below one of those
TINY = 5  # cells of three octaves each, below
FAR_AWAY = 8  # octaves start at a bound that is nearer to 0 than the span over this


class Ladders(Line):
    """The ladders of all wide numbers side by side; they have more cells for many `bins`."""

    def __init__(self, schema: Schema, bins: int) -> None:
        even = MORE_EVEN if bins >= MORE_FROM else EVEN
        features = [(place, each) for place, each in enumerate(schema.features) if each.is_wide]
        super().__init__({place: ladder(cast(Numeric, each), even) for place, each in features})

    def chosen(
        self, noisy: Array, variance: float, rows: float, bins: int
    ) -> dict[int, ChosenCells]:
        """For each place, about `bins` bins cut where its noisy counts say that people are."""
        parts = self.parts(noisy)
        return {
            place: chosen_cells(cells, parts[place], variance, rows, bins)
            for place, cells in zip(self.places, self.cells, strict=True)
        }


def ladder(feature: Numeric, even: int = EVEN, octaves: int = OCTAVES) -> NumberCells:
    """The public cells on which a number is first counted; 0 has one of its own."""
    lower, upper = feature.number_range
    start = min(max(0.0, lower), upper)
    if feature.integer and feature.span < 2 * even:
        starts = np.arange(lower, upper + 1)
    elif abs(start) * FAR_AWAY > feature.span:
        starts = np.linspace(lower, upper, 2 * even + 1)
    else:
        width = feature.span / even
        fine, tiny = np.arange(1, octaves + 1), octaves + 3 * np.arange(1, TINY + 1)
        down = width * 0.5 ** np.concatenate([fine, tiny])
        down = np.append(down[down >= 1], 1.0) if feature.integer else down
        starts = start + np.concatenate([np.arange(-even, even + 1) * width, down, -down, [0.0]])
    return _from_starts(feature, np.append(starts, lower))


def _from_starts(feature: Numeric, starts: Array) -> NumberCells:
    lower, upper = feature.number_range
    starts = np.ceil(starts) if feature.integer else starts
    starts = np.unique(starts[(starts >= lower) & (starts < upper + feature.integer)])
    low, high = starts, np.append(starts[1:] - feature.integer, upper)
    low, high = (low - lower) / feature.span, (high - lower) / feature.span
    if not feature.integer and lower <= 0 <= upper:
        zero = -lower / feature.span
        at = int(np.searchsorted(low, zero))
        low = np.insert(np.where(low == zero, zero + HAIR, low), at, zero)
        high = np.insert(np.where(high == zero, zero - HAIR, high), at, zero)
    step = 1 / feature.span if feature.integer else 0.0
    return NumberCells(len(low) + feature.missing, low, high, step, feature.missing)
