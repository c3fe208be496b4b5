"""Games at the level of releases: real ones, with the curator's own noise, on tiny tables.

| view | the adversary sees |
|---|---|
| autoencoder + prototypes | every number of a veil |
| prototypes | the class prototypes alone |
| counterfactuals | answers to fixed queries, guided by the surrogate: end to end |
| outcome | whether a release comes out at all |

Whatever is computed from private coefficients can only lose information, so these games find less
than those on coefficients; they are here to find what reaches a release some other way. Training is
cut short: it is post-processing, and a few hundred releases a side have to be made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from counterveil.audit.coefficients import Scores
from counterveil.audit.game import project
from counterveil.audit.worlds import Pair
from counterveil.build import Training
from counterveil.curator import Curator
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array, Encoding
from counterveil.errors import InputError
from counterveil.networks import Autoencoder, class_means
from counterveil.privacy import Budget
from counterveil.search import Explainer
from counterveil.veil import Veil

EPOCHS = 2
SHORT = Training(256, EPOCHS, 128, 5e-3, (8,), 2)
SEARCH_STEPS = 10


def release_pair(pair: Pair, budget: Budget, mechanism: str, runs: int) -> list[list[Veil]]:
    """`runs` veils of each world. The training seed is fixed: the adversary knows it."""
    curator = Curator(pair.schema, unit_column=pair.unit_column, max_records=pair.max_records)
    release = partial(
        curator.release,
        epsilon=budget.epsilon,
        delta=budget.delta,
        mechanism=mechanism,
        order=pair.order,
        epochs=EPOCHS,
        training=SHORT,
        progress=False,
    )
    return [[release(frame) for _ in range(runs)] for frame in (pair.one, pair.two)]


def weights_and_prototypes(veil: Veil) -> Array:
    """Every number of a veil."""
    networks = [veil.autoencoder] + ([veil.surrogate] if veil.surrogate is not None else [])
    parts = [weights.reshape(-1) for network in networks for weights in network.parameters()]
    return torch.cat([*parts, veil.prototypes.reshape(-1)]).double().numpy()


def prototypes_alone(veil: Veil) -> Array:
    """The class prototypes."""
    return veil.prototypes.reshape(-1).double().numpy()


def counterfactuals(veil: Veil) -> Array:
    """Answers to one query in each cell of the first feature: row, status and probability."""
    encoding = Encoding(veil.schema)
    queries = encoding.decode(np.eye(veil.schema.width))
    target = veil.schema.label.classes[-1]
    answer = Explainer(veil, guidance="surrogate").explain(
        queries, target, method="iterations", iterations=SEARCH_STEPS, polish=False, progress=False
    )
    rows = encoding.encode(answer.rows).reshape(-1)
    return np.concatenate([rows, answer.valid.astype(np.float64), answer.probability])


VIEWS: dict[str, Callable[[Veil], Array]] = {
    "autoencoder + prototypes": weights_and_prototypes,
    "prototypes": prototypes_alone,
    "counterfactuals": counterfactuals,
}


def view_scores(pair: Pair, budget: Budget, mechanism: str, runs: int) -> dict[str, Scores]:
    """Every view of the same veils, along the difference of the worlds' means."""
    veils = release_pair(pair, budget, mechanism, runs)
    scores = {}
    for name, view in VIEWS.items():
        one, two = (np.stack([view(veil) for veil in world]) for world in veils)
        scores[name] = project(one, two)
    return scores


class KnownRows:
    """An adversary who knows both tables and is handed an encoder and prototypes.

    With the encoder it computes the exact class means of D and of D', and looks which of them were
    released. Noise on the way to the encoder is of no use against it.
    """

    def __init__(self, pair: Pair) -> None:
        self._classes = len(pair.schema.label.classes)
        self._worlds = [_tensors(table) for table in pair.tables]

    def means(self, autoencoder: Autoencoder, world: int) -> Tensor:
        """Class means of encodings of the rows of a world (Eq. prot_construct)."""
        return class_means(autoencoder, *self._worlds[world], self._classes)

    def score(self, autoencoder: Autoencoder, prototypes: Tensor) -> float:
        """1 if the prototypes are nearer to those of D', -1 if to those of D, 0 if neither."""
        away = [float((self.means(autoencoder, world) - prototypes).norm()) for world in (0, 1)]
        return float(np.sign(away[0] - away[1]))

    def scores(self, veils: list[list[Veil]]) -> Scores:
        """The score of every veil."""
        one, two = (
            np.array([self.score(veil.autoencoder, veil.prototypes) for veil in world])
            for world in veils
        )
        return one, two


def _tensors(table: PrivateTable) -> tuple[Tensor, Tensor]:
    points, labels = table.private_rows()
    return torch.as_tensor(points, dtype=torch.float32), torch.as_tensor(labels)


def outcome_scores(pair: Pair, attempt: Callable[[PrivateTable], object], runs: int) -> Scores:
    """1 where the mechanism refuses the table: an error is an answer, too."""

    def refuses(table: PrivateTable) -> float:
        try:
            attempt(table)
        except InputError:
            return 1.0
        return 0.0

    one, two = (np.array([refuses(table) for _ in range(runs)]) for table in pair.tables)
    return one, two
