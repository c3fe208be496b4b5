"""A short name for the code that an experiment's numbers depend on, stored in each of its rows.

The fingerprint of an experiment is a SHA-256 over the modules that it measures and its own module,
without comments, docstrings and layout: other words change nothing. Rows with another fingerprint
than the present one, or with none, were measured by an earlier version of the code.
"""

import ast
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import counterveil_lab

SOURCE = Path(counterveil_lab.__file__).parents[1]
LENGTH = 12  # hexadecimal digits
GROUPS: Mapping[str, Sequence[str]] = {
    "mechanism": ("counterveil/curator",),
    "search": (
        "counterveil/search",
        "counterveil/population",
        "counterveil/veil.py",
        "counterveil/private_model.py",
    ),
    "service": ("counterveil/service",),
    "audit": ("counterveil/audit",),
    "attack": ("counterveil_lab/attacks",),
    "others": ("counterveil_lab/baselines",),  # methods of other people
    "measure": (
        "counterveil_lab/evaluation.py",
        "counterveil_lab/metrics.py",
        "counterveil_lab/targets.py",
    ),
}
# Modules of these groups that word, draw or draft, and measure nothing.
NO_NUMBERS = {
    "counterveil/curator": ("column_names", "draft_cells", "draft_columns", "infer_schema"),
    "counterveil/search": ("figure", "folder", "page", "wording"),
    "counterveil_lab/attacks": ("controls", "headlines", "verdicts"),
}
LAB, ANSWERS = ("mechanism", "measure"), ("mechanism", "search", "measure")
ATTACKS = ("mechanism", "search", "attack")
# The groups of each experiment, and its own modules in counterveil_lab.
EXPERIMENTS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "targets": (("measure",), ("experiments/over_epsilon",)),
    "fig-mse": (LAB, ("experiments/over_epsilon",)),
    "fig-reconstructions": (LAB, ("experiments/images",)),
    "fig-images": (LAB, ("experiments/image_populations",)),
    "paper-adult": (ANSWERS, ("experiments/over_epsilon",)),
    "frontier": (ANSWERS, ("experiments/over_epsilon",)),
    "paper-readings": (ANSWERS, ("experiments/readings",)),
    "theorem-3": (ANSWERS, ("experiments/theorem_3",)),
    "fig-case": (ANSWERS, ("experiments/images",)),
    "table-fr": ((*ANSWERS, "others"), ("experiments/answers", "experiments/peers")),
    "table-ad": ((*ANSWERS, "others"), ("experiments/answers", "experiments/peers")),
    "fig-time": ((*ANSWERS, "others"), ("experiments/answers", "experiments/peers")),
    "believable": ((*ANSWERS, "others"), ("experiments/believable", "believability")),
    "believable-images": (ANSWERS, ("experiments/believable_images", "image_judges")),
    "population": (ANSWERS, ("experiments/populations",)),
    "private-models": (ANSWERS, ("experiments/private_models",)),
    "private-answers": (ANSWERS, ("experiments/private_answers",)),
    "table-extraction": ((*ATTACKS, "others"), ("experiments/red_team",)),
    "fig-membership": ((*ATTACKS, "others"), ("experiments/red_team",)),
    "fig-attribute": ((*ATTACKS, "others"), ("experiments/red_team",)),
    "fig-tradeoff": (ATTACKS, ("experiments/red_team",)),
    "bench-release": (("mechanism",), ("bench/release",)),
    "bench-scale": (("mechanism", "search"), ("bench/scale", "bench/release")),
    "bench-search": ((*ANSWERS, "others"), ("bench/search", "bench/peers", "bench/roofline")),
    "bench-gpu": (("mechanism", "search"), ("bench/roofline",)),
    "bench-serve": (("search", "service"), ("bench/serve",)),
    "audit_faults": (("mechanism", "audit"), ("faults",)),
    "fuzz": (("mechanism", "search"), ("fuzz",)),
    "fuzz-rules": (("search",), ("fuzz",)),
    "fuzz-service": (("search", "service"), ("fuzz",)),
}


@cache
def fingerprint(experiment: str) -> str | None:
    """The fingerprint of the present code for an experiment; None for one that is not listed.

    A part of the benchmark `search` has the fingerprint of all of it.
    """
    whole = "bench-search" if experiment.startswith("bench-search-") else experiment
    if whole not in EXPERIMENTS:
        return None
    groups, own = EXPERIMENTS[whole]
    places = [place for group in groups for place in GROUPS[group]]
    places += [f"counterveil_lab/{module}" for module in own]
    hashed = sha256()
    for place in places:
        for path in modules(place):
            name = path.relative_to(SOURCE).as_posix()
            hashed.update(f"{name}\n{_meaning_of(path)}\n".encode())
    return hashed.hexdigest()[:LENGTH]


def modules(place: str) -> list[Path]:
    """The modules of a folder or of a single module, by their place below the source folder."""
    path = SOURCE / place
    if not path.is_dir():
        return [path if path.suffix else path.with_suffix(".py")]
    left_out = NO_NUMBERS.get(place, ())
    return sorted(it for it in path.rglob("*.py") if it.stem not in left_out)


@cache
def _meaning_of(path: Path) -> str:
    return meaning(path.read_text("utf-8"))


def meaning(source: str) -> str:
    """Python source as text in which comments, docstrings and layout make no difference."""
    return repr(_parts(ast.parse(source)))


def _parts(node: Any) -> Any:
    """A node of a syntax tree as nested lists; what is empty is left out, as versions differ."""
    if isinstance(node, list):
        return [_parts(each) for each in node if not _is_text(each)]
    if not isinstance(node, ast.AST):
        return node
    fields = [(name, value) for name, value in ast.iter_fields(node) if name != "ctx"]
    parts = [(name, _parts(value)) for name, value in fields if value is not None]
    return [type(node).__name__, *(part for part in parts if part[1] != [])]


def _is_text(node: Any) -> bool:
    """Whether a statement is a text alone, which says something and does nothing."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
