"""What an Explainer learns when it first meets a model, and the file that keeps it.

The file holds the weights of the amortised search, named after the veil and the model they belong
to; a file of another veil, of another model or of another version is simply made anew.
"""

from __future__ import annotations

import hashlib
import os

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as save_tensors
from torch import Tensor

from counterveil.amortiser import Amortiser
from counterveil.files import write_whole
from counterveil.models import Rows, TargetModel

VERSION = "1"


def fingerprint(veil_digest: str, model: TargetModel, rows: Tensor) -> str:
    """The name of a model under a veil: by its answers on public `rows`, to three digits."""
    log_proba = model.ask(Rows.of_points(rows, model.encoding))
    answers = (log_proba.exp() * 1000).round().to(torch.int32).cpu()
    content = f"{VERSION} {veil_digest} ".encode() + answers.numpy().tobytes()
    return hashlib.sha256(content).hexdigest()


def save(path: str | os.PathLike[str], amortiser: Amortiser, name: str) -> None:
    """Keep the weights under a name."""
    tensors = {key: value.contiguous().cpu() for key, value in amortiser.state_dict().items()}
    write_whole(path, save_tensors(tensors, metadata={"counterveil": name}))


def load(path: str | os.PathLike[str], amortiser: Amortiser, name: str) -> bool:
    """Fill `amortiser` from the file; False if the file is not there or is not of that name."""
    try:
        with safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get("counterveil") != name:
                return False
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError):
        return False
    mine = amortiser.state_dict()
    if {key: value.shape for key, value in tensors.items()} != {
        key: value.shape for key, value in mine.items()
    } or not all(bool(value.isfinite().all()) for value in tensors.values()):
        return False
    amortiser.load_state_dict(tensors)
    return True
