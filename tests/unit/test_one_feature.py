"""What single features can do: no such change is nearer, and what they add up to is found."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from counterveil import Explainer, Rules
from counterveil.encoding import Encoding
from counterveil.schema import Binary, Categorical, Label, Numeric, Schema

PLACES = 60  # of a number that are tried
SCHEMA = Schema(
    name="one feature",
    label=Label(name="y", classes=("no", "yes")),
    features=(
        Numeric(name="amount", lower=0, upper=10),
        Numeric(name="count", lower=0, upper=30, integer=True),
        Numeric(name="gap", lower=-5, upper=5, missing=True),
        Categorical(name="kind", categories=("a", "b", "c")),
        Categorical(name="place", categories=(1, 2), immutable=True),
        Binary(name="flag", values=("no", "yes")),
    ),
)
KNOWN = SCHEMA.model_copy(
    update={"features": tuple(each for each in SCHEMA.features if each.name != "gap")}
)


class Wavy(nn.Module):
    """A network of random weights: its classes lie in many pieces."""

    def __init__(self, seed):
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.register_buffer("inner", 3 * torch.randn(SCHEMA.width, 24, generator=random))
        self.register_buffer("bias", torch.randn(24, generator=random))
        self.register_buffer("outer", torch.randn(24, 2, generator=random))

    def forward(self, points):
        return 6 * torch.tanh(points @ self.inner + self.bias) @ self.outer


def people(rows, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "amount": rng.uniform(0, 10, rows), "count": rng.integers(0, 31, rows),
            "gap": np.where(rng.random(rows) < 0.2, np.nan, rng.uniform(-5, 5, rows)),
            "kind": rng.choice(["a", "b", "c"], rows), "place": rng.choice([1, 2], rows),
            "flag": rng.choice(["no", "yes"], rows), "y": rng.choice(["no", "yes"], rows),
        }
    )  # fmt: skip


def one_feature_changes(encoding, row):
    """Encoded rows in which one free feature of `row` has another value."""
    for block in encoding.blocks:
        feature, at = block.feature, block.start
        if feature.immutable:
            continue
        if feature.one_hot:
            whole = slice(block.start, block.stop)
            values = np.eye(block.stop - block.start)
        elif feature.number_range is None:
            whole, values = at, 1 - row[at : at + 1]
        elif block.missing_flag is not None and row[block.missing_flag] > 0.5:
            continue
        else:
            low, high = feature.number_range
            steps = high - low if feature.is_whole else PLACES
            whole, values = at, np.arange(steps + 1) / steps
        for value in values:
            tried = row.copy()
            tried[whole] = value
            yield tried


@pytest.mark.parametrize("seed", range(2))
def test_no_single_feature_is_nearer(release_once, seed):
    veil = release_once(SCHEMA, people(300), 50.0, epochs=2)
    encoding, queries = Encoding(SCHEMA), people(40, seed)
    model = Wavy(seed)
    result = Explainer(veil, model).explain(queries, target="yes", prefer="nearest", progress=False)
    before, after = encoding.encode(queries), encoding.encode(result.rows)
    beaten = 0
    for row, answer, valid in zip(before, after, result.valid, strict=True):
        tried = np.array(list(one_feature_changes(encoding, row)))
        said = model(torch.as_tensor(tried, dtype=torch.float32)).softmax(dim=1)[:, 1].numpy()
        distance = np.sqrt(((tried - row) ** 2).sum(axis=1))
        reached = distance[said > 0.5001]
        if len(reached) and reached.min() > 0:  # not for a query that is accepted already
            assert valid
            beaten += np.sqrt(((answer - row) ** 2).sum()) > 1.01 * reached.min() + 1e-4
    assert beaten == 0


class Steps(nn.Module):
    """A sum of steps, one for each column: flat everywhere."""

    def __init__(self, seed, limit):
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.register_buffer("size", torch.randn(KNOWN.width, generator=random))
        self.register_buffer("edge", 0.2 + 0.6 * torch.rand(KNOWN.width, generator=random))
        self.limit = limit

    def forward(self, points):
        score = ((points > self.edge).float() * self.size).sum(dim=1) - self.limit
        return torch.stack([-score, score], dim=1)


def best_gains(encoding, model, points):
    """What each free feature can add to the score at most, (queries, free features)."""
    start, gains = model(torch.as_tensor(points).float())[:, 1], []
    for block in encoding.blocks:
        if block.feature.immutable:
            continue
        columns = block.stop - block.start
        values = np.eye(columns) if block.feature.one_hot else np.linspace(0, 1, 31)[:, None]
        scores = []
        for value in values:
            tried = points.copy()
            tried[:, block.at] = value
            scores.append(model(torch.as_tensor(tried).float())[:, 1] - start)
        gains.append(torch.stack(scores).amax(dim=0).clamp(min=0))
    return start.numpy(), torch.stack(gains, dim=1).numpy()


@pytest.mark.long
@pytest.mark.parametrize("most", [None, 2])
@pytest.mark.parametrize("prefer", ["believable", "nearest"])
@pytest.mark.parametrize("seed", range(2))
def test_what_adds_up_is_found(release_once, seed, prefer, most):
    """Where a model has no slope, too."""
    veil = release_once(KNOWN, people(300).drop(columns="gap"), 50.0, epochs=2)
    encoding, queries = Encoding(KNOWN), people(60, seed + 1).drop(columns="gap")
    model = Steps(seed, limit=0.8)
    start, gains = best_gains(encoding, model, encoding.encode(queries))
    gains = -np.sort(-gains, axis=1)[:, :most]
    rules = None if most is None else Rules(max_changes=most)
    result = Explainer(veil, model).explain(
        queries, target="yes", prefer=prefer, rules=rules, progress=False
    )
    refused = start < 0
    reachable = start + gains.sum(axis=1) > 1e-4
    assert (refused & reachable).any()
    assert result.valid[refused & reachable].all()
    assert not result.valid[refused & ~reachable].any()
