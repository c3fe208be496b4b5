"""Models that are called over a network: rows go in batches, and calls are counted."""

import numpy as np
import pytest
import torch
from asking import ask_frame, ask_points

from counterveil.encoding import Encoding
from counterveil.errors import CallLimitError, ModelError, RequestError
from counterveil.models import CallableModel
from counterveil.search.paper.student import distil


class Remote:
    """A function that remembers how many rows each call brought."""

    def __init__(self):
        self.sizes = []

    def __call__(self, rows):
        self.sizes.append(len(rows))
        granted = np.asarray(rows["income"]) / 10
        return np.stack([1 - granted, granted], axis=1)


@pytest.fixture
def remote():
    return Remote()


def test_rows_go_in_batches_and_come_back_in_order(schema, rows, remote):
    frame = rows.drop(columns="loan")
    whole = ask_frame(CallableModel(remote, schema), frame)
    batched = CallableModel(remote, schema, batch=256)
    torch.testing.assert_close(ask_frame(batched, frame), whole)
    points = torch.tensor(Encoding(schema).encode(frame))
    torch.testing.assert_close(ask_points(batched, points), whole.float())
    assert remote.sizes == [600, 256, 256, 88, 256, 256, 88]
    assert batched.calls == 6
    assert batched.calls_left is None
    sizes = []

    def function(array):
        sizes.append(array.shape)
        return np.full((len(array), 2), 0.5)

    ask_frame(CallableModel(function, schema, inputs="encoding", batch=500), rows)
    assert sizes == [(500, schema.width), (100, schema.width)]


def test_too_many_calls_are_refused_before_the_first(schema, rows, remote):
    model = CallableModel(remote, schema, batch=100, max_calls=7)
    ask_frame(model, rows)
    assert (model.calls, model.calls_left) == (6, 1)
    words = (
        r"called 6 times and may be called 7 times \(max_calls\); 200 rows need 2 more: "
        r"allow more calls, send more rows a call \(batch\), or explain fewer queries"
    )
    with pytest.raises(CallLimitError, match=words):
        ask_frame(model, rows.head(200))
    assert (model.calls, len(remote.sizes)) == (6, 6)
    ask_frame(model, rows.head(100))
    assert model.calls_left == 0
    with pytest.raises(ModelError, match="1 rows need 1 more"):
        ask_frame(model, rows.head(1))


def test_a_student_respects_the_limit(schema, rows, remote):
    points = torch.tensor(Encoding(schema).encode(rows)).float()
    model = CallableModel(remote, schema, batch=100, max_calls=4)
    with pytest.raises(CallLimitError):
        distil(model, points, ask_points(model, points), seed=0)
    assert model.calls == 0
    affordable = model.batch * model.calls_left // 2
    few = points[:affordable]
    distil(model, few, ask_points(model, few), seed=0)
    assert remote.sizes == [100, 100]


def test_wrong_answers_count_and_are_numbered_over_all_batches(schema, rows):
    def broken(frame):
        raise OSError("no network")

    model = CallableModel(broken, schema, max_calls=2)
    for _ in range(2):
        with pytest.raises(ModelError, match="OSError"):
            ask_frame(model, rows)
    with pytest.raises(CallLimitError, match="called 2 times"):
        ask_frame(model, rows)
    seen = []

    def holes(frame):
        answer = np.full((len(frame), 2), 0.5)
        if seen:
            answer[6] = np.nan
        seen.append(len(frame))
        return answer

    with pytest.raises(ModelError, match="NaN or infinity for row 107;"):
        ask_frame(CallableModel(holes, schema, batch=100), rows.head(200))
    model = CallableModel(lambda frame: np.full((7, 2), 0.5), schema, batch=10)
    with pytest.raises(ModelError, match="for 10 rows"):
        ask_frame(model, rows)


@pytest.mark.parametrize("limits", [{"batch": 0}, {"max_calls": 0}, {"batch": -1}])
def test_limits_that_mean_nothing(schema, remote, limits):
    with pytest.raises(RequestError, match="must be at least 1"):
        CallableModel(remote, schema, **limits)
