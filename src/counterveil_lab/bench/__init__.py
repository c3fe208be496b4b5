"""Benchmarks: how fast, and how much memory. Results are stored like those of experiments.

A benchmark is imported when it is asked for: `release` measures the memory of its process, and
`gpu` runs where nothing can be released.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

BENCHMARKS = {
    "release": "counterveil_lab.bench.release",
    "search": "counterveil_lab.bench.search",
    "serve": "counterveil_lab.bench.serve",
    "no": "counterveil_lab.bench.no",
    "scale": "counterveil_lab.bench.scale",
    "gpu": "counterveil_lab.bench.roofline",
}


def run_benchmark(name: str, folder: Path, command: str, **options: Any) -> None:
    """Run the function `bench` of a benchmark's module; rows go to `folder`."""
    import_module(BENCHMARKS[name]).bench(folder, command, **options)
