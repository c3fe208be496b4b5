"""Repair: for a query that the latent search left without an answer, move one feature at a time.

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

STRIDE = 0.25  # how far a number moves at once, as a share of its range; a bit flips whole


def repair(
    rows: Tensor, targets: Tensor, box: Box, snap: Snap, guide: TargetModel, *, steps: int
) -> Tensor:
    """`rows` after at most `steps` moves each."""
    rows = rows.clone()
    moved = torch.zeros_like(rows, dtype=torch.bool)
    active = torch.arange(len(rows), device=rows.device)
    for _ in range(steps):
        gap, slope = _gap(guide, rows[active], targets[active])
        still = gap <= 0
        active, slope = active[still], slope[still]
        if not len(active):
            break
        here = box.rows(active)
        rows[active], moved[active] = snap.best_move(
            rows[active], slope, here, moved[active], STRIDE
        )
    return rows


def _gap(guide: TargetModel, rows: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Target log-probability minus the strongest other one, and its gradient."""
    points = rows.detach().clone().requires_grad_(True)
    log_proba = guide.log_proba(points)
    wanted = log_proba.gather(1, targets[:, None])[:, 0]
    rival = log_proba.scatter(1, targets[:, None], -torch.inf).amax(dim=1)
    gap = wanted - rival
    (slope,) = torch.autograd.grad(gap.sum(), points)
    return gap.detach(), slope
