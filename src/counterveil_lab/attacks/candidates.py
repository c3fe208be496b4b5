"""Who is scored, and which rows the attacker has to prepare himself with."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.encoding import Array
from counterveil_lab.attacks import shadows
from counterveil_lab.attacks.attribute import Ask
from counterveil_lab.attacks.membership import Guess
from counterveil_lab.attacks.protocol import Arena
from counterveil_lab.attacks.scores import worth
from counterveil_lab.attacks.shadows import Evidence
from counterveil_lab.attacks.stack import Stack
from counterveil_lab.results import Row
from counterveil_lab.targets import Recipe, encoded

FEW = 300
RIDGE = 1e-3
BY_HEART = Recipe(epochs=200, batch=32, rate=1e-2)


@dataclass(frozen=True, eq=False)
class Pool:
    """The attacker's rows for shadows, twice as many as f had so that half of them is like D1."""

    frame: pd.DataFrame
    points: Tensor
    classes: Tensor

    @classmethod
    def of(cls, arena: Arena, asked: int, first: pd.DataFrame | None = None) -> Pool:
        """D3 and what of D2 was not asked about; `first`: candidates, for online attacks."""
        frames = [] if first is None else [first]
        rows = pd.concat([*frames, arena.d3, arena.d2.iloc[asked:]], ignore_index=True)
        rows = rows.head(max(2 * len(arena.d1), 0 if first is None else len(first)))
        return cls(rows, *encoded(rows, arena.schema))


@dataclass(frozen=True, eq=False)
class Candidates:
    """Members and as many outsiders, one after the other."""

    frame: pd.DataFrame
    points: Tensor
    classes: Tensor

    @classmethod
    def of(cls, arena: Arena, count: int) -> Candidates:
        count = min(count, len(arena.members(count)), len(arena.d4))
        frame = pd.concat([arena.members(count), arena.outsiders(count)], ignore_index=True)
        return cls(frame, *encoded(frame, arena.schema))

    @property
    def is_member(self) -> Array:
        """Who is one: for the judge of the game alone."""
        return np.arange(len(self.frame)) < len(self.frame) // 2

    def row(self, attack: str, target: str, guess: Guess, seed: int) -> Row:
        """How well an attack did."""
        scores, member = guess.scores, self.is_member
        return {"attack": attack, "target": target, **worth(scores[member], scores[~member],
                seed=seed), "accuracy": guess.accuracy(member)}  # fmt: skip


def without_model(people: Candidates, seed: int) -> Row:
    """The control of `attack`: members told from others by their values alone.

    Logistic regression on encoding and label, fitted on one half and scored on the other, both
    ways. Away from .5 the two tables differ by themselves, and membership numbers mean less.
    """
    classes = torch.nn.functional.one_hot(people.classes, int(people.classes.max()) + 1)
    points = torch.cat([people.points, classes.float()], dim=1)
    member = torch.as_tensor(people.is_member)
    half = torch.as_tensor(np.random.default_rng(seed).permutation(len(points)) % 2 == 0)
    scores = torch.zeros(len(points))
    for learnt, scored in ((half, ~half), (~half, half)):
        weights = _logistic(points[learnt], member[learnt].float())
        told = points[scored] @ weights
        scores[scored] = told.argsort().argsort().float() / len(told)  # halves on one scale
    return people.row("values alone", "tables", Guess(scores.double().numpy()), seed)


def _logistic(points: Tensor, truth: Tensor) -> Tensor:
    weights = torch.zeros(points.shape[1], requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=50)

    def loss() -> Tensor:
        optimiser.zero_grad()
        wrong = torch.nn.functional.binary_cross_entropy_with_logits(points @ weights, truth)
        whole: Tensor = wrong + RIDGE * (weights**2).sum()
        whole.backward()
        return whole

    optimiser.step(loss)
    return weights.detach()


def overfitted(arena: Arena) -> Arena:
    """The control in which attacks have to succeed: f knows a few rows by heart.

    Shadows of it have to be trained by the same recipe, `BY_HEART`.
    """
    rows = arena.d1.head(FEW)
    points, classes = encoded(rows, arena.schema)
    everything = torch.arange(len(rows))[None]
    stack = shadows.train_shadows(arena.schema, points, classes, everything, arena.seed, BY_HEART)
    return replace(arena.defended(shadows.one_of(stack, 0)), d1=rows)


def memoriser(points: Tensor, classes: Tensor, count: int) -> Ask:
    """The worst f there is: sure of the class of every row it has seen, and of nothing else."""
    known = dict(zip((row.tobytes() for row in points.numpy()), classes.tolist(), strict=True))
    sure, unsure = torch.eye(count) * 0.98 + 0.02 / count, torch.full((count,), 1 / count)

    def answer(asked: Tensor) -> Tensor:
        numbers = (known.get(row.tobytes()) for row in asked.numpy())
        told = [unsure if number is None else sure[number] for number in numbers]
        return torch.stack(told).log()

    return answer


def shadows_of(
    arena: Arena, pool: Pool, count: int, recipe: Recipe | None, seed: int = 0
) -> tuple[Stack, Tensor]:
    seed = 7919 * (arena.seed + 1) + seed  # never f's own
    numbers = shadows.halves(len(pool.frame), count, seed)
    stack = shadows.train_shadows(arena.schema, pool.points, pool.classes, numbers, seed, recipe)
    return stack, shadows.mask(numbers, len(pool.frame))


def evidence_of(people: Candidates, pool: Pool, inside: Tensor, own: Ask, others: Ask) -> Evidence:
    none = torch.zeros(len(inside), len(people.frame), dtype=torch.bool)
    return Evidence(people.classes, own(people.points)[0], others(people.points), none,
                    pool.classes, own(pool.points)[0], others(pool.points), inside)  # fmt: skip
