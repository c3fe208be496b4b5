"""Repair: for a query without an answer, move one feature at a time.

Starting from a legal row, the move with the highest first-order gain in the gap between the target
class and its strongest rival is made, again and again, inside the query's box, until the guide puts
the row into the target class. No bit or category is moved twice, so that it never goes in circles.
Rows are legal at every step. Vectorised over the batch; rows that are done drop out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from counterveil.models import TargetModel
from counterveil.search.constraints import Box
from counterveil.search.snap import Snap

STRIDE = 0.5  # how far a number moves at once, as a share of its range; a bit flips whole


def repair(
    rows: Tensor,
    targets: Tensor,
    box: Box,
    snap: Snap,
    guide: TargetModel,
    *,
    steps: int,
    need: float = 0.0,
    most: Tensor | None = None,
    costs: Tensor | None = None,
) -> Tensor:
    """`rows` after at most `steps` moves each.

    `need`: how far beyond the boundary, in log-odds, a row must come. `most`: in how many features
    each row may differ from what it was. `costs`: of a move in each column, one row or one a query.
    """
    start, rows = rows, rows.clone()
    moved = torch.zeros_like(rows, dtype=torch.bool)
    active = torch.arange(len(rows), device=rows.device)
    for _ in range(steps):
        points = rows[active].requires_grad_(True)
        gap = gap_of(guide.log_proba(points), targets[active])
        still = gap <= need
        if not bool(still.any()):
            break
        slope = torch.autograd.grad(gap.sum(), points)[0][still]
        active = active[still]
        barred = moved[active]
        if most is not None:
            barred = barred | _over_budget(rows[active], start[active], most[active], snap)
        dear = costs if costs is None or len(costs) == 1 else costs[active]
        rows[active], moves = snap.best_move(
            rows[active], slope, box.select(active), barred, STRIDE, dear
        )
        moved[active] |= moves & ~barred
    return rows


def gap_and_slope(guide: TargetModel, rows: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Target log-probability minus the strongest other one, and its gradient."""
    points = rows.detach().clone().requires_grad_(True)
    gap = gap_of(guide.log_proba(points), targets)
    (slope,) = torch.autograd.grad(gap.sum(), points)
    return gap.detach(), slope


def gap_of(log_proba: Tensor, targets: Tensor) -> Tensor:
    """By how much the target class is ahead of its strongest rival."""
    wanted = log_proba.gather(1, targets[:, None])
    return (wanted - log_proba.scatter(1, targets[:, None], -torch.inf).amax(1, keepdim=True))[:, 0]


def _over_budget(rows: Tensor, start: Tensor, most: Tensor, snap: Snap) -> Tensor:
    """Columns of features that may not be touched because as many as may were touched already."""
    touched = snap.changed_features(rows, start)
    full = touched.sum(dim=1) >= most
    return snap.columns_of_features(full[:, None] & ~touched)
