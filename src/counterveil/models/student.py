"""A differentiable student of a model without gradients.

The student only proposes: it lends the search its gradient. Whether an answer stands is decided by
the target model itself.
"""

from __future__ import annotations

from torch import Tensor, nn

from counterveil.models.adapters import TorchModel
from counterveil.models.base import TargetModel
from counterveil.terminal import Tick, silent
from counterveil.training import fit, seeded, tanh_network

HIDDEN = 64
EPOCHS = 40


def distil(
    model: TargetModel, points: Tensor, log_proba: Tensor, *, seed: int, tick: Tick = silent
) -> TorchModel:
    """A small network that answers on legal `points` as `model` does: by `log_proba`."""
    answers = log_proba.exp().to(points.device)
    network = seeded(
        lambda: tanh_network(points.shape[1], (HIDDEN, HIDDEN), model.classes),
        seed,
    ).to(points.device)
    fit(
        network,
        lambda rows: nn.functional.cross_entropy(network(points[rows]), answers[rows]),
        len(points),
        epochs=EPOCHS,
        batch=256,
        rate=3e-3,
        seed=seed,
        tick=tick,
    )
    return TorchModel(network, model.schema, outputs="logits")
