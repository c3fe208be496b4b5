"""Target models and veils for experiments, each made once a command.

COUNTERVEIL_CACHE names a folder in which they are left for the next experiment (`counterveil-lab
run` gives itself one while it runs); who names one that lasts must empty it when the code changes.
Veils keep the noise they were made with: experiments that share a folder measure the same draws.
"""

import hashlib
import io
import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import nn

from counterveil.curator import Curator, paper
from counterveil.curator.table import PrivateTable
from counterveil.files import write_whole
from counterveil.networks import ARCHITECTURES, pick_device
from counterveil.privacy import Budget
from counterveil.search import Explainer
from counterveil.veil import Veil
from counterveil_lab.baselines import Vae, train_vae
from counterveil_lab.datasets import Dataset, load
from counterveil_lab.evaluation import QUERIES, Evaluation
from counterveil_lab.experiments.runner import SETS_OF_BITS
from counterveil_lab.metrics import timed
from counterveil_lab.results import Row
from counterveil_lab.targets import encoded, new_target, train_target

CACHE = "COUNTERVEIL_CACHE"
DELTA = 1e-6  # of dpsgd
NO_NOISE = "none"  # how ε = infinity is written in a row
QUICK_ROWS = 3000
PAPER_EPOCHS = "COUNTERVEIL_PAPER_EPOCHS"  # `--paper-epochs`, for this process and its workers
DIGITS_EPOCHS = 300  # the paper has no digits; their rows are few, and an epoch of them is short
VAE_EPOCHS = {"mixed": 10, "image": 5, "binary": 5}
Epsilon = float | str
Reading = Literal["tied", "signed"]
Network = TypeVar("Network", bound=nn.Module)


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


def target_for(data: Dataset, seed: int, *, even: bool = True) -> nn.Module:
    """The f of a dataset and seed; `even`: with every class weighted alike."""
    key = (data.name, seed, len(data.train), *(() if even else ("not even",)))
    train = partial(train_target, data, seed=seed, even=even)
    return kept(place("target", ".pt", *key), lambda: new_target(data.schema), train)


def vae_for(data: Dataset, seed: int, *, quick: bool = False) -> tuple[Vae, int]:
    """The VAE of C-CHVAE and REVISE, and its epochs: on wide data fewer than its ten."""
    epochs = 1 if quick else VAE_EPOCHS[data.schema.family]
    path = place("vae", ".pt", data.name, seed, epochs, len(data.train))
    train = partial(train_vae, data.train, data.schema, seed=seed, epochs=epochs)
    return kept(path, lambda: Vae(data.schema.width), train), epochs


def evaluation_for(name: str, seed: int, *, quick: bool, queries: int = QUERIES) -> Evaluation:
    """The dataset, its f, and the questions that methods are asked."""
    data = data_for(name, seed, quick=quick)
    return Evaluation.of(data, target_for(data, seed), seed, queries)


def release(
    data: Dataset,
    mechanism: str,
    epsilon: Epsilon,
    seed: int,
    *,
    epochs: int | None = None,
    delta: float | None = None,
    reading: Reading | None = None,
    quick: bool = False,
) -> Release:
    """A release of the training rows; `paper` is trained for `epochs` or as long as published.

    `delta`: that of the mechanism where it is None. `reading`: "tied" or "signed" of `paper`, see
    `networks.Architecture`.
    """
    epochs = 2 if quick else epochs or (published_epochs(data) if mechanism == "paper" else None)
    key = mechanism, epsilon, seed, epochs
    path = veil_place(data, *key, *(each for each in (delta, reading) if each is not None))
    if path and path.exists():
        seconds = json.loads(path.with_suffix(".json").read_text())
        return Release(Veil.load(path), seconds, epochs)
    delta = delta_of(mechanism) if delta is None else delta
    budget = math.inf if epsilon == NO_NOISE else float(epsilon), delta
    given: dict[str, Any] = {"mechanism": mechanism, "seed": seed, "epochs": epochs}
    make = partial(Curator(data.schema).release, data.train, *budget, progress=False, **given)
    if epochs and reading:
        make = partial(_read_otherwise, data, Budget(*budget), seed, epochs, reading)
    veil, seconds = timed(make)
    if path:
        write_whole(path.with_suffix(".json"), json.dumps(seconds).encode())
        veil.save(path)
    return Release(veil, seconds, epochs)


def veil_place(
    data: Dataset, mechanism: str, epsilon: Epsilon, seed: int, epochs: int | None, *more: object
) -> Path | None:
    """The file in which `release` leaves and finds a veil; `more`: an unusual δ, a reading."""
    key = data.name, mechanism, epsilon, seed, epochs, len(data.train)
    return place("veil", ".veil", *key, *more)


def published_epochs(data: Dataset) -> int:
    """How long `paper` is trained: as published, unless `--paper-epochs` says otherwise."""
    if asked := os.environ.get(PAPER_EPOCHS):
        return int(asked)
    return DIGITS_EPOCHS if data.name == "digits" else ARCHITECTURES[data.schema.family].epochs


def _read_otherwise(
    data: Dataset, budget: Budget, seed: int, epochs: int, reading: Reading
) -> Veil:
    """Algorithm 1 under another reading of the paper."""
    usual, is_tied = ARCHITECTURES[data.schema.family], reading == "tied"
    architecture = replace(usual, epochs=epochs, tied=is_tied, signed=not is_tied)
    table, device = PrivateTable(data.train, data.schema), pick_device("auto")
    autoencoder, prototypes = paper.build_prototypes(
        table, budget, architecture, seed=seed, device=device
    )
    statement = paper.state(budget, architecture)
    return Veil(data.schema, autoencoder.cpu(), prototypes.cpu(), statement)


def explainers_for(veil: Veil, model: Any) -> Iterator[tuple[str, Explainer]]:
    """Each guidance of a veil with its Explainer."""
    yield "model", Explainer(veil, model)
    if veil.surrogate is not None:
        yield "surrogate", Explainer(veil, guidance="surrogate")


def head_of(made: Release, mechanism: str) -> Row:
    """What the rows of every release begin with."""
    return {"method": "counterveil", "delta": delta_of(mechanism), "epochs": made.epochs}


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


def kept(path: Path | None, new: Callable[[], Network], train: Callable[[], Network]) -> Network:
    """The network stored at `path`; trained and stored where there is none yet."""
    if path and path.exists():
        network = new()
        network.load_state_dict(torch.load(path, weights_only=True))
        return network.requires_grad_(False).eval()
    network = train()
    if path:
        buffer = io.BytesIO()
        torch.save(network.state_dict(), buffer)
        write_whole(path, buffer.getvalue())
    return network


def place(kind: str, ending: str, *key: object) -> Path | None:
    """The file in which what `key` names is left for the next time; None without a folder."""
    folder = os.environ.get(CACHE)
    if not folder:
        return None
    Path(folder).mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(repr(key).encode()).hexdigest()[:24]
    return Path(folder) / f"{kind}-{name}{ending}"
