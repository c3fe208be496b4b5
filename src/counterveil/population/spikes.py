"""Spikes: single values that many people share, looked for inside the bins of wide numbers.

An income of 135,000 or a limit of 0.1667 is had by thousands, and the numbers next to it by nobody.
The bins of a number are cut into many narrow slices; a slice that holds more people than noise
could make up is a spike, and all of its people are put on the roundest number in it.
"""

import math

import numpy as np

from counterveil.population.grid import Grid, Line
from counterveil.population.numbers import HAIR, ChosenCells, Piece, cut, pieces_of, with_pieces
from counterveil.population.rounding import roundest
from counterveil.privacy.record import Measurement, NoisyRecord
from counterveil.privacy.statement import LAPLACE
from counterveil.schema import Schema
from counterveil.schema.cells import NumberCells
from counterveil.schema.columns import Array

SLICES = 8192  # of a number, as many for each bin; of whole numbers no more than there are values
HAIR_OF_SLICE = 1e-6
BY_CHANCE = 0.1  # spikes in a whole table that are nothing but noise: at most so many are expected


class Slices(Line):
    """The slices of all numbers whose bins were chosen; `bin_of`: for each number that of each."""

    def __init__(self, grid: Grid) -> None:
        cut_up = {
            place: _slices(cells)
            for place, cells in enumerate(grid.cells)
            if isinstance(cells, ChosenCells)
        }
        super().__init__({place: cells for place, (cells, _) in cut_up.items()})
        self.bin_of = {place: bin_of for place, (_, bin_of) in cut_up.items()}


def _slices(cells: NumberCells) -> tuple[NumberCells, Array]:
    """The slices of one number, and the bin of each."""
    ends = zip(cells.low.tolist(), cells.high.tolist(), strict=True)
    most = max(2, SLICES // len(cells.low))
    made = [cut((low, high, 1.0), most, cells.step) for low, high in ends]
    low, high, _ = np.array([part for parts in made for part in parts]).T
    bin_of = np.repeat(np.arange(len(made)), [len(parts) for parts in made])
    rest = cells.step, cells.missing
    return NumberCells(len(low) + cells.missing, low, high, *rest), bin_of


class Spikes:
    """The spikes of a noisy record; none where it did not look for them."""

    def __init__(self, schema: Schema, record: NoisyRecord, grid: Grid) -> None:
        self._schema, self._found = schema, record.find("spikes")
        if self._found is not None:
            self._slices = Slices(grid)
            noisy, _ = record.read("spikes", (self._slices.width,))
            self._noisy = self._slices.parts(noisy)
            self._enough = enough(self._found, self._slices.width)

    def put_into(self, cells: ChosenCells, place: int, people: Array) -> ChosenCells:
        """The cells of a number with its spikes among their pieces; `people`: in each cell."""
        if self._found is None or place not in self._noisy:
            return cells
        slices = self._slices.cells[self._slices.places.index(place)]
        bin_of, noisy = self._slices.bin_of[place], self._noisy[place]
        pieces = pieces_of(cells)
        for number in range(len(cells.low)):
            mine = np.flatnonzero(bin_of == number)
            if len(mine) > 1 and people[number] > 0:
                even = people[number] / len(mine)
                more = noisy[mine] - np.clip(np.median(noisy[mine]), 0.0, even)
                high = mine[more > self._enough]
                share = more[more > self._enough] / people[number]
                share = share / max(1.0, share.sum())
                values = [self._roundest(place, slices, each) for each in high]
                pieces[number] = with_spikes(pieces[number], values, share, cells.step)
        return with_pieces(cells, pieces)

    def _roundest(self, place: int, slices: NumberCells, number: int) -> float:
        """The roundest number of a slice, in the unit cube."""
        feature = self._schema.features[place]
        lower, upper = feature.number_range or (0.0, 1.0)
        low, high = (lower + end[number] * (upper - lower) for end in (slices.low, slices.high))
        slack = HAIR_OF_SLICE * (high - low)  # a round number may be an end, but for the last bit
        value = roundest(low - slack, high + slack, (low + high) / 2, whole=feature.is_whole)
        unit = (value - lower) / (upper - lower)
        return float(np.clip(unit, slices.low[number], slices.high[number]))


def enough(found: Measurement, cells: int) -> float:
    """More than noise adds to any of so many cells, but for `BY_CHANCE` of them expected."""
    if found.mechanism == LAPLACE:
        return found.scale * math.log(max(2.0, cells / (2 * BY_CHANCE)))
    return found.scale * math.sqrt(2 * math.log(max(2.0, cells / BY_CHANCE)))


def with_spikes(pieces: list[Piece], values: list[float], share: Array, step: float) -> list[Piece]:
    """The pieces of a bin, side by side, parted where a spike stands that has a share of it."""
    total, rest = sum(weight for *_, weight in pieces), 1.0 - float(share.sum())
    pieces = [(low, high, rest * weight) for low, high, weight in pieces]
    for value, part in zip(values, share.tolist(), strict=True):
        at = next(number for number, (_, high, _) in enumerate(pieces) if value <= high + step / 2)
        low, high, weight = pieces[at]
        level = weight / max(high - low + step, HAIR)
        left, right = level * (value - low), level * (high - value)
        before, after = (low, value - step, left), (value + step, high, right)
        pieces[at : at + 1] = [
            *([before] if value - low > step / 2 else []),
            (value, value, part * total + max(0.0, weight - left - right)),
            *([after] if high - value > step / 2 else []),
        ]
    return pieces
