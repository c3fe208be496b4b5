"""The four kinds of feature, each with everything that depends on the kind.

A feature describes columns of the table and is encoded as `width` numbers in the unit cube:

| kind | width | meaning |
|---|---|---|
| numeric | 1 | (value - lower) / (upper - lower) |
| numeric, may be missing | 2 | value, and 1 where missing (the value is then 1/2) |
| categorical | one a category | one-hot; a missing value is one more category |
| binary | 1 | 0 or 1 |
| pixels | one a pixel | value / levels |

Every kind answers the following, besides what `Kind` has. An illegal cell is a BadCellError.

| member | answer |
|---|---|
| `values` | the closed list of its values; None for numbers |
| `missing`, `ordered`, `direction` | may cells be empty, has "increase" a meaning, which way |
| `step` | what a number that changes becomes a multiple of; None for all others |
| `encode(arrays, out)` | puts its columns into `out`, zeros of shape (rows, width) |
| `decode(unit)` | its columns, from encoded numbers (rows, width) of legal rows |
| `allows(value)`, `encode_value(value)` | may an answer have this value, and how it is encoded |
| `bounds()` | the Bounds of an answer, whoever asks |
| `tightened(rule)` | the feature under the Rule of a query as well; RequestError if they clash |
| `cells(bins)` | its Cells on the grid, with about `bins` bins for numbers |
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field
from pydantic import model_validator as validator

from counterveil.errors import RequestError, SchemaError
from counterveil.hints import named
from counterveil.schema import columns
from counterveil.schema.cells import BitCells, Cells
from counterveil.schema.columns import Array, Category
from counterveil.schema.kind import Bounds, Direction, Good, Kind, Mark, Rule
from counterveil.schema.numeric import EMPTY, Numeric

MAX_WIDTH = 1 << 17  # numbers that encode a row
MOST_LEVELS = (1 << 16) - 1  # of a pixel: sums of their frequencies stay exact


class Categorical(Kind):
    """One of a public list of categories; with `ordered=True` the list runs from low to high."""

    kind: Literal["categorical"] = "categorical"
    categories: tuple[Category, ...]
    ordered: bool = False
    missing: bool = False
    direction: Direction = "any"
    good: Good | None = None
    allowed: tuple[Category, ...] | None = None
    one_hot: ClassVar[bool] = True
    step: ClassVar[None] = None

    @validator(mode="after")
    def _check(self) -> Self:
        columns.check_distinct(self.name, self.categories, at_least=2 - self.missing)
        if not self.ordered and (self.direction != "any" or self.good):
            self._contradiction("'direction' and 'good' need 'ordered': true")
        self._check_good(self.direction)
        if self.allowed is not None and not set(self.allowed) <= set(self.categories):
            self._contradiction("'allowed' names an unknown category")
        if self.allowed == ():
            self._contradiction("'allowed' is empty; use 'immutable': true")
        return self

    @property
    def values(self) -> tuple[Category, ...]:
        """The categories."""
        return self.categories

    @property
    def width(self) -> int:
        return len(self.categories) + self.missing

    def encode(self, arrays: Sequence[Any], out: Array, *, strict: bool = True) -> None:
        codes = self.compact(arrays, strict=strict)
        out[np.arange(len(codes)), codes] = 1.0

    def compact(self, arrays: Sequence[Any], *, strict: bool = True) -> Array:
        """The position of each row's category; a missing value comes after the last."""
        codes, known = self.value_list.codes(arrays[0])
        empty = len(self.categories)
        if not known and strict:
            if not self.missing:
                columns.refuse_cells(codes == empty, self.name, *EMPTY)
            unknown = "category not in the schema", "; add it there or mend the row"
            offer = lambda row: self.offer(arrays[0][row])  # noqa: E731
            columns.refuse_cells(codes < 0, self.name, *unknown, offer)
        elif not known:
            elsewhere = empty if self.missing else 0
            codes = np.where((codes < 0) | (codes == empty), elsewhere, codes)
        return codes

    def decode(self, unit: Array) -> list[Any]:
        return [columns.value_list(*self.categories).column(unit.argmax(axis=1))]

    def allows(self, value: Any) -> bool:
        return value in (self.allowed or self.categories)

    def encode_value(self, value: Any) -> list[float]:
        return [float(place == self.categories.index(value)) for place in range(self.width)]

    def bounds(self) -> Bounds:
        is_open = [self.allows(value) for value in self.categories] + [False] * self.missing
        marks = [Mark.FREE if each else Mark.CLOSED for each in is_open]
        if self.direction != "any":
            mark = Mark.FORWARD if self.direction == "increase" else Mark.BACKWARD
            marks[: len(self.categories)] = [mark] * len(self.categories)
        marks = [Mark.FIXED] * self.width if self.immutable else marks
        return Bounds([0.0] * self.width, [float(each) for each in is_open], marks)

    def tightened(self, rule: Rule) -> Self:
        self._refuse_step(rule)
        changes = {}
        if rule.allowed is not None:
            self._check_known(rule.allowed, self.categories)
            usual = self.allowed or self.categories
            changes["allowed"] = tuple(value for value in usual if value in rule.allowed)
            if not changes["allowed"]:
                self._refuse("allowed", f": the schema allows only: {named(usual)}")
        if rule.direction != "any" and not self.ordered:
            self._refuse("direction", " has no order; say in 'allowed' what it may become")
        return self._tighter(rule, self.direction, **changes)

    def cells(self, bins: int) -> Cells:
        return Cells(self.width, ordered=len(self.categories) if self.ordered else 0)


class Binary(Kind):
    """Yes or no. `values` says how the table writes (no, yes)."""

    kind: Literal["binary"] = "binary"
    values: tuple[Category, Category] = (0, 1)
    direction: Direction = "any"
    good: Good | None = None
    missing: ClassVar[bool] = False
    ordered: ClassVar[bool] = True
    step: ClassVar[None] = None

    @validator(mode="after")
    def _check(self) -> Self:
        columns.check_distinct(self.name, self.values, at_least=2)
        self._check_good(self.direction)
        return self

    def encode(self, arrays: Sequence[Any], out: Array, *, strict: bool = True) -> None:
        out[:, 0] = self.compact(arrays, strict=strict)

    def compact(self, arrays: Sequence[Any], *, strict: bool = True) -> Array:
        """1 where it is the second value, else 0."""
        codes, known = self.value_list.codes(arrays[0])
        if not known and strict:
            empty = "missing value; a binary feature cannot be missing: fill it in"
            in_schema = ", or declare it categorical with 'missing': true"
            columns.refuse_cells(codes == 2, self.name, empty, in_schema)
            unknown = "neither of the two values in the schema", ""
            offer = lambda row: self.offer(arrays[0][row])  # noqa: E731
            columns.refuse_cells(codes < 0, self.name, *unknown, offer)
        return (codes == 1).astype(np.intp)

    def decode(self, unit: Array) -> list[Any]:
        return [columns.value_list(*self.values).column((unit[:, 0] >= 0.5).astype(np.intp))]

    def encode_value(self, value: Any) -> list[float]:
        return [float(self.values.index(value))]

    def bounds(self) -> Bounds:
        mark = Mark.FIXED if self.immutable else Mark.ONE_WAY[self.direction]
        return Bounds([0.0], [1.0], [mark])

    def tightened(self, rule: Rule) -> Self:
        self._refuse_step(rule)
        if rule.allowed is not None:
            # A bit that may only move to one of its values only moves in one direction.
            self._check_known(rule.allowed, self.values)
            no, yes = (value in rule.allowed for value in self.values)
            only: Direction = "any" if no and yes else "increase" if yes else "decrease"
            stays = rule.immutable or {only, rule.direction} == {"increase", "decrease"}
            rule = Rule(stays, only if rule.direction == "any" else rule.direction)
        return self._tighter(rule, self.direction)

    def cells(self, bins: int) -> Cells:
        return BitCells(2)


class Pixels(Kind):
    """An image: height x width x channels whole numbers from 0 to `levels`, a column each.

    The columns are called name0, name1, ... row by row, channels last.
    """

    kind: Literal["pixels"] = "pixels"
    height: int = Field(gt=0)
    breadth: int = Field(gt=0)
    channels: int = Field(default=1, gt=0)
    levels: int = Field(default=255, gt=0, le=MOST_LEVELS)
    values: ClassVar[None] = None
    missing: ClassVar[bool] = False
    ordered: ClassVar[bool] = False
    direction: ClassVar[Direction] = "any"
    step: ClassVar[None] = None

    @validator(mode="after")
    def _check(self) -> Self:
        if self.width > MAX_WIDTH:
            self._contradiction(f"more than {MAX_WIDTH} pixels")
        return self

    @property
    def width(self) -> int:
        return self.height * self.breadth * self.channels

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(f"{self.name}{i}" for i in range(self.width))

    @property
    def number_range(self) -> tuple[float, float]:
        return 0.0, float(self.levels)

    @property
    def is_whole(self) -> bool:
        return True

    def compact(self, arrays: Sequence[Any], *, strict: bool = True) -> Array:
        raise SchemaError(f"the pixels {self.name!r} are no single value")

    def encode(self, arrays: Sequence[Any], out: Array, *, strict: bool = True) -> None:
        for i, column in enumerate(arrays):
            usual = isinstance(column, np.ndarray) and column.dtype.kind in columns.NUMBERS
            out[:, i] = column if usual else columns.numbers_of(column)[0]
        inside = out.min() >= 0 and out.max() <= self.levels
        if not inside or any(each.dtype.kind not in columns.WHOLE for each in arrays):
            bad = ~((out >= 0) & (out <= self.levels) & (out == np.round(out)))
            if bad.any() and strict:
                row, place = (int(i[0]) for i in np.nonzero(bad))
                why = f"pixels are whole numbers from 0 to {self.levels}"
                raise columns.BadCellError([row], self.columns[place], why)
            if bad.any():
                np.round(np.clip(np.nan_to_num(out, nan=0.0), 0, self.levels), out=out)
        out /= self.levels

    def decode(self, unit: Array) -> list[Any]:
        return list(np.rint(unit * self.levels).astype(np.int64).T)

    def encode_value(self, value: Any) -> list[float]:
        raise SchemaError(f"the pixels {self.name!r} are no single value")

    def bounds(self) -> Bounds:
        mark = Mark.FIXED if self.immutable else Mark.FREE
        return Bounds([0.0] * self.width, [1.0] * self.width, [mark] * self.width)

    def tightened(self, rule: Rule) -> Self:
        self._refuse_step(rule)
        if rule.allowed is not None or rule.direction != "any":
            asked = "direction" if rule.allowed is None else "allowed"
            self._refuse(asked, " are pixels; they can only be immutable")
        return self._tighter(rule, self.direction)

    def cells(self, bins: int) -> Cells:
        raise RequestError("images inside mixed tables have no grid; release them by themselves")


Feature = Annotated[Numeric | Categorical | Binary | Pixels, Field(discriminator="kind")]
