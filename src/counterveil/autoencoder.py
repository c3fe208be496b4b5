"""The autoencoder ψ of the paper: encoder, decoder, and the class prototypes of Eq. prot_construct.

Sections 4.3 and 5.1 of the paper fix the networks: dense layers, sigmoid activations, a
normalisation without parameters before each layer so that what enters it lies in [-1, 1], and a
decoder that mirrors the encoder. This module knows nothing of privacy; whoever trains a network
decides what it may see.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from counterveil.errors import RequestError
from counterveil.schema import Family
from counterveil.training import seeded


@dataclass(frozen=True)
class Architecture:
    """The paper's choices for one family of data (sections 5.1 and 5.2)."""

    encoder: tuple[int, ...]
    epochs: int
    batch: int
    alpha: float
    beta: float
    gamma: float

    @property
    def widest(self) -> int:
        """K: the largest number of neurons over all hidden layers."""
        return max(self.encoder)


ARCHITECTURES: dict[Family, Architecture] = {
    "mixed": Architecture((32, 16), epochs=300, batch=128, alpha=1, beta=0.5, gamma=0.1),
    "image": Architecture((256, 128, 64, 32), epochs=30, batch=256, alpha=1, beta=0.2, gamma=20),
    "binary": Architecture(
        (512, 256, 128, 64, 32), epochs=500, batch=256, alpha=1, beta=0.5, gamma=10
    ),
}


class UnitNorm(nn.Module):
    """Each row to mean 0 and variance 1, then cut to [-1, 1]; no parameter, no memory of rows."""

    def forward(self, rows: Tensor) -> Tensor:
        return nn.functional.layer_norm(rows, rows.shape[-1:]).clamp(-1, 1)


class Autoencoder(nn.Module):
    """ψ^Dec(ψ^Enc(x)) over the unit cube."""

    def __init__(self, width: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.hidden = hidden
        self.encoder = _dense_layers((width, *hidden))
        self.decoder = _dense_layers((*reversed(hidden), width))

    @classmethod
    def new(cls, width: int, hidden: tuple[int, ...], seed: int) -> Autoencoder:
        """A network whose initial weights depend on `seed` alone."""
        return seeded(lambda: cls(width, hidden), seed)

    @property
    def latent(self) -> int:
        """How many numbers a code has."""
        return self.hidden[-1]

    def encode(self, rows: Tensor) -> Tensor:
        """ψ^Enc."""
        code: Tensor = self.encoder(rows)
        return code

    def decode(self, codes: Tensor) -> Tensor:
        """ψ^Dec."""
        rows: Tensor = self.decoder(codes)
        return rows

    def forward(self, rows: Tensor) -> Tensor:
        return self.decode(self.encode(rows))


def _dense_layers(sizes: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for wide, narrow in pairwise(sizes):
        layers += [UnitNorm(), nn.Linear(wide, narrow), nn.Sigmoid()]
    return nn.Sequential(*layers)


@torch.no_grad()
def class_means(autoencoder: Autoencoder, rows: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Eq. prot_construct: ρ_s, the mean code of the rows of class s, one row a class.

    The means are exact: they are as private as `rows`, not more. A class without rows gets the
    mean of the other prototypes.
    """
    sums = torch.zeros(classes, autoencoder.latent, device=rows.device)
    counts = torch.bincount(labels, minlength=classes).to(sums.dtype)
    for part, classes_of_part in zip(rows.split(65536), labels.split(65536), strict=True):
        sums.index_add_(0, classes_of_part, autoencoder.encode(part))
    means = sums / counts.clamp(min=1)[:, None]
    means[counts == 0] = means[counts > 0].mean(dim=0)
    return means


def pick_device(name: str) -> torch.device:
    """ "cpu", "cuda", "mps", or "auto" for the best that is there."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise RequestError(f"unknown device {name!r}; use cpu, cuda, mps or auto") from None
    ready = {"cpu": True, "cuda": torch.cuda.is_available(),
             "mps": torch.backends.mps.is_available()}  # fmt: skip
    if not ready.get(device.type, False):
        raise RequestError(f"no {name!r} device on this machine; use cpu or auto")
    return device
