"""The best legal row seen on the way of a search, for every query of a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from counterveil.models import TargetModel
from counterveil.search.constraints import Box
from counterveil.search.snap import Snap


class Best:
    """Keeps, for each query, the nearest legal row that the guide puts into the target class."""

    def __init__(
        self,
        snap: Snap,
        guide: TargetModel,
        queries: Tensor,
        targets: Tensor,
        box: Box,
        margin: float,
    ) -> None:
        self._snap, self._guide, self._box = snap, guide, box
        self._queries, self._targets, self._margin = queries, targets, margin
        self._rows = queries.clone()
        self._distance = torch.full((len(queries),), torch.inf, device=queries.device)

    def look(self, points: Tensor) -> None:
        """Consider `points`, one a query."""
        rows = self._snap(points, self._box)
        log_proba = self._guide.log_proba(rows)
        hit = log_proba.argmax(dim=1) == self._targets
        hit &= log_proba.gather(1, self._targets[:, None])[:, 0].exp() >= self._margin
        distance = (rows - self._queries).norm(dim=1)
        better = hit & (distance < self._distance)
        self._rows = torch.where(better[:, None], rows, self._rows)
        self._distance = torch.where(better, distance, self._distance)

    @property
    def found(self) -> Tensor:
        """Which queries have a row."""
        return self._distance.isfinite()

    def or_else(self, rows: Tensor) -> Tensor:
        """What was kept, and `rows` where nothing was."""
        return torch.where(self.found[:, None], self._rows, rows)
