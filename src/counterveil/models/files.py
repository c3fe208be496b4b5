"""Target models from files. What can run code on loading needs explicit trust."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from counterveil.errors import ModelError
from counterveil.models.adapters import adapt
from counterveil.models.base import Inputs, Outputs, TargetModel
from counterveil.models.boosted import load_lightgbm, load_xgboost
from counterveil.models.exported import torch_kept_quiet
from counterveil.models.graph import read_graph
from counterveil.models.trust import trusted_types
from counterveil.schema import Category, Schema

KINDS = (
    ".pt2 (torch.export), .skops, .onnx, .ubj or .json (XGBoost), .txt (LightGBM), "
    "or with --trust-pickle .pkl, .joblib, .pt"
)
PICKLES = frozenset({".pkl", ".pickle", ".joblib", ".pt", ".pth"})


OPEN: dict[str, Callable[[Path], Any]] = {
    ".onnx": lambda source: source,
    ".ubj": load_xgboost,
    ".json": load_xgboost,
    ".txt": load_lightgbm,
}  # the formats that hold numbers and no code
PLAIN = frozenset({".pt2", ".skops", *OPEN})


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
    if kind not in PICKLES | PLAIN:
        raise ModelError(f"{source}: unknown kind of model file; use {KINDS}")
    try:
        model = _load(source, kind, trust_pickle)
    except ModelError:
        raise
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(f"{source} cannot be read as a model: {reason}") from None
    return adapt(model, schema, inputs=inputs, outputs=outputs, classes=classes)


def _load(source: Path, kind: str, trust_pickle: bool) -> Any:
    if kind == ".pt2":
        return _load_pt2(source, trust_pickle)
    if kind == ".skops":
        return _load_skops(source, trust_pickle)
    if kind in OPEN:
        return OPEN[kind](source)
    if kind in {".pt", ".pth"}:
        return torch.load(source, weights_only=False, map_location="cpu")
    if kind == ".joblib":
        return _joblib().load(source)
    with source.open("rb") as stream:
        return pickle.load(stream)


def _load_pt2(source: Path, trust_pickle: bool) -> Any:
    if not trust_pickle:
        return read_graph(source)
    with torch_kept_quiet():
        return torch.export.load(source)


def _load_skops(source: Path, trust_all: bool) -> Any:
    try:
        from skops import io
    except ImportError:
        raise ModelError("reading .skops needs: pip install 'counterveil[sklearn]'") from None
    asked = io.get_untrusted_types(file=source)
    foreign = [] if trust_all else sorted(set(asked) - set(trusted_types(asked)))
    if foreign:
        raise ModelError(
            f"{source} holds types that are not trusted: {', '.join(foreign)}; "
            "add --trust-pickle if you made the file and know them"
        )
    return io.load(source, trusted=asked)


def _joblib() -> Any:
    try:
        import joblib
    except ImportError:
        raise ModelError("reading .joblib needs: pip install 'counterveil[sklearn]'") from None
    return joblib
