"""Options that several commands share."""

from typing import Any

from typer import Option


def option(default: Any, what: str, *names: str, **limits: Any) -> Any:
    """An option of a command: default (... if it must be given), help text, names, limits."""
    return Option(default, *names, help=what, **limits)


def seed_option(what_for: str) -> Any:
    """A seed that every generator of random numbers accepts, with its help text."""
    return option(0, what_for, min=0, max=2**31 - 1)


JSON = option(False, "Print JSON for machines.", "--json")
DEVICE = option("cpu", "cpu, cuda, mps, or auto for the best there is.")
