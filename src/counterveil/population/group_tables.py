"""How groups that were named at release differ: noisy counts -> the tables of each group and class.

A group has the tables of its class, times how much more often it has a coarse cell. That is learnt
from its noisy counts as classes are told apart (`contrasts`): believed as far as it stands out of
the noise. How many people a group has is believed beside what its columns, by themselves, expect.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from counterveil.encoding import Array
from counterveil.population.base import to_simplex
from counterveil.population.contrasts import class_tables
from counterveil.population.grid import Grid
from counterveil.population.groups import Groups, coarse_cells

LEAST = 0.5  # people of a group in a class


def tables_of_groups(
    groups: Groups,
    grid: Grid,
    tables: tuple[Array, ...],
    totals: Array,
    noisy: Array,
    variance: float,
) -> tuple[Array, tuple[Array, ...]]:
    """Totals (groups · classes,) and, of each feature, counts (groups · classes, cells).

    `tables` and `totals`: of the classes. `noisy`: the counts of the groups, and the `variance` of
    their noise.
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
