"""Encoded queries that are searched together, and what is found for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from counterveil.search.constraints.bounds import Box
from counterveil.search.results.refusals import Opening

Found = tuple[Tensor, Tensor]  # rows, and which of them are accepted


@dataclass(frozen=True)
class QueryBatch:
    """Encoded queries, and what is asked of their answers."""

    queries: Tensor  # (queries, width) in the unit cube
    targets: Tensor  # (queries,) class numbers
    box: Box
    costs: Tensor | None = None  # of a change in each column, (queries, width)
    max_changes: Tensor | None = None  # how many features may change, (queries,)
    before: Tensor | None = None  # what the model says of the queries, (queries, classes)

    def __len__(self) -> int:
        return len(self.queries)

    def select(self, part: Tensor | slice) -> QueryBatch:
        """Some of the queries, by indices or as a slice."""
        return self._map(lambda each: each[part], self.box.select(part))

    def to(self, device: torch.device) -> QueryBatch:
        if self.queries.device == device:
            return self
        return self._map(lambda each: each.to(device), self.box.to(device))

    def _map(self, change: Callable[[Tensor], Tensor], box: Box) -> QueryBatch:
        optional = (self.costs, self.max_changes, self.before)
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


def cheapest(cost: Tensor, k: int, alike: Callable[[Tensor], Tensor]) -> Found:
    """The places of the `k` cheapest rows of each query that differ, the cheapest first.

    `cost`: (queries, rows), infinite for rows that do not count. `alike(place)`: which rows are
    like the one at `place`, (queries,), and not chosen beside it. Returns (queries, k), fewer where
    there are fewer rows; and whether there is such a row at all, (queries, k).
    """
    places, there = [], []
    for _ in range(min(k, cost.shape[1])):
        least, place = cost.min(dim=1)
        places.append(place)
        there.append(least < torch.inf)
        cost = cost.masked_fill(alike(place), torch.inf).scatter(1, place[:, None], torch.inf)
    return torch.stack(places, dim=1), torch.stack(there, dim=1)


@dataclass
class Answers:
    """What a search found for the queries of a batch.

    `rows`: legal rows, (queries, k, width). `accepted`: which of them the model accepts, (queries,
    k). The rest is known of the search over actions alone (`says_why`), and meant for queries
    without an answer. `asked`: how many rows the model was asked about, `proved`: whether it is
    proved that there is no answer, (queries,). `closest`: the allowed row for which the model was
    surest, the query itself where none is better, (queries, width). `opens`: the one rule whose
    lifting opens a way, where there is one.
    """

    rows: Tensor
    accepted: Tensor
    asked: Tensor
    proved: Tensor
    closest: Tensor
    opens: list[Opening | None]
    says_why: bool = True

    @classmethod
    def of(cls, rows: Tensor, accepted: Tensor) -> Answers:
        """The answers of a search that knows nothing about queries without one."""
        count = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
        opens: list[Opening | None] = [None] * len(rows)
        return cls(rows, accepted, count, count > 0, rows[:, 0], opens, says_why=False)

    @classmethod
    def nothing(cls, queries: Tensor, k: int) -> Answers:
        """No answers to encoded queries, (queries, width)."""
        rows = queries[:, None].repeat(1, k, 1)
        accepted = torch.zeros(rows.shape[:2], dtype=torch.bool, device=rows.device)
        found = cls.of(rows, accepted)
        return replace(found, closest=queries.clone(), says_why=True)

    def put(self, part: Tensor, other: Answers) -> None:
        """Replace the answers to the queries `part`, in place; rows asked about are added up."""
        for name in ("rows", "accepted", "proved", "closest"):
            getattr(self, name)[part] = getattr(other, name).to(self.rows.device)
        self.asked[part] += other.asked.to(self.rows.device)
        if any(other.opens):
            for place, opening in zip(part.tolist(), other.opens, strict=True):
                self.opens[place] = opening
        self.says_why = other.says_why
