"""`python tools/bench scale`: counting many rows, and explaining many, on workers of this machine.

Counting (`work` is "count"): both readings of a release of order 2, without noise, on public bins.

| column | meaning |
|---|---|
| where, workers | "here": in one process; "ray": on so many workers |
| seconds, rows_per_second | of the wall clock; starting Ray and its workers included |
| started_seconds | of that, until Ray runs; its workers then still load Python packages |
| same | whether every sum is the integer that "here" gave |
| driver_mib, worker_mib | peak memory of this process, and of the largest worker |

Explaining (`work` is "explain"): "plain" is a loop of `explain` over parts in memory, without
files; "here" and "ray" are `counterveil explain` with files, and "killed and resumed" is a run on
workers that is killed when half of its parts are there and then started again; its answers are not
polished, to be done in minutes. `once`: whether every query is there once.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import torch

from bench.release import count_columns, write_parts
from counterveil.demo.adult import adult_schema
from counterveil_lab.results import Results, Row

if TYPE_CHECKING:
    from counterveil.encoding import Array

HERE = str(Path(__file__).parent)
COUNTED, QUICK_COUNTED = 100_000_000, 1_000_000
EXPLAINED, COMPARED, QUICK_EXPLAINED = 10_000_000, 100_000, 20_000
UNPOLISHED = "nearest, not polished"
PART = 50_000
EPSILON, DELTA = 0.75, 1e-6


def bench(folder: Path, command: str, *, quick: bool, say: Callable[[str], None]) -> None:
    """Count, then explain; the tables are Adult rows drawn again and again."""
    results = Results(folder, "bench-scale", command)
    for row in chain(counting(quick), explaining(quick)):
        results.add(row)
        speed = f"{row['rows_per_second']:,.0f} rows a second"
        say(f"{row['work']} {row['rows']:,} rows, {row['where']}, {row['workers']}: {speed}")


def counting(quick: bool) -> Iterator[Row]:
    """The same table here and on one and two workers."""
    rows = QUICK_COUNTED if quick else COUNTED
    with tempfile.TemporaryDirectory() as parts:
        write_parts(Path(parts), rows)
        alone: list[Array] = []
        for where, workers in (("here", 1), ("ray", 1), ("ray", 2)):
            code = f"import sys; sys.path.insert(0, {HERE!r}); from scale import count_once; "
            with tempfile.NamedTemporaryFile(suffix=".npz") as sums, PeakOfWorkers() as peak:
                call = f"{code}count_once({parts!r}, {where!r}, {workers}, {sums.name!r})"
                done = subprocess.run(
                    [sys.executable, "-c", call], capture_output=True, text=True, check=True
                )
                found = list(np.load(sums.name).values())
            alone = alone or found
            row: Row = {"work": "count", "rows": rows, "where": where, "workers": workers}
            row |= json.loads(done.stdout.splitlines()[-1])
            row["same"] = all(np.array_equal(*two) for two in zip(alone, found, strict=True))
            row["worker_mib"] = peak.mib or None
            yield row


def count_once(parts: str, where: str, workers: int, sums: str) -> None:
    """Count a folder, print what it took, and leave the sums in a file."""
    from counterveil.cluster import Cluster
    from counterveil.curator.functional import make_plan
    from counterveil.curator.table import PrivateTable
    from counterveil.privacy import Budget

    started = time.perf_counter()
    cluster = Cluster(workers=workers) if where == "ray" else None
    if cluster is not None:
        cluster.__enter__()
    running = time.perf_counter() - started
    schema = adult_schema()
    table = PrivateTable(parts, schema, cluster=cluster)
    plan = make_plan(schema, table.size, Budget(1.0), order=2)
    np.savez(sums, *count_columns(table, plan))
    seconds = time.perf_counter() - started
    if cluster is not None:
        cluster.__exit__(None, None, None)
    took: Row = {"seconds": seconds, "rows_per_second": table.size / seconds}
    took["started_seconds"] = running if cluster is not None else None
    took["driver_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(f"\n{json.dumps(took)}\n")


def explaining(quick: bool) -> Iterator[Row]:
    """Some queries with and without files and workers; then very many, killed and resumed."""
    from counterveil.curator import Curator
    from counterveil.models import save_exported
    from counterveil_lab.datasets import load
    from counterveil_lab.targets import train_target

    data = load("adult")
    epochs = 1 if quick else None
    veil = Curator(data.schema).release(data.train, EPSILON, DELTA, progress=False, epochs=epochs)
    compared, many = (QUICK_EXPLAINED,) * 2 if quick else (COMPARED, EXPLAINED)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        veil.save(folder / "adult.veil")
        save_exported(train_target(data), data.schema, folder / "f.pt2")
        for rows in dict.fromkeys((compared, many)):
            (folder / str(rows)).mkdir()
            write_parts(folder / str(rows), rows)
        for prefer in ("believable", "nearest"):
            yield {**_plain(folder, compared, prefer), "rows": compared, "prefer": prefer}
            for workers in (0, 2):
                yield {**_run(folder, compared, prefer, workers), "prefer": prefer}
        yield {**_killed_and_resumed(folder, many), "prefer": UNPOLISHED}


def _plain(folder: Path, rows: int, prefer: Any) -> Row:
    """A loop of `explain` over parts that are read before."""
    import pandas as pd

    from counterveil import Explainer

    torch.set_num_threads(1)
    explainer = Explainer(folder / "adult.veil", folder / "f.pt2")
    started = time.perf_counter()
    explainer.warm_up(prefer=prefer, progress=False)
    columns = list(explainer.veil.schema.columns)
    for path in sorted((folder / str(rows)).glob("*.parquet")):
        frame = pd.read_parquet(path)[columns]
        for start in range(0, len(frame), PART):
            part = frame.iloc[start : start + PART]
            explainer.explain(part, prefer=prefer, progress=False).table()
    seconds = time.perf_counter() - started
    return _row("plain", 1, rows, seconds)


def _run(folder: Path, rows: int, prefer: str, workers: int) -> Row:
    """`counterveil explain` to a folder: in one process, or on so many workers."""
    out = folder / f"{rows}-{prefer}-{workers}"
    started = time.perf_counter()
    with PeakOfWorkers() as peak:
        subprocess.run(
            _command(folder, rows, prefer, workers, out), check=True, capture_output=True
        )
    row = _row("ray" if workers else "here", workers or 1, rows, time.perf_counter() - started)
    return row | {"once": _once(out, rows), "worker_mib": peak.mib or None}


def _killed_and_resumed(folder: Path, rows: int) -> Row:
    out = folder / "killed"
    command = [*_command(folder, rows, "nearest", 2, out), "--no-polish"]
    started = time.perf_counter()
    with PeakOfWorkers() as peak:
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while run.poll() is None and len(list(out.glob("part-*"))) < rows / PART / 2:
            time.sleep(0.05)
        run.kill()
        run.wait()
        before = len(list(out.glob("part-*")))
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    row = _row("killed and resumed", 2, rows, time.perf_counter() - started)
    row |= {"once": _once(out, rows), "worker_mib": peak.mib or None}
    row["explained_after_the_kill"] = json.loads(done.stdout)["explained_now"]
    row["parts_before_the_kill"] = before
    return row


def _command(folder: Path, rows: int, prefer: str, workers: int, out: Path) -> list[str]:
    words = ["--veil", folder / "adult.veil", "--model", folder / "f.pt2", "--out", out, "--json"]
    words += ["--queries", folder / str(rows), "--part-rows", PART, "--prefer", prefer]
    words += ["--on", "ray", "--workers", workers] if workers else []
    return [sys.executable, "-m", "counterveil", "explain", *map(str, words)]


def _row(where: str, workers: int, rows: int, seconds: float) -> Row:
    row: Row = {"work": "explain", "rows": rows, "where": where, "workers": workers}
    return row | {"seconds": seconds, "rows_per_second": rows / seconds}


def _once(out: Path, rows: int) -> bool:
    """Whether every query from 1 on is in the files once."""
    numbers = [pq.read_table(path, columns=["query"])["query"] for path in out.glob("part-*")]
    found = np.sort(np.concatenate([each.to_numpy() for each in numbers]))
    return bool(np.array_equal(found, np.arange(1, rows + 1)))


class PeakOfWorkers:
    """The most memory that any of Ray's workers has while this is open, in MiB; 0 without any."""

    def __enter__(self) -> PeakOfWorkers:
        self.mib, self._open = 0.0, True
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False
        self._watch.join()

    def _look(self) -> None:
        while self._open:
            for status in Path("/proc").glob("[0-9]*/status"):
                try:
                    if not (status.parent / "cmdline").read_bytes().startswith(b"ray::_Worker"):
                        continue
                    lines = status.read_text().splitlines()
                except OSError:  # it has just ended
                    continue
                peak = next((line for line in lines if line.startswith("VmHWM")), "VmHWM: 0 kB")
                self.mib = max(self.mib, int(peak.split()[1]) / 1024)
            time.sleep(0.5)
