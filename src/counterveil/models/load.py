"""Target models from files. What can run code on loading needs explicit trust."""

from __future__ import annotations

import hashlib
import importlib
import io
import os
import pickle
import tempfile
import warnings
import zipfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from counterveil.errors import ModelError
from counterveil.files import read_bytes
from counterveil.models import limits
from counterveil.models.adapters import adapt
from counterveil.models.base import Inputs, Outputs, TargetModel, optional
from counterveil.models.boosted import load_lightgbm, load_xgboost
from counterveil.models.exported import TRUST, read_graph
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


@dataclass(frozen=True)
class ModelFile:
    """The file of a model, and how to open it: the keywords of `load_model`.

    `content`: what is in the file, where it is to be opened on another machine.
    """

    path: str | os.PathLike[str]
    options: dict[str, Any] = field(default_factory=dict)
    content: bytes | None = None

    def packed(self) -> ModelFile:
        """The same with its content: it can be sent."""
        content = read_bytes(self.path, "model", ModelError)
        return ModelFile(Path(self.path).name, self.options, content)

    @property
    def digest(self) -> str:
        """SHA-256 of the content."""
        content = self.packed().content if self.content is None else self.content
        return hashlib.sha256(content or b"").hexdigest()

    def load(self, schema: Schema) -> TargetModel:
        """The model, adapted to `schema`."""
        if self.content is None:
            return load_model(self.path, schema, **self.options)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / self.path
            path.write_bytes(self.content)
            return load_model(path, schema, **self.options)


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
    if source.is_dir():
        raise ModelError(f"{source} is a folder; give the file of a model")
    if not source.is_file():
        raise ModelError(f"no model at {source}; check the path")
    kind = source.suffix.lower()
    if kind in PICKLES and not trust_pickle:
        raise ModelError(
            f"{source} is a pickle, which can run any code when it is opened; "
            "add --trust-pickle if you made it, or export it as .pt2 or .skops"
        )
    with nullcontext() if trust_pickle else limits.bounded_memory():
        try:
            limits.check_size(source)
            model = _read(source, kind, trust_pickle)
        except ModelError:
            raise
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".,")
            raise limits.out_of_memory(error) or ModelError(
                f"{source} cannot be read as a model: {reason}; check that it is the "
                f"{kind} file of a model, or save it again"
            ) from None
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
    if not trusted:
        _check_archive(source)
    asked = skops.get_untrusted_types(file=source)
    foreign = [] if trusted else sorted(name for name in set(asked) if not _is_trusted(name))
    if foreign:
        raise ModelError(
            f"{source} holds types that are not trusted: {', '.join(foreign)}; "
            "add --trust-pickle if you made the file and know them"
        )
    return skops.load(source, trusted=asked)


def _check_archive(source: Path) -> None:
    """Refuse an archive that unpacks to too much, together with the archives in it."""
    with zipfile.ZipFile(source) as archive:
        members = archive.infolist()
        excess = limits.excess_of(members, source.stat().st_size)
        packed = [] if excess else [archive.read(member) for member in members]
    for content in packed:
        if excess is None and content.startswith(b"PK"):  # a sparse matrix is an archive as well
            members += zipfile.ZipFile(io.BytesIO(content)).infolist()
            excess = limits.excess_of(members, source.stat().st_size)
    if excess is not None:
        raise ModelError(f"{source}: {excess}; {TRUST}")


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
