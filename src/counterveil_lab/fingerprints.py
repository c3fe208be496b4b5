"""A short name for what the code does, stored in each row of an experiment.

The fingerprint of an experiment is a SHA-256 over what its groups of tiny seeded cases give
(`counterveil_lab.behaviour`) and over constants that its rows depend on. How the code is written,
named and laid out changes nothing, nor does how fast it is. Rows with another fingerprint than the
present one, or with none, were measured by code that did something else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).parents[2] / "tools"  # of a working tree: there are bench and campaigns
LENGTH = 12  # hexadecimal digits
DIGITS = 4  # of a number among the constants
NOTHING = 1e-6  # a smaller number counts as 0
RELEASE = ("encoding", "training", "population", "models", "mechanism")
SEARCH = (*RELEASE, "believable", "nearest")
LAB, ANSWERS = (*RELEASE, "targets"), (*RELEASE, "nearest", "targets", "measure")
ATTACKS = (*SEARCH, "targets", "others", "attack")
PEERS = ("experiments.peers ONE_ANSWER TEN_ANSWERS GRADIENT_WIDTH WIDE_SHELLS",)
RED_TEAM = ("experiments.red_team EXTRACTION_PARTS INFERENCE_PARTS WIDE_SIZE",)
RELEASES = "experiments.releases DELTA DIGITS_EPOCHS VAE_EPOCHS"
# The groups of each experiment, and constants of modules of counterveil_lab or of tools/.
EXPERIMENTS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "targets": (("encoding", "training", "targets"), ()),
    "fig-mse": (LAB, (RELEASES, "experiments.over_epsilon MSE_ROWS")),
    "fig-reconstructions": ((*LAB, "pictures"), (RELEASES, "experiments.images SEED")),
    "paper-readings": (ANSWERS, (RELEASES, "experiments.readings QUERIES")),
    "theorem-3": ((*ANSWERS, "bias"), (RELEASES, "experiments.theorem_3 QUERIES DRAWS MAPS")),
    "fig-case": ((*ANSWERS, "pictures"), (RELEASES, "experiments.images FROM TO CASES OPTIONS")),
    "table-fr": ((*ANSWERS, "others"), (RELEASES, *PEERS, "experiments.answers SEARCHES")),
    "table-ad": (
        (*ANSWERS, "others"),
        (RELEASES, *PEERS, "experiments.answers SEARCHES ANSWERS SEVERAL_QUERIES"),
    ),
    "fig-time": ((*ANSWERS, "others"), ("experiments.answers TIMED_QUERIES RUNS TIMED_EPSILON",)),
    "believable": (
        (*SEARCH, "targets", "measure", "others", "judges"),
        ("believability WISHES JUDGE TWINS REAL_ROWS", "experiments.believable DICE REWARDS"),
    ),
    "believable-images": (
        (*SEARCH, "targets", "measure", "pictures"),
        ("image_judges QUERIES TWINS REAL_IMAGES", "experiments.believable_images DELTA WAYS"),
    ),
    "exhaustive": (SEARCH, ("campaigns.world CLEARLY",)),
    "fairness": (
        (*SEARCH, "targets", "judges"),
        ("campaigns.fairness GROUPS HELD_OUT MOST_CHANGES", "believability WISHES"),
    ),
    "optimal-trees": ((*SEARCH, "judges"), ("campaigns.optimal_trees TREES LEAVES SECONDS",)),
    "plausibility": (
        (*RELEASE, "judges", "shuffles"),
        ("campaigns.plausibility FIRST_SEED ROWS LESSONS TREES",),
    ),
    "claims": (
        (*RELEASE, "believable"),
        ("campaigns.claims FIRST_SEED QUERIES POINTS", "believability WISHES"),
    ),
    "second-opinion": (("mechanism", "audit"), ("campaigns.second_opinion CANARIES RUNS",)),
    "population": ((*LAB, "distances"), ("campaigns.populations SPLIT SAMPLES PARTS",)),
    "population-peers": (
        (*LAB, "distances"),
        ("campaigns.population_peers SPLIT SAMPLES BINS ROUNDS SIZE",),
    ),
    "private-models": ((*LAB, "distances"), ("campaigns.private_models DELTA SETTINGS",)),
    "private-answers": (
        (*RELEASE, "believable", "targets", "judges"),
        ("campaigns.private_answers SPLIT QUERIES", "believability WISHES KINDS"),
    ),
    "regions": (
        (*RELEASE, "believable", "targets", "judges", "regions"),
        ("campaigns.regions EPOCHS QUERIES POINTS GRID", "believability WISHES"),
    ),
    "table-extraction": (ATTACKS, RED_TEAM),
    "fig-membership": (ATTACKS, RED_TEAM),
    "fig-attribute": (ATTACKS, RED_TEAM),
    "fig-tradeoff": (ATTACKS, ("experiments.red_team EPSILON MARGINS TRADEOFF_QUERIES",)),
    "bench-release": (("encoding", "population", "mechanism"), ()),
    "bench-scale": (SEARCH, ()),
    "bench-search": ((*SEARCH, "targets", "measure", "others"), ("bench.peers METHODS EPSILON",)),
    "bench-gpu": (SEARCH, ()),
    "bench-serve": (SEARCH, ()),
    "bench-load": (SEARCH, ()),
    "bench-fuzz": (SEARCH, ()),
    "audit_faults": (("mechanism", "audit"), ()),
}


_KNOWN: dict[str, str | None] = {}  # what was found for a group


def fingerprint(experiment: str) -> str | None:
    """The fingerprint of the present code for an experiment; None for one that is not listed.

    Also None where a package is missing without which its cases cannot be run. A part of the
    benchmark `search` has the fingerprint of all of it.
    """
    groups, constants = _needs(experiment)
    found = [*behaviours(groups).values(), *map(declared, constants)]
    if not groups or None in found:
        return None
    return sha256("\n".join(map(str, found)).encode()).hexdigest()[:LENGTH]


def prepare(experiments: Iterable[str]) -> None:
    """Find what the fingerprints of all of these need at once, which is quicker."""
    behaviours([group for each in experiments for group in _needs(each)[0]])


def _needs(experiment: str) -> tuple[Sequence[str], Sequence[str]]:
    whole = "bench-search" if experiment.startswith("bench-search-") else experiment
    return EXPERIMENTS.get(whole, ((), ()))


def behaviours(groups: Sequence[str]) -> dict[str, str | None]:
    """The behaviour of each group; None where a package is missing.

    Cases run once, in a process of their own: this one may be told to learn less, its memory may be
    measured, and it may fork.
    """
    if left := [each for each in dict.fromkeys(groups) if each not in _KNOWN]:
        alone = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "counterveil_lab.behaviour", *left]
        ran = subprocess.run(command, env=alone, stdout=subprocess.PIPE, check=True)
        _KNOWN.update(json.loads(ran.stdout.splitlines()[-1]))
    return {each: _KNOWN[each] for each in groups}


@cache
def declared(names: str) -> str | None:
    """The values of constants, such as "targets RECIPES ANY_OTHER", as JSON.

    None where the module is one of tools/, and there is no working tree.
    """
    module, *constants = names.split()
    try:
        home = module_of(module)
    except ImportError:
        return None
    return json.dumps([told(getattr(home, name), DIGITS) for name in constants])


def module_of(name: str) -> Any:
    """A module of counterveil_lab, or of tools/ in a working tree."""
    if not name.startswith(("bench.", "campaigns.")):
        return import_module(f"counterveil_lab.{name}")
    sys.path += [] if str(TOOLS) in sys.path else [str(TOOLS)]
    return import_module(name)


def told(value: Any, digits: int) -> Any:
    """A value as what JSON knows: numbers to so many digits; mappings and sets in one order."""
    if is_dataclass(value):
        value = [getattr(value, each.name) for each in fields(value)]
    elif hasattr(value, "notna"):  # a table
        value = value.astype(object).where(value.notna(), None).to_numpy().tolist()
    elif hasattr(value, "tolist"):  # an array, a tensor, a number
        value = value.tolist()
    if isinstance(value, Mapping):
        return sorted(([str(name), told(each, digits)] for name, each in value.items()), key=str)
    if isinstance(value, set | frozenset):
        return sorted((told(each, digits) for each in value), key=str)
    if isinstance(value, list | tuple):
        return [told(each, digits) for each in value]
    if isinstance(value, float):
        return _rounded(value, digits)
    return value


def _rounded(number: float, digits: int) -> float | str:
    """A number to so many digits; 0 where it is nothing, and never −0."""
    rounded = float(f"{number:.{digits}g}")
    return str(rounded) if rounded - rounded else rounded if abs(rounded) > NOTHING else 0.0
