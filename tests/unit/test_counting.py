"""Counting by columns gives the integers of counting by points, from every kind of source."""

from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest
from rows import random_rows

from counterveil.curator.coefficients import CellCounts, GridCounts, MomentSums, PairCounts, fill
from counterveil.curator.table import PrivateTable
from counterveil.errors import DataError, InternalError
from counterveil.population.grid import Grid
from counterveil.population.moments import WholeScores
from counterveil.population.numbers import Ladders


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
        "frame": frame, "table": table, "parquet": folder / "rows.parquet",
        "csv": folder / "rows.csv", "ipc": folder / "rows.arrow", "folder": folder / "parts",
        "stream": lambda: pa.RecordBatchReader.from_batches(table.schema, table.to_batches(90)),
    }  # fmt: skip


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
    fill(table, counts, CellCounts(Ladders(schema, 12)))
    assert table.private_kept(grid) is not None
    fill(table, met)
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


def test_cells_in_memory_give_the_integers_of_the_rows(schema, odd_rows, monkeypatch):
    def counted(table):
        told, grid = [], Grid(schema, 300)  # more cells than a byte tells apart
        table.watch(lambda done, words="": told.append(done), 3)
        singles = GridCounts(grid, len(schema.label.classes))
        every = list(combinations(range(len(schema.features)), 2))
        pairs = PairCounts(grid, grid.merged(4), every)
        whole = tuple(np.arange(count) % 37 - 18 for count in grid.counts)
        moments = MomentSums(grid, WholeScores(whole, 1.0, 9, 60, 900), len(schema.label.classes))
        for sums in (singles, moments, pairs):
            fill(table, sums)
        return [*singles.exact, *moments.exact, *pairs.exact], told, table.private_kept(grid)

    sums, told, kept = counted(PrivateTable(odd_rows, schema))
    monkeypatch.setattr("counterveil.curator.table.MOST_KEPT", 10)
    again, told_again, too_many = counted(PrivateTable(odd_rows, schema))
    assert kept is not None
    assert too_many is None
    assert told == sorted(told)
    assert told[-1] == told_again[-1] == 100
    for one, two in zip(sums, again, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("unit_column", [None, "person"])
def test_progress_tells_nothing_of_the_rows(schema, rows, unit_column):
    """Not how many have a label, nor how many records there are where people are the unit."""
    told = []
    more = 6 if unit_column else 0
    for count, labels in ((40, None), (40 + more, "perhaps")):
        frame = rows.head(count).assign(person=np.minimum(np.arange(count), 39))
        if labels:
            frame.loc[frame.index[-3:], "loan"] = labels
        table, steps = PrivateTable(frame, schema, unit_column=unit_column), []
        table.watch(lambda *step, steps=steps: steps.append(step), 2)
        for _ in range(2):
            fill(table, GridCounts(Grid(schema, 8), 2))
        told.append(steps)
    assert told[0] == told[1]
    assert told[0][-1] == (100, "%")
    assert [done for done, _ in told[0]] == ([50, 100] if unit_column else [50, 50, 100, 100])


def test_cells_of_one_grid_are_not_taken_for_another(schema, odd_rows):
    table, classes = PrivateTable(odd_rows, schema), len(schema.label.classes)
    fine, coarse = Grid(schema, 32), Grid(schema, 8)
    fill(table, GridCounts(fine, classes))
    counts = GridCounts(coarse, classes)
    fill(table, counts)
    afresh = GridCounts(coarse, classes)
    fill(PrivateTable(odd_rows, schema), afresh)
    assert (counts.singles == afresh.singles).all()
    with pytest.raises(InternalError, match="one grid"):
        fill(table, GridCounts(fine, classes), GridCounts(coarse, classes))


def test_a_person_counts_as_often_by_columns_as_by_points(schema, tmp_path):
    frame = random_rows(schema, 200, seed=5).assign(who=np.arange(200) % 40)
    table = PrivateTable(frame, schema, unit_column="who", max_records=2)
    by_columns = sum(len(classes) for _, classes in table.private_columns())
    assert by_columns == sum(len(classes) for _, classes in table.private_batches()) == 80
    with pytest.raises(DataError, match="no stream of Arrow batches"):
        PrivateTable(lambda: 7, schema)
    (tmp_path / "rows.arrow").write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match="damaged"):
        PrivateTable(tmp_path / "rows.arrow", schema)
