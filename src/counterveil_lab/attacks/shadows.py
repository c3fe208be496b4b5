"""Shadow models: networks like f that an attacker trains on rows of his own.

Each of K networks learns from a random half of a pool of rows, so that the attacker knows for each
row and network whether it was in. They are trained as f was, all at once, from weights of their
own. What f (or f') and its shadows say of the same people is `Evidence`: all that attacks on a
model's answers need. A shadow pipeline is a shadow of f with an explainer of the same kind for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.encoding import Array
from counterveil.veil import Veil
from counterveil_lab.attacks.batched_training import Networks, train_classifiers
from counterveil_lab.attacks.defences import ByVeil, Defence, RandomLabels, build
from counterveil_lab.attacks.protocol import Arena, Size, architecture
from counterveil_lab.attacks.scores import worth
from counterveil_lab.results import Row
from counterveil_lab.targets import ANY_OTHER, RECIPES, Recipe, encoded

MOST = 30.0  # a logit beyond it says no more than "sure"
FEW = 300  # rows that an overfitted f knows
BY_HEART = Recipe(epochs=200, batch=32, rate=1e-2)
SHORT_EPOCHS = 10  # of shadow explainers, at most
Ask = Callable[[Tensor], Tensor]  # points -> log-probabilities of the classes
Signal = Callable[[Tensor, Tensor], Array]


@dataclass(frozen=True, eq=False)
class People:
    """Rows with their encoding and classes."""

    frame: pd.DataFrame
    points: Tensor
    classes: Tensor


@dataclass(frozen=True, eq=False)
class Pool(People):
    """The attacker's rows for shadows, twice as many as f had so that half of them is like D1."""

    @classmethod
    def of(cls, arena: Arena, asked: int, first: pd.DataFrame | None = None) -> Pool:
        """D3 and what of D2 was not asked about; `first`: candidates, for online attacks."""
        frames = [] if first is None else [first]
        rows = pd.concat([*frames, arena.d3, arena.d2.iloc[asked:]], ignore_index=True)
        rows = rows.head(max(2 * len(arena.d1), 0 if first is None else len(first)))
        return cls(rows, *encoded(rows, arena.schema))


@dataclass(frozen=True, eq=False)
class Guess:
    """Scores of the candidates, and from where on they are called members, if that was fixed."""

    scores: Array
    threshold: float | None = None

    def accuracy(self, is_member: Array) -> float | None:
        """The share told right at the threshold; candidates are half members."""
        if self.threshold is None:
            return None
        return float(((self.scores >= self.threshold) == is_member).mean())


@dataclass(frozen=True, eq=False)
class Candidates(People):
    """Members and as many outsiders, one after the other."""

    @classmethod
    def of(cls, arena: Arena, count: int) -> Candidates:
        """At most `count` of each."""
        count = min(count, len(arena.members(count)), len(arena.d4))
        frame = pd.concat([arena.members(count), arena.outsiders(count)], ignore_index=True)
        return cls(frame, *encoded(frame, arena.schema))

    @property
    def is_member(self) -> Array:
        """Who is one: for the judge of the game alone."""
        return np.arange(len(self.frame)) < len(self.frame) // 2

    def row(self, attack: str, target: str, guess: Guess, seed: int) -> Row:
        """How well an attack did."""
        member = self.is_member
        scored = worth(guess.scores[member], guess.scores[~member], seed=seed)
        return {"attack": attack, "target": target, **scored, "accuracy": guess.accuracy(member)}


@dataclass(frozen=True, eq=False)
class Signals:
    """Evidence as single numbers: (candidates,), (K, candidates), and the same of the pool."""

    target: Array
    shadows: Array
    joined: Array
    pool: Array
    pool_shadows: Array
    inside: Array


@dataclass(frozen=True, eq=False)
class Evidence:
    """Log-probabilities of the classes for candidates and for rows of the pool.

    `target`: of the model under attack, for (candidates, classes); `shadows`: of each shadow,
    (K, candidates, classes); `joined`: which candidates each shadow learnt from (none, where the
    attacker trains on rows of his own alone); `pool`, `pool_shadows` and `inside`: the same for the
    pool. `classes` and `pool_classes`: the true ones, which he knows.
    """

    classes: Tensor
    target: Tensor
    shadows: Tensor
    joined: Tensor
    pool_classes: Tensor
    pool: Tensor
    pool_shadows: Tensor
    inside: Tensor

    @classmethod
    def of(cls, people: People, pool: Pool, inside: Tensor, own: Ask, others: Ask) -> Evidence:
        """`own`: the model under attack; `others`: its shadows, (K, points, classes)."""
        told = (own(people.points), others(people.points))
        none = torch.zeros(len(inside), len(people.frame), dtype=torch.bool)
        known = (pool.classes, own(pool.points), others(pool.points), inside)
        return cls(people.classes, *told, none, *known)

    @property
    def online(self) -> bool:
        """Whether the shadows learnt from some of the candidates."""
        return bool(self.joined.any())

    def first(self, count: int) -> Evidence:
        """With the first few shadows of the pool alone."""
        return replace(self, pool_shadows=self.pool_shadows[:count], inside=self.inside[:count])

    def signals(self, signal: Signal) -> Signals:
        """One number a row in the place of a vector."""
        pool = signal(self.pool, self.pool_classes), signal(self.pool_shadows, self.pool_classes)
        own = signal(self.target, self.classes), signal(self.shadows, self.classes)
        return Signals(*own, self.joined.numpy(), *pool, self.inside.numpy())


def confidence(log_proba: Tensor, classes: Tensor) -> Array:
    """The probability of the true class."""
    return log_proba.gather(-1, _at(log_proba, classes))[..., 0].exp().double().numpy()


def margin(log_proba: Tensor, classes: Tensor) -> Array:
    """log p/(1 - p) of the true class: nearly normal over shadow models, which LiRA relies on."""
    at = _at(log_proba, classes)
    others = log_proba.scatter(-1, at, -torch.inf).logsumexp(dim=-1)
    return (log_proba.gather(-1, at)[..., 0] - others).clamp(-MOST, MOST).double().numpy()


def _at(log_proba: Tensor, classes: Tensor) -> Tensor:
    return classes.expand(log_proba.shape[:-1])[..., None]


def train_shadows(
    arena: Arena, people: People, numbers: Tensor, seed: int, recipe: Recipe | None = None
) -> Networks:
    """Networks like f, each trained on its own `numbers` (networks, rows) of the people."""
    recipe = recipe or RECIPES.get(arena.schema.name, ANY_OTHER)
    given = architecture(arena.schema), people.points, people.classes, numbers
    return train_classifiers(*given, arena.classes, recipe, seed)


def shadows_of(
    arena: Arena, pool: Pool, count: int, recipe: Recipe | None, seed: int = 0
) -> tuple[Networks, Tensor]:
    """`count` shadows, each of a random half of the pool; and which rows each was trained on."""
    seed = 7919 * (arena.seed + 1) + seed  # never f's own
    rng, rows = np.random.default_rng(seed), len(pool.frame)
    halves = np.stack([rng.permutation(rows)[: rows // 2] for _ in range(count)])
    numbers = torch.as_tensor(halves)
    inside = torch.zeros(count, rows, dtype=torch.bool).scatter(1, numbers, True)
    return train_shadows(arena, pool, numbers, seed, recipe), inside


def overfitted(arena: Arena) -> Arena:
    """The control in which attacks have to succeed: f knows a few rows by heart.

    Shadows of it have to be trained by the same recipe, `BY_HEART`.
    """
    rows = arena.d1.head(FEW)
    people = People(rows, *encoded(rows, arena.schema))
    networks = train_shadows(arena, people, torch.arange(len(rows))[None], arena.seed, BY_HEART)
    return replace(arena.defended(networks.one(0)), d1=rows)


def memoriser(points: Tensor, classes: Tensor, count: int) -> Ask:
    """The worst f there is: sure of the class of every row it has seen, and of nothing else."""
    known = dict(zip((row.tobytes() for row in points.numpy()), classes.tolist(), strict=True))
    sure, unsure = torch.eye(count) * 0.98 + 0.02 / count, torch.full((count,), 1 / count)

    def answer(asked: Tensor) -> Tensor:
        numbers = (known.get(row.tobytes()) for row in asked.numpy())
        told = [unsure if number is None else sure[number] for number in numbers]
        return torch.stack(told).log()

    return answer


def shadow_defences(
    arena: Arena,
    defence: Defence,
    pool: Pool,
    networks: Networks,
    inside: Tensor,
    size: Size,
    epsilon: float | None,
    veils: dict[int, Veil],
) -> list[Defence]:
    """The same kind of explainer for each shadow of f, made from the rows that this shadow saw.

    `veils` by the number of the shadow: taken from where they are, and filled.
    """
    epochs = min(size.epochs or SHORT_EPOCHS, SHORT_EPOCHS)
    short = replace(size, epochs=epochs)
    own = defence.own if isinstance(defence, RandomLabels) else defence
    stated, delta = 1.0, 0.0  # where the defence has no veil that states its own
    if isinstance(own, ByVeil):
        statement = own.explainer.veil.statement
        stated, delta = statement.epsilon or 1.0, statement.delta
    made = []
    for number, kept in enumerate(inside.numpy()):
        rows, seed = pool.frame[kept].reset_index(drop=True), arena.seed + 1000 * (number + 1)
        game = replace(arena.defended(networks.one(number)), d1=rows, seed=seed)
        budget, veil = epsilon or stated, veils.get(number)
        one = build(defence.name, game, epsilon=budget, size=short, veil=veil, delta=delta)
        if isinstance(one, ByVeil):
            veils[number] = one.explainer.veil
        made.append(one)
    return made
