"""A pair of neighbouring tables, D and D', as a release reads them."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from counterveil.cluster import Cluster, Work
from counterveil.curator.functional import make_plan
from counterveil.curator.images import plan_frequencies
from counterveil.curator.plan import Plan
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array
from counterveil.parts import Fragments
from counterveil.privacy import Budget
from counterveil.schema import Schema

ROWS_A_PART = 5  # of a table that is counted in parts


class InTurn(Cluster):
    """In the place of a cluster: this process does one part after the other."""

    def each(self, work: Work[Any, Any], parts: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        done = work()
        yield from ((number, done(part)) for number, part in enumerate(parts))


class TableInParts(PrivateTable):
    """A private table whose parts are small."""

    def private_parts(self, most: int) -> list[tuple[Fragments, Array | None]]:
        """Parts of a few rows, so that a person's records are in several."""
        return super().private_parts(min(most, ROWS_A_PART))


def table_in_parts(frame: pd.DataFrame, schema: Schema, **units: Any) -> PrivateTable:
    """The rows in a Parquet file in memory, of small row groups, counted part by part."""
    content = io.BytesIO()
    frame.to_parquet(content, index=False, row_group_size=ROWS_A_PART + 2)
    file = ds.ParquetFileFormat().make_fragment(pa.BufferReader(content.getvalue()))
    rows = Fragments((file,), tuple(str(name) for name in frame.columns), len(frame))
    return TableInParts(rows, schema, cluster=InTurn(), **units)


@dataclass(frozen=True)
class Pair:
    """Two tables, D (`one`) and D' (`two`), of as many units, that differ in one of them.

    `planned`: the plan is that of a table of so many rows, where a small one would get another.
    """

    name: str
    schema: Schema
    one: pd.DataFrame
    two: pd.DataFrame
    order: int | None = None
    groups: tuple[str, ...] = ()
    unit_column: str | None = None
    max_records: int | None = None
    planned: int | None = None
    by_frequencies: bool = False  # images that are measured so, however many rows there are
    in_parts: bool = False  # counted part by part, as the workers of a cluster do it

    @property
    def units(self) -> dict[str, Any]:
        """Whom the privacy protects, as a table and the curator take it."""
        return {"unit_column": self.unit_column, "max_records": self.max_records}

    @property
    def measured(self) -> dict[str, Any]:
        """What is to be measured, as a release takes it."""
        return {"order": self.order, "groups": self.groups}

    @cached_property
    def tables(self) -> tuple[PrivateTable, PrivateTable]:
        opened = partial(table_in_parts if self.in_parts else PrivateTable, schema=self.schema)
        one, two = (opened(frame, **self.units) for frame in (self.one, self.two))
        return one, two

    @property
    def shared(self) -> tuple[Array, Array]:
        """Which rows of D, and which of D', are of units that are in both."""
        if self.unit_column is None:
            cells = [frame.astype(object).fillna("") for frame in (self.one, self.two)]
            same = (cells[0] == cells[1]).all(axis=1).to_numpy()
            return same, same
        one, two = (frame[self.unit_column] for frame in (self.one, self.two))
        return one.isin(two).to_numpy(), two.isin(one).to_numpy()

    def plan(self, budget: Budget) -> Plan:
        """The plan of a release. It reads public numbers only, so it is the same for D and D'."""
        records = self.max_records or 1
        rows = self.planned or self.tables[0].size
        if self.by_frequencies:
            return plan_frequencies(self.schema, rows, budget, records, "the audit's choice")
        return make_plan(self.schema, rows, budget, records=records, **self.measured)
