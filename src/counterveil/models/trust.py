"""Which types a .skops file may hold unasked.

skops trusts the public estimators of scikit-learn by itself. Added here are the classes that these
are made of: trees, losses, bins, dtypes. Functions never are, nor classes that open files.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable

import numpy as np

PACKAGES = ("sklearn.", "scipy.sparse.", "numpy.")
STRANGE = frozenset({"testing", "_testing", "tests", "externals", "datasets", "conftest", "f2py",
                     "distutils", "lib", "ctypeslib"})  # fmt: skip


def trusted_types(names: Iterable[str]) -> list[str]:
    """Those of `names` that are classes of scikit-learn, sparse matrices or numbers of numpy."""
    return [name for name in names if _is_trusted(name)]


def _is_trusted(name: str) -> bool:
    parts = name.split(".")
    if not name.startswith(PACKAGES) or STRANGE & set(parts):
        return False
    try:
        found = getattr(importlib.import_module(".".join(parts[:-1])), parts[-1])
    except (ImportError, AttributeError, ValueError):
        return False
    # A name may lead to something that sklearn itself imported: ask the class where it lives.
    if not isinstance(found, type) or f"{found.__module__}.{found.__qualname__}" != name:
        return False
    if parts[0] == "numpy":
        return issubclass(found, (np.generic, np.dtype)) or name.startswith("numpy.random.")
    return True
