"""What all believable searches of one veil and model share: the ground that they stand on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from counterveil.encoding import Array
from counterveil.models import TargetModel
from counterveil.population import TreePopulation
from counterveil.search.actions.asking import ask_points, lead
from counterveil.search.actions.beliefs import Beliefs, turned
from counterveil.search.actions.committee import Committee, committee_of_model, committee_of_people
from counterveil.search.actions.menu import Menu, menu_of
from counterveil.search.constraints.projection import Snap

PEOPLE = 2000  # of P~ that units are measured by
LEAST_UNIT = 1e-3  # log-odds


@dataclass(frozen=True)
class Prices:
    """What an answer costs besides its effort in percentiles.

    A unit of a model is the standard deviation of its log-odds among the people of P~: what is sure
    for a cautious model is nothing for another.
    """

    change: float = 0.2  # one more changed feature
    category: float = 0.45  # effort of a changed category
    implausible: float = 0.6  # a nat below the floor
    floor: float = 0.45  # the share of P~'s own rows of the target class below it
    unstable: float = 0.5  # a unit of doubt of the committee
    sure: float = 0.4  # units from which a member of the committee has no doubt
    refused: float = 7.0  # the square of the units that f is short of `safe`
    safe: float = 0.6  # units of f beyond its boundary
    beam: int = 24  # rows that are kept of each query


UNASKED = Prices(unstable=1.0, sure=2.0, refused=3.0, safe=2.0)  # where f~ stands in for f


@dataclass(frozen=True)
class Ground:
    """What all searches of one veil and model share. Everything is on the CPU."""

    beliefs: Beliefs
    menu: Menu
    committee: Committee
    snap: Snap
    prices: Prices
    unit: float  # of the model that decides about rows, in log-odds
    committee_unit: float

    @classmethod
    def of(cls, population: TreePopulation, model: TargetModel, *, stands_in: bool) -> Ground:
        """The ground of a population for a model that is asked; or that stands in for another."""
        beliefs, menu = Beliefs(population), menu_of(population)
        if stands_in:
            committee, prices = committee_of_people(beliefs), UNASKED
        else:
            committee, prices = committee_of_model(beliefs, model), Prices()
        people, _ = population.sample(PEOPLE, np.random.default_rng(0))
        points = people.astype(np.float32)
        goals = [np.full(PEOPLE, goal) for goal in range(beliefs.classes)]
        log_proba, sums = ask_points(model, points), committee.sums(beliefs.codes(points))
        own = np.std([lead(log_proba, goal) for goal in goals], axis=1, ddof=1)
        theirs = np.std([committee.margins(sums, goal) for goal in goals], axis=1, ddof=1)
        units = [max(float(each.mean()), LEAST_UNIT) for each in (own, theirs)]
        return cls(beliefs, menu, committee, Snap(model.encoding), prices, *units)

    @cached_property
    def heights(self) -> Array:
        """How far up each entry of the menu is, (entries,); 0 for what is no number."""
        every = self.beliefs.heights(self.menu.points)
        return every[np.arange(len(self.menu)), self.menu.feature]

    @cached_property
    def cell(self) -> Array:
        """The cell of each entry, among those of all features, (entries,)."""
        return self.menu.code + self.beliefs.starts[self.menu.feature]

    @cached_property
    def keys(self) -> Array:
        """A random number for each entry; sums of them tell sets of entries apart."""
        return np.random.default_rng(0).integers(1 << 62, size=len(self.menu))

    @cached_property
    def alone(self) -> Array:
        """What each cell costs by its log-density, (classes, cells)."""
        return np.float32(-self.prices.implausible) * self.beliefs.alone

    @cached_property
    def beside_cells(self) -> Array:
        """What each entry costs by its log-density beside a cell: (classes, cells, entries).

        0 where features do not depend on each other.
        """
        beliefs, menu = self.beliefs, self.menu
        found = np.zeros((beliefs.classes, beliefs.grid.width, len(menu)), np.float32)
        for pair in beliefs.pairs:
            for one, two, table in (pair, turned(pair)):
                place = menu.places[two]
                cells = slice(beliefs.starts[one], beliefs.starts[one] + table.shape[1])
                found[:, cells, place] = table[:, :, menu.code[place]]
        return np.float32(-self.prices.implausible) * found

    @cached_property
    def beside_entries(self) -> Array:
        """The same beside another entry, (classes, entries, entries); ∞ for the same feature."""
        same = self.menu.feature[:, None] == self.menu.feature
        return np.where(same, np.float32(np.inf), self.beside_cells[:, self.cell])

    @cached_property
    def sums(self) -> Array:
        """What each entry, with what follows from it, adds to the committee's neurons."""
        cells = self.committee.cells
        found = cells[self.cell]
        for source, derived, follows in self.beliefs.follows:
            here = self.menu.feature == source
            found[here] += cells[self.beliefs.starts[derived] + follows[self.menu.code[here]]]
        return found

    @cached_property
    def fine(self) -> dict[int, tuple[Array, Array, Array]]:
        """Of each number the values that an answer may end on, their heights and their cells."""
        found = {}
        for number in self.beliefs.numbers.tolist():
            values = self.menu.fine[number]
            assert values is not None, "numbers have fine values"
            points = np.zeros((len(values), self.beliefs.grid.encoding.width), np.float32)
            points[:, self.beliefs.first_column[number]] = values
            codes = self.beliefs.codes(points)[:, number]
            found[number] = values, self.beliefs.height(number, values), codes
        return found
