"""The best legal row seen on the way of a search, for every query of a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from counterveil.models import TargetModel
from counterveil.search.objective import SearchObjective
from counterveil.search.snap import Snap


class Best:
    """Keeps, for each query, the nearest legal row that the guide puts into the target class."""

    def __init__(
        self, snap: Snap, guide: TargetModel, objective: SearchObjective, margin: float
    ) -> None:
        self._snap, self._guide, self._margin = snap, guide, margin
        self._objective = objective
        self._rows = objective.queries.clone()
        self._distance = torch.full((len(self._rows),), torch.inf, device=self._rows.device)

    def look(self, numbers: Tensor, points: Tensor) -> None:
        """Consider `points`, one for each of the queries `numbers`."""
        box, targets = self._objective.box.rows(numbers), self._objective.targets[numbers]
        rows = self._snap(points, box)
        log_proba = self._guide.log_proba(rows)
        hit = log_proba.argmax(dim=1) == targets
        hit &= log_proba.gather(1, targets[:, None])[:, 0].exp() >= self._margin
        distance = (rows - self._objective.queries[numbers]).norm(dim=1)
        better = hit & (distance < self._distance[numbers])
        self._rows[numbers[better]] = rows[better]
        self._distance[numbers[better]] = distance[better]

    @property
    def found(self) -> Tensor:
        """Which queries have a row."""
        return self._distance.isfinite()

    def or_else(self, rows: Tensor) -> Tensor:
        """What was kept, and `rows` where nothing was."""
        return torch.where(self.found[:, None], self._rows, rows)
