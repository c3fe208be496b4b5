"""Target models from files. Formats that can run code on loading need explicit trust."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import torch

from counterveil.errors import ModelError
from counterveil.models.adapters import adapt
from counterveil.models.base import TargetModel
from counterveil.models.exported import torch_kept_quiet
from counterveil.schema import Schema

KINDS = ".pt2 (torch.export), .skops, or with --trust-pickle .pkl, .joblib, .pt"


def load_model(
    path: str | os.PathLike[str], schema: Schema, *, trust_pickle: bool = False
) -> TargetModel:
    """Load `path` and adapt it to `schema`."""
    source = Path(path)
    if not source.is_file():
        raise ModelError(f"no model at {source}; check the path")
    kind = source.suffix.lower()
    if kind in {".pkl", ".pickle", ".joblib", ".pt", ".pth"} and not trust_pickle:
        raise ModelError(
            f"{source} is a pickle, which can run any code when it is opened; "
            "add --trust-pickle if you made it, or export it as .pt2 or .skops"
        )
    try:
        if kind == ".pt2":
            with torch_kept_quiet():
                program = torch.export.load(source)
            return adapt(program, schema)
        if kind == ".skops":
            return adapt(_load_skops(source), schema)
        if kind in {".pt", ".pth"}:
            return adapt(torch.load(source, weights_only=False, map_location="cpu"), schema)
        if kind in {".pkl", ".pickle", ".joblib"}:
            return adapt(_load_pickle(source), schema)
    except ModelError:
        raise
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(f"{source} cannot be read as a model: {reason}") from None
    raise ModelError(f"{source}: unknown kind of model file; use {KINDS}")


def _load_skops(source: Path) -> Any:
    try:
        from skops import io
    except ImportError:
        raise ModelError("reading .skops needs: pip install 'counterveil[sklearn]'") from None
    untrusted = io.get_untrusted_types(file=source)
    if untrusted:
        raise ModelError(f"{source} holds types that skops does not trust: {', '.join(untrusted)}")
    return io.load(source)


def _load_pickle(source: Path) -> Any:
    if source.suffix.lower() == ".joblib":
        try:
            import joblib
        except ImportError:
            raise ModelError("reading .joblib needs: pip install 'counterveil[sklearn]'") from None
        return joblib.load(source)
    with source.open("rb") as stream:
        return pickle.load(stream)
