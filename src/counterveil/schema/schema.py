"""The Schema: the public description of a table.

Columns, kinds, bounds, categories, the label set, and what a person can act on. Everything that
encodes, measures or snaps a row takes its rules from here and nothing from private rows, so a
schema must come from public knowledge: a form, a code book, the law; not from the data.
"""

import json
import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import Field, field_serializer, field_validator
from pydantic import model_validator as validator

from counterveil.errors import RequestError, SchemaError
from counterveil.files import read_bytes, write_whole
from counterveil.hints import did_you_mean, named
from counterveil.pages import notebook_table
from counterveil.schema.columns import Category, check_distinct
from counterveil.schema.features import MAX_WIDTH, Categorical, Feature, Pixels
from counterveil.schema.named import Frozen, Named, are_pairs

FORMAT = 1
MOST_FEATURES = 1 << 14
Family = Literal["mixed", "image", "binary"]


class Label(Named):
    """The column that the target model predicts, and its public set of classes.

    `label` and `value_names`: what people call the column and its classes.
    """

    classes: tuple[Category, ...]

    @property
    def listed_values(self) -> tuple[Category, ...]:
        return self.classes

    def class_called(self, name: Any) -> Any:
        """The class that people call `name`, or that is written like it: "0" is the class 0.

        Otherwise `name` itself, which is no class.
        """
        return self.value_called(name)

    def number_of(self, name: Any) -> int:
        """The place of the class that people call `name`; a target that is none is refused."""
        called = self.class_called(name)
        for number, each in enumerate(self.classes):
            if type(each) is type(called) and each == called:
                return number
        kinds = {type(each) for each in self.classes}
        words = {str: "the texts ", int: "the whole numbers ", bool: "the truth values "}
        has = f"the label has {words[kinds.pop()] if len(kinds) == 1 else ''}"
        raise RequestError(f"target: no class {called!r}{self.offer(called, has)}")

    @validator(mode="after")
    def _check(self) -> Self:
        check_distinct(self.name, self.classes, at_least=2)
        return self


class Link(Frozen):
    """`derived` always follows `source`: it is what `values` says for the category of `source`.

    In JSON `values` is an object, or a list of pairs where the categories are no texts.
    """

    source: str
    derived: str
    values: Mapping[Category, Category | float]

    @field_validator("values", mode="before")
    @classmethod
    def _of_pairs(cls, values: Any) -> Any:
        if not are_pairs(values):
            return values
        if not all(isinstance(first, (str, int, float)) for first, _ in values):
            raise ValueError("must pair a category of the source with a value, such as [1, 2]")
        return dict(values)

    @field_serializer("values")
    def _as_json(self, values: Mapping[Category, Any]) -> Any:
        texts = all(isinstance(category, str) for category in values)
        return dict(values) if texts else [list(pair) for pair in values.items()]

    def __hash__(self) -> int:
        return hash((self.source, self.derived, tuple(self.values.items())))


class Measured(Frozen):
    """What bounds of numbers have cost that were measured with noise, and whom that protects."""

    epsilon: float = Field(gt=0)
    delta: float = Field(default=0.0, ge=0, lt=1)
    unit: Literal["record", "person"] = "record"
    max_records: int = Field(default=1, ge=1)
    unit_column: str = ""  # that names the person


class Schema(Frozen):
    """The public description of a whole table; it travels inside every veil.

    - `label`: the column that the model predicts.
    - `features`: one for each column, or for each image.
    - `links`: features that follow others.
    - `drafted`: the columns, or true for all of them, whose values a draft has read off the data
      and nobody has replaced.
    - `measured`: what noisy bounds of its numbers have cost.
    """

    version: Literal[1] = 1
    name: str = "table"
    note: str = ""
    drafted: bool | tuple[str, ...] = False
    measured: Measured | None = None
    label: Label
    features: tuple[Feature, ...] = Field(min_length=1, max_length=MOST_FEATURES)
    links: tuple[Link, ...] = ()

    @validator(mode="after")
    def _check(self) -> Self:
        if self.width > MAX_WIDTH:
            raise ValueError(f"more than {MAX_WIDTH} encoded numbers a row")
        seen: set[str] = {self.label.name}
        for column in self.columns:
            if column in seen:
                raise ValueError(f"column {column!r} is named twice; every column once")
            seen.add(column)
        self._check_shown_names()
        unknown = {*self.unreviewed} - {self.label.name, *(each.name for each in self.features)}
        if unknown or self.drafted == ():
            raise ValueError("'drafted' must be true or list columns of the schema")
        _check_links(self.links, {feature.name: feature for feature in self.features})
        return self

    def _check_shown_names(self) -> None:
        """No two columns are called the same, by their labels or, without one, by their names."""
        seen: set[str] = set()
        for each in (self.label, *self.features):
            if each.shown_name in seen:
                twice = f"two columns would be called {each.shown_name!r}"
                raise ValueError(f"{twice}; give {each.name!r} a 'label' of its own")
            seen.add(each.shown_name)

    @property
    def unreviewed(self) -> tuple[str, ...]:
        """The columns, the label's among them, whose values were read off the rows."""
        every = (self.label.name, *(feature.name for feature in self.features))
        return self.drafted if isinstance(self.drafted, tuple) else every * self.drafted

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

    @property
    def images(self) -> tuple[Pixels, ...]:
        """The features that are images."""
        return tuple(feature for feature in self.features if isinstance(feature, Pixels))

    @property
    def text_columns(self) -> frozenset[str]:
        """The columns, the label's included, that must be read as text: "007" is not 7."""
        return frozenset(each.name for each in (self.label, *self.features) if each.is_text)

    def feature(self, name: str) -> Feature:
        """The feature called `name`, in the table or by people."""
        found = self._by_name.get(self.column_called(name))
        if found is not None:
            return found
        known = [feature.name for feature in self.features]
        meant = did_you_mean(name, [*known, *self._by_label])
        raise SchemaError(f"no feature {name!r} in the schema; it has: {named(known)}{meant}")

    def column_called(self, name: Any) -> Any:
        """The column that people call `name`, the label's included; otherwise `name` itself."""
        return self._by_label.get(name, name)

    def shown_name(self, column: str) -> str:
        """What people call a column; a pixel has only its name."""
        feature = self._by_name.get(column)
        return column if feature is None else feature.shown_name

    def shown_value(self, column: str, value: Any) -> Any:
        """What people call a value of a column; itself where it has no name."""
        feature = self._by_name.get(column)
        return value if feature is None else feature.shown_value(value)

    @property
    def immutable_names(self) -> tuple[str, ...]:
        """The names of the features that no answer changes."""
        return tuple(feature.name for feature in self.features if feature.immutable)

    @property
    def names(self) -> dict[str, Any]:
        """What people call columns, the label's included, and values, by column, for JSON."""
        every = {each.name: each.names for each in (self.label, *self.features)}
        return {name: names for name, names in every.items() if names}

    def _repr_html_(self) -> str:
        """What a notebook shows: the label, and a line for each feature."""
        label = self.label
        classes = named([label.shown_value(each) for each in label.classes])
        draft = "A draft that looked at the data: a veil made from it guarantees nothing."
        return notebook_table(
            f"Schema {self.name}",
            [
                ("label", f"{label.shown_name}: {classes}"),
                ("features", f"{len(self.columns)} columns, {self.width} encoded numbers"),
                ("links", ", ".join(f"{link.source} → {link.derived}" for link in self.links)),
            ],
            headings=("feature", "kind", "values", "an answer"),
            rows=[
                (each.shown_name, each.kind, each.values_in_words, each.changes_in_words)
                for each in self.features
            ],
            warning=draft if self.drafted else "",
        )

    @cached_property
    def _by_label(self) -> dict[str, str]:
        every = (self.label, *self.features)
        own = {self.label.name, *self.columns}
        return {each.label: each.name for each in every if each.label and each.label not in own}

    @cached_property
    def _by_name(self) -> dict[str, Feature]:
        return {feature.name: feature for feature in self.features}

    def to_json(self) -> str:
        """The JSON text; fields that only repeat a default are left out."""
        content = self.model_dump(mode="json", exclude_defaults=True, exclude={"features"})
        label = {"name": self.label.name, **self.label.names, "classes": self.label.classes}
        content["label"] = label
        lines = [json.dumps(feature.to_dict(), ensure_ascii=False) for feature in self.features]
        features = ",\n".join(f"    {line}" for line in lines)
        head = json.dumps({"version": FORMAT, **content}, ensure_ascii=False, indent=2)
        return f'{head[:-2]},\n  "features": [\n{features}\n  ]\n}}\n'

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
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
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a JSON file."""
        return cls.from_json(read_bytes(path, "schema", SchemaError))


def _check_links(links: tuple[Link, ...], features: dict[str, Feature]) -> None:
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
        if follower.step is not None:
            raise ValueError(f"{where}: a number that is derived has no 'step'")
        if link.source in derived or derived.count(link.derived) > 1:
            raise ValueError(f"{where}: a feature is derived once, and from one that is not")
        if set(link.values) != set(source.categories):
            raise ValueError(f"{where}: 'values' must name every category of the source, no other")
        for value in link.values.values():
            if not follower.allows(value):
                raise ValueError(f"{where}: {value!r} is no legal value of {link.derived!r}")
