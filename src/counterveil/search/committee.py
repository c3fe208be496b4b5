"""A committee: models that might as well have been trained on people such as these.

A model that was trained once more, on other people of the same kind, decides otherwise near its
boundary. How far an answer is from that is asked of small networks, each taught by itself with rows
of P~. Where the target model may be asked, the rows are labelled by draws from its probabilities:
the networks are what training it again might give. Where nobody asks it, they are labelled by the
classes of P~, each network with a P~ whose noisy record was disturbed once more: they are what
training on the people might give, as far as the veil knows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from counterveil.models import Rows, TargetModel
from counterveil.networks import fit, seeded
from counterveil.population import TreePopulation
from counterveil.privacy.record import NoisyRecord
from counterveil.search.beliefs import Beliefs
from counterveil.search.repair import logit_margin

MEMBERS = 8
TAUGHT = 6000  # rows that each learns from
HIDDEN = 16
EPOCHS, BATCH, RATE = 12, 128, 5e-3


class Committee(nn.Module):
    """Networks of one hidden layer, side by side. They see rows as `Beliefs.seen` shows them."""

    def __init__(self, beliefs: Beliefs, width: int, classes: int) -> None:
        super().__init__()
        self.beliefs = beliefs
        self.first = nn.Parameter(torch.randn(MEMBERS, width, HIDDEN) / width**0.5)
        self.first_bias = nn.Parameter(torch.zeros(MEMBERS, 1, HIDDEN))
        self.second = nn.Parameter(torch.randn(MEMBERS, HIDDEN, classes) / HIDDEN**0.5)
        self.second_bias = nn.Parameter(torch.zeros(MEMBERS, 1, classes))

    def forward(self, points: Tensor) -> Tensor:
        """Logits (members, rows, classes), of rows of its own for each, (members, rows, seen)."""
        hidden = torch.baddbmm(self.first_bias, points, self.first).relu()
        return torch.baddbmm(self.second_bias, hidden, self.second)

    @torch.no_grad()
    def margins(self, points: Tensor, targets: Tensor) -> Tensor:
        """By how much each member prefers the target class, in log-odds: (rows, members)."""
        seen = self.beliefs.seen(points)
        wide = self.first.movedim(0, 1).flatten(1)  # all members in one product
        hidden = (seen @ wide + self.first_bias.reshape(-1)).relu()
        hidden = hidden.unflatten(1, (MEMBERS, HIDDEN)).movedim(1, 0)
        logits = torch.baddbmm(self.second_bias, hidden, self.second)
        goals = targets.expand(MEMBERS, -1)
        return logit_margin(logits.flatten(0, 1), goals.flatten()).unflatten(0, (MEMBERS, -1)).T


def committee_of_model(beliefs: Beliefs, model: TargetModel, seed: int = 0) -> Committee:
    """What training `model` again might give: taught with draws from its probabilities."""
    rng, population = np.random.default_rng(seed), beliefs.population
    points = torch.stack([_rows(population, rng)[0] for _ in range(MEMBERS)])
    asked = Rows.of_points(points.flatten(0, 1), model.encoding)
    chances = model.ask(asked).exp().double().numpy()
    ladder = np.cumsum(chances, axis=1)
    drawn = (ladder < rng.random(len(ladder))[:, None] * ladder[:, -1:]).sum(axis=1)
    labels = torch.as_tensor(drawn).unflatten(0, points.shape[:2])
    return _taught(beliefs, points, labels, seed)


def committee_of_people(beliefs: Beliefs, seed: int = 0) -> Committee:
    """What training on the people might give, as far as the noisy record knows them."""
    rng, population = np.random.default_rng(seed), beliefs.population
    schema = population.grid.schema
    others = [TreePopulation(schema, _again(population, rng)) for _ in range(MEMBERS - 1)]
    drawn = [_rows(each, rng) for each in (population, *others)]
    points, labels = (torch.stack(part) for part in zip(*drawn, strict=True))
    return _taught(beliefs, points, labels, seed)


def _rows(population: TreePopulation, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Rows of P~, (rows, width), as many of each class, and their classes."""
    classes = len(population.totals)
    points, labels = population.sample(TAUGHT, rng, np.full(classes, 1 / classes))
    return torch.as_tensor(points, dtype=torch.float32), torch.as_tensor(labels)


def _again(population: TreePopulation, rng: np.random.Generator) -> NoisyRecord:
    """The record as it might have come out for other people of the same kind, with other noise."""
    measurements = []
    for found in population.record.measurements:
        values = found.values
        if found.name == "singles":
            spread = np.sqrt(found.variance + np.maximum(values, 0))
            values = values + np.round(rng.normal(size=values.shape) * spread).astype(np.int64)
        measurements.append(replace(found, values=values))
    return replace(population.record, measurements=tuple(measurements))


def _taught(beliefs: Beliefs, points: Tensor, labels: Tensor, seed: int) -> Committee:
    """A committee taught with rows (members, rows, width) of classes (members, rows)."""
    seen = beliefs.seen(points.flatten(0, 1)).unflatten(0, points.shape[:2])
    committee = seeded(lambda: Committee(beliefs, seen.shape[2], beliefs.classes), seed)

    def loss_of(some: Tensor) -> Tensor:
        logits = committee(seen[:, some]).flatten(0, 1)
        return MEMBERS * nn.functional.cross_entropy(logits, labels[:, some].flatten())

    fit(committee, loss_of, TAUGHT, epochs=EPOCHS, batch=BATCH, rate=RATE, seed=seed)
    return committee
