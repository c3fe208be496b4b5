"""Repair: for a query without an answer, move one feature at a time.

The log-odds margin of a row is the log-probability of its target class minus that of the strongest
other class. From a legal row, the move that promises the largest gain in this margin for its length
is made, again and again, inside the query's box, until the guide puts the row into the target
class. No bit or category is moved twice. Rows are legal after every move; those done drop out.

`LabelledRows` is the last resort for models without a gradient: rows whose class is known already.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from counterveil.models import Rows, TargetModel
from counterveil.search.constraints.bounds import Box
from counterveil.search.constraints.projection import Snap

STRIDE = 0.5  # how far a number moves at once, as a share of its range; a bit flips whole
SAFELY = 1e-4  # log-odds: more than float arithmetic is off by
NEAREST = 8  # labelled rows that are tried for a query


def logit_margin(log_proba: Tensor, targets: Tensor) -> Tensor:
    """By how much the target class leads its strongest rival, shape (rows,), in log-odds."""
    wanted = log_proba.gather(1, targets[:, None])
    rival = log_proba.scatter(1, targets[:, None], -torch.inf).amax(dim=1, keepdim=True)
    return (wanted - rival)[:, 0]


@torch.no_grad()
def margin_beyond(model: TargetModel, least: float, rows: Tensor, targets: Tensor) -> Tensor:
    """How far `model` is beyond what is asked of each row, in log-odds; accepted from 0 on.

    The target class must win, by more than float arithmetic is off, and have the probability
    `least`.
    """
    log_proba = model.ask(Rows.of_points(rows, model.encoding))
    wins_by = logit_margin(log_proba, targets) - SAFELY
    if least <= 0:
        return wins_by
    return torch.minimum(wins_by, log_proba.gather(1, targets[:, None])[:, 0] - math.log(least))


def margin_gradient(guide: TargetModel, rows: Tensor, targets: Tensor) -> Tensor:
    """The gradient of the logit margin at `rows`, shape (rows, width)."""
    points = rows.detach().clone().requires_grad_(True)
    margin = logit_margin(guide.ask(Rows.of_points(points, guide.encoding)), targets)
    return torch.autograd.grad(margin.sum(), points)[0]


@dataclass(frozen=True)
class Moves:
    """What single moves of a batch of queries may do."""

    guide: TargetModel
    snap: Snap
    targets: Tensor
    box: Box
    max_changes: Tensor | None = None  # how many features may differ from the start, (queries,)
    costs: Tensor | None = None  # of a move in each column, (queries, width)

    def repair(self, start: Tensor, steps: int, needed_margin: float = 0.0) -> Tensor:
        """Legal rows after at most `steps` moves each; one is done above the `needed_margin`."""
        rows = start.clone()
        moved = torch.zeros_like(rows, dtype=torch.bool)
        active = torch.arange(len(rows), device=rows.device)
        for _ in range(steps):
            points = rows[active].requires_grad_(True)
            log_proba = self.guide.ask(Rows.of_points(points, self.guide.encoding))
            margin = logit_margin(log_proba, self.targets[active])
            open_still = margin <= needed_margin
            if not bool(open_still.any()):
                break
            gradient = torch.autograd.grad(margin.sum(), points)[0][open_still]
            active = active[open_still]
            barred = moved[active]
            if self.max_changes is not None:  # where enough features changed, the others stay
                changed = self.snap.changed_features(rows[active], start[active])
                is_full = changed.sum(dim=1) >= self.max_changes[active]
                barred = barred | self.snap.columns_of_features(is_full[:, None] & ~changed)
            costs = None if self.costs is None else self.costs[active]
            rows[active], moves = self.snap.best_move(
                rows[active], gradient, self.box.select(active), barred, STRIDE, costs
            )
            moved[active] |= moves & ~barred
        return rows


@dataclass(frozen=True)
class LabelledRows:
    """Legal rows, (rows, width), and the class that the model gives each, (rows,).

    A student learns from them; where it leads to nothing that the model accepts, the nearest of
    them that has the target class, brought inside the query's box, often is an answer.
    """

    rows: Tensor
    classes: Tensor

    def nearest(self, queries: Tensor, targets: Tensor) -> Tensor:
        """Rows of the target class nearest to each query, shape (queries, at most 8, width)."""
        sizes = torch.bincount(self.classes)
        count = min(NEAREST, int(sizes[sizes > 0].min()))
        found = []
        for part, goals in zip(queries.split(256), targets.split(256), strict=True):
            distance = torch.cdist(part, self.rows)
            distance = torch.where(self.classes[None, :] == goals[:, None], distance, torch.inf)
            found.append(self.rows[distance.topk(count, dim=1, largest=False).indices])
        return torch.cat(found)
