"""What an answer to a query may look like, as a box around it in the unit cube.

Immutable features, directions and allowed ranges become a lower and an upper bound for every
encoded number of every query. A category is open where its upper bound is 1. Two rules hold
without being asked for: a value that breaks no rule today may always stay, and no answer tells a
person to make a known value unknown.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.encoding import Array, Block, Encoding
from counterveil.errors import RequestError
from counterveil.schema import Binary, Categorical, Numeric

_SLACK = 1e-6  # of a grid step: what float arithmetic may be off by


@dataclass(frozen=True)
class Box:
    """Bounds of shape (queries, width)."""

    lower: Tensor
    upper: Tensor

    def project(self, points: Tensor) -> Tensor:
        """The nearest points of the box; a gradient flows where nothing was cut."""
        return torch.minimum(torch.maximum(points, self.lower), self.upper)

    def rows(self, part: slice | Tensor) -> Box:
        """The boxes of some of the queries."""
        return Box(self.lower[part], self.upper[part])

    def to(self, device: torch.device) -> Box:
        return Box(self.lower.to(device), self.upper.to(device))


def box_around(encoding: Encoding, queries: Array, immutable: Collection[str] = ()) -> Box:
    """The box of each query: the schema's rules, and `immutable` features on top."""
    for name in immutable:
        if not any(block.feature.name == name for block in encoding.blocks):
            known = ", ".join(block.feature.name for block in encoding.blocks[:12])
            raise RequestError(f"immutable: no feature {name!r}; the schema has: {known}")
    lower, upper = np.zeros_like(queries), np.ones_like(queries)
    for block in encoding.blocks:
        here = queries[:, block.at]
        if block.feature.immutable or block.feature.name in immutable:
            lower[:, block.at] = upper[:, block.at] = here
        else:
            lower[:, block.at], upper[:, block.at] = _feature_box(block, here)
    return Box(*(torch.as_tensor(side, dtype=torch.float32) for side in (lower, upper)))


def obey(feature: Numeric, before: pd.Series[Any], after: pd.Series[Any]) -> pd.Series[Any]:
    """Numbers of an answer exactly inside their rules: float arithmetic may be off by a hair."""
    low, high = feature.allowed or (feature.lower, feature.upper)
    if feature.integer:
        low, high = math.ceil(low), math.floor(high)
    kept = after.clip(low, high)
    known = before.notna() & after.notna()
    if feature.direction == "increase":
        kept = kept.where(~(known & (kept < before)), before)
    if feature.direction == "decrease":
        kept = kept.where(~(known & (kept > before)), before)
    return kept


def _feature_box(block: Block, here: Array) -> tuple[Array, Array]:
    feature = block.feature
    if isinstance(feature, Numeric):
        return _numeric_box(feature, here)
    if isinstance(feature, Categorical):
        return _categorical_box(feature, here)
    lower, upper = np.zeros_like(here), np.ones_like(here)
    if isinstance(feature, Binary):
        lower = here if feature.direction == "increase" else lower
        upper = here if feature.direction == "decrease" else upper
    return lower, upper


def _numeric_box(feature: Numeric, here: Array) -> tuple[Array, Array]:
    span = feature.upper - feature.lower
    low, high = feature.allowed or (feature.lower, feature.upper)
    if feature.integer:
        low, high = np.ceil(low - _SLACK), np.floor(high + _SLACK)
    value = here[:, 0]
    lower = np.full_like(value, (low - feature.lower) / span)
    upper = np.full_like(value, (high - feature.lower) / span)
    known = np.ones_like(value, dtype=bool)
    if feature.missing:
        known = here[:, 1] < 0.5
    if feature.direction == "increase":
        lower = np.where(known, np.maximum(lower, value), lower)
    if feature.direction == "decrease":
        upper = np.where(known, np.minimum(upper, value), upper)
    nowhere = lower > upper  # the rules leave no other value: this one stays
    lower, upper = np.where(nowhere, value, lower), np.where(nowhere, value, upper)
    if not feature.missing:
        return lower[:, None], upper[:, None]
    may_stay_missing = np.where(known, 0.0, 1.0)
    return (
        np.stack([lower, np.zeros_like(value)], axis=1),
        np.stack([upper, may_stay_missing], axis=1),
    )


def _categorical_box(feature: Categorical, here: Array) -> tuple[Array, Array]:
    known = len(feature.categories)
    is_open = np.ones_like(here, dtype=bool)
    if feature.allowed is not None:
        is_open[:, :known] = [category in feature.allowed for category in feature.categories]
    now = here.argmax(axis=1)[:, None]
    if feature.direction != "any":
        rank = np.arange(known)[None, :]
        forward = rank >= now if feature.direction == "increase" else rank <= now
        is_open[:, :known] &= forward | (now == known)
    if feature.missing:
        is_open[:, known] = False
    is_open |= here > 0.5
    return np.zeros_like(here), is_open.astype(here.dtype)
