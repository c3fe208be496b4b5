"""Everything of a veil that follows from its noisy record, computed anew and compared.

Whoever does so need not believe that the networks saw no row. Floats may be added up otherwise by
another processor or release of torch; then numbers differ a little.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterveil.build import epochs_of, fit_networks
from counterveil.errors import RequestError
from counterveil.networks import pick_device
from counterveil.population import population_of
from counterveil.private_model import PrivateModel
from counterveil.terminal import progress_bar
from counterveil.veil import Veil

ASKED = 1000  # rows of the population that both private models decide on


@dataclass(frozen=True)
class Compared:
    """A part of a veil beside the same computed anew; `difference`: infinite for another shape."""

    part: str
    numbers: int
    difference: float

    @property
    def equal(self) -> bool:
        """To the last bit."""
        return self.difference == 0


@dataclass(frozen=True)
class Recomputed:
    """All parts, and on how many of `ASKED` rows of P~ both private models decide alike."""

    parts: tuple[Compared, ...]
    alike: int

    @property
    def equal(self) -> bool:
        """Whether every part is."""
        return all(each.equal for each in self.parts)


def recompute(veil: Veil, *, progress: bool = True) -> Recomputed:
    """Build population and networks from the record once more. Takes as long as a release."""
    recipe = veil.statement.recipe
    if veil.record is None or recipe is None or veil.surrogate is None:
        raise RequestError(
            f"mechanism {veil.statement.mechanism} leaves no noisy record: nothing can be computed "
            "from it again; release by mechanism functional"
        )
    population, threads = population_of(veil.schema, veil.record), torch.get_num_threads()
    total = epochs_of(population, recipe.training)
    torch.set_num_threads(recipe.threads)
    try:
        with progress_bar("training on the noisy population", total, show=progress) as tick:
            how: Any = {"seed": recipe.seed, "training": recipe.training, "tick": tick}
            device = pick_device(recipe.device)
            made = fit_networks(population, veil.schema, device=device, **how)
    finally:
        torch.set_num_threads(threads)
    parts = [_compared("private model", veil.surrogate.state_dict(), made.surrogate.state_dict())]
    if veil.generator is not None and made.generator is not None:
        both = veil.generator.state_dict(), made.generator.state_dict()
        parts.append(_compared("generator of the population", *both))
    both = veil.autoencoder.state_dict(), made.autoencoder.state_dict()
    parts.append(_compared("autoencoder", *both))
    parts.append(_compared("prototypes", {"": veil.prototypes}, {"": made.prototypes}))
    rows, _ = population_of(veil.schema, veil.record, made.generator).sample(
        ASKED, np.random.default_rng(0)
    )
    models = (
        PrivateModel(veil.schema, each, veil.statement) for each in (veil.surrogate, made.surrogate)
    )
    one, two = (model.of_encoded(rows).argmax(axis=1) for model in models)
    return Recomputed(tuple(parts), int((one == two).sum()))


def _compared(part: str, mine: Mapping[str, Tensor], anew: Mapping[str, Tensor]) -> Compared:
    numbers = sum(each.numel() for each in mine.values())
    shapes = [{name: each.shape for name, each in both.items()} for both in (mine, anew)]
    if shapes[0] != shapes[1]:
        return Compared(part, numbers, float("inf"))
    pairs = ((mine[name].double(), anew[name].double()) for name in mine)
    return Compared(part, numbers, max(float((a - b).abs().max()) for a, b in pairs if a.numel()))
