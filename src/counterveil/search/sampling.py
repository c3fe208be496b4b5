"""Legal rows drawn from a Veil alone: what a student of the model is taught on."""

from __future__ import annotations

import torch
from torch import Tensor

from counterveil.search.constraints import Box
from counterveil.search.snap import Snap
from counterveil.veil import Veil

LATENT_SPREAD = 0.5  # codes are sigmoids in (0, 1)


@torch.no_grad()
def legal_rows(veil: Veil, snap: Snap, count: int, *, seed: int, device: torch.device) -> Tensor:
    """Rows around the prototypes, each with a random share of its features drawn anew.

    What a student must know lies between the classes, so codes are mixtures of two prototypes plus
    noise; the features drawn anew spread the rows over the whole cube.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator).to(device)

    prototypes = veil.prototypes.to(device)
    first, second = torch.randint(len(prototypes), (2, count), generator=generator).to(device)
    share = uniform(count, 1)
    codes = share * prototypes[first] + (1 - share) * prototypes[second]
    noise = torch.randn(codes.shape, generator=generator).to(device)
    decoded = veil.autoencoder.to(device).decode(codes + LATENT_SPREAD * uniform(count, 1) * noise)

    features = veil.schema.features
    widths = torch.tensor([feature.width for feature in features])
    feature_of_column = torch.repeat_interleave(torch.arange(len(features)), widths).to(device)
    drawn_anew = uniform(count, len(features)) < uniform(count, 1)
    blend = torch.where(drawn_anew[:, feature_of_column], uniform(*decoded.shape), decoded)
    return snap(blend, Box(torch.zeros_like(blend), torch.ones_like(blend)))
