"""Ties in encoded rows: steps of numbers, relations between them, and groups of features.

`Ties.settle` brings rows to rows nearby that keep them. Every tied number has an interval of values
that its box leaves; with a step, these are multiples of it and the query's own value. A relation
a <= b lowers the highest a and raises the lowest b, until nothing changes any more. Where an
interval is empty, there is no such row. Otherwise the numbers take the values of their intervals
that are nearest to the wanted ones. What is pinned, because a search has just moved it, keeps its
value if that is possible.

Some things have several ways, and each way narrows the intervals; the wanted ways are tried first.
A group that moves together stays, moves up or moves down. Of a group of which only one may change,
one is free and the others are the query's. A number outside of what is allowed stays where it is,
or comes inside.

A value that is missing in the query is in no group, and no relation says anything of it as long as
it is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product

import numpy as np
import torch
from torch import Tensor

from counterveil.encoding import Array, Block, Encoding
from counterveil.schema import Feature
from counterveil.search.constraints.coupled_numbers import (
    EXACT_TOLERANCE,
    CoupledNumbers,
    Sides,
    Tied,
)
from counterveil.search.constraints.coupled_ways import Going
from counterveil.search.constraints.relations import Relation, equal_shifts, grid_of, pairs_of
from counterveil.search.constraints.rules import Rules

MOST_WAYS = 48  # that are tried for a row


@dataclass(frozen=True)
class Ties:
    """The ties of a batch of queries; all tensors given and returned may be on any device.

    `arrays` have a row for each query:

    | name | shape | what it is |
    |---|---|---|
    | own | numbers | the query's numbers, in original units; NaN where missing |
    | grid, phase | numbers | values are phase and multiples of grid; 0 for a continuum |
    | own_fits | numbers | whether the own value is one, or may stay though it is none |
    | lower, upper, offset | relations | number `lower` is at most number `upper` and the offset; \
    the same number twice: no relation |
    | together, only_one | groups, features | what is in each group; the numbers come first |
    | is_tied | | whether the rules of the query tie anything |
    | possible | | whether any row of the box keeps the ties |
    """

    tied: Tied
    arrays: dict[str, Array]

    def select(self, part: slice | Array) -> Ties:
        return replace(self, arrays={name: each[part] for name, each in self.arrays.items()})

    def parts(self) -> list[Tensor]:
        """The queries that nothing ties, and those that ties can be kept for, by their numbers."""
        is_tied, possible = self.arrays["is_tied"], self.arrays["possible"]
        return [torch.from_numpy(np.flatnonzero(each)) for each in (~is_tied, is_tied & possible)]

    def held(self, rows: Tensor, sides: Sides) -> Tensor:
        """Which rows, (queries, width), keep their ties: (queries,)."""
        return torch.from_numpy(self._held(_array(rows), sides)).to(rows.device)

    def _held(self, rows: Array, sides: Sides) -> Array:
        together, count = self.arrays["together"], len(self.tied.columns)
        changed = (self.tied.distances(rows, sides.queries) > 0)[:, None]
        moves, stays = ((together & each).any(axis=2) for each in (changed, ~changed))
        ways = (rows - sides.queries)[:, None, self.tied.columns]
        up, down = ((together & changed)[:, :, :count] & each for each in (ways > 0, ways < 0))
        fine = ~moves | ~(stays | (up.any(axis=2) & down.any(axis=2)))
        single = (self.arrays["only_one"] & changed).sum(axis=2) <= 1
        numbers = CoupledNumbers(self.tied, self.arrays, rows, sides).held()
        return numbers & np.all(fine, axis=1) & np.all(single, axis=1)

    def settle(self, rows: Tensor, sides: Sides, pinned: Tensor | None = None) -> Tensor:
        """Rows, (queries, width), that keep the ties; as they came where there are none.

        `pinned`: columns that keep their values where that is possible, (queries, width).
        """
        wanted = _array(rows)
        left = np.flatnonzero(self.arrays["possible"] & ~self._held(wanted, sides))
        if not len(left):
            return rows
        pins = None if pinned is None else _array(pinned)
        attempts: list[tuple[Array, Array | None]] = [(wanted, pins)] if pins is not None else []
        attempts += [(wanted, None), (self._unknown_again(wanted, sides), None)]
        settled, sizes = wanted.copy(), self._sizes(sides)
        for tried, fast in attempts:
            # Mostly the wanted ways will do. All others are tried at once, for rows with the same.
            kinds, kind = np.unique(sizes[left], axis=0, return_inverse=True)
            parts = [(left, np.zeros((1, sizes.shape[1]), dtype=np.intp))]
            parts += [(left[kind.ravel() == n], _turns(each)) for n, each in enumerate(kinds)]
            for some, turns in parts:
                mine = np.intersect1d(some, left)
                again, count = np.repeat(mine, len(turns)), len(turns)
                if not len(again):
                    continue
                box = Sides(*(side[again] for side in sides))
                pins = None if fast is None else fast[again]
                ways = np.tile(turns, (len(mine), 1))
                found, possible = self.select(again)._settled(tried[again], box, pins, ways)
                possible = possible.reshape(len(mine), count)
                ok, first = possible.any(axis=1), possible.argmax(axis=1)
                settled[mine[ok]] = found[(np.arange(len(mine)) * count + first)[ok]]
                left = np.setdiff1d(left, mine[ok])
        return torch.as_tensor(settled).to(rows)

    def _sizes(self, sides: Sides) -> Array:
        """How many ways there are, (queries, …).

        Of groups that move together, of numbers that may stay outside, of groups with one change.
        """
        together = np.where(self.arrays["together"].any(axis=2), 3, 1)
        only_one = np.maximum(self.arrays["only_one"].sum(axis=2), 1)
        return np.hstack([together, 1 + sides.stays[:, self.tied.columns], only_one])

    def _settled(
        self, rows: Array, sides: Sides, pinned: Array | None, turns: Array
    ) -> tuple[Array, Array]:
        """Rows that go certain ways and keep the ties, and where there are any, (rows,)."""
        going = Going(self.tied, self.arrays, rows, sides, pinned)
        now, box = going.by(turns)
        found, possible = CoupledNumbers(self.tied, self.arrays, now, box, pinned).settled()
        found = found.astype(rows.dtype)
        possible &= going.possible & ~going.loses_pinned(found)
        return found, possible & self._held(found, sides)

    def with_feasibility(self, starts: Sequence[Tensor], sides: Sides) -> Ties:
        """The same with queries marked for which no row keeps the ties.

        `starts`: for each query rows inside its box, (queries, width) each, one for every value
        that a tied number may be derived from.
        """
        held = [self.held(self.settle(rows, sides), sides) for rows in starts]
        possible = torch.stack(held).any(dim=0).cpu().numpy()
        return replace(self, arrays={**self.arrays, "possible": possible})

    def with_groups(self, columns: Tensor) -> Tensor:
        """A mask of columns, (queries, width), with all of a group that it has a column of."""
        together, reach = self.arrays["together"], self.tied.reach
        touched = together & ((_array(columns) @ reach.T) > 0)[:, None]
        moved = (together & touched.any(axis=2, keepdims=True)).any(axis=1)
        return columns | torch.as_tensor(moved @ reach).to(columns)

    def _unknown_again(self, rows: Array, sides: Sides) -> Array:
        """Rows in which tied numbers are missing again that the query does not have."""
        rows = rows.copy()
        for place, flag in enumerate(self.tied.flags):
            if flag is not None:
                missing = np.isnan(self.arrays["own"][:, place])
                rows[missing, flag - 1 : flag + 1] = sides.queries[missing, flag - 1 : flag + 1]
        return rows


def ties_of(
    encoding: Encoding,
    rules: Sequence[Rules],
    under: Sequence[tuple[Feature, ...]],
    which: Array,
    queries: Array,
) -> Ties:
    """The ties of encoded queries, (queries, width), of which some have any.

    `under`: the features under each of the different `rules`; `which`: of these each query has.
    """
    relations = [each.relations_of(encoding.schema) for each in rules]
    tied_by = [
        {name for relation in related for name in (relation.left, relation.right)}
        | {name for group in (*each.together, *each.only_one) for name in group}
        | {feature.name for feature in features if feature.step}
        for each, related, features in zip(rules, relations, under, strict=True)
    ]
    ever = set().union(*tied_by)
    blocks = [block for block in encoding.blocks if block.feature.name in ever]
    blocks.sort(key=lambda block: not block.feature.is_one_number)
    tied = _tied(encoding, blocks)
    count, names = len(tied.columns), [block.feature.name for block in blocks]
    own = [_own(queries, block) for block in blocks[:count]]
    place_of = {feature.name: place for place, feature in enumerate(encoding.schema.features)}
    grid = [[grid_of(features[place_of[name]]) for name in names[:count]] for features in under]
    arrays: dict[str, Array] = {
        "own": np.array(own, dtype=np.float64).reshape(count, len(queries)).T,
        "grid": np.array(grid, dtype=np.float64).reshape(len(under), count)[which],
        "phase": np.zeros((len(queries), count)),
        "own_fits": np.ones((len(queries), count), dtype=bool),
        "is_tied": np.array([bool(names) for names in tied_by])[which],
        "possible": np.ones(len(queries), dtype=bool),
        "together": _members([each.together for each in rules], names)[which],
        "only_one": _members([each.only_one for each in rules], names)[which],
        **{name: each[which] for name, each in _relations(relations, names).items()},
    }
    for place, block in enumerate(blocks):
        if block.feature.missing:
            known = queries[:, block.stop - 1] < 0.5
            arrays["together"][:, :, place] &= known[:, None]
    for number, related in enumerate(relations):
        for shifts in equal_shifts(related):
            at = np.ix_(which == number, [names.index(name) for name in shifts])
            _share_grid(at, np.array([*shifts.values()]), tied.span, arrays)
    return Ties(tied, arrays)


def _turns(sizes: Array) -> Array:
    """The ways to try but for the first: those first that leave most as it is wanted."""
    ways = np.array([*islice(product(*map(range, sizes.tolist())), 1, MOST_WAYS**2)], dtype=np.intp)
    ways = ways.reshape(-1, len(sizes))
    return ways[np.argsort((ways > 0).sum(axis=1), kind="stable")][:MOST_WAYS]


def _tied(encoding: Encoding, blocks: Sequence[Block]) -> Tied:
    """Where tied features are, given in order."""
    source_of = {link.derived: link.source for link in encoding.schema.links}
    reach = np.zeros((len(blocks), encoding.width), dtype=bool)
    for place, block in enumerate(blocks):
        for other in encoding.blocks:
            itself = other.feature.name
            reach[place, other.at] = block.feature.name in (itself, source_of.get(itself))
    numbers = [block for block in blocks if block.feature.is_one_number]
    low, high = np.array([block.feature.number_range for block in numbers]).reshape(-1, 2).T
    follows = np.array([block.feature.name in source_of for block in numbers], dtype=bool)
    choices = [
        (block.at, block.feature.one_hot * (block.categories.stop - block.start))
        for block in blocks[len(numbers) :]
    ]
    columns, flags = [block.start for block in numbers], [block.missing_flag for block in numbers]
    return Tied(columns, flags, low, high - low, follows, choices, reach)


def _members(groups: Sequence[Collection[Collection[str]]], names: Sequence[str]) -> Array:
    """Which features are in the groups of each of the rules, (rules, groups, features)."""
    most = max(map(len, groups))
    padded = [[*each, *[()] * (most - len(each))] for each in groups]
    found = [[[name in group for name in names] for group in each] for each in padded]
    return np.array(found, dtype=bool).reshape(len(groups), most, len(names))


def _relations(relations: Sequence[Sequence[Relation]], names: Sequence[str]) -> dict[str, Array]:
    """The relations of each of the rules, by the places of numbers; padded with 0 <= 0."""
    place = {name: number for number, name in enumerate(names)}
    pairs = [
        [(place[one], place[two], more) for one, two, more in pairs_of(each)] for each in relations
    ]
    most = max(map(len, pairs))
    padded = [each + [(0, 0, 0.0)] * (most - len(each)) for each in pairs]
    found = np.array(padded, dtype=np.float64).reshape(len(relations), most, 3)
    lower, upper, offset = np.moveaxis(found, 2, 0)
    return {"lower": lower.astype(np.intp), "upper": upper.astype(np.intp), "offset": offset}


def _share_grid(at: tuple[Array, ...], shift: Array, span: Array, arrays: dict[str, Array]) -> None:
    """Give numbers `at` some places that must be equal, but for a shift, one grid, in place.

    And say which own values all of them can have.
    """
    own, grid = arrays["own"][at], arrays["grid"][at]
    if not grid.size:
        return
    step, first = grid[0].max(), shift[grid[0].argmax()]
    hair = EXACT_TOLERANCE * span[at[1][0]]
    is_same = (np.abs(own - shift - (own - shift)[:, :1]) <= hair).all(axis=1, keepdims=True)
    if step > 0:
        phase = (shift - first) - np.rint((shift - first) / step) * step
        phase = np.where(np.abs(phase) <= EXACT_TOLERANCE * step, 0.0, phase)
        arrays["grid"][at], arrays["phase"][at] = step, phase
        off = np.abs(own - phase - np.rint((own - phase) / step) * step)
        arrays["own_fits"][at] = is_same | (off <= hair)


def _own(queries: Array, block: Block) -> Array:
    """The numbers of the queries in original units, NaN where missing."""
    low, high = block.feature.number_range or (0.0, 1.0)
    own = low + queries[:, block.start] * (high - low)
    own = np.rint(own) if block.feature.is_whole else own
    flag = block.missing_flag
    return own if flag is None else np.where(queries[:, flag] > 0.5, np.nan, own)


def _array(side: Tensor) -> Array:
    return side.detach().cpu().numpy()
