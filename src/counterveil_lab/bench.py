"""Benchmarks: how fast, and how much memory. Results are stored like those of experiments.

| name | measures |
|---|---|
| release | reading and counting over the number of rows |
| search | time and quality of answers beside other methods, over batches and features, one core |
| gpu | answers a second of a CUDA device |
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from counterveil.demo.adult import adult_schema, adult_split
from counterveil.privacy import Budget
from counterveil_lab.results import Results, Row

SIZES = (100_000, 1_000_000, 10_000_000)


def bench_release(folder: Path, command: str, *, quick: bool, say: Callable[[str], None]) -> None:
    """Rows a second and peak memory of reading and counting, over the number of rows.

    The tables are Adult rows drawn again and again, in a folder of Parquet files. Every size runs
    in a process of its own, so that its peak memory is its own.
    """
    results = Results(folder, "bench-release", command, fresh=True)
    for rows in SIZES[:1] if quick else SIZES:
        with tempfile.TemporaryDirectory() as parts:
            _write_parts(Path(parts), rows)
            code = f"from counterveil_lab.bench import report_one; report_one({parts!r})"
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            )
        seconds, peak = (float(number) for number in done.stdout.split())
        row: Row = {"rows": rows, "seconds": seconds, "rows_per_second": rows / seconds,
                    "peak_memory_mib": peak}  # fmt: skip
        results.add(row)
        say(f"{rows:,} rows: {rows / seconds:,.0f} rows a second, peak memory {peak:.0f} MiB")


def report_one(parts: str) -> None:
    """Read and count one folder at ε = 1; print seconds and peak memory in MiB."""
    from counterveil.curator.functional import measure
    from counterveil.curator.plan import make_plan
    from counterveil.curator.table import PrivateTable

    started = time.perf_counter()
    schema = adult_schema()
    table = PrivateTable(parts, schema)
    measure(table, make_plan(schema, table.size, Budget(1.0), order=2))
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(f"{seconds} {peak}\n")


def _write_parts(folder: Path, rows: int, part: int = 500_000) -> None:
    frame = adult_split().train
    rng = np.random.default_rng(0)
    for number, start in enumerate(range(0, rows, part)):
        drawn = frame.iloc[rng.integers(0, len(frame), min(part, rows - start))]
        drawn.to_parquet(folder / f"{number:05}.parquet", index=False)


# Benchmarks are imported when they are asked for: `release` measures the memory of its process,
# and `gpu` runs where nothing can be released.
def _search(folder: Path, command: str, **options: Any) -> None:
    from counterveil_lab.bench_search import bench_search

    bench_search(folder, command, **options)


def _gpu(folder: Path, command: str, **options: Any) -> None:
    from counterveil_lab.floor import bench_gpu

    bench_gpu(folder, command, **options)


BENCHMARKS: dict[str, Callable[..., None]] = {
    "release": bench_release,
    "search": _search,
    "gpu": _gpu,
}
