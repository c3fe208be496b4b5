"""How a row's answers were made (method, mechanism, guidance, ε), what is promised, in words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from counterveil.privacy import Level
from counterveil_lab.report import paper_values
from counterveil_lab.report.numbers import epsilon_of, number, show_epsilon
from counterveil_lab.results import Row

DATASETS = {
    "adult": "Adult",
    "hospital": "Hospital",
    "homecredit": "HomeCredit (14.9 %)",
    "mnist": "MNIST",
    "purchase": "Purchase",
    "purchase-substitute": "Purchase substitute",
    "texas": "Texas",
    "texas-substitute": "Texas substitute",
    "digits": "Digits",
}
PEERS = {
    "dice-gradient": "DiCE, gradient",
    "dice-random": "DiCE, random",
    "cadex-0": "CADEX, threshold 0",
    "cadex-0.5": "CADEX, threshold .5",
    "cchvae": "C-CHVAE",
    "revise": "REVISE",
}
LATENT, ORIGINAL = ("cchvae", "revise"), ("dice-gradient", "dice-random", "cadex-0", "cadex-0.5")
OURS = {
    "counterveil": "",
    "counterveil-unpolished": "not polished",
    "algorithm-2": "Algorithm 2",
    "tensors-unpolished": "tensors to tensors, not polished",
    "amortised": "amortised",
    "amortised, refined": "amortised, refined",
}
MECHANISMS = ("paper", "functional", "dpsgd")


@dataclass(frozen=True)
class Way:
    """One way to an answer. `extra` holds further columns in which rows of one file differ."""

    method: str
    mechanism: str | None
    guidance: str | None
    epsilon: float | None
    extra: tuple[str, ...] = ()
    delta: float = 0.0

    @property
    def peer(self) -> bool:
        return self.mechanism is None

    @property
    def level(self) -> str:
        """The guarantee: "" for peers, which have none and claim none."""
        if self.peer:
            return ""
        if self.mechanism == "paper" or self.epsilon is None or math.isinf(self.epsilon):
            return Level.NONE.value
        return (Level.END_TO_END if self.guidance == "surrogate" else Level.EXPLAINER).value

    @property
    def label(self) -> str:
        """A row's name in a table."""
        if self.peer:
            words = [PEERS.get(self.method, self.method)]
        else:
            words = [f"`{self.mechanism}`", OURS.get(self.method, self.method)]
            words += ["surrogate"] if self.guidance == "surrogate" else []
        return ", ".join([*filter(None, words), *self.extra])

    @property
    def amount(self) -> str:
        """ε, and δ where there is one."""
        return show_epsilon(self.epsilon) + (f", δ {self.delta:g}" if self.delta else "")

    @property
    def printed_as(self) -> str:
        """The paper's column beside this way, "" for none."""
        if self.peer:
            return self.method
        plain = self.method in {"counterveil", "algorithm-2"} and not self.extra
        return paper_values.dpc(self.mechanism, self.guidance, self.epsilon) if plain else ""

    @property
    def rank(self) -> tuple[Any, ...]:
        """Peers first, then mechanisms as the reader meets them, noise falling."""
        names = [*PEERS, *OURS]
        place = names.index(self.method) if self.method in names else len(names)
        kind = MECHANISMS.index(self.mechanism) if self.mechanism in MECHANISMS else len(MECHANISMS)
        epsilon = -1.0 if self.epsilon is None else self.epsilon
        if self.peer:
            return (0, place, 0, False, "", 0.0, self.extra)
        return (1, 0, kind, self.guidance == "surrogate", place, epsilon, self.extra)


def way_of(row: Row, extra: Iterable[str] = ()) -> Way:
    """The way of a row; `extra` names further columns to tell rows apart by."""
    method = str(row.get("method") or "counterveil")
    mechanism = row.get("mechanism")
    ours = method in OURS or mechanism is not None
    return Way(
        method,
        str(mechanism or "functional") if ours else None,
        str(row.get("guidance") or "model") if ours else None,
        epsilon_of(row) if ours else None,
        tuple(f"{name} {row[name]}" for name in extra if row.get(name) is not None),
        (number(row.get("delta")) or 0.0) if ours else 0.0,
    )


def telling(rows: Iterable[Row], columns: Iterable[str]) -> tuple[str, ...]:
    """Those of `columns` in which ways of our own differ, so that they must be told apart."""
    rows = list(rows)
    found = []
    for column in columns:
        seen: dict[Way, set[str]] = {}
        for row in rows:
            seen.setdefault(way_of(row), set()).add(str(row.get(column)))
        if any(len(values) > 1 for values in seen.values()):
            found.append(column)
    return tuple(found)


def dataset_name(name: str) -> str:
    """A dataset for people."""
    return DATASETS.get(name, name)


def in_order(names: Iterable[str]) -> list[str]:
    """Datasets in the paper's order, others behind."""
    known = list(DATASETS)
    return sorted(set(names), key=lambda name: (known.index(name) if name in known else 99, name))
