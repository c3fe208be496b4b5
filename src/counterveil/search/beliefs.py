"""What the noisy population says about rows, as tables to look up: all from P~ alone.

- **percentile** of a number among all people: the unit in which effort is counted;
- **plausibility**: log P~(row | class), and its rank among rows of P~ of that class;
- **stability**: a committee of models that might as well have been trained on these people.

Everything is a function of the veil: nothing here has seen the target model or a query.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from counterveil.encoding import Array
from counterveil.networks import classifier, fit, seeded
from counterveil.population import TreePopulation
from counterveil.population.scorecard import Scorecard, scorecard
from counterveil.privacy.record import NoisyRecord
from counterveil.schema.cells import BitCells, NumberCells
from counterveil.search.constraints import linked_columns

SAMPLES = 4000  # rows of P~ of each class that ranks are counted among
RAREST = -7.0  # a cell or pair adds no less than this to a log-density
CARDS = 4  # scorecards of the committee, from records with other noise
NETWORKS = 3  # and small networks, taught with rows of P~
TAUGHT = 20_000
HIDDEN = (16,)
EPOCHS = 4
MOST_OF_ONE_VALUE = 0.1  # of all people, in the capped half of the unit of effort


PairTable = tuple[int, int, Tensor]


class Beliefs:
    """P~ of a mixed table for the search. Rows are encoded points, (rows, width).

    `classes`, `features`: how many. `alone`: for each feature the log-density of its cells,
    (classes, cells); `pairs`: of two features, (classes, cells, cells). `contrast`: for each
    feature the points of its cells for a class in the committee's mean scorecard, beyond those of
    the mean of the other classes, (classes, cells). `is_number`: (features,). `first_column`: of
    each feature in an encoded row.
    """

    def __init__(self, population: TreePopulation, seed: int = 0) -> None:
        self.population, self.grid = population, population.grid
        encoding = self.grid.encoding
        self.classes, self.features = len(population.totals), len(self.grid.cells)
        self._at = [slice(block.start, block.stop) for block in encoding.blocks]
        self._edges = [
            torch.as_tensor(cells.high + (cells.step / 2 or 1e-12), dtype=torch.float32)
            if isinstance(cells, NumberCells)
            else None
            for cells in self.grid.cells
        ]
        self._missing = [block.missing_flag for block in encoding.blocks]
        self._is_bit = [isinstance(cells, BitCells) for cells in self.grid.cells]
        self._ladders = [
            _ladder(*population.percentiles(at)) if isinstance(cells, NumberCells) else None
            for at, cells in enumerate(self.grid.cells)
        ]
        known = population.potentials
        self.alone = [_tensor(table).clamp(min=RAREST) for table in known.alone]
        self.pairs = [(i, j, _tensor(table).clamp(min=RAREST)) for i, j, table in known.pairs]
        self.committee = Committee.of(population, seed)
        self._merge_links()
        rng = np.random.default_rng(seed)
        density = []
        for number in range(self.classes):
            rows, _ = population.sample(SAMPLES, rng, np.eye(self.classes)[number])
            codes = self.codes(_tensor(rows))
            density.append(self.log_density(codes, torch.full((len(rows),), number)))
        self._ranks = torch.stack(density).sort(dim=1).values  # (classes, samples)
        cards = [torch.stack(each).mean(dim=0) for each in zip(*self.committee.cards, strict=True)]
        others = max(1, self.classes - 1)
        self.contrast = [card - (card.sum(dim=0) - card) / others for card in cards]
        self.is_number = torch.tensor([ladder is not None for ladder in self._ladders])
        self.first_column = [at.start for at in self._at]

    def _merge_links(self) -> None:
        """A derived feature follows its source: what its cells add is added to the source's."""
        names = [block.feature.name for block in self.grid.encoding.blocks]
        self._derived = [names.index(link.derived) for link in self.grid.schema.links]
        for columns, link in zip(
            linked_columns(self.grid.encoding), self.grid.schema.links, strict=True
        ):
            source, derived = names.index(link.source), names.index(link.derived)
            follows = torch.zeros(self.grid.cells[source].count, dtype=torch.long)
            codes = self.grid.cells[derived].codes(columns.table.numpy())
            follows[: len(codes)] = torch.as_tensor(codes)
            for tables in (self.alone, *self.committee.cards):
                tables[source] = tables[source] + tables[derived][:, follows]
                tables[derived] = torch.zeros_like(tables[derived])
            own = [pair for pair in self.pairs if {source, derived} == {*pair[:2]}]
            for one, _, table in own:
                by_source = table if one == source else table.transpose(1, 2)
                added = by_source[:, torch.arange(len(follows)), follows]
                self.alone[source] = self.alone[source] + added
            self.pairs = [
                _following(pair, derived, source, follows)
                for pair in self.pairs
                if {source, derived} != {*pair[:2]}
            ]

    def codes(self, points: Tensor) -> Tensor:
        """The cell of each feature, (rows, features)."""
        found = []
        for at, edges, flag, is_bit in zip(
            self._at, self._edges, self._missing, self._is_bit, strict=True
        ):
            if edges is None:
                own = points[:, at]
                found.append((own[:, 0] >= 0.5).long() if is_bit else own.argmax(dim=1))
                continue
            code = torch.searchsorted(edges, points[:, at.start].contiguous())
            code = code.clamp(max=len(edges) - 1)
            if flag is not None:
                code = torch.where(points[:, flag] >= 0.5, len(edges), code)
            found.append(code)
        return torch.stack(found, dim=1)

    def heights(self, points: Tensor) -> Tensor:
        """How far up each number is, in the unit of effort, (rows, features); 0 for others."""
        return self._along(points, 2)

    def height(self, feature: int, values: Tensor) -> Tensor:
        """The same for values of one number, in the unit cube; of any shape."""
        ladder = self._ladders[feature]
        assert ladder is not None, "heights are of numbers"
        return _interpolated(values, ladder[0], ladder[2])

    def percentiles(self, points: Tensor) -> Tensor:
        """Of each number the share of people below it, (rows, features); 0 for other features."""
        return self._along(points, 1)

    def _along(self, points: Tensor, side: int) -> Tensor:
        found = torch.zeros(len(points), self.features)
        for number, (at, ladder) in enumerate(zip(self._at, self._ladders, strict=True)):
            if ladder is not None:
                found[:, number] = _interpolated(points[:, at.start], ladder[0], ladder[side])
        return found

    def judged(self, queries: Tensor, rows: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        """Effort, plausibility and stability of answers, (rows,) each.

        Effort: Σ over the changed features of the difference of percentiles; any other changed
        feature, and a number that was missing, counts 1. Plausibility: the share of P~'s rows of
        the target class that are less likely. Stability: the share of the committee that agrees.
        """
        codes, before = self.codes(rows), self.codes(queries)
        way = (self.percentiles(rows) - self.percentiles(queries)).abs()
        for number in range(self.features):
            known = self.is_known(queries, number) & self.is_known(rows, number)
            counted = known & self.is_number[number]
            other = (codes[:, number] != before[:, number]).float()
            way[:, number] = torch.where(counted, way[:, number], other)
        way[:, self._derived] = 0.0  # they follow their source
        agree = (self.margins(rows, codes, targets) > 0).float().mean(dim=1)
        rank = self.rank(self.log_density(codes, targets), targets)
        return way.sum(dim=1), rank, agree

    def is_known(self, points: Tensor, feature: int) -> Tensor:
        """Where a feature is not missing, (rows,)."""
        flag = self._missing[feature]
        return torch.ones(len(points), dtype=torch.bool) if flag is None else points[:, flag] < 0.5

    def lead(self, codes: Tensor, targets: Tensor) -> Tensor:
        """By how much the committee's mean scorecard prefers the target class, (rows,)."""
        found = torch.zeros(len(codes))
        for number, table in enumerate(self.contrast):
            found += table[targets, codes[:, number]]
        return found

    def margins(self, points: Tensor, codes: Tensor, targets: Tensor) -> Tensor:
        """By how much each member of the committee prefers the target class: (rows, members)."""
        return self.committee.margins(points, codes, targets)

    def log_density(self, codes: Tensor, targets: Tensor) -> Tensor:
        """log P~(cells | target), (rows,)."""
        found = torch.zeros(len(codes))
        for number, table in enumerate(self.alone):
            found += table[targets, codes[:, number]]
        for one, two, table in self.pairs:
            found += table[targets, codes[:, one], codes[:, two]]
        return found

    def rank(self, density: Tensor, targets: Tensor) -> Tensor:
        """The share of P~'s rows of the target class that are less likely, (rows,)."""
        below = torch.searchsorted(self._ranks[targets], density[:, None]).float()[:, 0]
        return below / self._ranks.shape[1]

    def floor(self, share: float) -> Tensor:
        """The log-density that so many of P~'s rows of each class stay below, (classes,)."""
        return self._ranks[:, int(share * (self._ranks.shape[1] - 1))]


@dataclass(frozen=True)
class Committee:
    """Models that might as well have been trained on these people.

    `cards`: scorecards as points of the cells of each feature, (classes, cells), weighted; of the
    noisy record itself and of records as they might as well have come out. `networks`: taught with
    rows of P~.
    """

    cards: list[list[Tensor]]
    networks: list[nn.Sequential]

    @classmethod
    def of(cls, population: TreePopulation, seed: int) -> Committee:
        """The committee of a population."""
        rng = np.random.default_rng(seed)
        schema = population.grid.schema
        records = [population.record, *(_again(population, rng) for _ in range(CARDS - 1))]
        cards = []
        for record in records:
            other = population if record is population.record else TreePopulation(schema, record)
            cards.append(_weighted(scorecard(other), len(population.totals)))
        networks = [_taught(population, rng, seed + number) for number in range(NETWORKS)]
        return cls(cards, networks)

    def margins(self, points: Tensor, codes: Tensor, targets: Tensor) -> Tensor:
        """By how much each member prefers the target class, in log-odds: (rows, members)."""
        found = []
        for card in self.cards:
            added = [table[:, codes[:, number]] for number, table in enumerate(card)]
            found.append(_lead(torch.stack(added).sum(dim=0).T, targets))
        with torch.no_grad():
            found += [_lead(network(points), targets) for network in self.networks]
        return torch.stack(found, dim=1)


def _following(pair: PairTable, derived: int, source: int, follows: Tensor) -> PairTable:
    """The table of a pair with the cells of a source in the place of those that follow from it."""
    one, two, table = pair
    if one == derived:
        return source, two, table[:, follows]
    return (one, source, table[:, :, follows]) if two == derived else pair


def _weighted(card: Scorecard, classes: int) -> list[Tensor]:
    """The points of every cell, times the weight of its feature; offsets go to the first one."""
    tables = [_tensor(w * points) for points, w in zip(card.points, card.weights, strict=True)]
    tables[0] = tables[0] + _tensor(card.offsets)[:, None]
    return tables


def _again(population: TreePopulation, rng: np.random.Generator) -> NoisyRecord:
    """The record as it might have come out for other people of the same kind, with other noise."""
    record = population.record
    measurements = []
    for found in record.measurements:
        values = found.values
        if found.name in ("singles", "products"):
            people = np.maximum(values, 0) if found.name == "singles" else 0
            spread = np.sqrt(found.variance + people)
            values = values + np.round(rng.normal(size=values.shape) * spread).astype(np.int64)
        measurements.append(replace(found, values=values))
    return replace(record, measurements=tuple(measurements))


def _taught(population: TreePopulation, rng: np.random.Generator, seed: int) -> nn.Sequential:
    """A small network that tells classes apart among rows of P~, as many of each."""
    classes = len(population.totals)
    points, labels = population.sample(TAUGHT, rng, np.full(classes, 1 / classes))
    rows, goals = torch.as_tensor(points, dtype=torch.float32), torch.as_tensor(labels)
    width = population.grid.encoding.width
    network = seeded(lambda: classifier(width, HIDDEN, classes, "relu"), seed)
    fit(
        network,
        lambda some: nn.functional.cross_entropy(network(rows[some]), goals[some]),
        len(rows),
        epochs=EPOCHS,
        batch=256,
        rate=5e-3,
        seed=seed,
    )
    return network.requires_grad_(False).eval()


def _lead(logits: Tensor, targets: Tensor) -> Tensor:
    wanted = logits.gather(1, targets[:, None])
    return (wanted - logits.scatter(1, targets[:, None], -torch.inf).amax(1, keepdim=True))[:, 0]


def _ladder(places: Array, shares: Array) -> tuple[Tensor, Tensor, Tensor]:
    """Places of a number, the share of people below each, and how far up it is for an effort.

    Half of the height is the share. The other half is the same where a single value that many
    people share counts as a tenth of them at most: with 9 of 10 people at 0, from 0 to any amount
    would be the same way.
    """
    rise = np.minimum(np.diff(shares, prepend=0.0), MOST_OF_ONE_VALUE)
    capped = np.cumsum(rise)
    both = (shares + capped / max(capped[-1], 1e-12)) / 2
    return _tensor(places), _tensor(shares), _tensor(both)


def _interpolated(x: Tensor, places: Tensor, shares: Tensor) -> Tensor:
    """The share at each x, along straight lines between the places; middles of jumps at ties."""
    left = torch.searchsorted(places, x.contiguous(), right=False)
    right = torch.searchsorted(places, x.contiguous(), right=True)
    last = len(places) - 1
    one, two = (left - 1).clamp(0, last), left.clamp(0, last)
    gap = (places[two] - places[one]).clamp(min=1e-12)
    between = shares[one] + (shares[two] - shares[one]) * ((x - places[one]) / gap).clamp(0, 1)
    tied = (shares[left.clamp(0, last)] + shares[(right - 1).clamp(0, last)]) / 2
    return torch.where(right > left, tied, between)


def _tensor(values: object) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float32)
