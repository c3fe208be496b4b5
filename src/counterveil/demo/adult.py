"""The embedded Adult census table, its public schema, and a target model to explain.

Adult: Becker & Kohavi 1996, UCI Machine Learning Repository, doi 10.24432/C5XW20, CC BY 4.0.
"""

from importlib.resources import files
from io import BytesIO
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import nn

from counterveil.encoding import Encoding
from counterveil.networks import classifier, fit, seeded
from counterveil.schema import Schema

TEST_SHARE = 0.25


class Split(NamedTuple):
    """Rows for training, and rows held out for queries and tests."""

    train: pd.DataFrame
    test: pd.DataFrame


def adult_schema() -> Schema:
    """11 features, 46 encoded numbers, two classes of income."""
    return Schema.from_json(files("counterveil.demo").joinpath("adult.schema.json").read_bytes())


def adult_split(seed: int = 0) -> Split:
    """The 48,842 rows, three quarters for training, split at random by `seed`."""
    content = files("counterveil.demo").joinpath("adult.parquet").read_bytes()
    frame = pd.read_parquet(BytesIO(content))
    order = np.random.default_rng(seed).permutation(len(frame))
    held_out = round(TEST_SHARE * len(frame))
    parts = order[held_out:], order[:held_out]
    return Split(*(frame.iloc[part].reset_index(drop=True) for part in parts))


def encoded(frame: pd.DataFrame, schema: Schema) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows as a (rows, width) tensor in the unit cube, and the number of each row's class."""
    encoding = Encoding(schema)
    points = torch.as_tensor(encoding.encode(frame), dtype=torch.float32)
    return points, torch.as_tensor(encoding.labels(frame))


def train_target(
    frame: pd.DataFrame, schema: Schema, *, seed: int = 0, epochs: int = 10
) -> nn.Module:
    """The model to be explained: a tanh network over the encoding, classes weighted evenly."""
    points, classes = encoded(frame, schema)
    count = len(schema.label.classes)
    evenly = len(classes) / (count * torch.bincount(classes, minlength=count).clamp(min=1).float())
    model = seeded(lambda: classifier(points.shape[1], (32, 16), count), seed)

    def loss(rows: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(model(points[rows]), classes[rows], evenly)

    fit(model, loss, len(points), epochs=epochs, batch=128, rate=1e-3, seed=seed)
    return model
