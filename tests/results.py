"""Explanations as tests need them, without a veil or a search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from counterveil.privacy import Level, Statement
from counterveil.schema import Schema
from counterveil.search.results.explanations import Explanations

STATEMENT = Statement(level=Level.NONE, mechanism="paper", epsilon=1)


def explanations(schema: Schema, queries: Any, rows: Any, **more: Any) -> Explanations:
    """The answers `rows` to `queries`, all found unless `more` says otherwise."""
    count = len(queries)
    usual = {
        "statement": STATEMENT, "status": np.array(["found"] * count),
        "predicted": np.zeros(count, dtype=int), "target": np.ones(count, dtype=int),
        "probability": np.full(count, 0.75), "distance": np.full(count, 0.1),
        "changed": np.ones(count, dtype=int), "iterations": 1,
    }  # fmt: skip
    frames = {"queries": pd.DataFrame(queries), "rows": pd.DataFrame(rows)}
    return Explanations(schema=schema, **frames, **(usual | more))
