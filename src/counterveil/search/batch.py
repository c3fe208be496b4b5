"""Encoded queries that are searched together, and what is found for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from counterveil.search.constraints.bounds import Box

Found = tuple[Tensor, Tensor]  # rows, and which of them are accepted


@dataclass(frozen=True)
class QueryBatch:
    """Encoded queries, and what is asked of their answers."""

    queries: Tensor  # (queries, width) in the unit cube
    targets: Tensor  # (queries,) class numbers
    box: Box
    costs: Tensor | None = None  # of a change in each column, (queries, width)
    max_changes: Tensor | None = None  # how many features may change, (queries,)

    def __len__(self) -> int:
        return len(self.queries)

    def select(self, part: Tensor | slice) -> QueryBatch:
        """Some of the queries, by indices or as a slice."""
        return self._map(lambda each: each[part], self.box.select(part))

    def to(self, device: torch.device) -> QueryBatch:
        """The same on another device."""
        if self.queries.device == device:
            return self
        return self._map(lambda each: each.to(device), self.box.to(device))

    def _map(self, change: Callable[[Tensor], Tensor], box: Box) -> QueryBatch:
        optional = (self.costs, self.max_changes)
        changed = (None if each is None else change(each) for each in optional)
        return QueryBatch(change(self.queries), change(self.targets), box, *changed)

    def repeated(self, times: int) -> QueryBatch:
        """Each query so many times, one after the other."""
        if times == 1:
            return self
        every = torch.arange(len(self), device=self.queries.device)
        return self.select(every.repeat_interleave(times))

    def holding(self, columns: Tensor) -> QueryBatch:
        """The same queries where the marked columns, (queries, width), must stay as they are."""
        return replace(self, box=self.box.holding(columns, self.queries))
