"""A table that is counted part by part, as the workers of a cluster do it, in this process."""

import io
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from counterveil.cluster import Cluster, Work
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array
from counterveil.parts import Fragments
from counterveil.schema import Schema

ROWS_A_PART = 5


class InTurn(Cluster):
    """In the place of a cluster: this process does one part after the other."""

    def each(self, work: Work[Any, Any], parts: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """What the work makes of every part."""
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
