"""Tiny tables, noisy records, veils and models for the cases: the same each time, made by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from torch import nn

from counterveil import Veil
from counterveil.build import Training, fit_networks
from counterveil.encoding import Array, Encoding
from counterveil.population import population_of
from counterveil.population.mixed import Grid
from counterveil.privacy import Level, Statement
from counterveil.privacy.record import Measurement, NoisyRecord, Sensitivity
from counterveil.privacy.statement import LAPLACE
from counterveil.schema import Binary, Categorical, Label, Numeric, Pixels, Schema

CPU = torch.device("cpu")
LABEL = Label(name="loan", classes=("refused", "granted"))
MIXED = Schema(
    name="tiny",
    label=LABEL,
    features=(
        Numeric(name="income", lower=0, upper=100, integer=True),
        Numeric(name="rent", lower=0, upper=100, missing=True),
        Categorical(name="housing", categories=("rent", "own", "free"), missing=True),
        Binary(name="member", values=("no", "yes")),
        Categorical(name="region", categories=(1, 2, 3), immutable=True),
    ),
)
BITS = Schema(name="bits", label=LABEL, features=tuple(Binary(name=f"b{n}") for n in range(8)))
IMAGE = Schema(
    name="image", label=LABEL, features=(Pixels(name="p", height=4, breadth=4, levels=15),)
)
SCHEMAS = (MIXED, BITS, IMAGE)
FINE, COARSE = 8, 4


def rows(schema: Schema, count: int, seed: int = 0) -> pd.DataFrame:
    """Rows with the label, some cells missing; high first numbers are granted more often."""
    dice = np.random.default_rng(seed)
    if schema is MIXED:
        income = dice.integers(0, 101, count)
        columns = {
            "income": income,
            "rent": np.where(dice.random(count) < 0.2, np.nan, dice.integers(0, 201, count) / 2),
            "housing": dice.choice(np.array(["rent", "own", "free", None], object), count),
            "member": dice.choice(["no", "yes"], count),
            "region": dice.integers(1, 4, count),
        }
        drift = income / 50 - 1
    else:
        values = dice.integers(0, 2 if schema is BITS else 16, (count, schema.width))
        columns = dict(zip(schema.columns, values.T, strict=True))
        drift = values[:, :4].mean(axis=1) / values.max() - 0.5
    granted = drift + dice.normal(scale=0.3, size=count) > 0
    return pd.DataFrame(columns).assign(loan=np.where(granted, "granted", "refused"))


def record(schema: Schema) -> NoisyRecord:
    """Noisy integers as the mechanism might have released them."""
    dice = np.random.default_rng(5)

    def counts(cells: int, tables: int) -> Array:
        return np.stack(
            [dice.multinomial(300, dice.dirichlet(np.ones(cells))) for _ in range(tables)]
        )

    if schema is MIXED:
        grid = Grid(schema, FINE)
        singles = np.concatenate([counts(each, 2) for each in grid.counts], axis=1)
        features = len(grid.cells)
        moments = dice.integers(-(10**6), 10**7, features * (features + 1) // 2 + 2 * features)
        measured = {"singles": singles, "moments": moments}
        more = {"fine": FINE, "coarse": COARSE, "norm": 1}
    elif schema is BITS:
        sums = np.c_[[290, 310], dice.integers(20, 280, (2, schema.width))]
        measured = {"pooled": sums[:, 1:].sum(axis=0) + 3, "sums": sums}
        more = {"ones": schema.width}
    else:
        sums = np.c_[[290, 310], dice.integers(-300, 300, (2, 9))] * 16
        measured, more = {"sums": sums}, {"frequencies": 3, "fixed_point": 16}
    made = tuple(
        Measurement(name, name, values, Sensitivity(2, 2.0), LAPLACE, 2.0, 1.0, 0)
        for name, values in measured.items()
    )
    return NoisyRecord(schema.family, "record", 600, made, **more)  # type: ignore[arg-type]


def veil(schema: Schema) -> Veil:
    """A veil of the record, its networks trained for a moment."""
    noisy, short = record(schema), Training(256, 1, 64, 5e-3, (8,), 1)
    made = fit_networks(population_of(schema, noisy), schema, seed=0, device=CPU, training=short)
    told = Statement(level=Level.EXPLAINER, mechanism="functional", epsilon=3.0)
    return Veil(schema, made.autoencoder, made.prototypes, told, made.surrogate, noisy)


def model(schema: Schema) -> nn.Module:
    """A linear f over the encoding that grants one row in two; the first number tells most."""
    network = nn.Linear(schema.width, 2)
    weights = torch.as_tensor(np.random.default_rng(3).normal(size=schema.width))
    weights[0] = 3.0
    network.weight.data = torch.stack([-weights, weights]).float()
    network.bias.data = -network.weight.data @ points(schema, 60).float().mean(dim=0)
    return network.requires_grad_(False)


def points(schema: Schema, count: int) -> torch.Tensor:
    """Encoded rows, (count, width), in double precision, so that no machine rounds them apart."""
    return torch.as_tensor(Encoding(schema).encode(rows(schema, count)))
