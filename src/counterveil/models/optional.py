"""Packages that only some models need."""

from __future__ import annotations

import importlib
from typing import Any

from counterveil.errors import ModelError


def optional(package: str, install: str, what: str) -> Any:
    """The module `package`, or an error that says how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise ModelError(f"{what} needs: pip install {install}") from None
