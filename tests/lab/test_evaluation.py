"""What counts as a flip, and questions that are asked while there is time."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from counterveil.curator import Curator
from counterveil.schema import Label, Numeric, Schema
from counterveil.search import Explainer
from counterveil_lab import evaluation
from counterveil_lab.baselines import Answers
from counterveil_lab.datasets import Dataset
from counterveil_lab.evaluation import AS_PUBLISHED, Evaluation

SCHEMA = Schema(
    name="line",
    features=(Numeric(name="x", lower=0, upper=1), Numeric(name="y", lower=0, upper=1)),
    label=Label(name="band", classes=("low", "middle", "high")),
)


class Bands(nn.Module):
    """Three bands of x: below .3, up to .6, above. Every score is a parabola around a middle."""

    def forward(self, points):
        middles = torch.tensor([0.1, 0.45, 0.8])
        return -200 * (points[:, :1] - middles).square()


@pytest.fixture(scope="module")
def asked():
    dice = np.random.default_rng(0)
    x, y = dice.random(300), dice.random(300)
    bands = np.array(SCHEMA.label.classes)[np.digitize(x, [0.3, 0.6])]
    frame = pd.DataFrame({"x": x, "y": y, "band": bands})
    data = Dataset("line", SCHEMA, frame[:200], frame[200:], None, "")
    return Evaluation.of(data, Bands(), seed=0, queries=12)


@pytest.mark.long
def test_any_other_class_counts_where_none_is_specified(asked):
    """An answer of the published search that misses the class it aims at is a flip all the same."""
    veil = Curator(SCHEMA).release(
        asked.data.train, 1e-3, mechanism="paper", epochs=1, progress=False
    )
    explainer = Explainer(veil, asked.model)
    row = asked.score_explainer(explainer, **AS_PUBLISHED, iterations=3)
    # After one epoch all rows decode to nearly the same point, which lies in one band.
    assert row["flip_ratio_any"] > row["flip_ratio"]
    result = asked.explain(explainer, **AS_PUBLISHED, iterations=3)
    left = asked.left(explainer, result, **AS_PUBLISHED)
    assert (left >= asked.accepted(result)).all()
    whole = asked.score_explainer(explainer)  # the full search
    assert whole["flip_ratio_any"] == whole["flip_ratio"]
    # Two numbers are legal as they are, so that the rows of the decoder are worth the same.
    full = asked.score_explainer(explainer, **AS_PUBLISHED)
    assert full["flip_ratio_any_unsnapped"] == full["flip_ratio_any"]
    assert full["distance_unsnapped"] > 0


class Slow:
    """Answers nothing, and counts what it is asked."""

    name = "slow"

    def __init__(self):
        self.parts = []

    def explain(self, queries, targets, *, k=1):
        self.parts.append(len(queries))
        nothing = np.zeros(len(queries), dtype=bool)
        rows = queries.drop(columns="band")
        return Answers(SCHEMA, rows, rows, nothing, nothing, ~nothing)


@pytest.fixture
def clock(monkeypatch):
    """Every look at the clock is a second later."""
    seconds = iter(range(1000))
    monkeypatch.setattr(evaluation, "monotonic", lambda: float(next(seconds)))


def test_a_slow_method_is_asked_while_there_is_time(asked, clock):
    method = Slow()
    row = asked.score_baseline(method, 12, limit=3.5)
    assert row["limited_by"] == "3.5 s"
    assert 1 <= row["queries"] < 12
    assert set(method.parts[: row["queries"]]) == {1}
    row = asked.score_baseline(Slow(), 5, limit=1000)
    assert (row["limited_by"], row["queries"]) == (None, 5)
    method = Slow()  # without a limit all is asked at once
    row = asked.score_baseline(method, 12)
    assert method.parts[0] == row["queries"] == 12
    assert "limited_by" not in row
