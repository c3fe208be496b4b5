"""Parts of a schema: how wrong ones are refused, and what people call columns and values."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_serializer,
    field_validator,
    model_validator,
)

from counterveil.errors import SchemaError
from counterveil.hints import did_you_mean, named
from counterveil.schema.columns import Category, ValueList, value_list
from counterveil.text_rules import check_text

LONGEST_NAME = 200  # letters of a label or of the name of a value


def are_pairs(given: Any) -> bool:
    """Whether `given` is a list of pairs, as JSON has them where an object cannot be."""
    return isinstance(given, (list, tuple)) and all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in given
    )


class Frozen(BaseModel):
    """A part of a schema; what is wrong with it is said in one line by a SchemaError."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SchemaError(_one_line(error, values.get("name"))) from None

    def model_copy(self, **given: Any) -> Self:
        """A copy with other entries (`update`), which finds anew what was found from the old."""
        copy = super().model_copy(**given)
        for name in vars(copy).keys() - type(self).model_fields.keys():
            del vars(copy)[name]
        return copy

    @model_validator(mode="after")
    def _check_texts(self) -> Self:
        """Names, notes and categories are printed and stored: by the rules of every text."""
        for content in self.__dict__.values():
            parts = [*content, *content.values()] if isinstance(content, Mapping) else content
            for text in parts if isinstance(parts, (tuple, list)) else (parts,):
                if isinstance(text, str):
                    check_text(text)
        return self


class Named(Frozen):
    """A column, with what people call it and its values.

    `label`: what people call the column; empty if that is its name. `value_names`: pairs of a value
    (a category, a binary value or a whole number) and what people call it; a mapping does as well,
    and "2" counts as the value 2. Both are for sentences, pictures and pages, and may be used in
    queries and rules; answers and files keep the names and values of the table.
    """

    name: str = Field(min_length=1)
    label: str = ""
    value_names: tuple[tuple[Category, str], ...] = ()

    @field_validator("value_names", mode="before")
    @classmethod
    def _of_mapping(cls, given: Any) -> Any:
        pairs = tuple(given.items()) if isinstance(given, Mapping) else given
        if not are_pairs(pairs):
            example = '{"2": "university"}'
            raise ValueError(f"must give a name for each value that it names, such as {example}")
        if not all(isinstance(name, str) for _, name in pairs):
            raise ValueError("the names of values must be texts")
        return pairs

    @field_serializer("value_names")
    def _as_json(self, names: tuple[tuple[Category, str], ...]) -> Any:
        """An object by the values as texts; pairs where two values have the same text."""
        values = self.listed_values
        if not names or len({str(value) for value in values}) < len(values):
            return [list(pair) for pair in names]
        return {str(value): name for value, name in names}

    @property
    def listed_values(self) -> tuple[Category, ...]:
        """The closed list of its values; empty for numbers."""
        return getattr(self, "values", None) or ()

    @property
    def is_text(self) -> bool:
        """Whether it has a text among its values, so that its column is read as text."""
        return any(isinstance(value, str) for value in self.listed_values)

    def value_like(self, given: Any) -> Any:
        """The value that is written like `given`, if one of its own; otherwise None."""
        place = value_list(*self.listed_values).place(given) if self.listed_values else -1
        return None if place < 0 else self.listed_values[place]

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if self.label:
            self._check_name("label", self.label)
        if not self.value_names:
            return self
        names: dict[Category, str] = {}  # of its own values
        for given, name in self.value_names:
            value = self.value_like(given)
            if value is None:
                there = f"; it has: {named(self.listed_values)}" if self.listed_values else ""
                raise ValueError(f"{self.name!r}: value_names: no value {given!r}{there}")
            if value in names:
                raise ValueError(f"{self.name!r}: value_names: {given!r} is named twice")
            self._check_name("value_names", name)
            names[value] = name
        object.__setattr__(self, "value_names", tuple(names.items()))
        taken = {str(value) for value in self.listed_values if value not in names}
        for name in names.values():
            if name in taken:
                twice = f"two values would be called {name!r}; name both, differently"
                raise ValueError(f"{self.name!r}: {twice}")
            taken.add(name)
        return self

    def _check_name(self, field: str, name: str) -> None:
        try:
            check_text(name, one_line=True, longest=LONGEST_NAME)
        except ValueError as error:
            raise ValueError(f"{self.name!r}: {field}: {error}") from None
        if not name.strip():
            raise ValueError(f"{self.name!r}: {field}: a name is empty")

    @property
    def names(self) -> dict[str, Any]:
        """`label` and `value_names` for JSON, as far as there are any."""
        names = {"label": self.label, "value_names": self._as_json(self.value_names)}
        return {name: content for name, content in names.items() if content}

    @property
    def shown_name(self) -> str:
        """What people call the column."""
        return self.label or self.name

    @property
    def value_list(self) -> ValueList:
        """Its values, with what people call them."""
        return value_list(*self.listed_values, names=self.value_names)

    def value_called(self, name: Any) -> Any:
        """The value that is written like `name`, or that people call so; otherwise `name`."""
        place = self.value_list.place(name)
        return name if place < 0 else self.listed_values[place]

    def offer(self, given: Any, has: str = "it has: ") -> str:
        """ "; it has: 1 (north), 2 (south); did you mean 'north'?" for what is none of its values.

        Nothing where it has no list of values, and no name is like what was `given`.
        """
        names = dict(self.value_names)
        told = [f"{each} ({names[each]})" if each in names else each for each in self.listed_values]
        there = f"; {has}{named(told)}" if told else ""
        return there + did_you_mean(given, [*self.listed_values, *names.values()])

    def shown_value(self, value: Any) -> Any:
        """What people call a value, however it is written; itself where it has no name."""
        if not self.value_names:
            return value
        names = _by_value(self.value_names)
        if isinstance(value, str) and value in names:
            return names[value]
        return names.get(self.value_like(value), value)


@lru_cache(maxsize=1024)
def _by_value(value_names: tuple[tuple[Category, str], ...]) -> dict[Category, str]:
    return dict(value_names)


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
