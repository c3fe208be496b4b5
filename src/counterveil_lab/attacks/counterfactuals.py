"""Attacks on the counterfactuals themselves: linkage of private rows, and probing with twins.

Linkage looks for private rows among the released counterfactuals, exact or nearly so. Real rows
repeat, so each share is compared with the one for as many rows of D4: only the excess says
something about members. Probing: of the nearest of his own rows that f puts into another class the
attacker takes as few values as it takes to move the candidate there: the twin. He asks for its
counterfactual in the candidate's class; an explainer that hands out training rows answers with the
candidate himself if he was one.
"""

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.encoding import Array
from counterveil_lab.attacks.defences import Defence
from counterveil_lab.attacks.protocol import Arena
from counterveil_lab.attacks.scores import share_interval
from counterveil_lab.metrics import nearest, neighbours
from counterveil_lab.results import Row
from counterveil_lab.targets import encoded

EXACT = 1e-6  # float32 of the same row
NEAR = 0.1  # of the distance at which real rows usually lie from each other


def linkage(arena: Arena, released: Tensor, *, seed: int = 0) -> Row:
    """Shares of `released` points that are (nearly) a row of D1, less those of D4.

    `exact_training`: the share that is a row of the whole training set; all else is measured on
    `rows` members and as many others. The exact comparison is of features: an answer has no label.
    """
    if not len(released):
        return {"counterfactuals": 0}
    private = arena.members(len(arena.d1))
    count = min(len(private), len(arena.d4))
    sets = (private.head(count), arena.d4.head(count), arena.d3, arena.training)
    inside, outside, own, everyone = (encoded(rows, arena.schema)[0] for rows in sets)
    usual = float(nearest(outside[:500], own).median())
    to_inside, at_inside = (part.numpy() for part in neighbours(released, inside))
    to_outside, at_outside = (part.numpy() for part in neighbours(released, outside))
    person = np.where(to_inside <= to_outside, at_inside, count + at_outside)
    row: Row = {
        "counterfactuals": len(released),
        "distinct": len(torch.unique(released, dim=0)),
        "rows": count,
        "people": len(np.unique(person)),
        "training": len(everyone),
        "exact_training": float((nearest(released, everyone).numpy() <= EXACT).mean()),
        "usual_distance": usual,
    }
    for name, within in (("exact", EXACT), ("near", max(EXACT, NEAR * usual))):
        member, outsider = ((part <= within).astype(float) for part in (to_inside, to_outside))
        excess = member - outsider
        low, high = share_interval(excess, person, seed=seed)
        row |= {f"{name}_members": float(member.mean())}
        row |= {f"{name}_outsiders": float(outsider.mean()), f"{name}_excess": float(excess.mean())}
        row |= {f"{name}_excess_low": low, f"{name}_excess_high": high}
    return row


def twins(arena: Arena, frame: pd.DataFrame, own: pd.DataFrame) -> tuple[pd.DataFrame, Tensor]:
    """A twin of each row of `frame`, made of values of the attacker's rows; and the row's class."""
    points, rows = (encoded(each, arena.schema)[0] for each in (frame, own))
    decided = arena.ask(points).argmax(dim=1)
    far = torch.cdist(points, rows)
    far[decided[:, None] == arena.ask(rows).argmax(dim=1)[None]] = torch.inf
    best, donors = far.min(dim=1)
    chosen = torch.full((len(points),), -1)
    blocks = arena.judge.encoding.blocks
    for number, block in enumerate(blocks):
        moved = points.clone()
        moved[:, block.at] = rows[donors][:, block.at]
        step = torch.linalg.vector_norm(moved - points, dim=1)
        better = (arena.ask(moved).argmax(dim=1) != decided) & (step < best)
        best, chosen = torch.where(better, step, best), torch.where(better, number, chosen)
    columns = list(arena.schema.columns)
    twin = own.iloc[donors.numpy()].reset_index(drop=True)[columns].copy()
    # Where a single value is enough, all others are the candidate's; elsewhere the donor's row.
    for number, block in enumerate(blocks):
        here = (chosen == number).numpy()
        for name in columns:
            if name not in block.feature.columns:
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
