"""Probing: ask about a twin of the candidate across the boundary, and see whether he comes back.

The attacker knows the candidate. He takes the nearest of his own rows that f puts into another
class, and of that row as few values as it takes to move the candidate there: the twin. Then he asks
for the twin's counterfactual in the candidate's class. An explainer that hands out training rows
answers with the candidate himself if he was one.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.encoding import Array
from counterveil_lab.attacks.defences import Defence
from counterveil_lab.attacks.extraction import ask
from counterveil_lab.attacks.protocol import Arena
from counterveil_lab.targets import encoded


def twins(arena: Arena, frame: pd.DataFrame, own: pd.DataFrame) -> tuple[pd.DataFrame, Tensor]:
    """A twin of each row of `frame`, made of values of the attacker's rows; and the row's class."""
    points, rows = (encoded(each, arena.schema)[0] for each in (frame, own))
    decided = ask(arena, points).argmax(dim=1)
    far = torch.cdist(points, rows)
    far[decided[:, None] == ask(arena, rows).argmax(dim=1)[None]] = torch.inf
    nearest = far.argmin(dim=1)
    donor, columns = own.iloc[nearest.numpy()].reset_index(drop=True), list(arena.schema.columns)
    best = far.min(dim=1).values
    chosen = torch.full((len(points),), -1)
    blocks = arena.judge.encoding.blocks
    for number, block in enumerate(blocks):
        moved = points.clone()
        moved[:, block.at] = rows[nearest][:, block.at]
        step = torch.linalg.vector_norm(moved - points, dim=1)
        better = (ask(arena, moved).argmax(dim=1) != decided) & (step < best)
        best, chosen = torch.where(better, step, best), torch.where(better, number, chosen)
    twin = donor[columns].copy()  # where no single value does it, the donor himself
    for number, block in enumerate(blocks):
        here = (chosen == number).numpy()
        others = [name for name in columns if name not in block.feature.columns]
        for name in others:
            twin[name] = twin[name].where(~here, frame[name].reset_index(drop=True))
    return twin, decided


def distances(
    defence: Defence,
    frame: pd.DataFrame,
    *,
    queries: pd.DataFrame | None = None,
    targets: Tensor | None = None,
) -> Array:
    """From each row to its counterfactual, or to that of its query, the twin.

    Where there is none the distance counts as the farthest of all.
    """
    released = defence.explain(frame if queries is None else queries, targets)
    encoding = defence.arena.judge.encoding
    far: Array = np.linalg.norm(encoding.encode(released.rows) - encoding.encode(frame), axis=1)
    found = np.asarray(released.found, dtype=bool)
    return np.where(found, far, far[found].max() if found.any() else 0.0)
