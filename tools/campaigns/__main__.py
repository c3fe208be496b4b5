"""How good is what counterveil makes, and does what it says hold? The paper has none of it.

python tools/campaigns NAME [--seeds 3] [--quick] [--workers 2] [--datasets A,B] [--parts A,B]
    [--data FOLDER] [--cache FOLDER] [--overwrite] [--out results]

NAME: one of those below, or all. --parts: some of the cases, by what they are told apart by.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from campaigns import (
    claims,
    exhaustive,
    fairness,
    optimal_trees,
    plausibility,
    population_peers,
    populations,
    private_answers,
    private_models,
    regions,
    second_opinion,
)
from counterveil.errors import InputError
from counterveil_lab.experiments.runner import CasesFailed, Options
from counterveil_lab.experiments.table import EVERY, run_named

CAMPAIGNS = {
    "exhaustive": exhaustive.EXHAUSTIVE,
    "optimal-trees": optimal_trees.OPTIMAL_TREES,
    "fairness": fairness.FAIRNESS,
    "plausibility": plausibility.PLAUSIBILITY,
    "population": populations.POPULATION,
    "population-peers": population_peers.POPULATION_PEERS,
    "private-models": private_models.PRIVATE_MODELS,
    "private-answers": private_answers.PRIVATE_ANSWERS,
    "claims": claims.CLAIMS,
    "regions": regions.REGIONS,
    "second-opinion": second_opinion.SECOND_OPINION,
}


def main() -> None:
    """Run one of them, or all, and store their rows."""
    known = "\n".join(f"{name:15} {each.about}" for name, each in CAMPAIGNS.items())
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=f"campaigns:\n{known}", formatter_class=form
    )
    parser.add_argument("name", choices=[*CAMPAIGNS, EVERY], metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    for flag in ("--quick", "--overwrite"):
        parser.add_argument(flag, action="store_true")
    for words in ("--datasets", "--parts"):
        parser.add_argument(words, type=lambda told: tuple(told.split(",")))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results"))
    asked = parser.parse_args()
    options = Options(
        asked.out / "quick" if asked.quick else asked.out,
        asked.seeds,
        asked.quick,
        asked.workers,
        asked.datasets,
        asked.parts,
        overwrite=asked.overwrite or asked.quick,
        data=asked.data,
        cache=asked.cache,
        say=lambda words: print(words, flush=True),  # noqa: T201
        program="python tools/campaigns",
    )
    try:
        failures = run_named(asked.name, options, CAMPAIGNS)
    except InputError as error:
        parser.error(str(error))
    except CasesFailed as error:
        failures = {asked.name: str(error)}
    for name, reason in failures.items():
        sys.stderr.write(f"failed: {name}: {reason}\n")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
