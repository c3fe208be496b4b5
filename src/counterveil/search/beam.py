"""The rows that a believable search keeps of each query, and the choice among them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Beam:
    """Rows of each query with what is known of them; all have the shape (queries, beam, …)."""

    rows: Tensor
    codes: Tensor  # the cell of each feature
    changed: Tensor  # which features differ from the query
    effort: Tensor  # with the price of the changes
    density: Tensor  # log P~(row | target)
    margin: Tensor  # of f
    cost: Tensor  # J; infinite where there is no row

    def select(self, part: Tensor) -> Self:
        """The beams of some of the queries."""
        return type(self)(*(getattr(self, each.name)[part] for each in fields(self)))

    def joined(self, other: Self) -> Self:
        """The rows of two beams of the same queries side by side."""
        names = [each.name for each in fields(self)]
        pairs = [(getattr(self, name), getattr(other, name)) for name in names]
        return type(self)(*(torch.cat(pair, dim=1) for pair in pairs))

    def at(self, place: Tensor) -> Self:
        """For each query the rows at these places, (queries, any number)."""
        everyone = torch.arange(len(place))[:, None]
        return type(self)(*(getattr(self, each.name)[everyone, place] for each in fields(self)))


def merged(found: Beam, active: Tensor, beam: Beam) -> Beam:
    """What was found so far with the rows of a beam for the queries `active`."""
    room = beam.rows.shape[1]
    empty = found.at(torch.zeros(len(found.rows), room, dtype=torch.long))
    empty.cost.fill_(torch.inf)
    for each in fields(beam):
        getattr(empty, each.name)[active] = getattr(beam, each.name)
    return found.joined(empty)


def different_ways(found: Beam, k: int) -> tuple[Beam, Tensor]:
    """For each query the k cheapest rows, none of which changes all that a cheaper one does."""
    cost, places, ok = found.cost.clone(), [], []
    for _ in range(k):
        least, place = cost.min(dim=1)
        places.append(place)
        ok.append(torch.isfinite(least))
        mine = found.changed[torch.arange(len(place)), place][:, None]
        more = (found.changed & mine).sum(dim=2) == mine.sum(dim=2)
        fewer = (found.changed & mine).sum(dim=2) == found.changed.sum(dim=2)
        cost = torch.where(more | fewer, torch.inf, cost)
    return found.at(torch.stack(places, dim=1)), torch.stack(ok, dim=1)
