"""In what an answer differs from its query: by parts that can be given back, and by features."""

from __future__ import annotations

import torch
from torch import Tensor

from counterveil.search.snap import Snap

SAME = 1e-6  # in the unit cube


def squares_by_part(
    snap: Snap, rows: Tensor, queries: Tensor, costs: Tensor | None = None
) -> Tensor:
    """Squared distance in each part, at the columns' costs: (rows, parts)."""
    square = (rows - queries) ** 2
    square = torch.where(square > SAME**2, square, 0.0)
    if costs is not None:
        square = square * costs
    return torch.zeros(len(rows), snap.parts, device=rows.device).index_add_(
        1, snap.part_of_column, square
    )


def changed_features(snap: Snap, rows: Tensor, queries: Tensor) -> Tensor:
    """Which features differ: (rows, features)."""
    parts = squares_by_part(snap, rows, queries) > 0
    features = int(snap.feature_of_part[-1]) + 1
    if features == snap.parts:
        return parts
    counts = torch.zeros(len(rows), features, device=rows.device)
    return counts.index_add_(1, snap.feature_of_part, parts.float()) > 0


def columns_of_features(snap: Snap, features: Tensor) -> Tensor:
    """A mask of features as a mask of columns."""
    return features[:, snap.feature_of_part[snap.part_of_column]]
