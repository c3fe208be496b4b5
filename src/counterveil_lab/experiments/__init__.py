"""Experiments by name; each lives in a module with a function `run`, loaded when it is wanted."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

_HERE = "counterveil_lab.experiments"
_MODULES: Mapping[str, str] = {
    "targets": "targets",
    "fig-mse": "fig_mse",
    "fig-reconstructions": "fig_reconstructions",
    "table-fr": "table_fr",
    "table-ad": "table_ad",
    "fig-time": "fig_time",
    "fig-case": "fig_case",
    "table-extraction": "table_extraction",
    "fig-membership": "fig_membership",
    "fig-attribute": "fig_attribute",
    "fig-tradeoff": "fig_tradeoff",
    "paper-adult": "paper_adult",
    "frontier": "frontier",
}
EXPERIMENTS: Mapping[str, str] = {
    name: f"{_HERE}.{module}"
    for name, module in _MODULES.items()
    if find_spec(f"{_HERE}.{module}") is not None
}


def experiment(name: str) -> Callable[..., None]:
    """The function that runs an experiment."""
    run: Callable[..., None] = importlib.import_module(EXPERIMENTS[name]).run
    return run


def headline(name: str) -> str:
    """The first line of an experiment's description, without loading it."""
    spec = find_spec(EXPERIMENTS[name])
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").partition("\n")[0].removeprefix(f"`{name}`: ")
