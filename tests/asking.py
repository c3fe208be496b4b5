"""The two ways in which tests ask an adapted model."""

from __future__ import annotations

import pandas as pd
from torch import Tensor

from counterveil.models import Rows, TargetModel


def ask_frame(model: TargetModel, frame: pd.DataFrame) -> Tensor:
    """Log-probabilities (rows, classes) for rows in original units."""
    return model.ask(Rows.of_frame(frame, model.encoding))


def ask_points(model: TargetModel, points: Tensor) -> Tensor:
    """Log-probabilities (rows, classes) for points of shape (rows, width)."""
    return model.ask(Rows.of_points(points, model.encoding))
