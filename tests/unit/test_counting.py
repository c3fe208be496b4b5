"""Counting by columns gives the integers of counting by points, from every kind of source."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest
from rows import random_rows

from counterveil.curator.coefficients import GridCounts, PairCounts
from counterveil.curator.table import PrivateTable
from counterveil.errors import DataError
from counterveil.population.grid import Grid
from counterveil.population.ladder import Ladders


@pytest.fixture
def odd_rows(schema):
    """Rows of which some cells are missing, unknown, out of bounds or of another type."""
    frame = random_rows(schema, 500, seed=3).astype(object)
    dice = np.random.default_rng(4)
    for name in frame.columns:
        for at in dice.integers(0, len(frame), 12):
            frame.loc[at, name] = dice.choice(["?", "7", "-1e9", "nowhere", ""])
    return frame.astype(str)


def sources(frame, folder):
    frame.to_parquet(folder / "rows.parquet", index=False)
    frame.to_csv(folder / "rows.csv", index=False)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    pyarrow.feather.write_feather(table, folder / "rows.arrow")
    (folder / "parts").mkdir()
    for part in range(3):
        frame.iloc[part::3].to_parquet(folder / "parts" / f"{part}.parquet", index=False)
    return {
        "frame": frame,
        "table": table,
        "parquet": folder / "rows.parquet",
        "csv": folder / "rows.csv",
        "ipc": folder / "rows.arrow",
        "folder": folder / "parts",
        "stream": lambda: pa.RecordBatchReader.from_batches(table.schema, table.to_batches(90)),
    }


def by_points(schema, grid, coarse, table):
    """The slow way: one-hot points, and a matrix product for the pairs."""
    singles = np.zeros((len(schema.label.classes), grid.width), dtype=np.int64)
    wide = [int(merge.max()) + 1 for merge in coarse]
    starts = np.cumsum([0, *wide])[:-1]
    pairs = np.zeros((sum(wide), sum(wide)), dtype=np.int64)
    for points, classes in table.private_batches():
        codes = grid.codes(points)
        for row, label in zip(codes, classes, strict=True):
            singles[label, grid.starts + row] += 1
            cells = starts + [merge[code] for merge, code in zip(coarse, row, strict=True)]
            pairs[np.ix_(cells, cells)] += 1
    return singles, pairs, starts, wide


@pytest.mark.parametrize("kind", ["frame", "table", "parquet", "csv", "ipc", "folder", "stream"])
def test_every_source_gives_the_integers_of_the_slow_way(schema, odd_rows, tmp_path, kind):
    table = PrivateTable(sources(odd_rows, tmp_path)[kind], schema)
    grid = Grid(schema, 16)
    coarse = grid.merged(4)
    every = list(combinations(range(len(schema.features)), 2))
    counts, met = GridCounts(grid, len(schema.label.classes)), PairCounts(grid, coarse, every)
    for columns, classes in table.private_columns():
        counts.add(columns, classes)
        met.add(columns, classes)
    singles, pairs, starts, wide = by_points(schema, grid, coarse, table)
    assert singles.sum() > 0
    assert (counts.singles == singles).all()
    for (one, two), found in zip(every, met.tables, strict=True):
        block = pairs[starts[one] : starts[one] + wide[one], starts[two] : starts[two] + wide[two]]
        assert (found == block).all()
    ladders = Ladders(schema, 12)
    ranges = sum(ladders.counts(columns) for columns, _ in table.private_columns(ladders.places))
    whole = sum(
        ladders.counts(table.encoding.compact(points)) for points, _ in table.private_batches()
    )
    assert (ranges == whole).all()


def test_a_person_counts_as_often_by_columns_as_by_points(schema):
    frame = random_rows(schema, 200, seed=5).assign(who=np.arange(200) % 40)
    table = PrivateTable(frame, schema, unit_column="who", max_records=2)
    by_columns = sum(len(classes) for _, classes in table.private_columns())
    assert by_columns == sum(len(classes) for _, classes in table.private_batches()) == 80


def test_a_function_that_opens_no_stream_is_refused(schema):
    with pytest.raises(DataError, match="no stream of Arrow batches"):
        PrivateTable(lambda: 7, schema)


def test_a_damaged_arrow_file_is_one_line(schema, tmp_path):
    (tmp_path / "rows.arrow").write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match="damaged"):
        PrivateTable(tmp_path / "rows.arrow", schema)
