"""Benchmarks: how fast, and how much memory. Results are stored like those of experiments.

A benchmark is imported when it is asked for: `gpu` runs where nothing can be released. Benchmarks
of releases, of the service and of many workers are in tools/bench.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

BENCHMARKS = {
    "search": "counterveil_lab.bench.search",
    "gpu": "counterveil_lab.bench.roofline",
}


def run_benchmark(name: str, folder: Path, command: str, **options: Any) -> None:
    """Run the function `bench` of a benchmark's module; rows go to `folder`."""
    import_module(BENCHMARKS[name]).bench(folder, command, **options)
