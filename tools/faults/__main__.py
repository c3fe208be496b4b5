"""Plant known faults in copies of the product: does the audit catch each of them?

python tools/faults [NAMES ...] [--workers 2] [--overwrite] [--out results]

NAMES: faults with these words; none: all. The sound code plays the same games. Exit code 1: a fault
was not caught, or the sound code was.
"""

import argparse
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from counterveil.curator import dpsgd
from counterveil_lab.results import Results, begin_anew
from faults import FAULTS, failures, run_all


def main() -> int:
    """Plant those that are asked for, and store what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--workers", type=int, choices=[1, 2], default=2)
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("results"))
    asked = parser.parse_args()
    dpsgd.check_installed()
    words = [name.lower() for name in asked.names]
    chosen = [
        fault for fault in FAULTS if not words or any(word in fault.name.lower() for word in words)
    ]
    if not chosen:
        parser.error(f"no fault is called {' or '.join(words)}; leave the name out for all")
    begin_anew(asked.out, "audit_faults", overwrite=asked.overwrite)
    command = shlex.join(["python", "tools/faults", *asked.names])
    rows = run_all(chosen, workers=asked.workers, say=_say)
    Results(asked.out, "audit_faults", command).add(*rows)
    failed = failures(rows)
    for failure in failed:
        _say(f"failed: {failure}")
    _say(f"stored in {asked.out}/audit_faults.parquet")
    return int(bool(failed))


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
