"""Reasons: what counts most against a person, for the decision as it is now.

A feature counts against a person by what moving it to where accepted people are would do to the
log-odds of the target class against the class decided now: the mean over the feature's usual values
among P~'s people of the target class, weighted by how frequent they are there. Everything else of
the row stays. Of a model whose log-odds add up over features that is the difference between the
points that accepted people get for the feature and those of the person: its own reason, exactly.

A reason is no advice: features that nobody can change are reasons, too. The model is asked about
one row for each usual value; P~ is all that is known of people.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from counterveil.encoding import Array, Block
from counterveil.population import MixedPopulation
from counterveil.schema import Feature
from counterveil.search.asking import Question, wherever_it_can
from counterveil.search.constraints.bounds import linked_columns

MOST_REASONS = 4
QUANTILES = 16  # of a number: its usual values
RAREST = 0.005  # share of the people of a class: a rarer category is not usual
LEAST, LEAST_SHARE = 1e-3, 0.1  # a gain in log-odds that counts; of the greatest one
AT_ONCE = 1 << 15  # rows for one call of the model


Gain = tuple[str, float]  # the name of a feature, and what it would add


@dataclass(frozen=True)
class Reason:
    """A feature that counts against a person.

    - `feature`, `value`: its name in the table, and the person's own value there.
    - `gain`: how much the log-odds of the target class would rise, above 0.
    - `text`, `code`: how the schema words the reason (`reason`, `reason_code`); by default what
      people call the feature, and no code.
    """

    feature: str
    value: Any
    gain: float
    text: str
    code: str

    @classmethod
    def of(cls, feature: Feature, value: Any, gain: float) -> Self:
        """A reason in the words of the schema."""
        text = feature.reason or feature.shown_name
        return cls(feature.name, value, gain, text, feature.reason_code)

    @property
    def record(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return asdict(self)


class _Moves(NamedTuple):
    """One feature at a time to a usual value of people of a class.

    `mask`, `value`: the encoded columns that a move sets, and to what, (moves, width). `weight`:
    how frequent the value is; adds up to 1 over the moves of a feature. `feature`: its number.
    """

    mask: Tensor
    value: Tensor
    weight: Tensor
    feature: Tensor


@dataclass(frozen=True, eq=False)
class ReasonFinder:
    """Finds what counts most against the people of some queries, whose positions it is given.

    `points`: the encoded queries, (queries, width). `now`, `targets`: the class that is decided and
    the one asked for, (queries,).
    """

    question: Question
    population: MixedPopulation
    points: Tensor
    now: Array
    targets: Array

    def __call__(self, at: Array) -> list[list[Gain]]:
        """The weightiest features of each query first, with what they would add."""
        gains = np.zeros((len(at), len(self._blocks)))
        for goal in np.unique(self.targets[at]).tolist():
            mine = np.flatnonzero((self.targets[at] == goal) & (self.now[at] != goal))
            moves = self._moves_to(goal)
            for part in np.split(mine, range(0, len(mine), max(1, AT_ONCE // len(moves.weight)))):
                if len(part):
                    gains[part] = self._gains(at[part], goal, moves)
        return [self._main(each) for each in gains]

    @property
    def _blocks(self) -> tuple[Block, ...]:
        return self.population.grid.encoding.blocks

    def _main(self, gains: Array) -> list[Gain]:
        """Of what all features would add, (features,), the most that count."""
        least = max(LEAST, LEAST_SHARE * float(gains.max()))
        order = np.argsort(-gains, kind="stable")[:MOST_REASONS].tolist()
        names = [block.feature.name for block in self._blocks]
        return [(names[each], float(gains[each])) for each in order if gains[each] >= least]

    def _gains(self, at: Array, goal: int, moves: _Moves) -> Array:
        """What each feature would add to the log-odds of a class, (queries, features)."""
        own, now = self.points[at], torch.as_tensor(self.now[at])
        moved = torch.where(moves.mask, moves.value, own[:, None])
        rows = torch.cat([own[:, None], moved], dim=1)
        groups = np.tile(np.arange(rows.shape[1]), len(at))
        flat, classes = rows.flatten(0, 1), self.question.model.classes
        said = wherever_it_can(lambda some: self.question.log_proba(flat[some]), groups, classes)
        said = said.unflatten(0, (len(at), -1))
        odds = said[:, :, goal] - said[torch.arange(len(at)), :, now]
        more = (odds[:, 1:] - odds[:, :1]).nan_to_num() * moves.weight  # NaN: it cannot take that
        gains = torch.zeros(len(at), len(self._blocks), dtype=torch.float64)
        return gains.index_add_(1, moves.feature, more).numpy()

    def _moves_to(self, goal: int) -> _Moves:
        """The usual values of people of a class. What is derived follows its source."""
        encoding = self.population.grid.encoding
        derived = {link.derived for link in encoding.schema.links}
        follows = {columns.source.start: columns for columns in linked_columns(encoding)}
        masks, values, weights, features = [], [], [], []
        for number, block in enumerate(encoding.blocks):
            if block.feature.name in derived:
                continue
            usual, weight = self._usual(number, goal)
            value, mask = np.zeros((len(usual), encoding.width)), np.zeros(encoding.width, bool)
            value[:, block.at], mask[block.at] = usual, True
            if link := follows.get(block.start):
                value[:, link.derived] = usual[:, : len(link.table)] @ link.table.cpu().numpy()
                mask[link.derived] = True
            masks += [mask] * len(usual)
            values.append(value)
            weights.append(weight / weight.sum())
            features += [number] * len(usual)
        return _Moves(
            torch.as_tensor(np.array(masks)),
            torch.as_tensor(np.concatenate(values), dtype=torch.float32),
            torch.as_tensor(np.concatenate(weights)),
            torch.as_tensor(features),
        )

    def _usual(self, number: int, goal: int) -> tuple[Array, Array]:
        """Encoded values of a feature, (values, columns), and how frequent they are, (values,)."""
        block = self._blocks[number]
        if block.feature.is_one_number:
            places, shares = self.population.percentiles(number, goal)
            unit = np.interp((np.arange(QUANTILES) + 0.5) / QUANTILES, shares, places)
            if block.feature.is_whole:
                unit = np.rint(unit * block.feature.divisions[0]) / block.feature.divisions[0]
            found = np.zeros((QUANTILES, block.stop - block.start))
            found[:, 0] = unit
            return found, np.ones(QUANTILES)
        people = self.population.tables[number][goal]
        usual = np.flatnonzero(people >= RAREST * people.sum())
        encoded = np.eye(len(people)) if block.feature.one_hot else np.array([[0.0], [1.0]])
        return encoded[usual], people[usual]
