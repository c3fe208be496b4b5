"""Groups of people: combinations of the values of some columns, such as sex and race."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from counterveil.encoding import Array
from counterveil.errors import RequestError
from counterveil.schema import Schema


@dataclass(frozen=True)
class Groups:
    """The columns that tell people's groups, by the places of their features.

    `sizes`: how many values each has; a missing value is one more. A combination of values has the
    number that they make together, the last column changing fastest.
    """

    schema: Schema
    places: tuple[int, ...]

    @classmethod
    def named(cls, schema: Schema, names: Sequence[str]) -> Self:
        """Of columns by name; a RequestError for what cannot tell groups."""
        if not names or len(set(names)) < len(names):
            raise RequestError("groups: name at least one column, and each once")
        for name in names:
            feature = schema.feature(name)
            if not feature.values:
                raise RequestError(
                    f"groups: {name!r} is a number or an image, and groups need a list of values; "
                    "make it categories in the schema, such as the bands '18 to 29', '30 to 44'"
                )
        places = [each.name for each in schema.features]
        return cls(schema, tuple(places.index(name) for name in names))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(self.schema.features[place].name for place in self.places)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many values each column has."""
        features = (self.schema.features[place] for place in self.places)
        return tuple(len(each.values or ()) + each.missing for each in features)

    @property
    def count(self) -> int:
        """How many combinations there are."""
        return int(np.prod(self.sizes))

    def numbers(self, codes: Array) -> Array:
        """The combination of each row, (rows,), from the cell of every feature (rows, features)."""
        own = tuple(codes[:, place] for place in self.places)
        return np.ravel_multi_index(own, self.sizes)

    def value(self, column: int, code: int) -> Any:
        """What people call a value of the column at this position."""
        feature = self.schema.features[self.places[column]]
        listed = feature.values or ()
        return feature.shown_value(listed[code]) if code < len(listed) else "missing"
