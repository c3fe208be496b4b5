"""How the believable search asks a model: arrays on the CPU go in, log-odds come out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from counterveil.encoding import Array
from counterveil.models import Rows, TargetModel
from counterveil.search.paper.repair import SAFELY

HERE = torch.device("cpu")


def ask_points(model: TargetModel, points: Array) -> Array:
    """Log-probabilities (rows, classes) of encoded `points` (rows, width), both in float32.

    The model is asked where it computes.
    """
    if model.device == HERE:
        rows = Rows.of_array(points, model.encoding)
    else:
        rows = Rows.of_points(torch.from_numpy(points).to(model.device), model.encoding)
    with torch.no_grad():
        answer: Array = model.ask(rows).cpu().numpy()
    return answer


def lead(log_proba: Array, targets: Array) -> Array:
    """By how much the target class leads its strongest rival, in log-odds.

    `log_proba`: (rows, …, classes), of one model or of several. Returns (rows, …).
    """
    goals = targets.reshape(-1, *[1] * (log_proba.ndim - 2))
    if log_proba.shape[-1] == 2:
        ahead = log_proba[..., 1] - log_proba[..., 0]
        return np.where(goals == 1, ahead, -ahead)
    is_goal = goals[..., None] == np.arange(log_proba.shape[-1])
    wanted = np.where(is_goal, log_proba, 0).sum(axis=-1)
    found: Array = wanted - np.where(is_goal, -np.inf, log_proba).max(axis=-1)
    return found


@dataclass(frozen=True)
class Margin:
    """How far a model is beyond what is asked of rows, in log-odds; accepted from 0 on.

    The target class must win, by more than float arithmetic is off, and have the probability
    `least`.
    """

    model: TargetModel
    least: float = 0.0

    def __call__(self, rows: Array, targets: Array) -> Array:
        """Of rows (rows, width), each towards its target class: (rows,)."""
        log_proba = ask_points(self.model, rows)
        wins_by = lead(log_proba, targets) - SAFELY
        if self.least <= 0:
            return wins_by
        wanted = log_proba[np.arange(len(targets)), targets]
        return np.minimum(wins_by, wanted - math.log(self.least))
