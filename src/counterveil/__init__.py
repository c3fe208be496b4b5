"""counterveil explains model decisions by counterfactuals without leaking the training rows.

The public side is here: load a Veil, explain queries.

    from counterveil import Explainer, Veil
    result = Explainer(Veil.load("adult.veil"), model).explain(queries, target=">50K")

The private side, which turns rows into a Veil, is `counterveil.curator` and is never imported here.
Names are loaded when they are first used, so that the command line answers at once.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterveil.errors import CounterveilError
    from counterveil.schema import Schema
    from counterveil.search import Explainer, Explanations, Rules
    from counterveil.veil import Veil

__all__ = ["CounterveilError", "Explainer", "Explanations", "Rules", "Schema", "Veil"]
__version__ = version("counterveil")

_HOMES = {
    "CounterveilError": "counterveil.errors",
    "Explainer": "counterveil.search",
    "Explanations": "counterveil.search",
    "Rules": "counterveil.search",
    "Schema": "counterveil.schema",
    "Veil": "counterveil.veil",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'counterveil' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
