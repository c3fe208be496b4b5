"""How good a private model is on held-out private rows: exactly, or with noise.

`measure_score` counts, for each class, the held-out records that the model gets wrong and right.

Formal guarantee: the noisy counts are (ε, δ)-DP (pure ε-DP for δ = 0) under replace-one of one unit
of the held-out table, its number of units public.

Proof. What the model decides on a record is a function of this record and of the veil, which is
fixed before the first row is read: a row is encoded by the schema alone, and the decision does not
depend on rows asked about together (`PrivateModel.decide`). So a record adds 1 to one cell of a
(classes, 2) table of counts, or nothing where its label is not in the schema. Replacing a record
takes 1 from at most one cell and adds 1 to at most one: Δ₁ = 2, Δ₂ = √2; replacing a person, of
whom at most m records count, Δ₁ = 2m, Δ₂ = √2·m. The counts get exact discrete noise that OpenDP's
privacy map certifies for these. Shares and intervals are computed from the noisy counts.

If the veil was made from rows of the same people, the guarantee holds for every veil that may have
come out, so ε and δ of veil and score add up (adaptive composition): charge the same account.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

import numpy as np

from counterveil.curator.coefficients import Sums, fill
from counterveil.curator.noise import EXACT, NoiseSource
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array
from counterveil.intervals import clopper_pearson
from counterveil.privacy import Budget
from counterveil.privacy.record import Measurement, Sensitivity
from counterveil.privacy.statement import LAPLACE
from counterveil.private_model import PrivateModel

ERROR = 0.05  # the probability that an interval misses
WRONG, RIGHT = 0, 1  # columns of the counts


class RightCounts(Sums):
    """`counts` (classes, 2): how many records of each class the model gets wrong and right."""

    by_points = True

    def __init__(self, model: PrivateModel) -> None:
        self.model = model
        self.counts = np.zeros((len(model.schema.label.classes), 2), dtype=np.int64)

    def add(self, private_points: Array, private_classes: Array) -> None:
        """Count a batch of encoded rows (rows, width)."""
        right = self.model.decide(private_points) == private_classes
        np.add.at(self.counts, (private_classes, right.astype(np.intp)), 1)

    @property
    def exact(self) -> Sequence[Array]:
        """The counts."""
        return [self.counts]


def count_right(table: PrivateTable, model: PrivateModel) -> Array:
    """Exact int64 counts (classes, 2) of records that the model gets wrong and right. Private."""
    private_counts = RightCounts(model)
    fill(table, private_counts)
    return private_counts.counts


def measure_score(
    table: PrivateTable, model: PrivateModel, budget: Budget, noise: NoiseSource = EXACT
) -> Measurement:
    """The counts of `count_right` with noise: all that leaves. One pass over the rows.

    The curator always uses the exact noise; an audit may give a `noise` that listens.
    """
    private_counts = count_right(table, model)
    bound = Sensitivity.of_counts(1, table.records)
    what = "counts of (class, wrong or right) of a private model on held-out rows"
    return noise.perturb("score", what, private_counts, bound, budget.rounded_down())


@dataclass(frozen=True)
class Estimate:
    """A share with an interval that holds the true one with a confidence of 95 %."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True, eq=False)
class Score:
    """What was counted, and the shares that follow.

    `counts`: (classes, 2), wrong and right; noisy as `measurement` tells, exact and private where
    that is None. `records`: of a person, so many count at most. `model`: the digest of its veil and
    the weights of its classes.

    Intervals are for people like these, drawn independently: they cover the noise (its exact tails;
    half of the error) and the draw of the held-out people (Clopper and Pearson's bounds). Records
    of one person may be alike, so that `records` of them count as one draw.
    """

    classes: tuple[Any, ...]
    counts: Array
    measurement: Measurement | None
    unit: str
    units: int
    records: int
    model: str

    @property
    def accuracy(self) -> Estimate:
        """The share of all records that the model gets right."""
        wrong, right = self.counts.sum(axis=0).tolist()
        return self._share(right, wrong, len(self.counts), ERROR)

    @property
    def recalls(self) -> list[Estimate]:
        """For each class, the share that is got right; all intervals hold together."""
        error = ERROR / len(self.counts)
        return [self._share(right, wrong, 1, error) for wrong, right in self.counts.tolist()]

    @property
    def balanced_accuracy(self) -> Estimate:
        """The mean of the classes' shares: every class weighs the same."""
        return Estimate(*np.mean([astuple(each) for each in self.recalls], axis=0).tolist())

    @property
    def how(self) -> str:
        """What the numbers are, in one line."""
        if self.measurement is None:
            return "EXACT AND PRIVATE: no noise was added, and no ε covers it"
        made = self.measurement
        return f"{made.mechanism} noise of scale {made.scale:.4g} on each count: {made.share}"

    def _share(self, right: int, wrong: int, cells: int, error: float) -> Estimate:
        """right/(right + wrong), where each of both is the sum of so many noisy counts."""
        side = error / 2  # that the true share is below, or above
        noisy = self.measurement is not None
        away = tail(self.measurement, cells, side / 4)  # one of both sums is further off: side / 2
        sampling = side / 2 if noisy else side

        def bound(hits: float, others: float, place: int) -> float:
            hits, others = max(0.0, hits) / self.records, max(0.0, others) / self.records
            return clopper_pearson(hits, hits + others, sampling)[place]

        low, high = bound(right - away, wrong + away, 0), bound(right + away, wrong - away, 1)
        middle = right / (right + wrong) if right + wrong > 0 else (low + high) / 2
        return Estimate(min(max(middle, low), high), low, high)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values for JSON."""
        made = self.measurement
        return {
            "private": made is None,
            "how": self.how,
            "model": self.model,
            "unit": self.unit,
            "units": self.units,
            "max_records": self.records,
            "access": None if made is None else made.access.model_dump(mode="json"),
            "confidence": 1 - ERROR,
            "accuracy": asdict(self.accuracy),
            "balanced_accuracy": asdict(self.balanced_accuracy),
            "classes": [
                {"class": name, "wrong": wrong, "right": right, "share_right": asdict(share)}
                for name, (wrong, right), share in zip(
                    self.classes, self.counts.tolist(), self.recalls, strict=True
                )
            ],
        }

    def to_json(self) -> bytes:
        """The content of its file."""
        return (json.dumps(self.to_dict(), ensure_ascii=False, indent=2) + "\n").encode()

    @property
    def digest(self) -> str:
        """SHA-256 of its file: the name under which a ledger keeps it."""
        return hashlib.sha256(self.to_json()).hexdigest()


def score_of(
    table: PrivateTable, model: PrivateModel, counts: Array, measurement: Measurement | None
) -> Score:
    """The score of `model` on `table` from its counts, noisy or exact."""
    return Score(
        classes=table.schema.label.classes,
        counts=counts,
        measurement=measurement,
        unit=table.unit,
        units=table.size,
        records=table.records,
        model=f"veil {model.veil[:12]}, classes {model.classes}",
    )


def tail(measurement: Measurement | None, cells: int, error: float) -> float:
    """How far the noise on a sum of `cells` counts is off on one side, but for probability `error`.

    Gaussian: subgaussian with variance σ² a count (Canonne, Kamath and Steinke 2020). Laplace of
    scale b, q = exp(−1/b): P(Z ≥ t) = q^t/(1 + q) for one count; for a sum the smaller of the union
    bound and of Chernoff's, at the best of some rates a < 1/b: E exp(aZ) =
    (1 − q)²/((1 − q·exp(a))·(1 − q·exp(−a))).
    """
    if measurement is None:
        return 0.0
    scale = measurement.scale
    if measurement.mechanism != LAPLACE:
        return scale * math.sqrt(-2 * cells * math.log(error))
    q = math.exp(-1 / scale)
    union = cells * max(0.0, -scale * math.log(error / cells * (1 + q)))
    bounds = [union]
    for share in np.linspace(0.02, 0.98, 49).tolist():
        rate = share / scale
        grown = 2 * math.log1p(-q) - math.log1p(-q * math.exp(rate))
        grown -= math.log1p(-q * math.exp(-rate))
        bounds.append((cells * grown - math.log(error)) / rate)
    return min(bounds)
