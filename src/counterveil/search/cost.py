"""What an answer costs: J of `search.believable`, for the queries of one batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from counterveil.search.beam import Beam
from counterveil.search.beliefs import Beliefs
from counterveil.search.constraints import Box
from counterveil.search.ground import Ground, Prices
from counterveil.search.menu import Menu

Margin = Callable[[Tensor, Tensor], Tensor]  # (rows, targets) -> log-odds beyond acceptance


@dataclass(frozen=True)
class Asked:
    """The queries of a batch, with what is asked of their answers and what these cost."""

    ground: Ground
    queries: Tensor  # (queries, width), legal and inside their boxes
    targets: Tensor
    box: Box
    margin: Margin
    costs: Tensor | None = None  # of a change in each column, (queries, width)
    max_changes: Tensor | None = None  # how many features may change, (queries,)

    @property
    def beliefs(self) -> Beliefs:
        return self.ground.beliefs

    @property
    def menu(self) -> Menu:
        return self.ground.menu

    @property
    def prices(self) -> Prices:
        return self.ground.prices

    def legal(self, rows: Tensor, query: Tensor) -> Tensor:
        """`rows` with linked features together; entries are legal by themselves."""
        return rows if self.box.queries is None else self.ground.snap(rows, self.box.select(query))

    @cached_property
    def floor(self) -> Tensor:
        """The log-density below which an answer costs: the query's own, or P~'s if higher."""
        own = self.beliefs.log_density(self.beliefs.codes(self.queries), self.targets)
        return torch.maximum(own, self.beliefs.floor(self.prices.floor)[self.targets])

    def cost(self, effort: Tensor, density: Tensor, margin: Tensor, floor: Tensor) -> Tensor:
        """J but for the doubt of the committee."""
        shortfall = (floor - density).clamp(min=0)
        unsafe = (self.prices.safe - margin / self.ground.unit).clamp(min=0).square()
        return effort + self.prices.implausible * shortfall + self.prices.refused * unsafe

    def judged(self, beam: Beam, query: Tensor, usable: Tensor) -> Beam:
        """The beam with the margin of f and the cost; infinite where f refuses, or not usable.

        `query`: whose row of the beam is whose, (rows of the beam,).
        """
        keep, targets = beam.rows.shape[1], self.targets[query]
        rows, goals = beam.rows.flatten(0, 1), targets.repeat_interleave(keep)
        margin = self.margin(rows, goals).unflatten(0, (-1, keep))
        codes = beam.codes.flatten(0, 1)
        if self.box.queries is not None:  # linked features moved along
            codes = self.beliefs.codes(rows)
        members = self.ground.committee.margins(codes, goals) / self.ground.committee_unit
        doubt = (self.prices.sure - members).clamp(min=0).mean(dim=1).unflatten(0, (-1, keep))
        cost = self.cost(beam.effort, beam.density, margin, self.floor[query, None])
        cost = cost + self.prices.unstable * doubt
        cost = torch.where(usable & (margin >= 0), cost, torch.inf)
        return replace(beam, margin=margin, cost=cost)
