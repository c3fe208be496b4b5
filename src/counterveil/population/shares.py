"""What noisy counts surely say about people: at least how many of a class have a number or more.

The counts n of a class in the cells of a feature are known with noise of variance σ². Of its people
a share p have the number or more if A, the count of all cells that hold nothing less, and R, the
count of all others, fulfil (1 − p)·A − p·R ≥ 0. With noise, and with people who are a sample
themselves, that is said where

    (1 − p)·A − p·R > DEVIATIONS · √(σ²·((1 − p)²·a + p²·r) + (A + R)·p·(1 − p))

with a and r the numbers of cells (Fieller's bound). A bin that also holds less counts as all less;
and so do people whose number is missing. Only tenths are said. Answers seek values that seem
frequent, and errors with them: that is why there are three deviations and not two.
"""

from __future__ import annotations

import numpy as np

from counterveil.encoding import Array
from counterveil.population.mixed import MixedPopulation
from counterveil.schema.cells import NumberCells

DEVIATIONS = 3.0
TENTHS = np.arange(1, 10) / 10
NEARLY_ALL = 0.95  # of everybody: that so many have a number says nothing
TOO_NOISY = 0.25  # of the people of a class: an error of their count


class SureShares:
    """Lower bounds of shares of people, from the veil alone.

    `veil_knows`: whether the noise leaves enough to compare anybody with the people of a class.
    """

    def __init__(self, population: MixedPopulation) -> None:
        self._population, self._tables = population, dict[int, tuple[Array, Array]]()
        error = np.sqrt(population.variance * np.median(population.grid.counts))
        people = population.totals.sum() / len(population.totals)
        self.veil_knows = bool(error <= TOO_NOISY * people)

    def beyond(self, before: Array, after: Array, classes: Array) -> Array:
        """At least what share of the people of a class have a number of `after`, or are beyond it.

        Beyond is the way in which it moved. `before`, `after`: encoded rows, (rows, width);
        `classes`: (rows,). Returns tenths, (rows, features): 0 where nothing is sure; NaN where
        nearly everybody is there, and for what is no number, does not move or is missing.
        """
        grid = self._population.grid
        found = np.full((len(after), len(grid.cells)), np.nan)
        for number, (block, cells) in enumerate(zip(grid.encoding.blocks, grid.cells, strict=True)):
            if not isinstance(cells, NumberCells):
                continue
            slack = cells.step / 2 or 1e-12
            was, now = before[:, block.start], after[:, block.start]
            rises, told = now > was, np.abs(now - was) > slack
            if block.missing_flag is not None:
                was_missing = before[:, block.missing_flag] >= 0.5
                rises, told = rises | was_missing, told | was_missing
                told &= after[:, block.missing_flag] < 0.5
            up = (  # the first bin with nothing less, and the first that anybody beyond can be in
                np.searchsorted(cells.low, now - slack),
                np.searchsorted(cells.high, now - slack),
            )
            down = (  # how many bins have nothing more, and how many anybody beyond can be in
                np.searchsorted(cells.high, now + slack),
                np.searchsorted(cells.low, now + slack),
            )
            surely, perhaps = np.where(rises, up, down)
            least, everybody = self._of_feature(number, len(cells.low))
            told &= everybody[rises.astype(int), perhaps] < NEARLY_ALL
            shares = least[rises.astype(int), classes, surely]
            found[:, number] = np.where(told, shares, np.nan)
        return found

    def _of_feature(self, number: int, bins: int) -> tuple[Array, Array]:
        """By way and place: at least what share of each class, and what share of everybody.

        (2, classes, bins + 1) and (2, bins + 1). The way 0 is of the bins before a place, 1 of
        those from there on.
        """
        if number not in self._tables:
            population = self._population
            least = _both_ways(population.noisy[number], bins, population.variance)
            people = population.tables[number].sum(axis=0)
            ends = np.concatenate([[0.0], np.cumsum(people[:bins])])
            everybody = np.stack([ends, ends[-1] - ends]) / people.sum()
            self._tables[number] = least, everybody
        return self._tables[number]


def _both_ways(noisy: Array, bins: int, variance: float) -> Array:
    """At least what share of each class is in the bins before and after each place, in tenths.

    `noisy`: counts (classes, cells), bins first. (2, classes, bins + 1).
    """
    cells = noisy.shape[1]
    before = np.concatenate([np.zeros((len(noisy), 1)), np.cumsum(noisy[:, :bins], axis=1)], axis=1)
    inside = np.stack([before, before[:, -1:] - before])[..., None]
    outside = noisy.sum(axis=1)[:, None, None] - inside
    count = np.stack([np.arange(bins + 1), np.arange(bins, -1, -1)])[:, None, :, None]
    of_noise = variance * ((1 - TENTHS) ** 2 * count + TENTHS**2 * (cells - count))
    of_people = np.maximum(inside + outside, 0.0) * TENTHS * (1 - TENTHS)
    margin = (1 - TENTHS) * inside - TENTHS * outside
    sure = margin > DEVIATIONS * np.sqrt(of_noise + of_people)
    found: Array = sure.cumprod(axis=-1).sum(axis=-1) / 10
    return found
