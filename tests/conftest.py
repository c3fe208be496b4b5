"""A small world: every kind of feature, a table, a model and a veil that train in a second."""

from __future__ import annotations

import pandas as pd
import pytest
import torch
from rows import random_rows
from torch import nn

from counterveil.curator import Curator
from counterveil.schema import Binary, Categorical, Label, Numeric, Schema
from counterveil.search import amortise
from counterveil.veil import Veil

torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _short_lessons() -> None:
    """What explainers learn in these tests they learn quickly."""
    amortise.LESSONS.update(dict.fromkeys(amortise.LESSONS, amortise.Lessons(300, 64)))


@pytest.fixture(scope="session")
def schema() -> Schema:
    return Schema(
        name="loans",
        label=Label(name="loan", classes=("refused", "granted")),
        features=(
            Numeric(name="age", lower=18, upper=100, integer=True, direction="increase"),
            Numeric(name="income", lower=0, upper=10),
            Numeric(name="debt", lower=-5, upper=5, missing=True, allowed=(-2.5, 2.5)),
            Numeric(name="children", lower=0, upper=9, integer=True, missing=True),
            Categorical(name="housing", categories=("rent", "own", "free"), missing=True),
            Categorical(
                name="degree", categories=("none", "school", "college"), ordered=True,
                direction="increase",
            ),
            Categorical(name="region", categories=(1, 2, 3), immutable=True),
            Binary(name="member", values=("no", "yes")),
        ),
    )  # fmt: skip


@pytest.fixture(scope="session")
def rows(schema: Schema) -> pd.DataFrame:
    return random_rows(schema, 600)


@pytest.fixture(scope="session")
def veil(schema: Schema, rows: pd.DataFrame) -> Veil:
    return Curator(schema).release(rows, epsilon=100.0, epochs=120, progress=False)


class Linear(nn.Module):
    """f: granted where 10·income + 3·own outweighs 6."""

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        weights = torch.zeros(schema.width)
        weights[1], weights[7] = 10.0, 3.0
        self.register_buffer("weights", weights)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        score = points @ self.weights - 6
        return torch.stack([-score, score], dim=1)


@pytest.fixture(scope="session")
def model(schema: Schema) -> nn.Module:
    return Linear(schema)
