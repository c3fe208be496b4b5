"""The interval around a number in which something works, found with few questions."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np

from counterveil.encoding import Array
from counterveil.population.rounding import roundest
from counterveil.schema.numeric import SLACK, Numeric
from counterveil.search.constraints.decoding import decimals

EVERY = 128  # values on one side: if there are no more, each is asked about
EVEN, DOUBLING = 24, 24  # values on one side: evenly spread, and ever further from the answer
PARTS = 16  # into which the way to a boundary is divided, again and again
ROUNDED = 0.01  # of the interval: rounding for people may cost so much of it at each end

Ends = tuple[float, float]
Numbers = Generator[Sequence[float], Array, tuple[float, float, Ends, int]]


@dataclass(frozen=True)
class Line:
    """The values that a number may have: multiples of a grain, from `low` to `high`.

    The grain is 1 for whole numbers, the step of the rules if there is one, and otherwise the
    decimal place to which answers are given out. `own`: the value of the answer.
    """

    feature: Numeric
    own: float
    low: float
    high: float

    @classmethod
    def of(cls, feature: Numeric, own: float, before: float) -> Self:
        """The line of a feature under its rules; `before`: the value of the query, NaN if none."""
        low, high = feature.allowed_range()
        if feature.direction == "increase" and not math.isnan(before):
            low = max(low, before)
        if feature.direction == "decrease" and not math.isnan(before):
            high = min(high, before)
        return cls(feature, own, low, high)

    @cached_property
    def _digits(self) -> int:
        if self.feature.step is not None:
            return decimals(self.feature.step)
        if self.feature.integer:
            return 0
        size = max(abs(self.feature.lower), abs(self.feature.upper))
        digits = 7 - math.ceil(math.log10(self.feature.span))
        return min(digits, 15 - math.ceil(math.log10(size)))

    @cached_property
    def _grain(self) -> float:
        return self.feature.step or 10.0**-self._digits

    @cached_property
    def _sides(self) -> tuple[_Side, _Side]:
        """The values below the answer's own, and those above."""
        place = self.own / self._grain
        first = math.ceil(self.low / self._grain - SLACK)
        last = math.floor(self.high / self._grain + SLACK)
        below, above = math.ceil(place - SLACK) - 1, math.floor(place + SLACK) + 1
        return _Side(below, below - first + 1, -1), _Side(above, last - above + 1, 1)

    @property
    def is_short(self) -> bool:
        """Whether every value of it is asked about."""
        return all(side.count <= EVERY for side in self._sides)

    def search(self, looked_at: Array) -> Numbers:
        """Find the interval around the answer's own value in which all values work.

        Gives values to try, and gets back which of them work. `looked_at`: values that are tried
        besides those of the grid. Returns low, high, both as people are told them, and how many
        values were tried.
        """
        (below, above), tried = self._sides, 1  # its own value
        extra = looked_at / self._grain
        extra = np.concatenate([np.floor(extra), np.ceil(extra)])
        lower, upper = below.grid(extra), above.grid(extra)
        while count := len(lower) + len(upper):
            tried += count
            works = yield self._values(np.concatenate([lower, upper]))
            below.learn(lower, works[: len(lower)])
            above.learn(upper, works[len(lower) :])
            lower, upper = below.between(), above.between()
        low, high = self._end(below), self._end(above)
        rounder = self._rounded(low, high)
        is_low, is_high = yield rounder
        return low, high, (rounder[0] if is_low else low, rounder[1] if is_high else high), tried

    def _end(self, side: _Side) -> float:
        """The last value on a side that works."""
        if side.good:
            return self._values(np.array([side.last]))[0]
        return int(self.own) if self.feature.integer else self.own

    def _values(self, places: Array) -> list[float]:
        values = np.round(places * self._grain, self._digits)
        return values.astype(np.int64).tolist() if self.feature.integer else values.tolist()

    def _rounded(self, low: float, high: float) -> list[float]:
        """Rounder ends a little further inside; bounds of the rules and steps stay as they are."""
        if self.feature.step is not None or self.feature.value_names or low == high:
            return [low, high]
        slack, found = ROUNDED * (high - low), []
        inside = min(self.own, low + slack), max(self.own, high - slack)
        for end, other, bound in ((low, inside[0], self.low), (high, inside[1], self.high)):
            first, last = sorted((end, other))
            near = roundest(first, last, (first + last) / 2, whole=self.feature.integer)
            (rounder,) = self._values(np.array([near / self._grain]))
            is_fine = abs(end - bound) > self._grain and first <= rounder <= last
            found.append(rounder if is_fine else end)
        return found


@dataclass
class _Side:
    """The values on one side of the answer's own, counted from 1, the next one first.

    `start`: the place of the first. `good`: up to which all work that were tried, `bad`: the first
    known not to work.
    """

    start: int
    count: int
    sign: int
    good: int = 0
    bad: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = max(self.count, 0)
        self.bad = self.count + 1

    @property
    def last(self) -> int:
        """The place of the last value that works."""
        return self.start + self.sign * (self.good - 1)

    def grid(self, extra: Array) -> Array:
        """The places that are tried first; all of them if there are few."""
        if self.count <= EVERY:
            numbers = np.arange(1, self.count + 1)
        else:
            doubling = 2 ** np.arange(min(DOUBLING, int(math.log2(self.count)) + 1))
            even = np.linspace(1, self.count, EVEN).astype(np.int64)
            more = (extra - self.start) * self.sign + 1
            more = more[(more >= 1) & (more <= self.count)].astype(np.int64)
            numbers = np.unique(np.concatenate([doubling, even, more]))
        return self.start + self.sign * (numbers - 1)

    def learn(self, places: Array, works: Array) -> None:
        numbers = (places - self.start) * self.sign + 1
        self.bad = min([self.bad, *numbers[~works].tolist()])
        fine = numbers[works & (numbers < self.bad)]
        self.good = max([self.good, *fine.tolist()])

    def between(self) -> Array:
        """The places to try next, between the last that works and the first that does not."""
        gap = self.bad - self.good
        if gap <= 1:
            return np.empty(0, dtype=np.int64)
        steps = np.unique(np.arange(1, PARTS) * gap // PARTS)
        return self.start + self.sign * (self.good + steps[steps > 0] - 1)
