"""Linkage: private rows among the released counterfactuals, exact or nearly so.

Rows of real tables repeat and lie near each other. So each share is compared with the one for as
many rows of D4, who were not in the training set: only the excess says something about members.
Which answers are a training row, exactly, is looked up among all of them and not among as many.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from counterveil.encoding import Array
from counterveil_lab.attacks.protocol import Arena
from counterveil_lab.attacks.scores import share_interval
from counterveil_lab.metrics import ROOM, nearest
from counterveil_lab.results import Row
from counterveil_lab.targets import encoded

EXACT = 1e-6  # float32 of the same row
NEAR = 0.1  # of the distance at which real rows usually lie from each other


def linkage(arena: Arena, released: Tensor, *, seed: int = 0) -> Row:
    """Shares of `released` points that are (nearly) a row of D1, less those of D4.

    `exact_training`: the share that is a row of the whole training set; all else is measured on
    `rows` members and as many others. The exact comparison is of features: an answer has no label.
    """
    private, others = arena.members(len(arena.d1)), arena.d4
    count = min(len(private), len(others))
    inside, outside = (encoded(rows.head(count), arena.schema)[0] for rows in (private, others))
    if not len(released):
        return {"counterfactuals": 0}
    usual = float(nearest(outside[:500], encoded(arena.d3, arena.schema)[0]).median())
    (to_inside, at_inside), (to_outside, at_outside) = (
        neighbours(released, rows) for rows in (inside, outside)
    )
    person = np.where(to_inside <= to_outside, at_inside, count + at_outside)
    row: Row = {
        "counterfactuals": len(released),
        "distinct": len(torch.unique(released, dim=0)),
        "rows": count,
        "people": len(np.unique(person)),
        "training": len(arena.d1) if arena.whole is None else len(arena.whole),
        "exact_training": float((neighbours(released, _everyone(arena))[0] <= EXACT).mean()),
        "usual_distance": usual,
    }
    for name, within in (("exact", EXACT), ("near", max(EXACT, NEAR * usual))):
        member, outsider = ((part <= within).astype(float) for part in (to_inside, to_outside))
        row |= {
            f"{name}_members": float(member.mean()),
            f"{name}_outsiders": float(outsider.mean()),
            **_excess(f"{name}_excess", member - outsider, person, seed),
        }
    return row


def _everyone(arena: Arena) -> Tensor:
    return encoded(arena.d1 if arena.whole is None else arena.whole, arena.schema)[0]


def neighbours(points: Tensor, rows: Tensor) -> tuple[Array, Array]:
    """The distance to the nearest of `rows`, exactly, and which it is."""
    points, rows = points.double(), rows.double()
    places = torch.cat([
        torch.cdist(part, rows, compute_mode="use_mm_for_euclid_dist").argmin(dim=1)
        for part in points.split(max(1, ROOM // len(rows)))
    ])  # fmt: skip
    far = torch.linalg.vector_norm(points - rows[places], dim=1)
    return far.numpy(), places.numpy()


def _excess(name: str, values: Array, people: Array, seed: int) -> Row:
    low, high = share_interval(values, people, seed=seed)
    return {name: float(values.mean()), f"{name}_low": low, f"{name}_high": high}
