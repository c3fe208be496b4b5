"""`bench search`: what an answer costs on one core, and its worth, beside other methods.

| part | measures |
|---|---|
| peers | counterveil and published methods: one f, the same queries and targets, the same run |
| warm-up | the same on four datasets, with what each learns before its first answer |
| single | where the processor time of a single believable answer goes |

Everything runs in one process of its own that is held to one thread. Times are medians of repeated
calls after a call that does not count, and include all from table to table.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import torch

from bench import peers, single
from bench.peers import Size
from counterveil.errors import RequestError
from counterveil_lab.datasets import LOADERS
from counterveil_lab.results import Results, Row

TOOLS = str(Path(__file__).parents[1])
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR")}


def bench(
    folder: Path,
    command: str,
    *,
    quick: bool,
    say: Callable[[str], None],
    only: str | None = None,
    seeds: int = 1,
    datasets: tuple[str, ...] | None = None,
) -> None:
    """Measure in a process that is held to one thread from its first import on."""
    for name in datasets or ():
        if name not in LOADERS:
            raise RequestError(f"no dataset {name!r}; there are: {', '.join(LOADERS)}")
    given = f"{str(folder)!r}, {command!r}, {quick}, {only!r}, {seeds}, {datasets!r}"
    code = f"import sys; sys.path.insert(0, {TOOLS!r}); from bench.search import measure_parts; "
    code += f"measure_parts({given})"
    call, env = [sys.executable, "-c", code], {**os.environ, **ONE_THREAD}
    with subprocess.Popen(call, env=env, text=True, stdout=subprocess.PIPE) as child:
        for line in child.stdout or ():
            say(line.rstrip())
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, "bench search")


def measure_parts(
    folder: str,
    command: str,
    quick: bool,
    only: str | None,
    seeds: int,
    datasets: tuple[str, ...] | None = None,
) -> None:
    """Every part, or one of them into files of its own: one file, one run."""
    torch.set_num_threads(1)
    name = "bench-search" + (f"-{only}" if only else "")
    results = Results(Path(folder), name, command)
    size = peers.QUICK if quick else Size()
    size = replace(size, datasets=datasets or size.datasets)
    for part in [only] if only else PARTS:
        for row in PARTS[part](size, seeds):
            results.add({"part": part, **row})
            sys.stdout.write(f"{part}: {_in_words(row)}\n")
            sys.stdout.flush()
    if find_spec("matplotlib") is not None:
        from bench.picture import draw_search

        draw_search(results.rows, Path(folder))


def _in_words(row: Row) -> str:
    words = [f"{row['method']} on {row['dataset']}"]
    words += [row["stage"]] if "stage" in row else []
    words += ["guidance surrogate"] if row["guidance"] == "surrogate" else []
    words += [f"{key} {row[key]:g}" for key in ("epsilon", "batch") if row.get(key)]
    if "seconds_per_query" in row:
        words.append(f"{1000 * row['seconds_per_query']:.4g} ms a query")
    ratios = ("share", "times_counterveil")
    numbers = ("flip_ratio", "distance", "objective", "warm_up_seconds", *ratios)
    words += [f"{key.replace('_', ' ')} {row[key]:.3g}" for key in numbers if key in row]
    return ", ".join(words)


PARTS: dict[str, Callable[[Size, int], Iterator[Row]]] = {
    "peers": peers.peers,
    "warm-up": peers.with_warm_up,
    "single": single.single,
}
