"""Target models from files. What can run code on loading needs explicit trust."""

import importlib
import os
import pickle
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from counterveil.errors import ModelError
from counterveil.models.adapters import adapt
from counterveil.models.base import Inputs, Outputs, TargetModel, optional
from counterveil.models.boosted import load_lightgbm, load_xgboost
from counterveil.models.exported import read_graph
from counterveil.schema import Category, Schema

PICKLES = frozenset({".pkl", ".pickle", ".joblib", ".pt", ".pth"})
KINDS = (
    ".pt2 (torch.export), .skops, .onnx, .ubj or .json (XGBoost), .txt (LightGBM), "
    "or with --trust-pickle .pkl, .joblib, .pt"
)
SKLEARN = "'counterveil[sklearn]'"
PACKAGES = ("sklearn.", "scipy.sparse.", "numpy.")
# Parts of these packages that do more than compute.
UNTRUSTED_PARTS = {"testing", "_testing", "tests", "externals", "datasets", "conftest"}
UNTRUSTED_PARTS |= {"f2py", "distutils", "lib", "ctypeslib"}


def load_model(
    path: str | os.PathLike[str],
    schema: Schema,
    *,
    trust_pickle: bool = False,
    inputs: Inputs = "auto",
    outputs: Outputs = "auto",
    classes: Sequence[Category] | None = None,
) -> TargetModel:
    """Load `path` and adapt it to `schema`; `inputs`, `outputs`, `classes` as for the adapters.

    Without `trust_pickle` nothing in the file is run: a .pt2 is read as a plain graph, a .skops may
    hold types of scikit-learn only, and pickles are refused. Files of ONNX, XGBoost and LightGBM
    hold numbers and no code. The latter two know no names of classes: give `classes`, unless the
    schema's classes are 0, 1, ....
    """
    source = Path(path)
    if not source.is_file():
        raise ModelError(f"no model at {source}; check the path")
    kind = source.suffix.lower()
    if kind in PICKLES and not trust_pickle:
        raise ModelError(
            f"{source} is a pickle, which can run any code when it is opened; "
            "add --trust-pickle if you made it, or export it as .pt2 or .skops"
        )
    try:
        model = _read(source, kind, trust_pickle)
    except ModelError:
        raise
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(f"{source} cannot be read as a model: {reason}") from None
    return adapt(model, schema, inputs=inputs, outputs=outputs, classes=classes)


def _read(source: Path, kind: str, trusted: bool) -> Any:
    """What is in the file, for `adapt` to take; `trusted` files may run code of their own."""
    found: Any = source  # an .onnx file is opened by its adapter
    match kind:
        case ".pt2" if trusted:
            with warnings.catch_warnings(action="ignore"):
                found = torch.export.load(source)
        case ".pt2":
            found = read_graph(source)
        case ".skops":
            found = _read_skops(source, trusted)
        case ".ubj" | ".json":
            found = load_xgboost(source)
        case ".txt":
            found = load_lightgbm(source)
        case ".pt" | ".pth":
            found = torch.load(source, weights_only=False, map_location="cpu")
        case ".joblib":
            found = optional("joblib", SKLEARN, "reading .joblib").load(source)
        case ".pkl" | ".pickle":
            found = pickle.loads(source.read_bytes())
        case other if other != ".onnx":
            raise ModelError(f"{source}: unknown kind of model file; use {KINDS}")
    return found


def _read_skops(source: Path, trusted: bool) -> Any:
    skops = optional("skops.io", SKLEARN, "reading .skops")
    asked = skops.get_untrusted_types(file=source)
    foreign = [] if trusted else sorted(name for name in set(asked) if not _is_trusted(name))
    if foreign:
        raise ModelError(
            f"{source} holds types that are not trusted: {', '.join(foreign)}; "
            "add --trust-pickle if you made the file and know them"
        )
    return skops.load(source, trusted=asked)


def _is_trusted(name: str) -> bool:
    """Whether `name` is a class of scikit-learn, a sparse matrix or a number of numpy.

    skops trusts the public estimators of scikit-learn by itself. Added here are the classes that
    these are made of: trees, losses, bins, dtypes; never functions, nor classes that open files.
    """
    parts = name.split(".")
    if not name.startswith(PACKAGES) or UNTRUSTED_PARTS & set(parts):
        return False
    try:
        found = getattr(importlib.import_module(".".join(parts[:-1])), parts[-1])
    except (ImportError, AttributeError, ValueError):
        return False
    # A name may lead to something that sklearn itself imported: ask the class where it lives.
    if not isinstance(found, type) or f"{found.__module__}.{found.__qualname__}" != name:
        return False
    number = issubclass(found, (np.generic, np.dtype)) or name.startswith("numpy.random.")
    return parts[0] != "numpy" or number
