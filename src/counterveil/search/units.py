"""Answers in original units: every cell legal, and untouched cells exactly the query's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from counterveil.encoding import Array, Encoding, decode_feature
from counterveil.schema import Numeric
from counterveil.search.constraints import ManyRules, obey
from counterveil.search.parts import SAME

FEW = 12  # changed features up to which they are decoded one by one


def original_units(
    encoding: Encoding, frame: pd.DataFrame, points: Array, found: Array, rules: ManyRules
) -> pd.DataFrame:
    """Encoded answers `found` to the queries `frame`, whose encoding is `points`."""
    moved = np.abs(found - points) >= SAME
    ever = moved.any(axis=0)
    if not ever.any():
        return frame
    rows = frame.copy(deep=False)
    blocks = [block for block in encoding.blocks if ever[block.at].any()]
    whole = encoding.decode(found) if len(blocks) > FEW else None
    for block in blocks:
        feature = block.feature
        decoded = decode_feature(feature, found[:, block.at]) if whole is None else whole
        for number, column in enumerate(feature.columns):
            changed = moved[:, block.at].any(axis=1)
            if len(feature.columns) > 1:  # pixels
                changed = moved[:, block.start + number]
            before, after = frame[column], pd.Series(decoded[column])
            if isinstance(feature, Numeric):
                after = obey(feature, before, after, rules)
            rows[column] = after if changed.all() else _where(changed, after, before)
    return rows


def _where(changed: Array, after: pd.Series[Any], before: pd.Series[Any]) -> pd.Series[Any]:
    if isinstance(after.dtype, np.dtype) and after.dtype == before.dtype:
        return pd.Series(np.where(changed, after.to_numpy(), before.to_numpy()))
    return after.where(changed, before)
