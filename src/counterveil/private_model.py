"""The private model: the veil's f~ as a classifier of rows in original units.

f~ was learnt from the noisy population alone. Whatever it answers is post-processing of the noisy
record: as many questions as one likes, under the one (ε, δ) of the veil.

f~ was taught with as many rows of each class. Its softmax is therefore the probability of a class
where all classes are equally frequent. `classes` says how much they weigh:

- "population": Bayes' rule puts the classes' shares among the people in their place. A logit gets
  log(share) added, with the shares of the noisy population. It is what a classifier of these people
  says; a rare class is seldom decided for.
- "even": as f~ was taught. A rare class is decided for as readily as the others. Every veil with an
  f~ has it; one without a noisy record has no other.

Neither is calibrated on real rows: no real row was seen, and an f~ that knows features one by one
is surer than it should be. What a model is worth on real rows is measured (`Curator.score`).
"""

import copy
from collections.abc import Callable
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from counterveil.encoding import Array, Encoding
from counterveil.networks import one_thread
from counterveil.population import Population
from counterveil.population.whole_scorecard import WholeScorecard
from counterveil.privacy import Statement
from counterveil.schema import Schema
from counterveil.tables import as_frame

ClassWeights = Literal["even", "population"]
BATCH = 8192  # rows that are asked about together


@dataclass(frozen=True, eq=False, repr=False)
class PrivateModel:
    """The classifier that a veil holds; made by `Veil.model`. It cannot be changed.

    `classes_` (classes,) and `feature_names_in_` (columns,) are as scikit-learn has them. Answers
    depend on the row alone, not on those beside it, and are always the same. `veil`: its digest.
    `population` gives that of the veil, if there is one.
    """

    schema: Schema
    surrogate: InitVar[nn.Module]
    statement: Statement
    _: KW_ONLY
    class_share: InitVar[Array | None] = None
    veil: str = ""
    population: Callable[[], Population] | None = None
    classes: ClassWeights = field(init=False)
    _network: nn.Module = field(init=False)

    def __post_init__(self, surrogate: nn.Module, class_share: Array | None) -> None:
        own = copy.deepcopy(surrogate).requires_grad_(False).eval()
        own = own if class_share is None else _at_shares(own, class_share)
        object.__setattr__(self, "_network", own)
        object.__setattr__(self, "classes", "even" if class_share is None else "population")

    def __repr__(self) -> str:
        weights = "equally" if self.classes == "even" else "as among the people"
        return (
            f"PrivateModel({self.schema.name!r}, veil {self.veil[:12]}, {self.statement.headline}; "
            f"classes weigh {weights})"
        )

    @property
    def classes_(self) -> Array:
        """The classes in the order of the columns of `predict_proba`."""
        names = self.schema.label.classes
        kinds = {type(name) for name in names}
        return np.array(names, dtype=None if len(kinds) == 1 else object)

    @property
    def feature_names_in_(self) -> Array:
        """The columns that it takes."""
        return np.array(self.schema.columns, dtype=object)

    @property
    def n_features_in_(self) -> int:
        """How many columns it takes."""
        return len(self.schema.columns)

    @property
    def logits(self) -> nn.Module:
        """A copy of its network: encoded rows (rows, width) to logits (rows, classes)."""
        return copy.deepcopy(self._network)

    @property
    def probabilities(self) -> nn.Module:
        """The network that is exported: encoded rows (rows, width) to probabilities."""
        return nn.Sequential(self.logits, nn.Softmax(dim=1))

    def predict(self, rows: Any) -> Array:
        """The class of each row, (rows,). `rows`: a table in original units, or one mapping."""
        return self.classes_[self._logits_of(rows).argmax(axis=1)]

    def predict_proba(self, rows: Any) -> Array:
        """Probabilities (rows, classes); at even shares or those of the people, by `classes`."""
        return torch.as_tensor(self._logits_of(rows)).softmax(dim=1).numpy()

    def _logits_of(self, rows: Any) -> Array:
        """Logits (rows, classes), a batch at a time; messages count rows over the whole table."""
        frame, encoding, found = as_frame(rows, self.schema), Encoding(self.schema), []
        for start in range(0, max(len(frame), 1), BATCH):
            part = frame.iloc[start : start + BATCH]
            points = encoding.encode(part, np.arange(start, start + len(part)))
            found.append(self.of_encoded(points))
        return np.concatenate(found)

    def of_encoded(self, points: Array) -> Array:
        """Logits (rows, classes) of encoded rows (rows, width)."""
        return logits_alone(self._network, points)


class _AtShares(nn.Module):
    """Logits of a network at even shares as those at the given shares of the classes."""

    log_share: Tensor

    def __init__(self, surrogate: nn.Module, log_share: Array) -> None:
        super().__init__()
        self.surrogate = surrogate
        self.register_buffer("log_share", torch.as_tensor(log_share, dtype=torch.float32))

    def forward(self, points: Tensor) -> Tensor:
        return self.surrogate(points) + self.log_share


def _at_shares(surrogate: nn.Module, class_share: Array) -> nn.Module:
    log_share = np.log(np.maximum(class_share, 1e-6))
    if isinstance(surrogate, WholeScorecard):
        return surrogate.plus(log_share)
    return _AtShares(surrogate, log_share)


@torch.no_grad()
def logits_alone(network: nn.Module, encoded: Array) -> Array:
    """Logits (rows, classes) of encoded rows (rows, width), each a function of its row alone.

    A scorecard's sums are exact. Sums of floats depend in their last digits on rows and threads
    beside, and on where in memory a row begins: one row at a time, by one thread.
    """
    points = torch.as_tensor(encoded, dtype=torch.float32)
    if isinstance(network, WholeScorecard):
        found: Array = network(points).double().numpy()
        return found
    with one_thread():
        return torch.cat([network(row.clone()) for row in points.split(1)]).double().numpy()
