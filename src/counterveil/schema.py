"""The Schema: the public description of a table.

Columns, kinds, bounds, categories, the label set, and what a person can act on. Everything that
encodes, measures or snaps a row takes its rules from here and nothing from private rows, so a
schema must come from public knowledge: a form, a code book, the law; not from the data.

>>> schema = Schema(
...     features=(
...         Numeric(name="age", lower=18, upper=100, integer=True, direction="increase"),
...         Categorical(name="housing", categories=("rent", "own"), missing=True),
...     ),
...     label=Label(name="loan", classes=("refused", "granted")),
... )
>>> Schema.from_json(schema.to_json()) == schema
True
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    field_serializer,
    field_validator,
)
from pydantic import model_validator as validator

from counterveil.errors import SchemaError
from counterveil.files import read_bytes, write_whole

FORMAT = 1
MOST_NUMBERS = 1 << 20  # that encode a row
LARGEST = 1e15  # up to which floats tell whole numbers apart
Category = StrictBool | StrictInt | StrictStr
Direction = Literal["any", "increase", "decrease"]
Family = Literal["mixed", "image", "binary"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SchemaError(_one_line(error, values.get("name"))) from None


class _Feature(_Frozen):
    name: str = Field(min_length=1)
    immutable: bool = False

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
    def width(self) -> int:
        """How many numbers encode it."""
        return 1


class Numeric(_Feature):
    """A number between public bounds; `missing=True` admits empty cells as a state of their own."""

    kind: Literal["numeric"] = "numeric"
    lower: float
    upper: float
    integer: bool = False
    missing: bool = False
    direction: Direction = "any"
    allowed: tuple[float, float] | None = None

    @property
    def width(self) -> int:
        return 2 if self.missing else 1

    @validator(mode="after")
    def _check(self) -> Self:
        _check_range(self.name, self.lower, self.upper)
        if self.integer and not (self.lower.is_integer() and self.upper.is_integer()):
            raise ValueError(f"feature {self.name!r}: integer bounds must be whole numbers")
        if not math.isfinite(self.upper - self.lower) or max(-self.lower, self.upper) > LARGEST:
            raise ValueError(f"feature {self.name!r}: bounds beyond 1e15; use another unit")
        if self.allowed is not None:
            low, high = self.allowed
            if not self.lower <= low <= high <= self.upper:
                raise ValueError(f"feature {self.name!r}: 'allowed' must lie within the bounds")
            if self.integer and math.ceil(low) > math.floor(high):
                raise ValueError(f"feature {self.name!r}: 'allowed' holds no whole number")
        return self


class Categorical(_Feature):
    """One of a public list of categories; with `ordered=True` the list runs from low to high."""

    kind: Literal["categorical"] = "categorical"
    categories: tuple[Category, ...]
    ordered: bool = False
    missing: bool = False
    direction: Direction = "any"
    allowed: tuple[Category, ...] | None = None

    @property
    def width(self) -> int:
        return len(self.categories) + self.missing

    @validator(mode="after")
    def _check(self) -> Self:
        _check_distinct(self.name, self.categories, at_least=2 - self.missing)
        if self.direction != "any" and not self.ordered:
            raise ValueError(f"feature {self.name!r}: a direction needs 'ordered': true")
        if self.allowed is not None and not set(self.allowed) <= set(self.categories):
            raise ValueError(f"feature {self.name!r}: 'allowed' names an unknown category")
        if self.allowed == ():
            raise ValueError(f"feature {self.name!r}: 'allowed' is empty; use 'immutable': true")
        return self


class Binary(_Feature):
    """Yes or no. `values` says how the table writes (no, yes)."""

    kind: Literal["binary"] = "binary"
    values: tuple[Category, Category] = (0, 1)
    direction: Direction = "any"

    @validator(mode="after")
    def _check(self) -> Self:
        _check_distinct(self.name, self.values, at_least=2)
        return self


class Pixels(_Feature):
    """An image: height x width x channels whole numbers from 0 to `levels`, a column each.

    The columns are called name0, name1, ... row by row, channels last.
    """

    kind: Literal["pixels"] = "pixels"
    height: int = Field(gt=0)
    breadth: int = Field(gt=0)
    channels: int = Field(default=1, gt=0)
    levels: int = Field(default=255, gt=0)

    @validator(mode="after")
    def _check(self) -> Self:
        if self.width > MOST_NUMBERS:
            raise ValueError(f"feature {self.name!r}: more than {MOST_NUMBERS} pixels")
        return self

    @property
    def width(self) -> int:
        return self.height * self.breadth * self.channels

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(f"{self.name}{i}" for i in range(self.width))


Feature = Annotated[Numeric | Categorical | Binary | Pixels, Field(discriminator="kind")]


class Label(_Frozen):
    """The column that the target model predicts, and its public set of classes."""

    name: str = Field(min_length=1)
    classes: tuple[Category, ...]

    @validator(mode="after")
    def _check(self) -> Self:
        _check_distinct(self.name, self.classes, at_least=2)
        return self


class Link(_Frozen):
    """`derived` always follows `source`: it is what `values` says for the category of `source`.

    In JSON `values` is an object, or a list of pairs where the categories are no texts.
    """

    source: str
    derived: str
    values: Mapping[Category, Category | float]

    @field_validator("values", mode="before")
    @classmethod
    def _of_pairs(cls, values: Any) -> Any:
        pairs = isinstance(values, (list, tuple)) and all(
            isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in values
        )
        return dict(values) if pairs else values

    @field_serializer("values")
    def _as_json(self, values: Mapping[Category, Any]) -> Any:
        texts = all(isinstance(category, str) for category in values)
        return dict(values) if texts else [list(pair) for pair in values.items()]

    def __hash__(self) -> int:
        return hash((self.source, self.derived, tuple(self.values.items())))


class Schema(_Frozen):
    """A whole table. `drafted` is true while nobody has replaced what a draft read off the data."""

    version: Literal[1] = 1
    name: str = "table"
    note: str = ""
    drafted: bool = False
    label: Label
    features: tuple[Feature, ...] = Field(min_length=1)
    links: tuple[Link, ...] = ()

    @validator(mode="after")
    def _check(self) -> Self:
        if self.width > MOST_NUMBERS:
            raise ValueError(f"more than {MOST_NUMBERS} encoded numbers a row")
        seen: set[str] = {self.label.name}
        for column in self.columns:
            if column in seen:
                raise ValueError(f"column {column!r} is named twice; every column once")
            seen.add(column)
        _check_links(self.links, {feature.name: feature for feature in self.features})
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The feature columns of the table, in order; the label is not among them."""
        return tuple(column for feature in self.features for column in feature.columns)

    @property
    def width(self) -> int:
        """How many numbers encode a row."""
        return sum(feature.width for feature in self.features)

    @property
    def family(self) -> Family:
        """Which of the paper's three kinds of data this is; it fixes the architecture."""
        kinds = {feature.kind for feature in self.features}
        if kinds == {"pixels"}:
            return "image"
        return "binary" if kinds == {"binary"} else "mixed"

    def feature(self, name: str) -> Numeric | Categorical | Binary | Pixels:
        """The feature called `name`."""
        for feature in self.features:
            if feature.name == name:
                return feature
        known = ", ".join(feature.name for feature in self.features[:12])
        raise SchemaError(f"no feature {name!r} in the schema; it has: {known}")

    def to_json(self) -> str:
        """The JSON text; fields that only repeat a default are left out."""
        content = self.model_dump(mode="json", exclude_defaults=True, exclude={"features"})
        features = ",\n".join(
            "    " + json.dumps(feature.to_dict(), ensure_ascii=False) for feature in self.features
        )
        head = json.dumps({"version": FORMAT, **content}, ensure_ascii=False, indent=2)
        return f'{head[:-2]},\n  "features": [\n{features}\n  ]\n}}\n'

    @classmethod
    def from_json(cls, text: str | bytes) -> Schema:
        """Read the JSON text; whatever is wrong with it is said in one line."""
        try:
            content = json.loads(text)
        except RecursionError:
            raise SchemaError("the schema is nested too deeply to be one") from None
        except ValueError as error:
            raise SchemaError(f"the schema is not JSON: {error}") from None
        if not isinstance(content, dict):
            raise SchemaError("the schema must be a JSON object with 'label' and 'features'")
        if content.get("version", FORMAT) != FORMAT:
            raise SchemaError(f"schema version must be {FORMAT}; this file has another one")
        return cls(**{str(key): value for key, value in content.items()})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON file."""
        write_whole(path, self.to_json().encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schema:
        """Read a JSON file."""
        return cls.from_json(read_bytes(path, "schema", SchemaError))


def _check_range(name: str, lower: float, upper: float) -> None:
    if lower == upper:
        raise ValueError(f"feature {name!r}: lower equals upper; leave a constant column out")
    if lower > upper:
        raise ValueError(f"feature {name!r}: lower must be below upper")


def _check_distinct(name: str, values: tuple[Category, ...], at_least: int) -> None:
    if len(values) < at_least:
        raise ValueError(f"{name!r}: needs at least {at_least} different values")
    if len(set(values)) < len(values):
        raise ValueError(f"{name!r}: a value is listed twice")


def _check_links(links: tuple[Link, ...], features: dict[str, Any]) -> None:
    derived = [link.derived for link in links]
    for link in links:
        where = f"link {link.source!r} -> {link.derived!r}"
        source, follower = features.get(link.source), features.get(link.derived)
        if source is None or follower is None:
            absent = link.derived if follower is None else link.source
            raise ValueError(f"{where}: no feature {absent!r}")
        if not isinstance(source, Categorical):
            raise ValueError(f"{where}: the source must be categorical")
        if isinstance(follower, Pixels):
            raise ValueError(f"{where}: pixels cannot be derived")
        if link.source in derived or derived.count(link.derived) > 1:
            raise ValueError(f"{where}: a feature is derived once, and from one that is not")
        if set(link.values) != set(source.categories):
            raise ValueError(f"{where}: 'values' must name every category of the source, no other")
        for value in link.values.values():
            if not _is_legal(follower, value):
                raise ValueError(f"{where}: {value!r} is no legal value of {link.derived!r}")


def _is_legal(feature: Any, value: Any) -> bool:
    if isinstance(feature, Binary):
        return value in feature.values
    if isinstance(feature, Categorical):
        return value in (feature.allowed or feature.categories)
    if isinstance(value, (bool, str)) or (feature.integer and value != int(value)):
        return False
    low, high = feature.allowed or (feature.lower, feature.upper)
    return bool(low <= value <= high)


def _one_line(error: ValidationError, name: object) -> str:
    """The first of pydantic's findings as one line, with the way to it in the file."""
    first = error.errors(include_url=False)[0]
    words = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        words = "unknown field; check its spelling"
    if first["type"] == "union_tag_invalid":
        words = "'kind' must be numeric, categorical, binary or pixels"
    if first["loc"]:
        where = ".".join(str(part) for part in first["loc"])
        words = f"{name!r}: {where}: {words}" if name is not None else f"{where}: {words}"
    more = error.error_count() - 1
    return f"schema: {words}" + (f" (and {more} more)" if more else "")
