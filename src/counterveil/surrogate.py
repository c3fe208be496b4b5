"""The surrogate f~: which class a row of the population belongs to, learnt from nothing else.

With guidance `surrogate` it stands in for the target model everywhere, so that answers depend on
the private rows through the Veil and through nothing else.
"""

from __future__ import annotations

from torch import Tensor, nn

from counterveil.training import fit, seeded, tanh_network


def train_surrogate(
    points: Tensor,
    labels: Tensor,
    classes: int,
    *,
    hidden: tuple[int, ...],
    epochs: int,
    seed: int,
) -> nn.Sequential:
    """f~ from samples of the population, in which all classes are alike."""
    surrogate = seeded(lambda: tanh_network(points.shape[1], hidden, classes), seed)
    surrogate = surrogate.to(points.device)
    fit(
        surrogate,
        lambda rows: nn.functional.cross_entropy(surrogate(points[rows]), labels[rows]),
        len(points),
        epochs=epochs,
        batch=128,
        rate=2e-3,
        seed=seed,
    )
    return surrogate
