"""The best legal row seen on the way of a search, for every query of a batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from counterveil.search.objective import SearchObjective
from counterveil.search.snap import Snap

Accepts = Callable[[Tensor, Tensor], Tensor]


class Best:
    """Keeps, for each query, the nearest legal row that `accepts(rows, targets)` says yes to."""

    def __init__(self, snap: Snap, accepts: Accepts, objective: SearchObjective) -> None:
        self._snap, self._accepts, self._objective = snap, accepts, objective
        self._rows = objective.queries.clone()
        self._distance = torch.full((len(self._rows),), torch.inf, device=self._rows.device)

    def look(self, numbers: Tensor, points: Tensor) -> None:
        """Consider `points`, one for each of the queries `numbers`."""
        box, targets = self._objective.box.select(numbers), self._objective.targets[numbers]
        rows = self._snap(points, box)
        distance = (rows - self._objective.queries[numbers]).norm(dim=1)
        better = self._accepts(rows, targets) & (distance < self._distance[numbers])
        self._rows[numbers[better]] = rows[better]
        self._distance[numbers[better]] = distance[better]

    @property
    def found(self) -> Tensor:
        """Which queries have a row."""
        return self._distance.isfinite()

    def or_else(self, rows: Tensor) -> Tensor:
        """What was kept, and `rows` where nothing was."""
        return torch.where(self.found[:, None], self._rows, rows)
