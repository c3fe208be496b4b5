"""`bench release`: rows a second and peak memory of reading and counting."""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from counterveil.demo.adult import adult_schema, adult_split
from counterveil.privacy import Budget
from counterveil_lab.results import Results

SIZES = (100_000, 1_000_000, 10_000_000)
ROWS_A_FILE = 500_000


def bench(folder: Path, command: str, *, quick: bool, say: Callable[[str], None]) -> None:
    """Measure every number of rows.

    The tables are Adult rows drawn again and again, in a folder of Parquet files. Every size runs
    in a process of its own, so that its peak memory is its own.
    """
    results = Results(folder, "bench-release", command, fresh=True)
    for rows in SIZES[:1] if quick else SIZES:
        with tempfile.TemporaryDirectory() as parts:
            _write_parts(Path(parts), rows)
            code = f"from counterveil_lab.bench.release import report_one; report_one({parts!r})"
            call = [sys.executable, "-c", code]
            done = subprocess.run(call, capture_output=True, text=True, check=True)
        seconds, peak = (float(number) for number in done.stdout.split())
        speed = rows / seconds
        measured = {"rows": rows, "seconds": seconds, "rows_per_second": speed}
        results.add({**measured, "peak_memory_mib": peak})
        say(f"{rows:,} rows: {speed:,.0f} rows a second, peak memory {peak:.0f} MiB")


def report_one(parts: str) -> None:
    """Read and count one folder at ε = 1; print seconds and peak memory in MiB."""
    from counterveil.curator.functional import make_plan, measure
    from counterveil.curator.table import PrivateTable

    started = time.perf_counter()
    schema = adult_schema()
    table = PrivateTable(parts, schema)
    measure(table, make_plan(schema, table.size, Budget(1.0), order=2))
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(f"{seconds} {peak}\n")


def _write_parts(folder: Path, rows: int) -> None:
    frame = adult_split().train
    rng = np.random.default_rng(0)
    for number, start in enumerate(range(0, rows, ROWS_A_FILE)):
        drawn = frame.iloc[rng.integers(0, len(frame), min(ROWS_A_FILE, rows - start))]
        drawn.to_parquet(folder / f"{number:05}.parquet", index=False)
