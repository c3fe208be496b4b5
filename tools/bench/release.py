"""`python tools/bench release`: rows a second and peak memory of reading, counting and noise.

| column | meaning |
|---|---|
| seconds | of `measure`: all readings of the rows, noise, everything |
| order | of the plan: 1, single features; 2, moments and pairs of features as well |
| counting_seconds, rows_per_second | of all readings of the rows alone |
| reading_seconds | what Arrow takes for the columns of the first two: decoding and the disk |
| bytes_per_second | of the files, as if read twice |
| points_rows_per_second | of counting by points, a column a category, as it was done before |

Seconds are those of the processor, in one thread.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from counterveil.demo.adult import adult_schema, adult_split
from counterveil.privacy import Budget
from counterveil_lab.results import Results, Row

if TYPE_CHECKING:
    from counterveil.curator.plan import Plan
    from counterveil.curator.table import PrivateTable
    from counterveil.encoding import Array

HERE = str(Path(__file__).parent)
SIZES = (100_000, 300_000, 1_000_000, 10_000_000)
ORDERS = (1, 2)
ROWS_A_FILE = 500_000
BY_POINTS_UNTIL = 300_000  # rows: it is slow


def bench(folder: Path, command: str, *, quick: bool, say: Callable[[str], None]) -> None:
    """Measure every number of rows.

    The tables are Adult rows drawn again and again, in a folder of Parquet files. Every size and
    order runs in a process of its own, so that its peak memory is its own.
    """
    results = Results(folder, "bench-release", command)
    for rows in SIZES[:1] if quick else SIZES:
        with tempfile.TemporaryDirectory() as parts:
            write_parts(Path(parts), rows)
            for order in ORDERS:
                code = f"import sys; sys.path.insert(0, {HERE!r}); from release import report_one; "
                call = [sys.executable, "-c", f"{code}report_one({parts!r}, {order})"]
                done = subprocess.run(call, capture_output=True, text=True, check=True)
                found: Row = json.loads(done.stdout)
                results.add(found)
                speed, peak = found["rows_per_second"], found["peak_memory_mib"]
                say(
                    f"{rows:,} rows, order {order}: {speed:,.0f} rows a second, "
                    f"peak memory {peak:.0f} MiB"
                )


def report_one(parts: str, order: int) -> None:
    """Read and count one folder at ε = 1; print a row of results."""
    from counterveil.curator.functional import make_plan, measure
    from counterveil.curator.table import PrivateTable

    schema = adult_schema()
    table = PrivateTable(parts, schema)
    plan = make_plan(schema, table.size, Budget(1.0), order=order)
    seconds = _seconds(lambda: measure(table, plan))
    counting = _seconds(lambda: count_columns(table, plan))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    numbers = [feature.name for feature in schema.features if feature.is_wide]
    label = schema.label.name
    reading = _seconds(lambda: _read(parts, [*numbers, label], [*schema.columns, label]))
    size = sum(path.stat().st_size for path in Path(parts).iterdir())
    row: Row = {"rows": table.size, "order": order, "seconds": seconds}
    row |= {"counting_seconds": counting, "rows_per_second": table.size / counting}
    row |= {"reading_seconds": reading, "bytes": size, "bytes_per_second": 2 * size / counting}
    row["peak_memory_mib"] = peak
    if table.size <= BY_POINTS_UNTIL:
        row["points_rows_per_second"] = table.size / _seconds(lambda: count_points(table, plan))
    sys.stdout.write(json.dumps(row))


def count_columns(table: PrivateTable, plan: Plan) -> list[Array]:
    """All readings as a release makes them, without noise: the exact sums.

    Bins, scores and pairs are any: they take as long as those that noisy numbers would give.
    """
    from counterveil.curator.coefficients import (
        CellCounts,
        GridCounts,
        MomentSums,
        PairCounts,
        Sums,
        fill,
    )
    from counterveil.population.grid import Grid
    from counterveil.population.moments import scores_of, whole_scores
    from counterveil.population.numbers import Ladders
    from counterveil.population.spikes import Slices

    ladders = Ladders(table.schema, plan.fine)
    like_all = np.ones(ladders.width), 1.0, table.size, plan.fine
    grid = Grid(table.schema, plan.fine, ladders.chosen(*like_all) if plan.ranges else None)
    classes = len(table.schema.label.classes)
    even = tuple(np.ones((classes, count)) for count in grid.counts)
    readings: list[list[Sums]] = [[CellCounts(ladders)]] if plan.ranges else []
    readings.append([GridCounts(grid, classes), CellCounts(Slices(grid))])
    if plan.norm:
        whole = whole_scores(scores_of(even, grid.in_order), even, plan.norm)
        readings.append([MomentSums(grid, whole, classes)])
    if plan.pairs:
        some = list(combinations(range(len(grid.cells)), 2))[: plan.pairs]
        readings.append([PairCounts(grid, grid.merged(plan.coarse), some)])
    for sums in readings:
        fill(table, *sums)
    return [exact for sums in readings for each in sums for exact in each.exact]


def count_points(table: PrivateTable, plan: Plan) -> None:
    """The same by points: the way before rows were counted in compact form."""
    from counterveil.population.grid import Grid

    grid = Grid(table.schema, plan.fine)
    coarse = grid.merged(plan.coarse)
    wide = np.array([int(merge.max()) + 1 for merge in coarse])
    starts = np.concatenate([[0], np.cumsum(wide)[:-1]])
    pairs = np.zeros((int(wide.sum()), int(wide.sum())), dtype=np.int64)
    singles = np.zeros(len(table.schema.label.classes) * grid.width, dtype=np.int64)
    for points, _ in table.private_batches():
        np.bincount(grid.codes(points).ravel())
    for points, classes in table.private_batches():
        codes = grid.codes(points)
        flat = classes[:, None] * grid.width + grid.starts + codes
        singles += np.bincount(flat.ravel(), minlength=len(singles))
        if plan.order == 2:
            cells = [merge[codes[:, number]] for number, merge in enumerate(coarse)]
            ones = np.zeros((len(codes), len(pairs)), dtype=np.float32)
            np.put_along_axis(ones, starts + np.stack(cells, axis=1), 1.0, axis=1)
            pairs += (ones.T @ ones).astype(np.int64)


def _seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _read(parts: str, *passes: list[str]) -> None:
    """Decode the columns of each pass, and nothing else."""
    import pyarrow.dataset as ds

    for names in passes:
        files = ds.ParquetFileFormat(dictionary_columns=set(names))
        for fragment in ds.dataset(parts, format=files).get_fragments():
            for _ in fragment.to_batches(columns=names, use_threads=False, batch_readahead=1):
                pass


def write_parts(folder: Path, rows: int) -> None:
    """Adult rows drawn again and again, in Parquet files."""
    frame = adult_split().train
    rng = np.random.default_rng(0)
    for number, start in enumerate(range(0, rows, ROWS_A_FILE)):
        drawn = frame.iloc[rng.integers(0, len(frame), min(ROWS_A_FILE, rows - start))]
        drawn.to_parquet(folder / f"{number:05}.parquet", index=False)
