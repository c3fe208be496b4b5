"""The menu: the values that an action may give a feature.

An entry gives one feature a value, and the features that follow from it by links of the schema
theirs. `offered` entries are those of believable answers: round numbers where P~ has people, and
categories that are no noise. All other entries are there for the nearest answers, and for the last
attempt before a no: further values of numbers, and every category. A missing value is never on the
menu: no answer tells a person to make a known value unknown. All is computed from P~ and the
schema, so the menu is the same for all queries; rules close entries for a query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from counterveil.encoding import Array, Encoding
from counterveil.population import MixedPopulation
from counterveil.population.rounding import roundest
from counterveil.search.constraints.bounds import linked_columns

VALUES, LEAST_VALUES = 12, 4  # of a number that are offered
SO_FEW = 16  # whole numbers: if there are no more, all are offered
MOST_OFFERED, MOST_ENTRIES = 256, 640  # of the whole menu
EVEN, LEAST_EVEN = 24, 6  # further values of a number, evenly spread
FEWEST, OVER_NOISE = 0.01, 4.0  # people of a category: share of all, deviations of noise
ROUNDED = 0.1  # of the people of a value: rounding may go past so many
FINE = 96  # values of a number that an answer may end on
TAIL = 0.25  # of the outermost pieces of a number, as far as answers go into them


@dataclass(frozen=True)
class Menu:
    """The entries of all features side by side; those of a feature follow one another.

    `feature`, `column`, `value`: of each entry its feature, the column that tells it from others
    of its feature, and what it puts there, (entries,). `unit`: its columns with 1 in `column`, and
    what follows from it by links, (entries, width). `mask`: the columns that it sets, (entries,
    width). `blank`: the other columns of its own feature, (entries, width). `is_number`, `offered`:
    (entries,). `fine`: of each number the values that a believable
    answer may end on, ascending, (features, values); the last value is repeated to fill up.
    `first_column`, `number_features`: of each feature its first column, and whether it is a number
    that moves by itself, (features,).
    """

    feature: Tensor
    column: Tensor
    value: Tensor
    unit: Tensor
    mask: Tensor
    blank: Tensor
    is_number: Tensor
    offered: Tensor
    fine: Tensor
    first_column: Tensor
    number_features: Tensor

    def __len__(self) -> int:
        return len(self.feature)

    @cached_property
    def blank_columns(self) -> Tensor:
        """`blank` turned, (width, entries)."""
        return self.blank.T.contiguous()

    @cached_property
    def points(self) -> Tensor:
        """The encoded values of the entries in their columns, 0 elsewhere, (entries, width)."""
        return torch.where(self.is_number[:, None], self.unit * self.value[:, None], self.unit)


class _Entry(NamedTuple):
    """An entry of the menu; see `Menu`."""

    feature: int
    column: int
    value: float
    unit: Array
    mask: Array
    offered: bool


def menu_of(
    encoding: Encoding,
    population: MixedPopulation | None,
    device: torch.device | None = None,
    *,
    kinks: Mapping[int, Array] | None = None,
) -> Menu:
    """The menu of a mixed table; without a population no entry is offered.

    `kinks`: of a model that adds up over features, where the line of a number bends, by its column:
    between two kinks it has its best value at one of them. They are on the menu.
    """
    blocks, width = encoding.blocks, encoding.width
    derived = {link.derived for link in encoding.schema.links}
    is_free = np.array([block.feature.name not in derived for block in blocks])
    entries: list[_Entry] = []
    for number in np.flatnonzero(is_free).tolist():
        if blocks[number].feature.is_one_number:
            bends = (kinks or {}).get(blocks[number].start, np.empty(0))
            entries += _numbers(encoding, number, population, bends)
        else:
            entries += _categories(encoding, number, population)
    fine = np.zeros((len(blocks), FINE), np.float32)
    is_number = np.array([block.feature.is_one_number for block in blocks])
    for number in np.flatnonzero(is_number).tolist() if population is not None else ():
        values = round_values(population, number, FINE)  # type: ignore[arg-type]
        fine[number] = np.pad(values, (0, FINE - len(values)), mode="edge")
    starts, stops = np.array([(block.start, block.stop) for block in blocks]).T
    fields = [*zip(*entries, strict=True)] or [()] * len(_Entry._fields)
    feature, column = (np.array(each, dtype=np.int64) for each in fields[:2])
    value, unit = (np.array(each, dtype=np.float32) for each in fields[2:4])
    mask, offered = (np.array(each, dtype=bool) for each in fields[4:])
    place = np.arange(width)
    blank = (place >= starts[feature][:, None]) & (place < stops[feature][:, None])
    blank &= place != column[:, None]
    sides = (each.reshape(-1, width) for each in (unit, mask, blank.astype(np.float32)))
    of_features = fine, starts, is_number & is_free
    parts = (feature, column, value, *sides, is_number[feature], offered, *of_features)
    return Menu(*(torch.as_tensor(each, device=device) for each in parts))


def _numbers(
    encoding: Encoding, number: int, population: MixedPopulation | None, kinks: Array
) -> list[_Entry]:
    """The entries of a number: where the people are, and evenly over its range."""
    block = encoding.blocks[number]
    numbers = sum(each.feature.is_one_number for each in encoding.blocks)
    listed, room = encoding.width - numbers, max(1, numbers)
    many = int(np.clip((MOST_OFFERED - listed) // room, LEAST_VALUES, VALUES))
    more = int(np.clip((MOST_ENTRIES - listed) // room - many, LEAST_EVEN, EVEN))
    low, high = block.feature.number_range or (0.0, 1.0)
    even, told = np.linspace(0, 1, more), np.empty(0)
    if population is not None:
        told = round_values(population, number, many)
    if block.feature.is_whole:
        span = high - low
        even = np.unique(np.rint(even * span)) / max(span, 1)
        kinks = np.concatenate([np.floor(kinks * span), np.ceil(kinks * span)]) / max(span, 1)
        if population is not None:
            every = round_values(population, number, FINE)
            told = every if len(every) <= SO_FEW else told
    even = np.concatenate([even, kinks])
    near = np.abs(even[:, None] - told[None, :]).min(axis=1, initial=1) < 1e-6
    values = np.concatenate([told, np.unique(even[~near])]).astype(np.float32)
    order = np.argsort(values, kind="stable")
    mask, unit = np.zeros(encoding.width, dtype=bool), np.zeros(encoding.width, np.float32)
    mask[block.at], unit[block.start] = True, 1
    return [
        _Entry(number, block.start, float(values[at]), unit, mask, bool(at < len(told)))
        for at in order
    ]


def _categories(
    encoding: Encoding, number: int, population: MixedPopulation | None
) -> list[_Entry]:
    """The entries of a categorical or binary feature; offered are those that are no noise."""
    block, entries = encoding.blocks[number], []
    links = {link.source.start: link for link in linked_columns(encoding)}
    one_hot = block.feature.one_hot
    values = range(block.categories.stop - block.start) if one_hot else range(2)
    met = [False] * len(values) if population is None else _are_met(population, number)
    for value in values:
        mask, unit = np.zeros(encoding.width, dtype=bool), np.zeros(encoding.width, np.float32)
        column = block.start + (value if one_hot else 0)
        mask[block.at], unit[column] = True, 1 if one_hot else value
        if one_hot and block.start in links:
            link = links[block.start]
            mask[link.derived], unit[link.derived] = True, link.table.numpy()[value]
        entries.append(_Entry(number, column, float(unit[column]), unit, mask, bool(met[value])))
    return entries


def _are_met(population: MixedPopulation, number: int) -> Array:
    """Which cells of a feature hold enough people to be told from noise, and to be told of."""
    people, rows = population.tables[number].sum(axis=0), population.totals.sum()
    noise = np.sqrt(len(population.totals) * population.variance)
    found: Array = people >= max(FEWEST * rows, OVER_NOISE * noise)
    return found if found.any() else people >= people.max()


def round_values(population: MixedPopulation, number: int, values: int) -> Array:
    """Round values of a number, ascending, in the unit cube, where the people of P~ are.

    A single value that many people share is offered as it is, and counts no more than others do:
    the rest of the values are spread over the rest of the people. Of the outermost pieces the inner
    part alone is offered: next to nobody is far out there.
    """
    feature = population.grid.encoding.blocks[number].feature
    low, high = feature.number_range or (0.0, 1.0)
    span = high - low
    places, shares = population.percentiles(number)
    places = places.copy()
    places[-1] = places[-2] + TAIL * (places[-1] - places[-2])
    places[0] = places[1] - TAIL * (places[1] - places[0])
    rise = np.minimum(np.diff(shares, prepend=0.0, append=1.0)[:-1], 1 / values)
    shares = np.cumsum(rise) / max(rise.sum(), 1e-12)
    wanted = (np.arange(values) + 0.5) / values
    near = ROUNDED / values
    shared = _shared_values(places, shares, wanted, near)
    low_ends, middles, high_ends = (
        np.interp(wanted + away, shares, places) * span + low for away in (-near, 0.0, near)
    )
    found = {
        roundest(left, right, middle, whole=feature.is_whole)
        if np.isnan(value)
        else value * span + low
        for left, right, middle, value in zip(low_ends, high_ends, middles, shared, strict=True)
    }
    return np.clip((np.array(sorted(found)) - low) / span, 0.0, 1.0)


def _shared_values(places: Array, shares: Array, wanted: Array, near: float) -> Array:
    """The value that most people share near each wanted share of people; NaN if few share one.

    `places`, `shares`: as of `MixedPopulation.percentiles`.
    """
    jumps = np.flatnonzero((np.diff(places) == 0) & (np.diff(shares) >= near))
    found = np.full(len(wanted), np.nan)
    for jump in jumps[np.argsort(np.diff(shares)[jumps], kind="stable")]:  # the heaviest is last
        reached = (wanted + near >= shares[jump]) & (wanted - near <= shares[jump + 1])
        found[reached] = places[jump]
    return found
