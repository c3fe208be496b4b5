"""What the kinds of feature have in common, and what they answer with."""

import json
import math
from collections.abc import Collection
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn, Self

from pydantic import model_validator

from counterveil.errors import RequestError
from counterveil.hints import named
from counterveil.schema.columns import Category
from counterveil.schema.named import Named

CONTINUUM = 2.0**100  # parts of a unit: rounding to them changes no float that matters
Direction = Literal["any", "increase", "decrease"]
Good = Literal["up", "down"]


class Mark:
    """How the query decides about the bounds of one of its encoded columns."""

    FREE = 0  # not at all
    FIXED = 1  # it stays as it is
    INCREASING = 2  # a number or bit that may not fall
    DECREASING = 3  # a number or bit that may not rise
    ONE_WAY: ClassVar = {"any": FREE, "increase": INCREASING, "decrease": DECREASING}
    # From here on: categories and missing values, where whoever is there may stay.
    CLOSED = 4  # nobody else may come
    FORWARD = 5  # whoever is at an earlier category may come
    BACKWARD = 6  # whoever is at a later category may come


class Bounds(NamedTuple):
    """What an answer may be whoever asks, for each encoded column of a feature."""

    lower: list[float]
    upper: list[float]
    marks: list[int]  # each a Mark


class Rule(NamedTuple):
    """What a query's Rules say of one feature. `allowed`: a range, or a list of categories.

    `step`: a number that changes becomes a multiple of it.
    """

    immutable: bool = False
    direction: Direction = "any"
    allowed: Collection[Any] | None = None
    step: float | None = None


class Kind(Named):
    """What the kinds have in common.

    `reason`, `reason_code`: how letters say that it counts against a person, such as "Length of
    employment"; by default what people call the column, and no code.
    """

    immutable: bool = False
    reason: str = ""
    reason_code: str = ""
    one_hot: ClassVar[bool] = False  # whether each category has an encoded column
    is_one_number: ClassVar[bool] = False  # whether it is a single number of a range

    @model_validator(mode="after")
    def _check_reason(self) -> Self:
        for field in ("reason", "reason_code"):
            if getattr(self, field):
                self._check_name(field, getattr(self, field))
        return self

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON file: what is not a default."""
        content = self.model_dump(mode="json", exclude={"kind"})
        # By text, not by value: (False, True) equals (0, 1) and is something else.
        usual = {
            name: json.dumps(field.default)
            for name, field in type(self).model_fields.items()
            if not field.is_required()
        }
        kept = {k: v for k, v in content.items() if json.dumps(v) != usual.get(k)}
        return {"kind": getattr(self, "kind", ""), **kept}

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the table that this feature describes."""
        return (self.name,)

    @property
    def is_wide(self) -> bool:
        """Is it a number with too many values to count each of them blindly?"""
        return False

    @property
    def width(self) -> int:
        """How many numbers encode it."""
        return 1

    @property
    def number_range(self) -> tuple[float, float] | None:
        """The lowest and the highest number of its columns; None where they hold categories."""
        return None

    @property
    def is_whole(self) -> bool:
        """Whether its columns hold whole numbers of a range."""
        return False

    @property
    def values_in_words(self) -> str:
        """What its cells may hold, for a person: "18 to 100, whole", or the categories."""
        if self.number_range is None:
            words = named(self.listed_values)
        else:
            low, high = (f"{end:,.15g}" for end in self.number_range)
            words = f"{low} to {high}{', whole' if self.is_whole else ''}"
        return words + (", or missing" if getattr(self, "missing", False) else "")

    @property
    def changes_in_words(self) -> str:
        """How an answer may change it, for a person."""
        if self.immutable:
            return "never changes"
        direction, allowed = getattr(self, "direction", "any"), getattr(self, "allowed", None)
        step = getattr(self, "step", None)
        way = self.better if direction == "any" else direction
        words = ["may change" if way == "any" else f"may {way}"]
        if allowed is not None:
            pair = f"{allowed[0]:,.15g} and {allowed[-1]:,.15g}" if self.number_range else ""
            words.append(f"between {pair}" if pair else f"to {named(allowed)}")
        if step is not None:
            words.append(f"in steps of {step:,.15g}")
        return " ".join(words)

    @property
    def divisions(self) -> list[float]:
        """Into how many parts legal values divide the unit interval, for each encoded column."""
        if self.number_range is None:
            return [1.0] * self.width
        low, high = self.number_range
        numbers = [high - low if self.is_whole else CONTINUUM] * len(self.columns)
        return numbers + [1.0] * (self.width - len(numbers))  # 1: whether it is missing

    @property
    def better(self) -> Direction:
        """Which way is better for the person: no other way is advised unless it is asked for."""
        ways: dict[Good | None, Direction] = {"up": "increase", "down": "decrease"}
        return ways.get(getattr(self, "good", None), "any")

    def allows(self, value: Any) -> bool:
        """Whether an answer may have this value."""
        return value in self.listed_values

    def allowed_range(self, slack: float = 0.0) -> tuple[float, float] | None:
        """The lowest and the highest number of an answer, where rules can set them."""
        return None

    def _contradiction(self, words: str) -> NoReturn:
        raise ValueError(f"feature {self.name!r}: {words}")

    def _check_good(self, direction: Direction) -> None:
        if {direction, self.better} == {"increase", "decrease"}:
            self._contradiction("'direction' leads away from 'good'; make it immutable")

    def _refuse_step(self, rule: Rule) -> None:
        if rule.step is not None:
            self._refuse("steps", " is no number; leave its step out")

    def _refuse(self, rule: str, words: str) -> NoReturn:
        """A RequestError for a rule that does not fit this feature."""
        raise RequestError(f"{rule}: {self.name!r}{words}")

    def _check_known(self, asked: Collection[Any], known: tuple[Category, ...]) -> None:
        if not asked:
            self._refuse("allowed", ": the list is empty; make the feature immutable")
        for category in asked:
            if category not in known:
                self._refuse("allowed", f" has no category {category!r}{self.offer(category)}")

    def _tighter(self, rule: Rule, now: Direction, **changes: Any) -> Self:
        """This feature with `changes`, and as immutable and one-way as `rule` asks as well.

        `now`: the direction that it has; opposite directions leave it where it is.
        """
        if rule.direction not in ("any", now):
            changes |= {"direction": rule.direction} if now == "any" else {"immutable": True}
        if rule.immutable:
            changes["immutable"] = True
        return self.model_copy(update=changes) if changes else self


def is_number(value: Any) -> bool:
    """Whether `value` is a finite number; True is none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
