"""The network of the amortised search: a(q, s, what may move) -> δ.

How it learns is told in `counterveil.search.amortise`; here is only what a Veil can hold.
"""

from __future__ import annotations

from torch import Tensor, nn

HIDDEN = 128


class Amortiser(nn.Module):
    """Where Algorithm 2 would end for query q and target class s, at once."""

    def __init__(self, width: int, classes: int, latent: int, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.hidden = hidden
        self.query = nn.Linear(width, hidden)
        self.free = nn.Linear(width, hidden, bias=False)
        self.target = nn.Embedding(classes, hidden)
        self.rest = nn.Sequential(
            nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, latent)
        )

    def forward(self, queries: Tensor, targets: Tensor, free: Tensor) -> Tensor:
        """δ; `free` marks the columns that may move."""
        delta: Tensor = self.rest(self.query(queries) + self.free(free) + self.target(targets))
        return delta


def is_free(lower: Tensor, upper: Tensor) -> Tensor:
    """Which columns may move, as the network reads it."""
    return (upper > lower).to(upper.dtype)
