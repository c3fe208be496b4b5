"""What a score says: shares and an AUC from counts of held-out records, with their intervals.

Formal guarantee: what follows from noisy counts is as private as they are: (ε, δ)-DP under
replace-one of one unit. What follows from exact counts is exact and private.
"""

import hashlib
import json
from dataclasses import asdict, astuple, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from counterveil.encoding import Array
from counterveil.intervals import Estimate, clopper_pearson
from counterveil.pages import notebook_table
from counterveil.privacy.record import Measurement
from counterveil.privacy.statement import LAPLACE

ERROR = 0.05  # the probability that an interval misses
DRAWS = 4000  # of the noise, for intervals
TINY = 1e-9
LEAST_BINS = 4  # of noisy counts, for an AUC
HEADINGS = ("class", "share of rows", "right", "wrong", "share right, 95 % interval")


@dataclass(frozen=True, eq=False)
class Counts:
    """`values` (classes, bins), noisy as `measurement` tells; exact and private where it is None.

    Intervals are for people like these, drawn independently: Clopper and Pearson's bounds on what
    the exact counts may be. Those are the noisy ones less draws of the noise, by a public seed.
    Records of one person may be alike: `records` of them, the most that count, are one draw.
    """

    values: Array
    measurement: Measurement | None
    records: int

    @cached_property
    def possible(self) -> Array:
        """What the exact counts may be: (draws, classes, bins)."""
        made, dice = self.measurement, np.random.default_rng(0)
        if made is None:
            return self.values[np.newaxis].astype(np.float64)
        draw = dice.laplace if made.mechanism == LAPLACE else dice.normal
        return self.values - draw(scale=made.scale, size=(DRAWS, *self.values.shape))

    def share(self, mine: Array, others: Array, error: float = ERROR) -> Estimate:
        """The share of the cells `mine` in them and `others`: masks of the shape of the counts."""
        hits, misses = (self.possible[:, mask].sum(axis=1).clip(0) for mask in (mine, others))
        share = np.divide(hits, hits + misses, out=np.zeros_like(hits), where=hits > 0)
        low, high = _bounds(share, share, (hits + misses) / self.records, error)
        hit, missed = (int(self.values[mask].sum()) for mask in (mine, others))
        return _estimate(hit / (hit + missed) if hit + missed > 0 else (low + high) / 2, low, high)

    def auc(self, error: float = ERROR) -> Estimate:
        """How often, of a record of each of two classes, the second has the higher bin; ties half.

        Where counts are noisy, the interval also holds whatever the order within a bin is.
        """
        first, second = self.values.astype(np.float64)
        won, tied, _ = _pairs(first, second)
        value = float(won + tied / 2)
        least, tied, people = _pairs(self.possible[:, 0], self.possible[:, 1])
        most = least + tied
        if self.measurement is None:  # a bin for each log-odds: a tie is one
            least = most = np.array([value])
        people = people * _weight(first, second) / self.records
        return _estimate(value, *_bounds(least.clip(0, 1), most.clip(0, 1), people, error))


@dataclass(frozen=True, eq=False)
class Score:
    """What was counted, and the shares that follow; their intervals hold with 95 % (`Counts`).

    `counts` (classes, bins): noisy as `measurement` tells, exact and private where that is None.
    `tops` (bins,): the highest log-odds of each bin, of two classes; None where bins are wrong and
    right. `records`: of a person, so many count at most. `model`: the digest of its veil and the
    weights of its classes. `names`: what people call the classes.
    """

    classes: tuple[Any, ...]
    names: tuple[str, ...]
    counts: Array
    tops: Array | None
    measurement: Measurement | None
    unit: str
    units: int
    records: int
    model: str

    @cached_property
    def _counts(self) -> Counts:
        return Counts(self.counts, self.measurement, self.records)

    @property
    def right(self) -> Array:
        """Which cells (classes, bins) hold records that the model gets right."""
        if self.tops is None:
            return np.tile([False, True], (len(self.classes), 1))
        return np.stack([self.tops <= 0, self.tops > 0])

    @property
    def _of_each_class(self) -> list[Array]:
        """The cells (classes, bins) of each class."""
        return [np.indices(self.counts.shape)[0] == place for place in range(len(self.classes))]

    @property
    def wrong_and_right(self) -> list[tuple[int, int]]:
        """For each class how many records the model gets wrong and right; noisy as the counts."""
        wrong, right = (
            (self.counts * kind).sum(axis=1).tolist() for kind in (~self.right, self.right)
        )
        return list(zip(wrong, right, strict=True))

    @cached_property
    def accuracy(self) -> Estimate:
        """The share of all records that the model gets right."""
        return self._counts.share(self.right, ~self.right)

    @cached_property
    def recalls(self) -> list[Estimate]:
        """For each class, the share that is got right; all intervals hold together."""
        right, share, masks = self.right, self._counts.share, self._of_each_class
        return [share(right & mine, ~right & mine, ERROR / len(masks)) for mine in masks]

    @property
    def balanced_accuracy(self) -> Estimate:
        """The mean of the classes' shares: every class weighs the same."""
        return Estimate(*np.mean([astuple(each) for each in self.recalls], axis=0).tolist())

    @cached_property
    def shares(self) -> list[Estimate]:
        """The share of each class among all records; all intervals hold together."""
        share, masks = self._counts.share, self._of_each_class
        return [share(mine, ~mine, ERROR / len(masks)) for mine in masks]

    @property
    def base_rate(self) -> Estimate:
        """The share of the largest class: the accuracy of always saying that one."""
        return Estimate(*np.max([astuple(each) for each in self.shares], axis=0).tolist())

    @property
    def largest_class(self) -> str:
        """What people call it."""
        return self.names[int(np.argmax([each.value for each in self.shares]))]

    @cached_property
    def auc(self) -> Estimate | None:
        """How often, of a record of each of two classes, that of the second has higher log-odds.

        Ties count half. None where there is none: `why_no_auc`.
        """
        return None if self.why_no_auc else self._counts.auc()

    @property
    def why_no_auc(self) -> str:
        """Why there is no AUC; "" if there is one. For more than two classes it is left out."""
        if self.tops is None:
            return "for two classes only"
        if self.measurement is not None and len(self.tops) < LEAST_BINS:
            return "too much noise; give a larger ε, or more people"
        return ""

    @property
    def how(self) -> str:
        """What the numbers are, in one line."""
        if self.measurement is None:
            return "EXACT AND PRIVATE: no noise was added, and no ε covers it"
        made = self.measurement
        return f"{made.mechanism} noise of scale {made.scale:.4g} on each count: {made.share}"

    @property
    def facts(self) -> dict[str, str]:
        """The numbers for all classes together, as a person reads them."""
        return {
            "accuracy": str(self.accuracy),
            "always the largest class": f"{self.base_rate}: {self.largest_class}",
            "balanced accuracy": str(self.balanced_accuracy),
            "AUC": f"none: {self.why_no_auc}" if self.auc is None else str(self.auc),
        }

    @property
    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """The numbers of each class, under `HEADINGS`, as a person reads them."""
        of_classes = zip(self.names, self.shares, self.wrong_and_right, self.recalls, strict=True)
        return [
            (name, f"{share.value:.3f}", f"{right:,}", f"{wrong:,}", str(recall))
            for name, share, (wrong, right), recall in of_classes
        ]

    def _repr_html_(self) -> str:
        private = self.measurement is None
        return notebook_table(
            f"Score of {self.model}",
            [*self.facts.items(), ("noise", "" if private else self.how)],
            headings=HEADINGS,
            rows=self.rows,
            warning=self.how if private else "",
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values for JSON.

        `bins`: of a noisy score of two classes, the edges and, in each class, the noisy counts.
        """
        made, tops, bins = self.measurement, self.tops, None
        if made is not None and tops is not None:
            bins = {"edges": tops[:-1].tolist(), "counts": self.counts.tolist()}
        of_classes = zip(
            *(self.classes, self.names, self.wrong_and_right, self.recalls, self.shares),
            strict=True,
        )
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
            "base_rate": asdict(self.base_rate),
            "balanced_accuracy": asdict(self.balanced_accuracy),
            "auc": None if self.auc is None else asdict(self.auc),
            "why_no_auc": self.why_no_auc or None,
            "classes": [
                {
                    "class": each,
                    "name": name,
                    "share": asdict(share),
                    "wrong": wrong,
                    "right": right,
                    "share_right": asdict(recall),
                }
                for each, name, (wrong, right), recall, share in of_classes
            ],
            "bins": bins,
        }

    def to_json(self) -> bytes:
        return (json.dumps(self.to_dict(), ensure_ascii=False, indent=2) + "\n").encode()

    @property
    def digest(self) -> str:
        """SHA-256 of its file: the name under which a ledger keeps it."""
        return hashlib.sha256(self.to_json()).hexdigest()


def _estimate(value: float, low: float, high: float) -> Estimate:
    return Estimate(min(max(value, low), high), low, high)


def _bounds(least: Array, most: Array, people: Array, error: float) -> tuple[float, float]:
    """Bounds on a share, of which `least` to `most` were counted among so many people (draws,)."""
    hits, misses, side = least * people, (1 - most) * people, error / 2
    if len(people) == 1:
        low = clopper_pearson(hits[0], people[0], side)[0]
        return low, clopper_pearson(people[0] - misses[0], people[0], side)[1]
    dice = np.random.default_rng(1)
    lows = np.where(hits > 0, dice.beta(hits + TINY, people - hits + 1), 0)
    highs = np.where(misses > 0, dice.beta(people - misses + 1, misses + TINY), 1)
    return float(np.quantile(lows, side)), float(np.quantile(highs, 1 - side))


def _pairs(first: Array, second: Array) -> tuple[Array, Array, Array]:
    """Of counts (…, bins) of two classes: the share of pairs that the second wins, that of ties,
    and how many records the smaller class has. Without any, all pairs tie.
    """
    sizes = first.sum(axis=-1), second.sum(axis=-1)
    smaller = np.minimum(*sizes).clip(0)
    pairs = np.where(smaller > 0, sizes[0] * sizes[1], 1)
    won = (second * (first.cumsum(axis=-1) - first)).sum(axis=-1) / pairs
    tied = (first * second).sum(axis=-1) / pairs
    return np.where(smaller > 0, won, 0), np.where(smaller > 0, tied, 1), smaller


def _weight(first: Array, second: Array) -> float:
    """An AUC varies as a share of so many times as many people as the smaller class has.

    By DeLong's estimate of its variance, from 1 (van Dantzig's bound) to 3, not more.
    """
    sizes = max(first.sum(), 1.0), max(second.sum(), 1.0)
    one, two = first / sizes[0], second / sizes[1]
    below, above = one.cumsum() - one / 2, 1 - two.cumsum() + two / 2
    auc = (two * below).sum()
    variance = ((two * below**2).sum() - auc**2) / sizes[1]
    variance += ((one * above**2).sum() - auc**2) / sizes[0]
    return float(np.clip(auc * (1 - auc) / max(variance * min(sizes), TINY), 1, 3))
