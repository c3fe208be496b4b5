"""What all believable searches of one veil and model share: the ground that they stand on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from counterveil.models import TargetModel
from counterveil.population import TreePopulation
from counterveil.search.beliefs import Beliefs
from counterveil.search.committee import Committee, committee_of_model, committee_of_people
from counterveil.search.menu import Menu, menu_of
from counterveil.search.repair import ask_points, logit_margin
from counterveil.search.snap import Snap

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
    implausible: float = 0.5  # a nat below the floor
    floor: float = 0.45  # the share of P~'s own rows of the target class below it
    unstable: float = 0.5  # a unit of doubt of the committee
    sure: float = 0.4  # units from which a member of the committee has no doubt
    refused: float = 7.0  # the square of the units that f is short of `safe`
    safe: float = 0.6  # units of f beyond its boundary
    beam: int = 24  # rows that are kept of each query


UNASKED = Prices(unstable=1.0, sure=2.0, refused=3.0, safe=2.0)  # where f~ stands in for f


@dataclass(frozen=True)
class Ground:
    """What all searches of one veil and model share. All tensors are on the CPU."""

    beliefs: Beliefs
    menu: Menu
    committee: Committee
    snap: Snap
    prices: Prices
    unit: float  # of the model that decides about rows, in log-odds
    committee_unit: float

    @cached_property
    def heights(self) -> Tensor:
        """How far up each entry of the menu is, (entries,); 0 for what is no number."""
        every = self.beliefs.heights(self.menu.points)
        return every.gather(1, self.menu.feature[:, None])[:, 0]

    @classmethod
    def of(cls, population: TreePopulation, model: TargetModel, *, stands_in: bool) -> Ground:
        """The ground of a population for a model that is asked; or that stands in for another."""
        beliefs, menu = Beliefs(population), menu_of(population)
        if stands_in:
            committee, prices = committee_of_people(beliefs), UNASKED
        else:
            committee, prices = committee_of_model(beliefs, model), Prices()
        people, _ = population.sample(PEOPLE, np.random.default_rng(0))
        points = torch.as_tensor(people, dtype=torch.float32)
        goals = [torch.full((PEOPLE,), goal) for goal in range(beliefs.classes)]
        log_proba = ask_points(model, points)
        own = torch.stack([logit_margin(log_proba, goal) for goal in goals])
        codes = beliefs.codes(points)
        theirs = torch.stack([committee.margins(codes, goal) for goal in goals])
        units = [max(float(each.std(dim=1).mean()), LEAST_UNIT) for each in (own, theirs)]
        return cls(beliefs, menu, committee, Snap(model.encoding), prices, *units)
