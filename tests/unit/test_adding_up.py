"""Where a model has no slope, an answer that single features add up to is found all the same."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from counterveil import Explainer, Rules
from counterveil.encoding import Encoding
from counterveil.schema import Binary, Categorical, Label, Numeric, Schema

SCHEMA = Schema(
    name="adding up",
    label=Label(name="y", classes=("no", "yes")),
    features=(
        Numeric(name="amount", lower=0, upper=10),
        Numeric(name="count", lower=0, upper=30, integer=True),
        Categorical(name="kind", categories=("a", "b", "c")),
        Categorical(name="place", categories=(1, 2), immutable=True),
        Binary(name="flag", values=("no", "yes")),
    ),
)


class Steps(nn.Module):
    """A sum of steps, one for each column: flat everywhere."""

    def __init__(self, seed, limit):
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.register_buffer("size", torch.randn(SCHEMA.width, generator=random))
        self.register_buffer("edge", 0.2 + 0.6 * torch.rand(SCHEMA.width, generator=random))
        self.limit = limit

    def forward(self, points):
        score = ((points > self.edge).float() * self.size).sum(dim=1) - self.limit
        return torch.stack([-score, score], dim=1)


def people(rows, seed):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "amount": rng.uniform(0, 10, rows),
            "count": rng.integers(0, 31, rows),
            "kind": rng.choice(["a", "b", "c"], rows),
            "place": rng.choice([1, 2], rows),
            "flag": rng.choice(["no", "yes"], rows),
            "y": rng.choice(["no", "yes"], rows),
        }
    )


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
    veil = release_once(SCHEMA, people(300, 0), 50.0, epochs=2)
    encoding, queries = Encoding(SCHEMA), people(60, seed + 1)
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
