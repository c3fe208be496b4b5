"""What the lab measures on counterfactuals. All distances are L2 in the encoding.

| metric | better | meaning |
|---|---|---|
| flip_ratio | high | queries with an answer of the class asked for, of those that needed one |
| flip_ratio_any | high | queries with an answer of any class but their own, as in the paper |
| legal | high | share of counterfactuals that the schema accepts |
| distance | low | from query to counterfactual |
| changed_features | low | features of the table that differ |
| plausibility | low | from counterfactual to the nearest real held-out record |

Means are over the counterfactuals found, and NaN where there is none.
"""

import time
from collections.abc import Callable
from typing import TypeVar

import pandas as pd
import torch
from torch import Tensor

from counterveil.demo.run import legal_share, reconstruction_error
from counterveil.encoding import Encoding
from counterveil.schema import Schema
from counterveil.search import Explanations

__all__ = ["legal_share", "measure", "nearest", "neighbours", "plausibility"]
__all__ += ["reconstruction_error", "timed"]

ROOM = 2**24  # distances in memory at a time
Result = TypeVar("Result")


def timed(call: Callable[[], Result]) -> tuple[Result, float]:
    """What a call gives, and the seconds it took."""
    started = time.perf_counter()
    result = call()
    return result, time.perf_counter() - started


def measure(result: Explanations, reference: pd.DataFrame) -> dict[str, float]:
    """Every metric of the table above.

    `reference`: held-out records other than the queries; a query would lie near its own answer.
    """
    rows, found = result.frame(), result.valid
    return {
        "flip_ratio": result.flip_ratio,
        "legal": legal_share(rows, result.schema) if found.any() else float("nan"),
        "distance": result.mean_distance,
        "changed_features": float(result.changed[found].mean()) if found.any() else float("nan"),
        "plausibility": plausibility(rows, result.schema, reference),
    }


def plausibility(rows: pd.DataFrame, schema: Schema, reference: pd.DataFrame) -> float:
    """Mean distance from each of `rows` to the nearest record of `reference`.

    Real rows in the place of `rows` give the number to compare with.
    """
    if not len(rows):
        return float("nan")
    encoding = Encoding(schema)
    points, real = (torch.as_tensor(encoding.encode(frame)) for frame in (rows, reference))
    return float(nearest(points, real).mean())


def nearest(points: Tensor, real: Tensor) -> Tensor:
    """The exact distance of each point to the nearest of `real`, in float64."""
    return neighbours(points, real)[0]


def neighbours(points: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """The exact distance of each point to the nearest of `real`, and the number of that one.

    Matrix products find the neighbour (fast, but blurred near 0); the distance to it is then
    computed by itself. Points are taken in parts that fit into memory.
    """
    points, real = points.double(), real.double()
    parts = [
        torch.cdist(part, real, compute_mode="use_mm_for_euclid_dist").argmin(dim=1)
        for part in points.split(max(1, ROOM // len(real)))
    ]
    places = torch.cat(parts)
    return torch.linalg.vector_norm(points - real[places], dim=1), places
