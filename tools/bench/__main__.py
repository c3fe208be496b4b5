"""Benchmarks of the product: answers beside other methods, releases, the service, workers, a GPU.

python tools/bench search|release|scale|serve|load|fuzz|gpu [--quick] [--overwrite] [--only PART]
    [--seeds N] [--datasets A,B] [--against EARLIER/src] [--inputs FOLDER] [--out results]

search: time and quality of answers beside other methods, on one core; --only: peers, warm-up or
single, into a file of its own; --seeds: of what peers says of quality; --datasets: of warm-up.
release: reading and counting over rows. scale: very many rows on workers. serve: the service under
load; --against measures an earlier version of the code beside. load: polite clients beside greedy,
slow and cancelling ones. fuzz: a million random requests to the service. gpu: answers a second of a
CUDA device; --inputs: a folder with veil, model and queries, left there if there are none yet, for
a machine that can release nothing.
"""

import argparse
import shlex
import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from counterveil.errors import InputError
from counterveil_lab.results import begin_anew

BENCHES = ("search", "release", "scale", "serve", "load", "fuzz", "gpu")


def main() -> None:
    """Run one of them and store its rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=BENCHES)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--only", choices=["peers", "warm-up", "single"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--datasets")
    parser.add_argument("--against", type=Path)
    parser.add_argument("--inputs", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results"))
    asked = parser.parse_args()
    command = shlex.join(["python", "tools/bench", *sys.argv[1:]])
    folder = asked.out / "quick" if asked.quick else asked.out
    stem = f"bench-{asked.name}" + (f"-{asked.only}" if asked.only else "")
    names = tuple(asked.datasets.split(",")) if asked.datasets else None
    own = {
        "search": {"only": asked.only, "seeds": asked.seeds, "datasets": names},
        "serve": {"against": asked.against},
        "gpu": {"inputs": asked.inputs},
    }
    try:
        begin_anew(folder, stem, overwrite=asked.overwrite or asked.quick)
        bench = import_module(f"bench.{asked.name}").bench
        bench(folder, command, quick=asked.quick, say=_say, **own.get(asked.name, {}))
    except InputError as error:
        parser.error(str(error))


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")


if __name__ == "__main__":
    main()
