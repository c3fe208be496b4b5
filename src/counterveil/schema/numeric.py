"""Numbers: a kind of feature. See `features.py` for what every kind answers."""

import math
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field
from pydantic import model_validator as validator

from counterveil.schema import columns
from counterveil.schema.cells import Cells, NumberCells
from counterveil.schema.columns import MISSING_VALUE, Array
from counterveil.schema.kind import Bounds, Direction, Good, Kind, Mark, Rule, is_number

LARGEST = 1e15  # up to which floats tell whole numbers apart
SLACK = 1e-6  # what float arithmetic may be off by
FEW = 10  # whole numbers: fewer are counted one by one
EMPTY = "missing value; fill it in", ", or set 'missing': true in the schema"
NO_NUMBER = "not a number; write 1,200 as 1200, and 1.200,50 as 1200.5"


class Numeric(Kind):
    """A number between public bounds; `missing=True` admits empty cells as a state of their own."""

    kind: Literal["numeric"] = "numeric"
    lower: float
    upper: float
    integer: bool = False
    missing: bool = False
    direction: Direction = "any"
    good: Good | None = None
    allowed: tuple[float, float] | None = None
    step: float | None = Field(default=None, gt=0)
    values: ClassVar[None] = None
    ordered: ClassVar[bool] = True
    is_one_number: ClassVar[bool] = True

    @validator(mode="after")
    def _check(self) -> Self:
        if self.lower == self.upper:
            self._contradiction("lower equals upper; leave a constant column out")
        if self.lower > self.upper:
            self._contradiction("lower must be below upper")
        if self.integer and not (self.lower.is_integer() and self.upper.is_integer()):
            self._contradiction("integer bounds must be whole numbers")
        if not math.isfinite(self.span) or max(-self.lower, self.upper) > LARGEST:
            self._contradiction("bounds beyond 1e15; use another unit")
        self._check_good(self.direction)
        if self.allowed is not None:
            low, high = self.allowed
            if not self.lower <= low <= high <= self.upper:
                self._contradiction("'allowed' must lie within the bounds")
            if self._is_empty(low, high):
                self._contradiction("'allowed' holds no whole number")
        if self.step is not None:
            if self.integer and not self.step.is_integer():
                self._contradiction("'step' must be whole, as the number is")
            if not self._has_multiple(self.step):
                self._contradiction("no multiple of 'step' is within what is allowed")
        return self

    @property
    def width(self) -> int:
        return 2 if self.missing else 1

    @property
    def span(self) -> float:
        """From the lower to the upper bound."""
        return self.upper - self.lower

    @property
    def number_range(self) -> tuple[float, float]:
        return self.lower, self.upper

    @property
    def is_whole(self) -> bool:
        return self.integer

    def value_like(self, given: Any) -> Any:
        """A whole number can have a name."""
        number = columns.number_of(given)
        if not self.integer:
            self._contradiction("only whole numbers, categories and binary values can have names")
        is_one = number.is_integer() and self.lower <= number <= self.upper
        return int(number) if is_one else None

    @property
    def _called(self) -> dict[str, Any]:
        """Its numbers by what people call them; what is written as a number is that one."""
        named = ((name, value) for value, name in self.value_names)
        return {name: value for name, value in named if math.isnan(columns.number_of(name))}

    def value_called(self, name: Any) -> Any:
        return self._called.get(name, name) if isinstance(name, str) else name

    def encode(self, arrays: Sequence[Any], out: Array, *, strict: bool = True) -> None:
        numbers = self.compact(arrays, strict=strict)
        out[:, 0] = numbers
        if self.missing:
            out[np.isnan(numbers)] = MISSING_VALUE, 1.0

    def compact(self, arrays: Sequence[Any], *, strict: bool = True) -> Array:
        """The numbers in the unit interval, NaN where one is missing."""
        numbers, empty = columns.numbers_of(arrays[0], self._called)
        inside = numbers.min() >= self.lower and numbers.max() <= self.upper  # none is missing
        if not inside or (self.integer and arrays[0].dtype.kind not in columns.WHOLE):
            if strict:
                self._refuse_cells(numbers, empty, arrays[0])
            else:
                elsewhere = math.nan if self.missing else self._middle
                numbers = np.clip(numbers, self.lower, self.upper)
                numbers = np.where(np.isnan(numbers), elsewhere, numbers)
                numbers = np.round(numbers) if self.integer else numbers
        return (numbers - self.lower) / self.span

    @property
    def _middle(self) -> float:
        """Where a private number rests that is missing and may not be."""
        middle = (self.lower + self.upper) / 2
        return math.floor(middle) if self.integer else middle

    def _refuse_cells(self, numbers: Array, empty: Array, cells: Any) -> None:
        if not self.missing:
            columns.refuse_cells(empty, self.name, *EMPTY)
        unread = np.isnan(numbers) & ~empty
        columns.refuse_cells(unread, self.name, NO_NUMBER, "", lambda row: self.offer(cells[row]))
        bounds = f"outside the bounds {self.lower:g} to {self.upper:g} of the schema"
        outside = ((numbers < self.lower) | (numbers > self.upper)) & ~empty
        why = f"{bounds}; clip the value", " or widen the bounds"
        columns.refuse_cells(outside, self.name, *why)
        if self.integer:
            fraction = "not a whole number; round it", ", or drop 'integer' from the schema"
            columns.refuse_cells((numbers != np.round(numbers)) & ~empty, self.name, *fraction)

    def decode(self, unit: Array) -> list[Any]:
        numbers = self.lower + unit[:, 0] * self.span
        numbers = np.rint(numbers) if self.integer else numbers
        numbers = np.minimum(np.maximum(numbers, self.lower), self.upper)
        if not self.missing:
            return [numbers.astype(np.int64) if self.integer else numbers]
        empty = unit[:, 1] >= 0.5
        if not self.integer:
            return [np.where(empty, np.nan, numbers)]
        import pandas as pd

        return [pd.arrays.IntegerArray(np.where(empty, 1, numbers).astype(np.int64), empty)]

    def allows(self, value: Any) -> bool:
        if isinstance(value, (bool, str)) or (self.integer and value != int(value)):
            return False
        low, high = self.allowed or self.number_range
        return bool(low <= value <= high)

    def encode_value(self, value: Any) -> list[float]:
        return [(value - self.lower) / self.span, 0.0][: self.width]

    def allowed_range(self, slack: float = 0.0) -> tuple[float, float]:
        low, high = self.allowed or self.number_range
        return (math.ceil(low - slack), math.floor(high + slack)) if self.integer else (low, high)

    def bounds(self) -> Bounds:
        low, high = (self.encode_value(value) for value in self.allowed_range(SLACK))
        marks = [Mark.ONE_WAY[self.direction], Mark.CLOSED][: self.width]
        return Bounds(low, high, [Mark.FIXED] * self.width if self.immutable else marks)

    def tightened(self, rule: Rule) -> Self:
        changes: dict[str, Any] = {}
        if rule.allowed is not None:
            changes["allowed"] = self._narrowed(rule.allowed)
        if rule.step is not None:
            changes["step"] = self._coarser(rule.step)
        tighter = self._tighter(rule, self.direction, **changes)
        step = tighter.step
        if step is not None and not tighter.immutable and not tighter._has_multiple(step):
            low, high = tighter.allowed_range()
            inside = f"no multiple of {step:g} is within {low:g} to {high:g}"
            self._refuse("steps", f": {inside}; use a smaller step, or make it immutable")
        return tighter

    def _coarser(self, step: float) -> float:
        """The step that a rule and the schema both ask for."""
        if self.integer and not float(step).is_integer():
            self._refuse("steps", f" is a whole number; its step must be whole, not {step:g}")
        own = self.step or step
        if abs(step - round(step / own) * own) > 1e-9 * max(abs(step), own):  # but for rounding
            self._refuse("steps", f": the schema has steps of {own:g}; use a multiple of that")
        return float(step)

    def _has_multiple(self, step: float) -> bool:
        low, high = self.allowed_range()
        return math.floor(high / step + SLACK) * step >= low - SLACK * step

    def _narrowed(self, asked: Collection[Any]) -> tuple[float, float]:
        """The range that a rule and the schema both allow."""
        is_pair = len(asked) == 2 and not isinstance(asked, (set, frozenset))
        if not is_pair or not all(is_number(end) for end in asked):
            self._refuse("allowed", " is a number; a range [low, high] was expected")
        low, high = asked
        if self._is_empty(low, high):
            self._refuse("allowed", f": the range {low:g} to {high:g} is empty")
        if low < self.lower or high > self.upper:
            bounds = f"the bounds {self.lower:g} to {self.upper:g}"
            self._refuse("allowed", f": {low:g} to {high:g} is outside {bounds}")
        lowest, highest = self.allowed or self.number_range
        low, high = max(low, lowest), min(high, highest)
        if self._is_empty(low, high):
            self._refuse("allowed", f": the schema allows {lowest:g} to {highest:g} only")
        return float(low), float(high)

    def _is_empty(self, low: float, high: float) -> bool:
        return low > high or (self.integer and math.ceil(low) > math.floor(high))

    @property
    def is_wide(self) -> bool:
        return not (self.integer and self.span < FEW)

    def cells(self, bins: int) -> Cells:
        return NumberCells.between(self.number_range, bins, self.integer, self.missing)
