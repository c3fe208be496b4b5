"""The menu: for every feature the few values that an answer may move it to.

Numbers get round values where P~ has people; categories and binary values are offered as they are,
unless so few people have them that P~ cannot tell them from noise. A missing value is never on the
menu: no answer tells a person to make a known value unknown. All is computed from P~ and the
schema: the menu is the same for all queries, and what the rules of a query close is closed by its
box.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterveil.encoding import Array
from counterveil.population import TreePopulation
from counterveil.population.rounding import roundest
from counterveil.schema.cells import NumberCells
from counterveil.search.constraints.bounds import linked_columns

VALUES, LEAST_VALUES = 12, 4  # of a number
MOST_ENTRIES = 256  # of the whole menu
FEWEST, OVER_NOISE = 0.01, 4.0  # people of a category: share of all, deviations of noise
ROUNDED = 0.1  # of the people of a value: rounding may go past so many
FINE = 96  # values of a number that an answer may end on


@dataclass(frozen=True)
class Menu:
    """The entries of all features side by side; those of a feature follow one another.

    `feature`, `code`: of each entry its feature and its cell, (entries,). `points`: its encoded
    columns, (entries, width), 0 in all others; those of features that follow from its own are with
    them. `mask`: which columns these are, (entries, width). `column`: the column that tells it from
    others of its feature, and `value`: what it puts there, (entries,). `blank`: the other columns
    of its feature, which it sets to 0, (entries, width). `places`: where the entries of each
    feature are. `fine`: of each number more values, ascending, in the unit cube; None for other
    features.
    """

    feature: Array
    code: Array
    points: Array
    mask: Array
    column: Array
    value: Array
    blank: Array
    places: tuple[slice, ...]
    fine: tuple[Array | None, ...]

    def __len__(self) -> int:
        return len(self.feature)


def menu_of(population: TreePopulation) -> Menu:
    """The menu of a mixed table."""
    grid = population.grid
    blocks, width = grid.encoding.blocks, grid.encoding.width
    derived = {link.derived for link in grid.schema.links}
    links = linked_columns(grid.encoding)
    numbers = [isinstance(cells, NumberCells) for cells in grid.cells]
    listed = sum(cells.count for cells in grid.cells if not isinstance(cells, NumberCells))
    values = max(LEAST_VALUES, min(VALUES, (MOST_ENTRIES - listed) // max(1, sum(numbers))))
    features: list[int] = []
    codes: list[int] = []
    columns: list[int] = []
    points, mask, blank = ([np.zeros((0, width))] for _ in range(3))
    places, fine = [], []
    for number, (block, cells) in enumerate(zip(blocks, grid.cells, strict=True)):
        own = np.zeros((0, block.stop - block.start))
        if not block.feature.immutable and block.feature.name not in derived:
            own = _entries_of(population, number, values)
        wide, here, others = (np.zeros((len(own), width)) for _ in range(3))
        wide[:, block.at], here[:, block.at] = own, 1
        told_by = own.argmax(axis=1) if block.feature.one_hot else np.zeros(len(own), dtype=int)
        others[:, block.at] = 1
        others[np.arange(len(own)), block.start + told_by] = 0
        for link in links:
            if link.source.start == block.start:
                wide[:, link.derived] = link.table.numpy()[own.argmax(axis=1)]
                here[:, link.derived] = 1
        start = len(features)
        features += [number] * len(own)
        codes += cells.codes(own).tolist() if len(own) else []
        columns += (block.start + told_by).tolist()
        for rows, more in ((points, wide), (mask, here), (blank, others)):
            rows.append(more)
        places.append(slice(start, len(features)))
        values_of_all = round_values(population, number, FINE) if numbers[number] else None
        fine.append(None if values_of_all is None else values_of_all.astype(np.float32))
    encoded, column = np.concatenate(points).astype(np.float32), np.array(columns, dtype=np.intp)
    return Menu(
        np.array(features, dtype=np.intp),
        np.array(codes, dtype=np.intp),
        encoded,
        np.concatenate(mask) > 0,
        column,
        encoded[np.arange(len(encoded)), column],
        np.concatenate(blank).astype(np.float32),
        tuple(places),
        tuple(fine),
    )


def _entries_of(population: TreePopulation, number: int, values: int) -> Array:
    """The encoded entries of one feature, (entries, its columns)."""
    block, cells = population.grid.encoding.blocks[number], population.grid.cells[number]
    if isinstance(cells, NumberCells):
        chosen = round_values(population, number, values)
        own = np.zeros((len(chosen), block.stop - block.start))
        own[:, 0] = chosen
        return own
    every = np.arange(cells.count - block.feature.missing)
    own = cells.points(every, np.random.default_rng(0)).reshape(len(every), -1)
    return own[_are_met(population, number)[: len(own)]].astype(float)


def _are_met(population: TreePopulation, number: int) -> Array:
    """Which cells of a feature hold enough people to be told from noise, and to be told of."""
    people, rows = population.tables[number].sum(axis=0), population.totals.sum()
    noise = np.sqrt(len(population.totals) * population.variance)
    found: Array = people >= max(FEWEST * rows, OVER_NOISE * noise)
    return found if found.any() else people >= people.max()


def round_values(population: TreePopulation, number: int, values: int) -> Array:
    """Round values of a number, ascending, in the unit cube, where the people of P~ are.

    A single value that many people share is offered as it is, and counts no more than others do:
    the rest of the values are spread over the rest of the people.
    """
    feature = population.grid.encoding.blocks[number].feature
    bounds = feature.number_range or (0.0, 1.0)
    low, span = bounds[0], bounds[1] - bounds[0]
    places, shares = population.percentiles(number)
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

    `places`, `shares`: as of `TreePopulation.percentiles`.
    """
    jumps = np.flatnonzero((np.diff(places) == 0) & (np.diff(shares) >= near))
    found = np.full(len(wanted), np.nan)
    for jump in jumps[np.argsort(np.diff(shares)[jumps], kind="stable")]:  # the heaviest is last
        reached = (wanted + near >= shares[jump]) & (wanted - near <= shares[jump + 1])
        found[reached] = places[jump]
    return found
