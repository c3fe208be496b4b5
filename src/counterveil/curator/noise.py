"""The only source of privacy randomness: OpenDP's samplers over the operating system's entropy.

No function here takes a seed, and none may: noise that can be repeated can be subtracted.
"""

from __future__ import annotations

import opendp.prelude as dp
import torch
from torch import Tensor

dp.enable_features("contrib")


def laplace(scale: float, size: int) -> Tensor:
    """`size` independent draws of Lap(scale), as float64."""
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=size), dp.l1_distance(T=float)
    measurement = dp.m.make_laplace(*space, scale=scale)
    return torch.tensor(measurement([0.0] * size), dtype=torch.float64)
