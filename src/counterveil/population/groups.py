"""Groups of people: combinations of the values of some columns, such as sex and race."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from counterveil.encoding import Array
from counterveil.errors import RequestError, VeilError
from counterveil.population.grid import Grid
from counterveil.privacy.record import NoisyRecord
from counterveil.schema import Schema

MOST = 64  # combinations that a release counts
BINS = 6  # of a number, in the counts of a group


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

    @classmethod
    def counted(cls, schema: Schema, names: Sequence[str]) -> Self:
        """The same for a release, which counts every combination."""
        found = cls.named(schema, names)
        if found.count > MOST:
            raise RequestError(
                f"groups: {' and '.join(names)} make {found.count} groups, and a release counts at "
                f"most {MOST}; name fewer columns, or put values together in the schema"
            )
        return found

    @classmethod
    def of_record(cls, schema: Schema, record: NoisyRecord) -> Self | None:
        """Those that a record has counts of; a VeilError where there can be none like that."""
        if not record.groups and record.find("groups") is None:
            return None
        places = range(len(schema.features))
        try:
            return cls.counted(
                schema, [schema.features[places[each]].name for each in record.groups]
            )
        except (RequestError, IndexError):
            raise VeilError("its noisy record does not fit its schema") from None

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

    def numbers(self, codes: Sequence[Array]) -> Array:
        """The combination of each row, (rows,), of its cells: a column (rows,) for each feature."""
        return np.ravel_multi_index(tuple(codes[place] for place in self.places), self.sizes)

    def value(self, column: int, code: int) -> Any:
        """What people call a value of the column at this position."""
        feature = self.schema.features[self.places[column]]
        listed = feature.values or ()
        return feature.shown_value(listed[code]) if code < len(listed) else "missing"


def coarse_cells(grid: Grid, groups: Groups) -> dict[int, Array]:
    """The coarse cell of each cell of the features that make no groups, by the feature's place."""
    merged = enumerate(grid.merged(BINS))
    return {place: coarse for place, coarse in merged if place not in groups.places}


def count_width(grid: Grid, groups: Groups) -> int:
    """How many counts a group has in each class: of its people, and in each coarse cell."""
    return 1 + sum(int(coarse.max()) + 1 for coarse in coarse_cells(grid, groups).values())
