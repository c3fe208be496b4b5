"""Legal rows for the schema of the tests."""

from __future__ import annotations

import numpy as np
import pandas as pd

from counterveil.schema import Schema


def random_rows(schema: Schema, count: int, seed: int = 0) -> pd.DataFrame:
    """Legal rows with labels that depend on income and housing."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 101, count),
            "income": rng.uniform(0, 10, count),
            "debt": np.where(rng.random(count) < 0.2, np.nan, rng.uniform(-5, 5, count)),
            "children": pd.array(rng.integers(0, 10, count), dtype="Int64"),
            "housing": rng.choice(["rent", "own", "free", None], count),
            "degree": rng.choice(["none", "school", "college"], count),
            "region": rng.integers(1, 4, count),
            "member": rng.choice(["no", "yes"], count),
        }
    )
    frame.loc[rng.random(count) < 0.2, "children"] = pd.NA
    score = frame.income + 2 * (frame.housing == "own") + rng.normal(0, 0.5, count)
    frame["loan"] = np.where(score > 5.5, "granted", "refused")
    return frame
