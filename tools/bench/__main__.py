"""Benchmarks of the product under load: releases, the service, many workers, a GPU.

python tools/bench release|scale|serve|gpu [--quick] [--overwrite] [--against EARLIER/src]
    [--inputs FOLDER] [--out results]

release: reading and counting over rows. scale: very many rows on workers. serve: the service under
load; --against measures an earlier version of the code beside. gpu: answers a second of a CUDA
device; --inputs: a folder with veil, model and queries, left there if there are none yet, for a
machine that can release nothing.
"""

import argparse
import shlex
import sys
from importlib import import_module
from pathlib import Path

from counterveil_lab.results import begin_anew


def main() -> None:
    """Run one of them and store its rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=["release", "scale", "serve", "gpu"])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--against", type=Path)
    parser.add_argument("--inputs", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results"))
    asked = parser.parse_args()
    command = shlex.join(["python", "tools/bench", *sys.argv[1:]])
    folder = asked.out / "quick" if asked.quick else asked.out
    begin_anew(folder, f"bench-{asked.name}", overwrite=asked.overwrite or asked.quick)
    own = {"serve": {"against": asked.against}, "gpu": {"inputs": asked.inputs}}
    bench = import_module(asked.name).bench
    bench(folder, command, quick=asked.quick, say=_say, **own.get(asked.name, {}))


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")


if __name__ == "__main__":
    main()
