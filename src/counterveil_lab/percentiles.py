"""Rows by the percentiles of real ones: a space in which a difference means the same everywhere.

A number becomes its percentile among the training rows: the share below it and half of the share
that equals it. The L1 distance of two rows is then the sum of the differences of percentiles, and 1
for every category that differs. Missing and not missing differ by 1 as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from counterveil.encoding import Array, Block, Encoding
from counterveil.networks import classifier
from counterveil.schema import Numeric, Schema
from counterveil_lab.targets import HIDDEN

BINS = 10  # of a number, by quantiles
FEWEST = 3  # real rows that share a pair of values which is not rare
DEPENDENT = 10  # pairs of features that depend on each other most
NOT_ODD = 5  # real rows that share the values of such a pair
KNOTS = 64  # of the percentiles inside a network
SLACK = 1e-6  # of encoded numbers: what a search in float32 blurs is the same value
EXACT = 1e-9
ROOM = 2**23  # distances in memory at a time


@dataclass(frozen=True, eq=False)
class Ranks:
    """The sorted values of one number, in the encoding; missing ones are left out."""

    ordered: Array

    def __call__(self, values: Array) -> Array:
        """The percentile of each value, from 0 to 1."""
        below = np.searchsorted(self.ordered, values - SLACK, side="left")
        up_to = np.searchsorted(self.ordered, values + SLACK, side="right")
        return (below + up_to) / (2 * max(1, len(self.ordered)))


class Percentiles:
    """The space of percentiles of the rows `train`, and the cells into which their pairs fall."""

    def __init__(self, schema: Schema, train: pd.DataFrame) -> None:
        self.encoding = Encoding(schema)
        self._train = self.encoding.encode(train)
        self._ranks = {
            block.start: Ranks(np.sort(_present(self._train, block)))
            for block in self.encoding.blocks
            if isinstance(block.feature, Numeric)
        }
        self._pairs: dict[tuple[int, int], Array] = {}

    def points(self, rows: pd.DataFrame) -> Tensor:
        """Rows as float32 (rows, columns), whose L1 distances are those of the module."""
        return unit_points(self.encoding.blocks, self.encoding.encode(rows), self._ranks)

    def changed(self, one: pd.DataFrame, two: pd.DataFrame) -> Array:
        """Which features of two tables of the same rows differ: bool (rows, features)."""
        moved = np.abs(self.encoding.encode(one) - self.encoding.encode(two)) > EXACT
        starts = [block.start for block in self.encoding.blocks]
        return np.logical_or.reduceat(moved, starts, axis=1)

    def has_rare_pair(self, rows: pd.DataFrame, changed: Array) -> Array:
        """Whether a changed feature of a row meets another in a cell of fewer than 3 real rows.

        `changed`: bool (rows, features), as from `changed`. The answer is bool (rows,).
        """
        codes = self._codes(self.encoding.encode(rows))
        found = np.zeros(len(rows), dtype=bool)
        for first in range(codes.shape[1]):
            for second in range(first + 1, codes.shape[1]):
                asked = (changed[:, first] | changed[:, second]) & ~found
                if asked.any():
                    few = self._pair(first, second) < FEWEST
                    found[asked] = few[codes[asked, first], codes[asked, second]]
        return found

    def has_odd_pair(self, rows: pd.DataFrame, changed: Array | None = None) -> Array:
        """Whether one of the most dependent pairs of a row has a cell of fewer than 5 real rows.

        With `changed`, bool (rows, features), pairs count in which a feature was changed, otherwise
        all ten. The answer is bool (rows,).
        """
        codes = self._codes(self.encoding.encode(rows))
        found = np.zeros(len(rows), dtype=bool)
        for first, second in self.dependent:
            odd = self._pair(first, second)[codes[:, first], codes[:, second]] < NOT_ODD
            found |= odd if changed is None else odd & (changed[:, first] | changed[:, second])
        return found

    @cached_property
    def dependent(self) -> tuple[tuple[int, int], ...]:
        """The ten pairs of features whose cells tell most about each other, the first foremost.

        Counted is the mutual information less what chance alone would show (Miller and Madow).
        """
        every = combinations(range(len(self._sizes)), 2)
        told = {pair: _mutual_information(self._pair(*pair)) for pair in every}
        return tuple(sorted(told, key=told.__getitem__, reverse=True)[:DEPENDENT])

    def _pair(self, first: int, second: int) -> Array:
        """How many training rows have each pair of codes of two features."""
        if (first, second) not in self._pairs:
            sizes = self._sizes[first], self._sizes[second]
            flat = self._train_codes[:, first] * sizes[1] + self._train_codes[:, second]
            counts = np.bincount(flat, minlength=sizes[0] * sizes[1])
            self._pairs[first, second] = counts.reshape(sizes)
        return self._pairs[first, second]

    @cached_property
    def _train_codes(self) -> Array:
        return self._codes(self._train)

    @cached_property
    def _sizes(self) -> list[int]:
        """How many codes each feature has."""
        return [
            len(ends) + 3 if ends is not None else max(2, block.feature.width)
            for block, ends in zip(self.encoding.blocks, self._ends, strict=True)
        ]

    @cached_property
    def _ends(self) -> list[Array | None]:
        """The ends of the bins of each number: quantiles of what is not 0."""
        found: list[Array | None] = []
        for block in self.encoding.blocks:
            if not isinstance(block.feature, Numeric):
                found.append(None)
                continue
            ordered = self._ranks[block.start].ordered
            other = ordered[np.abs(ordered - _zero(block)) > SLACK]
            inner = np.linspace(0, 1, BINS + 1)[1:-1]
            found.append(np.unique(np.quantile(other, inner)) if len(other) else np.zeros(0))
        return found

    def _codes(self, encoded: Array) -> Array:
        """Cells of encoded rows, int (rows, features): a category, or 0, a bin or missing."""
        columns = []
        for block, ends in zip(self.encoding.blocks, self._ends, strict=True):
            here = encoded[:, block.at]
            if ends is None:
                wide = here.shape[1] > 1
                columns.append(here.argmax(axis=1) if wide else (here[:, 0] > 0.5).astype(int))
                continue
            code = 1 + np.searchsorted(ends, here[:, 0] + SLACK, side="right")
            code = np.where(np.abs(here[:, 0] - _zero(block)) <= SLACK, 0, code)
            if block.feature.missing:
                code = np.where(here[:, 1] > 0.5, len(ends) + 2, code)
            columns.append(code)
        return np.stack(columns, axis=1)


def unit_points(
    blocks: Sequence[Block], encoded: Array, scales: Mapping[int, Callable[[Array], Array]]
) -> Tensor:
    """Encoded rows as float32 points: their L1 distance counts 1 for a category that differs.

    `scales`: for the place at which a number begins, what takes its values to [0, 1]. A number is
    one column. One that may be missing is two, p/2 and (1-p)/2, or -1/4 twice where it is missing,
    which is 1 away from every p. A category is one-hot, with 1/2 for 1.
    """
    columns: list[Array] = []
    for block in blocks:
        here = encoded[:, block.at]
        if isinstance(block.feature, Numeric):
            share = scales[block.start](here[:, 0])
            if block.feature.missing:
                two = np.stack([share / 2, (1 - share) / 2], axis=1)
                columns.append(np.where(here[:, [1]] > 0.5, -0.25, two))
            else:
                columns.append(share[:, None])
        else:
            columns.append(here if here.shape[1] == 1 else here / 2)
    return torch.as_tensor(np.concatenate(columns, axis=1), dtype=torch.float32)


def nearest_l1(points: Tensor, real: Tensor) -> Tensor:
    """The L1 distance of each of `points` to the nearest of `real`: (points,)."""
    parts = points.split(max(1, ROOM // len(real)))
    return torch.cat([torch.cdist(part, real, p=1).amin(dim=1) for part in parts])


class PercentileNetwork(nn.Module):
    """A classifier over the encoding that sees numbers as percentiles: logits (rows, classes).

    The percentiles are linear between at most 64 values of the training rows, so that there is a
    gradient. A number that is missing counts as 1/2.
    """

    places: Tensor
    knots: Tensor
    shares: Tensor
    flags: Tensor

    def __init__(self, schema: Schema, train: pd.DataFrame | None = None) -> None:
        """Without rows the percentiles are to be loaded."""
        super().__init__()
        blocks = [b for b in Encoding(schema).blocks if isinstance(b.feature, Numeric)]
        knots = torch.linspace(2, 3, KNOTS).repeat(len(blocks), 1)  # beyond the cube
        shares = torch.ones(len(blocks), KNOTS)
        if train is not None:
            encoded = Encoding(schema).encode(train)
            for number, block in enumerate(blocks):
                ordered = np.sort(_present(encoded, block))
                chosen = _knots(ordered)
                share, last = torch.as_tensor(Ranks(ordered)(chosen)).float(), len(chosen)
                knots[number, :last] = torch.as_tensor(chosen).float()
                shares[number, :last], shares[number, last:] = share, share[-1:].sum()
        self.register_buffer("places", torch.tensor([b.start for b in blocks], dtype=torch.long))
        flags = [b.start if b.missing_flag is None else b.missing_flag for b in blocks]
        self.register_buffer("flags", torch.tensor(flags, dtype=torch.long))
        self.register_buffer("knots", knots)
        self.register_buffer("shares", shares)
        self.layers = classifier(schema.width, HIDDEN["mixed"], len(schema.label.classes))

    def forward(self, points: Tensor) -> Tensor:
        return self.layers(self.percentiles(points))

    def percentiles(self, points: Tensor) -> Tensor:
        """The points with percentiles in the place of numbers, (rows, width)."""
        if not len(self.places):
            return points
        values = points[:, self.places].T.contiguous()
        after = torch.searchsorted(self.knots, values.detach(), right=True)
        after = after.clamp(1, KNOTS - 1)
        low, high = self.knots.gather(1, after - 1), self.knots.gather(1, after)
        start, end = self.shares.gather(1, after - 1), self.shares.gather(1, after)
        way = ((values - low) / (high - low)).clamp(0, 1)
        share = (start + way * (end - start)).T
        flag = points[:, self.flags] * (self.flags != self.places)
        return points.index_copy(1, self.places, share * (1 - flag) + 0.5 * flag)


def _mutual_information(counts: Array) -> float:
    """Of two features with so many rows in each pair of cells, in nats, corrected for chance."""
    total, rows, columns = counts.sum(), counts.sum(axis=1), counts.sum(axis=0)
    seen = counts > 0
    ratio = counts[seen] * total / np.outer(rows, columns)[seen]
    by_chance = ((rows > 0).sum() - 1) * ((columns > 0).sum() - 1) / (2 * total)
    return float((counts[seen] * np.log(ratio)).sum() / total - by_chance)


def _knots(ordered: Array) -> Array:
    """At most 64 of the sorted values: quantiles of all, and of all that float32 tells apart."""
    different = ordered[np.unique(ordered.astype(np.float32), return_index=True)[1]]
    if len(different) <= KNOTS:
        return different
    levels = np.linspace(0, 1, KNOTS // 2)
    ends = [np.quantile(part, levels, method="inverted_cdf") for part in (ordered, different)]
    chosen = np.concatenate(ends)
    return chosen[np.unique(chosen.astype(np.float32), return_index=True)[1]]


def _present(encoded: Array, block: Block) -> Array:
    """The values of a number that are not missing, in the encoding."""
    flag = block.missing_flag
    values: Any = encoded[:, block.start]
    return values if flag is None else values[encoded[:, flag] < 0.5]


def _zero(block: Block) -> float:
    """Where the number 0 is in the encoding; it may lie outside of the cube."""
    feature: Any = block.feature
    return -feature.lower / feature.span
