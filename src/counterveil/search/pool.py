"""Rows of which the model's answer is known: a last resort for models without gradients.

A student is taught on legal rows that the model has classified. Where the student leads to nothing
that the model accepts, the nearest of those rows in the target class, brought inside the query's
box, often is an answer, and polish then draws it towards the query.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

NEAREST = 8


@dataclass(frozen=True)
class Pool:
    """Legal rows and the class that the model gives each."""

    rows: Tensor
    classes: Tensor

    def nearest(self, queries: Tensor, targets: Tensor) -> Tensor:
        """Rows of the target class near each query, (queries, at most 8, width)."""
        sizes = torch.bincount(self.classes)
        count = min(NEAREST, int(sizes[sizes > 0].min()))
        tried = []
        for part, goals in zip(queries.split(256), targets.split(256), strict=True):
            far = torch.cdist(part, self.rows)
            far = torch.where(self.classes[None, :] == goals[:, None], far, torch.inf)
            places = far.topk(count, dim=1, largest=False).indices
            tried.append(self.rows[places])
        return torch.cat(tried)
