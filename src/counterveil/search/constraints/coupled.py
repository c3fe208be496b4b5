"""Ties in encoded rows: steps of numbers, relations between them, and groups that move together.

`Ties.settle` brings rows to rows nearby that keep them. Every tied number has an interval of values
that its box leaves; with a step, these are multiples of it and the query's own value. A relation
a <= b lowers the highest a and raises the lowest b, until nothing changes any more. A group stays,
moves up or moves down, and each narrows the intervals of its numbers. Where an interval is empty,
there is no such row. Otherwise one number after the other takes the value of its interval that is
nearest to the wanted one. What is pinned, because a search has just moved it, keeps its value if
that is possible.

A value that is missing in the query is in no group, and no relation says anything of it as long as
it is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, product

import numpy as np
import torch
from torch import Tensor

from counterveil.encoding import Array, Block, Encoding
from counterveil.schema import Feature
from counterveil.search.constraints.coupled_numbers import HAIR, SAME
from counterveil.search.constraints.coupled_rows import Choice, Number, Sides, TiedRows
from counterveil.search.constraints.relations import equal_names
from counterveil.search.constraints.rules import Rules

__all__ = ["SAME", "Ties", "ties_of"]

MOST_WAYS = 27  # of all groups of a query together that are tried


@dataclass(frozen=True)
class Ties:
    """The ties of a batch of queries; all tensors given and returned may be on any device.

    `arrays` have a row for each query:

    | name | shape | what it is |
    |---|---|---|
    | own | numbers | the query's numbers, in original units; NaN where missing |
    | grid | numbers | what the values of a number are multiples of; 0 for a continuum |
    | own_fits | numbers | whether the own value is one, or may stay though it is none |
    | lower, upper | relations | number `lower` is at most number `upper`; equal: no relation |
    | members | groups, numbers | which numbers are in each group |
    | chosen | groups, choices | which categories and binary values are in each group |
    | is_tied | | whether the rules of the query tie anything |
    | possible | | whether any row of the box keeps the ties |
    """

    numbers: tuple[Number, ...]
    choices: tuple[Choice, ...]
    arrays: dict[str, Array]

    def select(self, part: slice | Array) -> Ties:
        """The ties of some of the queries."""
        return replace(self, arrays={name: each[part] for name, each in self.arrays.items()})

    def parts(self) -> list[Tensor]:
        """The queries that nothing ties, and those that ties can be kept for, by their numbers."""
        is_tied, possible = self.arrays["is_tied"], self.arrays["possible"]
        return [torch.from_numpy(np.flatnonzero(each)) for each in (~is_tied, is_tied & possible)]

    def settle(
        self, rows: Tensor, sides: tuple[Tensor, Tensor, Tensor], pinned: Tensor | None = None
    ) -> Tensor:
        """Rows, (queries, width), that keep the ties; as they came where there are none.

        `sides`: lower and upper bounds and the queries, all (queries, width). `pinned`: columns
        that keep their values where that is possible, (queries, width).
        """
        box, settled = _sides(sides), rows.detach().cpu().numpy().copy()
        left = np.flatnonzero(self.arrays["possible"] & ~self._tied(settled, box).held())
        wanted = settled.copy()
        pins = None if pinned is None else pinned.cpu().numpy()
        attempts: list[tuple[Array, Array | None]] = [(wanted, pins)] if pins is not None else []
        attempts += [(wanted, None), (self._unknown_again(wanted, box), None)]
        groups = self.arrays["members"].shape[1]
        ways = np.array([*islice(product(range(3), repeat=groups), MOST_WAYS)], dtype=np.intp)
        # Mostly the first ways will do, the wanted ones. All others are tried at once.
        for (tried, held), some in product(attempts, (ways[:1], ways[1:])):
            if len(left) and len(some):
                again, turns = np.repeat(left, len(some)), np.tile(some, (len(left), 1))
                pinned_now = None if held is None else held[again]
                found, possible = self.select(again)._settled(
                    tried[again], box.select(again), pinned_now, turns
                )
                possible = possible.reshape(len(left), len(some))
                ok, first = possible.any(axis=1), possible.argmax(axis=1)
                best = np.arange(len(left)) * len(some) + first
                settled[left[ok]] = found[best[ok]]
                left = left[~ok]
        return torch.as_tensor(settled).to(rows)

    def _settled(
        self, rows: Array, sides: Sides, pinned: Array | None, ways: Array
    ) -> tuple[Array, Array]:
        """Rows that go certain ways and keep the ties, and where there are any, (rows,)."""
        found, possible = self._tied(rows, sides, pinned).settled(pinned, ways)
        return found, possible & self._tied(found, sides).held()

    def knowing_what_is_possible(
        self, starts: Sequence[Tensor], sides: tuple[Tensor, Tensor, Tensor]
    ) -> Ties:
        """The same with queries marked for which no row keeps the ties.

        `starts`: for each query rows inside its box, (queries, width) each, one for every value
        that a tied number may be derived from.
        """
        held = [self.held(self.settle(rows, sides), sides) for rows in starts]
        possible = torch.stack(held).any(dim=0).cpu().numpy()
        return replace(self, arrays={**self.arrays, "possible": possible})

    def held(self, rows: Tensor, sides: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """Which rows, (queries, width), keep their ties: (queries,)."""
        held = self._tied(rows.detach().cpu().numpy(), _sides(sides)).held()
        return torch.from_numpy(held).to(rows.device)

    def with_groups(self, columns: Tensor) -> Tensor:
        """A mask of columns, (queries, width), with all of a group that it has a column of."""
        mask = columns.clone()
        for group in range(self.arrays["members"].shape[1]):
            mine = torch.zeros_like(mask)
            for place, number in enumerate(self.numbers):
                mine[:, number.column] = self._mask("members", group, place, mask)
            for place, choice in enumerate(self.choices):
                mine[:, choice.at] = self._mask("chosen", group, place, mask)[:, None]
            mask |= mine & (mine & mask).any(dim=1, keepdim=True)
        return mask

    def _mask(self, name: str, group: int, place: int, like: Tensor) -> Tensor:
        return torch.from_numpy(self.arrays[name][:, group, place]).to(like)

    def _tied(self, rows: Array, sides: Sides, pinned: Array | None = None) -> TiedRows:
        return TiedRows.of((self.numbers, self.choices), rows, sides, self.arrays, pinned)

    def _unknown_again(self, rows: Array, sides: Sides) -> Array:
        """Rows in which tied numbers are missing again that the query does not have."""
        rows = rows.copy()
        for place, number in enumerate(self.numbers):
            if number.flag is not None:
                missing = np.isnan(self.arrays["own"][:, place])
                for column in (number.column, number.flag):
                    rows[missing, column] = sides.queries[missing, column]
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
    tied_by = [
        {name for left, _, right in each.related for name in (left, right)}
        | {name for group in each.together for name in group}
        | {feature.name for feature in features if feature.step}
        for each, features in zip(rules, under, strict=True)
    ]
    tied = set().union(*tied_by)
    derived = {link.derived for link in encoding.schema.links}
    blocks = {block.feature.name: block for block in encoding.blocks if block.feature.name in tied}
    names = [name for name, block in blocks.items() if block.feature.is_one_number]
    others = [name for name in blocks if name not in names]
    numbers = tuple(_number(blocks[name], name in derived) for name in names)
    choices = tuple(_choice(blocks[name]) for name in others)
    own: Array = np.array([_own(queries, blocks[name]) for name in names])
    own = own.reshape(len(names), len(queries)).T.astype(np.float64)
    place_of = {feature.name: place for place, feature in enumerate(encoding.schema.features)}
    grid = [[_grid(features[place_of[name]]) for name in names] for features in under]
    arrays: dict[str, Array] = {
        "own": own,
        "grid": np.array(grid, dtype=np.float64).reshape(len(under), len(names))[which],
        "own_fits": np.ones(own.shape, dtype=bool),
        "is_tied": np.array([bool(names) for names in tied_by])[which],
        "possible": np.ones(len(own), dtype=bool),
        **{name: each[which] for name, each in _relations(rules, names).items()},
        **{name: each[which] for name, each in _groups(rules, names, others).items()},
    }
    is_known: Array = np.isfinite(own, dtype=bool)
    arrays["members"] &= is_known[:, None]
    for place, choice in enumerate(choices):
        if choice.one_hot:
            has_one = np.any(queries[:, choice.start : choice.last] > 0.5, axis=1)
            arrays["chosen"][:, :, place] &= has_one[:, None]
    _share_grids(rules, names, which, numbers, arrays)
    return Ties(numbers, choices, arrays)


def _relations(rules: Sequence[Rules], names: Sequence[str]) -> dict[str, Array]:
    """The relations of each of the rules, by the places of numbers; padded with 0 <= 0."""
    pairs = []
    for each in rules:
        mine = [(names.index(left), names.index(right)) for left, _, right in each.related]
        equal = [
            (two, one)
            for (one, two), (_, sign, _) in zip(mine, each.related, strict=True)
            if sign == "=="
        ]
        pairs.append(mine + equal)
    most = max(map(len, pairs))
    padded = np.array([mine + [(0, 0)] * (most - len(mine)) for mine in pairs], dtype=np.intp)
    padded = padded.reshape(len(rules), most, 2)
    return {"lower": padded[:, :, 0], "upper": padded[:, :, 1]}


def _groups(
    rules: Sequence[Rules], names: Sequence[str], others: Sequence[str]
) -> dict[str, Array]:
    """Which numbers and choices are in the groups of each of the rules."""
    most = max(len(each.together) for each in rules)
    members = np.zeros((len(rules), most, len(names)), dtype=bool)
    chosen = np.zeros((len(rules), most, len(others)), dtype=bool)
    for number, each in enumerate(rules):
        for place, group in enumerate(each.together):
            members[number, place] = [name in group for name in names]
            chosen[number, place] = [name in group for name in others]
    return {"members": members, "chosen": chosen}


def _share_grids(
    rules: Sequence[Rules],
    names: Sequence[str],
    which: Array,
    numbers: Sequence[Number],
    arrays: dict[str, Array],
) -> None:
    """Give numbers that must be equal one grid, in place; and own values that all can have."""
    own, grid = arrays["own"], arrays["grid"]
    span = np.array([number.span for number in numbers])
    for number, each in enumerate(rules):
        for equal in equal_names(each.related):
            at = np.ix_(which == number, [names.index(name) for name in equal])
            grid[at] = grid[at].max(axis=1, keepdims=True)
            step = np.where(grid[at] > 0, grid[at], 1.0)
            hair = HAIR * span[at[1][0]]
            is_same = (np.abs(own[at] - own[at][:, :1]) <= hair).all(axis=1, keepdims=True)
            off = np.abs(own[at] - np.rint(own[at] / step) * step)
            arrays["own_fits"][at] = is_same | (grid[at] == 0) | (off <= hair)


def _number(block: Block, is_derived: bool) -> Number:
    low, high = block.feature.number_range or (0.0, 1.0)
    return Number(block.start, block.missing_flag, low, high - low, is_derived)


def _choice(block: Block) -> Choice:
    return Choice(block.start, block.stop, block.categories.stop, block.feature.one_hot)


def _grid(feature: Feature) -> float:
    """What the values of a number are multiples of; 0 for a continuum."""
    return feature.step or float(feature.is_whole)


def _own(queries: Array, block: Block) -> Array:
    """The values of the queries in original units, NaN where missing."""
    number = _number(block, is_derived=False)
    own = number.low + queries[:, block.start] * number.span
    own = np.rint(own) if block.feature.is_whole else own
    return own if number.flag is None else np.where(queries[:, number.flag] > 0.5, np.nan, own)


def _sides(sides: tuple[Tensor, Tensor, Tensor]) -> Sides:
    return Sides(*(side.detach().cpu().numpy() for side in sides))
