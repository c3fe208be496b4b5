"""Target models and veils for experiments, each made once a command.

COUNTERVEIL_CACHE names a folder in which they are left for the next experiment; the command
`counterveil-lab run` gives itself one for as long as it runs. Whoever names one that lasts must
empty it when the code changes. Veils keep the noise they were made with: experiments that share a
folder measure the same draws.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import time
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from counterveil.curator import Curator
from counterveil.files import write_whole
from counterveil.search import Explainer
from counterveil.veil import Veil
from counterveil_lab.baselines import Vae, train_vae
from counterveil_lab.datasets import Dataset, load
from counterveil_lab.experiments.runner import SETS_OF_BITS
from counterveil_lab.targets import encoded, new_target, train_target

CACHE = "COUNTERVEIL_CACHE"
DELTA = 1e-6  # of dpsgd
NO_NOISE = "none"  # how ε = infinity is written in a row
QUICK_ROWS = 3000
QUICK_WARM_STEPS = 100
# The paper trains for 300, 30 and 500 epochs, which would take an hour for one binary release. The
# rows of digits are few: an epoch of them is short.
PAPER_EPOCHS = {"mixed": 60, "image": 10, "binary": 8, "digits": 300}
VAE_EPOCHS = {"mixed": 10, "image": 5, "binary": 5}
Epsilon = float | str


@dataclass(frozen=True)
class Release:
    """A veil, the seconds it took, and the epochs of its autoencoder where they were chosen."""

    veil: Veil
    seconds: float
    epochs: int | None


def data_for(name: str, seed: int, *, quick: bool) -> Dataset:
    """The dataset; a quick look takes some of its rows."""
    data = load(name, seed=seed)
    return replace(data, train=data.train.head(QUICK_ROWS)) if quick else data


def target_for(data: Dataset, seed: int) -> nn.Module:
    """The f of a dataset and seed."""
    path = _place("target", ".pt", data.name, seed, len(data.train))
    if path and path.exists():
        model = new_target(data.schema)
        model.load_state_dict(torch.load(path, weights_only=True))
        return model.requires_grad_(False).eval()
    model = train_target(data, seed=seed)
    _save(model, path)
    return model


def vae_for(data: Dataset, seed: int, *, quick: bool = False) -> tuple[Vae, int]:
    """The VAE of C-CHVAE and REVISE, and its epochs: on wide data fewer than its ten."""
    epochs = 1 if quick else VAE_EPOCHS[data.schema.family]
    path = _place("vae", ".pt", data.name, seed, epochs, len(data.train))
    if path and path.exists():
        vae = Vae(data.schema.width)
        vae.load_state_dict(torch.load(path, weights_only=True))
        return vae.requires_grad_(False).eval(), epochs
    vae = train_vae(data.train, data.schema, seed=seed, epochs=epochs)
    _save(vae, path)
    return vae, epochs


def release(
    data: Dataset, mechanism: str, epsilon: Epsilon, seed: int, *, order: int | None = None,
    quick: bool = False,
) -> Release:  # fmt: skip
    """A release of the training rows."""
    usual = PAPER_EPOCHS.get(data.name, PAPER_EPOCHS[data.schema.family])
    epochs = 2 if quick else usual if mechanism == "paper" else None
    path = _place("veil", ".veil", data.name, mechanism, epsilon, seed, order, epochs,
                  len(data.train))  # fmt: skip
    if path and path.exists():
        seconds = json.loads(path.with_suffix(".json").read_text())
        return Release(Veil.load(path), seconds, epochs)
    started = time.perf_counter()
    veil = Curator(data.schema).release(
        data.train, math.inf if epsilon == NO_NOISE else float(epsilon), delta_of(mechanism),
        mechanism=mechanism, order=order, seed=seed, epochs=epochs, progress=False,
    )  # fmt: skip
    seconds = time.perf_counter() - started
    if path:
        write_whole(path.with_suffix(".json"), json.dumps(seconds).encode())
        veil.save(path)
    return Release(veil, seconds, epochs)


def explainer_for(
    veil: Veil, model: Any = None, *, guidance: Literal["model", "surrogate"] = "model",
    quick: bool = False,
) -> Explainer:  # fmt: skip
    """An Explainer that finds again what it has learnt of a model."""
    warm_file = _place("warm", ".warm", veil.digest) if guidance == "model" else None
    steps = QUICK_WARM_STEPS if quick else None
    return Explainer(veil, model, guidance=guidance, warm_file=warm_file, warm_steps=steps)


def pooled_mean_error(data: Dataset) -> float:
    """The error of answering the mean of all training rows."""
    mean = encoded(data.train, data.schema)[0].double().mean(dim=0)
    return float((encoded(data.test.head(2000), data.schema)[0] - mean).square().mean())


def delta_of(mechanism: str) -> float:
    """The δ at which a mechanism is measured."""
    return DELTA if mechanism == "dpsgd" else 0.0


def why_not(mechanism: str, dataset: str) -> str | None:
    """Why a mechanism cannot be measured here on a dataset."""
    if mechanism == "dpsgd" and find_spec("opacus") is None:
        return "without dpsgd: it needs pip install 'counterveil[dpsgd]'"
    if mechanism == "dpsgd" and dataset in ("mnist", *SETS_OF_BITS):
        return "without dpsgd on mnist and sets of bits: a release takes ten minutes or more"
    return None


def _save(model: nn.Module, path: Path | None) -> None:
    if path:
        buffer = io.BytesIO()
        torch.save(model.state_dict(), buffer)
        write_whole(path, buffer.getvalue())


def _place(kind: str, ending: str, *key: object) -> Path | None:
    folder = os.environ.get(CACHE)
    if not folder:
        return None
    Path(folder).mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(repr(key).encode()).hexdigest()[:24]
    return Path(folder) / f"{kind}-{name}{ending}"
