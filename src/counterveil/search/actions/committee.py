"""A committee: models that might as well have been trained on people such as these.

A model that was trained once more, on other people of the same kind, decides otherwise near its
boundary. How far an answer is from that is asked of small networks over the cells of P~'s grid,
each taught by itself. Where the target model may be asked, they learn from rows of P~ labelled by
draws from its probabilities, each from another bootstrap of them: what training the model again
might give. Where nobody asks it, each learns from the classes of a P~ whose noisy record was
disturbed once more: what training on the people might give, as far as the veil knows them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from counterveil.encoding import Array
from counterveil.models import TargetModel
from counterveil.networks import fit, one_thread, seeded
from counterveil.population import MixedPopulation
from counterveil.privacy.record import NoisyRecord
from counterveil.search.actions.people import People
from counterveil.search.asking import Question, class_margin

MEMBERS = 8
HIDDEN = 8  # neurons of each
OF_MODEL, OF_PEOPLE = 12_000, 6_000  # rows that all, or each, learn from
STEPS, BATCH, RATE = 500, 512, 2e-2


@dataclass(frozen=True)
class Committee:
    """Networks of one hidden layer, side by side, over the cells of a row.

    `cells`: what each cell adds to all hidden neurons, (cells, neurons). `bias`: of the neurons.
    `out`: from all neurons to the logits of all members, (neurons, members · classes), 0 from a
    neuron to another member than its own; `out_bias`: (members · classes,).
    """

    cells: Tensor
    bias: Tensor
    out: Tensor
    out_bias: Tensor

    def margins(self, cells: Tensor, targets: Tensor) -> Tensor:
        """By how much each member prefers the target class, in log-odds: (rows, members).

        `cells`: of each feature, (rows, features).
        """
        summed = nn.functional.embedding_bag(cells, self.cells, mode="sum")
        logits = torch.addmm(self.out_bias, summed.add_(self.bias).relu_(), self.out)
        return class_margin(logits.unflatten(1, (MEMBERS, -1)), targets)


class _Networks(nn.Module):
    """The networks of a committee while they learn."""

    def __init__(self, people: People) -> None:
        super().__init__()
        grid = people.grid
        self.cells = nn.Parameter(0.3 * torch.randn(grid.width, MEMBERS * HIDDEN))
        self.bias = nn.Parameter(0.3 * torch.randn(MEMBERS * HIDDEN))
        self.second = nn.Parameter(torch.randn(MEMBERS, HIDDEN, people.classes) / HIDDEN**0.5)
        self.second_bias = nn.Parameter(torch.zeros(MEMBERS, 1, people.classes))

    def forward(self, cells: Tensor) -> Tensor:
        """Logits (members, rows, classes), of the cell of each feature, (rows, features)."""
        summed = nn.functional.embedding_bag(cells, self.cells, mode="sum")
        hidden = (summed + self.bias).relu().unflatten(1, (MEMBERS, HIDDEN)).movedim(1, 0)
        return torch.baddbmm(self.second_bias, hidden, self.second)

    def committee(self, device: torch.device | None) -> Committee:
        out = torch.block_diag(*self.second)
        parts = (self.cells, self.bias, out, self.second_bias.flatten())
        return Committee(*(each.detach().to(device) for each in parts))


def committee_of_model(people: People, model: TargetModel) -> Committee:
    """What training `model` again might give: taught with draws from its probabilities."""
    rng = np.random.default_rng(0)
    points, _ = _rows(people.population, OF_MODEL, rng)
    asked = Question(model).log_proba(torch.from_numpy(points))
    ladder = np.cumsum(asked.double().exp().numpy(), axis=1)
    dice = rng.random((len(ladder), MEMBERS, 1)) * ladder[:, None, -1:]
    labels = (ladder[:, None] < dice).sum(axis=2)
    weights = rng.poisson(1.0, labels.shape)  # how often a row is in a member's bootstrap
    return _taught(people, points, labels, weights)


def committee_of_people(people: People) -> Committee:
    """What training on the people might give, as far as the noisy record knows them."""
    rng, population = np.random.default_rng(0), people.population
    schema = population.grid.schema
    others = [MixedPopulation(schema, _again(population, rng)) for _ in range(MEMBERS - 1)]
    drawn = [_rows(each, OF_PEOPLE, rng) for each in (population, *others)]
    points, labels = (np.concatenate(each) for each in zip(*drawn, strict=True))
    own = np.eye(MEMBERS, dtype=np.int64).repeat(OF_PEOPLE, axis=0)  # whose row it is
    return _taught(people, points, labels[:, None].repeat(MEMBERS, axis=1), own)


def _rows(population: MixedPopulation, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Rows of P~, (rows, width), as many of each class, and their classes."""
    classes = len(population.totals)
    points, labels = population.sample(count, rng, np.full(classes, 1 / classes))
    return points.astype(np.float32), labels


def _again(population: MixedPopulation, rng: np.random.Generator) -> NoisyRecord:
    """The record as it might have come out for other people of the same kind, with other noise."""
    measurements = []
    for found in population.record.measurements:
        values = found.values
        if found.name == "singles":
            spread = np.sqrt(found.variance + np.maximum(values, 0))
            values = values + np.round(rng.normal(size=values.shape) * spread).astype(np.int64)
        measurements.append(replace(found, values=values))
    return replace(population.record, measurements=tuple(measurements))


@one_thread()
def _taught(people: People, points: Array, labels: Array, weights: Array) -> Committee:
    """A committee taught with rows (rows, width): labels and weights are (rows, members)."""
    cells = people.cells(torch.from_numpy(points).to(people.device)).cpu()
    goals, counted = torch.as_tensor(labels), torch.as_tensor(weights, dtype=torch.float32)
    counted = counted / counted.mean()
    networks = seeded(lambda: _Networks(people), 0)

    def loss_of(some: Tensor) -> Tensor:
        logits = networks(cells[some]).movedim(0, 1).flatten(0, 1)
        each = nn.functional.cross_entropy(logits, goals[some].flatten(), reduction="none")
        return MEMBERS * (each * counted[some].flatten()).mean()

    epochs = max(1, round(STEPS * BATCH / len(cells)))
    fit(networks, loss_of, len(cells), epochs=epochs, batch=BATCH, rate=RATE, seed=0)
    return networks.committee(people.device)
