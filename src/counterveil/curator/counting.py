"""Rows into sums: in this process, or in parts on the workers of a cluster.

A sum over a part is the same integers wherever it is made, and what comes back for a part is added
once (`Cluster.each`). So the total is that of one pass in one process, to the last integer; no
noise is drawn, and nothing is rounded, before it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from counterveil.curator.coefficients import Sums
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array
from counterveil.parts import Fragments
from counterveil.schema import Schema

ROWS_A_PART = 2_000_000  # at most


def fill(table: PrivateTable, *private_sums: Sums) -> None:
    """Add every row of the table to each of the sums, in one reading.

    Every caller must account for what it does with them. No value of a row can make it fail.
    """
    if table.cluster is None:
        for private_rows, private_classes in _batches(table, private_sums):
            for each in private_sums:
                each.add(private_rows, private_classes)
            table.tell(len(private_classes))
        return
    parts = table.private_parts(ROWS_A_PART)
    count = Counting(table.schema, deepcopy(private_sums))  # which stay empty
    for number, found in table.cluster.each(count, parts):
        for mine, theirs in zip(private_sums, found, strict=True):
            mine.merge(theirs)
        table.tell(parts[number][0].rows)


def _batches(table: PrivateTable, sums: Sequence[Sums]) -> Iterator[tuple[Any, Array]]:
    if any(each.by_points for each in sums):
        return table.private_batches()
    places = [each.places for each in sums]
    all_of_them = any(each is None for each in places)
    some = None if all_of_them else {place for each in places if each for place in each}
    return table.private_columns(some)


@dataclass(frozen=True)
class Counting:
    """What a worker is sent once: the schema and the empty sums. It then fills them part by part.

    Of the rows only the filled sums leave a worker; they are exact, and go to the curator alone.
    """

    schema: Schema
    empty: tuple[Sums, ...]

    def __call__(self) -> Callable[[tuple[Fragments, Array | None]], list[list[Array]]]:
        return self.count

    def count(self, part: tuple[Fragments, Array | None]) -> list[list[Array]]:
        """For each of the sums its exact arrays over the rows of a part."""
        files, used = part
        private_sums = deepcopy(self.empty)
        fill(PrivateTable(files, self.schema, private_used=used), *private_sums)
        return [list(each.exact) for each in private_sums]
