"""Groups of people: combinations of the values of some columns, such as sex and race."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Self

import numpy as np

from counterveil.encoding import Array
from counterveil.errors import RequestError, VeilError
from counterveil.population.base import to_simplex
from counterveil.population.contrasts import class_tables
from counterveil.population.grid import Grid
from counterveil.privacy.record import NoisyRecord
from counterveil.schema import Schema

MOST = 64  # combinations that a release counts
BINS = 6  # of a number, in the counts of a group
LEAST = 0.5  # people of a group in a class


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
        return tuple(self.schema.features[place].name for place in self.places)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many values each column has."""
        features = (self.schema.features[place] for place in self.places)
        return tuple(len(each.values or ()) + each.missing for each in features)

    @property
    def count(self) -> int:
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


def tables_of_groups(
    groups: Groups,
    grid: Grid,
    tables: tuple[Array, ...],
    totals: Array,
    noisy: Array,
    variance: float,
) -> tuple[Array, tuple[Array, ...]]:
    """Totals (groups · classes,) and, of each feature, counts (groups · classes, cells).

    A group has the tables of its class, times how much more often it has a coarse cell: learnt from
    the `noisy` counts of groups as classes are told apart (`contrasts`). How many people it has is
    believed beside what its columns, by themselves, expect.
    """
    classes, count = len(totals), groups.count
    counts = noisy.reshape(count, classes, -1)
    coarse = coarse_cells(grid, groups)
    ends = np.cumsum([1, *(int(each.max()) + 1 for each in coarse.values())])
    parts = dict(zip(coarse, np.split(counts, ends[:-1], axis=2)[1:], strict=True))
    sizes = _totals(groups, tables, totals, [counts[:, :, :1], *parts.values()], variance)
    found: list[Array] = []
    values = np.unravel_index(np.arange(count), groups.sizes)
    for place, table in enumerate(tables):
        own = table / np.maximum(table.sum(axis=1, keepdims=True), 1e-12)
        if place in groups.places:
            mine = np.eye(table.shape[1])[values[groups.places.index(place)]]
            found.append((sizes[:, :, None] * mine[:, None, :]).reshape(count * classes, -1))
            continue
        into, ratio = coarse[place], np.empty((count, classes, table.shape[1]))
        ordered = grid.in_order[place]
        in_order = int(into[ordered - 1]) + 1 if ordered else 0
        for label in range(classes):
            pooled = np.bincount(into, own[label]) * sizes[:, label].sum()
            seen = parts[place][:, label]
            made = class_tables(seen, sizes[:, label], variance, in_order, pooled)
            expected = sizes[:, [label]] * pooled / pooled.sum()
            ratio[:, label] = (made / np.maximum(expected, 1e-9))[:, into]
        found.append((sizes[:, :, None] * own * ratio).reshape(count * classes, -1))
    return sizes.ravel(), tuple(found)


def _totals(
    groups: Groups, tables: tuple[Array, ...], totals: Array, seen: list[Array], variance: float
) -> Array:
    """How many people each group has in each class, (groups, classes).

    Every histogram adds up to it: those of few cells carry the least noise. Beside that stands what
    the columns that make the groups expect, as if they had nothing to do with each other.
    """
    weights = np.array([1 / each.shape[2] for each in seen])
    sums = np.stack([each.sum(axis=2) for each in seen])
    noisy = (weights[:, None, None] * sums).sum(axis=0) / weights.sum()
    found = np.empty_like(noisy)
    for label, total in enumerate(totals):
        own = [tables[place][label] / tables[place][label].sum() for place in groups.places]
        expected = total * reduce(np.multiply.outer, own).ravel()
        beyond = noisy[:, label] - expected
        # Empirical Bayes: groups are off from what is expected by a share of their own size.
        signal = max(0.0, float((beyond**2).sum()) - len(beyond) * variance / weights.sum())
        reach = signal * (expected + LEAST) / (expected + LEAST).sum()
        believed = expected + beyond * reach / (reach + variance / weights.sum())
        found[:, label] = np.maximum(to_simplex(believed, total), LEAST)
    return found
