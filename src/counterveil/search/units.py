"""Answers in original units: every cell legal, and untouched cells exactly the query's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from counterveil.encoding import Array, Encoding, decode_feature
from counterveil.lookup import arrays_of
from counterveil.schema import Numeric
from counterveil.search.constraints import ManyRules, obey
from counterveil.search.parts import SAME

FEW = 4  # changed features up to which they are decoded one by one


def original_units(
    encoding: Encoding, frame: pd.DataFrame, points: Array, found: Array, rules: ManyRules
) -> pd.DataFrame:
    """Encoded answers `found` to the queries `frame`, whose encoding is `points`."""
    moved = np.abs(found - points) >= SAME
    ever = moved.any(axis=0)
    if not ever.any():
        return frame
    blocks = [block for block in encoding.blocks if ever[block.at].any()]
    whole = encoding.decode(found) if len(blocks) > FEW else None
    columns: dict[str, Any] = {}
    for block in blocks:
        feature = block.feature
        decoded = decode_feature(feature, found[:, block.at]) if whole is None else whole
        for number, column in enumerate(feature.columns):
            changed = moved[:, block.at].any(axis=1)
            if len(feature.columns) > 1:  # pixels
                changed = moved[:, block.start + number]
            after = decoded[column]
            if isinstance(feature, Numeric) and _has_rules(feature, rules):
                after = obey(feature, frame[column], pd.Series(after), rules)
            if not changed.all():
                after = _where(changed, pd.Series(after), frame[column])
            columns[column] = after
    if len(columns) > FEW:
        return pd.DataFrame(dict(zip(frame.columns, arrays_of(frame), strict=True)) | columns)
    rows = frame.copy(deep=False)
    for column, after in columns.items():
        rows.isetitem(list(frame.columns).index(column), after)
    return rows


def _has_rules(feature: Numeric, rules: ManyRules) -> bool:
    return rules is not None or feature.direction != "any" or feature.allowed is not None


def _where(changed: Array, after: pd.Series[Any], before: pd.Series[Any]) -> pd.Series[Any]:
    if isinstance(after.dtype, np.dtype) and after.dtype == before.dtype:
        return pd.Series(np.where(changed, after.to_numpy(), before.to_numpy()))
    return after.where(changed, before)
