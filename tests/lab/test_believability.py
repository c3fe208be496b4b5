"""The metrics of answers on a table so small that each can be computed by hand."""

import numpy as np
import pandas as pd
import pytest
import torch

from counterveil.encoding import Encoding
from counterveil.errors import RequestError
from counterveil.models import CallableModel, adapt
from counterveil.schema import Binary, Categorical, Label, Numeric, Schema
from counterveil_lab.believability import WISHES, Judges, Reality
from counterveil_lab.datasets import Dataset, load
from counterveil_lab.percentiles import (
    PercentileNetwork,
    Percentiles,
    _mutual_information,
    nearest_l1,
)

SCHEMA = Schema(
    label=Label(name="y", classes=("no", "yes")),
    features=(
        Numeric(name="size", lower=0, upper=100),
        Numeric(name="debt", lower=0, upper=10, missing=True),
        Categorical(name="colour", categories=("red", "green", "blue")),
        Binary(name="sold", values=("no", "yes")),
    ),
)
COLUMNS = ["size", "debt", "colour", "sold"]
PEOPLE = [
    (0.0, 1.0, "red", "no", "no"),
    (0.0, 2.0, "red", "no", "no"),
    (0.0, 3.0, "red", "yes", "no"),
    (10.0, 4.0, "green", "yes", "yes"),
    (20.0, np.nan, "green", "yes", "yes"),
]
TRAIN = pd.DataFrame(PEOPLE * 4, columns=[*COLUMNS, "y"])


def rows(*cells):
    return pd.DataFrame(list(cells), columns=COLUMNS)


@pytest.fixture(scope="module")
def space():
    return Percentiles(SCHEMA, TRAIN)


def accepting(size):
    """A model that says yes from a size on."""

    def proba(frame):
        yes = np.where(frame["size"] >= size, 0.9, 0.1)
        return np.stack([1 - yes, yes], axis=1)

    return CallableModel(proba, SCHEMA)


@pytest.fixture(scope="module")
def judges():
    data = Dataset("tiny", SCHEMA, TRAIN, TRAIN, None, "")
    f, one, two, boosted = map(accepting, (5, 9, 15, 8))
    queries = rows(
        (0.0, 1.0, "red", "no"),
        (0.0, 2.0, "red", "no"),
        (9.0, 3.0, "red", "yes"),
        TRAIN.iloc[0, :4],
    )
    return Judges(Reality(data, "yes"), None, f, queries, ("colour",), (one, two), boosted)


@pytest.mark.parametrize(
    ("size", "share"), [(0.0, 0.3), (5.0, 0.6), (10.0, 0.7), (20.0, 0.9), (50.0, 1.0)]
)
def test_a_percentile_is_the_share_below_and_half_of_what_is_equal(space, size, share):
    point = space.points(rows((size, 1.0, "red", "no")))
    assert float(point[0, 0]) == pytest.approx(share)


@pytest.mark.parametrize(
    ("one", "two", "distance"),
    [
        ((0.0, 1.0, "red", "no"), (10.0, 1.0, "red", "no"), 0.4),  # .3 to .7
        ((0.0, 1.0, "red", "no"), (0.0, 4.0, "red", "no"), 0.75),  # 1/8 to 7/8
        ((0.0, 1.0, "red", "no"), (0.0, np.nan, "red", "no"), 1.0),
        ((0.0, np.nan, "red", "no"), (0.0, np.nan, "red", "no"), 0.0),
        ((0.0, 4.0, "red", "no"), (0.0, np.nan, "red", "no"), 1.0),
        ((0.0, 1.0, "red", "no"), (0.0, 1.0, "blue", "no"), 1.0),
        ((0.0, 1.0, "red", "no"), (0.0, 1.0, "red", "yes"), 1.0),
        ((0.0, 1.0, "red", "no"), (10.0, 4.0, "green", "yes"), 3.15),
    ],
)
def test_distances_of_rows(space, one, two, distance):
    points = space.points(rows(one, two))
    assert float((points[0] - points[1]).abs().sum()) == pytest.approx(distance)
    assert float(nearest_l1(points[:1], points[1:])[0]) == pytest.approx(distance)


@pytest.mark.parametrize(
    ("answer", "rare"),
    [
        ((10.0, 4.0, "green", "yes"), False),  # a real row
        ((0.0, 2.0, "red", "no"), False),  # the debt of the next person, who is alike
        ((0.0, 1.0, "green", "no"), True),  # nobody green has no size
        ((0.0, np.nan, "red", "no"), True),  # whose debt is missing is green
        ((0.0, 1.0, "red", "yes"), True),  # sold, with the lowest debt
    ],
)
def test_rare_pairs(space, answer, rare):
    """What did not change is not called rare."""
    query, given = rows((0.0, 1.0, "red", "no")), rows(answer)
    assert bool(space.has_rare_pair(given, space.changed(query, given))[0]) is rare

    strange = rows((0.0, np.nan, "blue", "no"))
    assert not space.has_rare_pair(strange, space.changed(strange, strange))[0]


def people_of_two_moods(count, extra=0):
    """Size and debt follow each other; `extra` people are green and in debt without any size."""
    half, rng = count // 2, np.random.default_rng(0)
    high = np.arange(count) >= half
    frame = pd.DataFrame({
        "size": np.where(high, rng.uniform(50, 100, count), rng.uniform(1, 40, count)),
        "debt": np.where(high, rng.uniform(5, 10, count), rng.uniform(1, 4, count)),
        "colour": rng.choice(["red", "green"], count), "sold": rng.choice(["no", "yes"], count),
        "y": np.where(high, "yes", "no"),
    })  # fmt: skip
    odd = pd.DataFrame([(1.0, 9.9, "green", "no", "no")] * extra, columns=frame.columns)
    return pd.concat([frame, odd], ignore_index=True)


@pytest.mark.parametrize(("extra", "odd"), [(0, True), (3, True), (50, False)])
def test_odd_pairs_are_those_that_hardly_anybody_has(extra, odd):
    space = Percentiles(SCHEMA, people_of_two_moods(1000, extra))
    assert space.dependent[0] == (0, 1)
    assert len(space.dependent) == 6  # there are no more
    query, answer = rows((1.0, 2.0, "red", "no")), rows((1.0, 9.9, "red", "no"))
    assert bool(space.has_odd_pair(answer, space.changed(query, answer))[0]) is odd
    assert bool(space.has_odd_pair(answer)[0]) is odd
    repainted = answer.assign(colour="green")  # its own oddness is no fault of the answer
    assert not space.has_odd_pair(repainted, space.changed(answer, repainted))[0]
    assert not space.has_odd_pair(query)[0]


def test_chance_is_no_dependence():
    rng = np.random.default_rng(1)
    told = [
        _mutual_information(np.histogram2d(*rng.random((2, 500)), bins=(10, 10))[0])
        for _ in range(200)
    ]
    assert np.mean(told) == pytest.approx(0, abs=0.01)  # 0.08 without the correction
    assert _mutual_information(np.diag([500, 500])) == pytest.approx(np.log(2), abs=1e-3)


def test_scores_by_hand(judges):
    answers = rows(
        (10.0, 1.0, "red", "no"),  # refused by the second twin
        (20.0, 4.0, "green", "yes"),
        (20.0, 3.0, "red", "yes"),  # the boosted judge had accepted this query
        (0.0, 1.0, "red", "no"),  # no answer
    )
    row = judges.score(answers, [True, True, True, False], seconds=2.0)
    assert row["flip_ratio"] == 0.75
    assert row["queries"] == 4
    assert row["seconds_per_query"] == 0.5
    assert row["twins"] == pytest.approx((3 / 3 + 2 / 3) / 2)
    assert row["boosted"] == 1.0
    assert row["changes"] == pytest.approx((1 + 4 + 1) / 3)
    effort = [0.4, 0.6 + 0.5 + 1 + 1, 0.3]  # size: .3, .6 for 9, .7 and .9; debt: 3/8 to 7/8
    assert row["effort"] == pytest.approx(sum(effort) / 3)
    assert row["top"] == 1.0  # all change the size
    near = [0.75 + 2, 0.2, 0.2 + 0.25 + 1]  # to (10, 4, green, yes)
    assert row["near"] == pytest.approx(sum(near) / 3)
    queries = [0.4 + 0.75 + 2, 0.4 + 0.5 + 2, 0.1 + 0.25 + 1, 0.4 + 0.75 + 2]
    assert row["near_queries"] == pytest.approx(sum(queries) / 4)
    assert row["near_real"] == 0
    assert row["odd"] == 1.0  # every pair of their new sizes has fewer than 5 real rows
    assert row["odd_queries"] == 1.0  # as has that of each debt
    assert "impossible" not in row


def test_what_counts_in_a_score(judges):
    """Boosted counts only queries that it refuses; an answer that f refuses is no flip."""
    answers = rows((6.0, 1.0, "red", "no"), (10.0, 2.0, "red", "no"), (9.5, 3.0, "red", "yes"))
    row = judges.score(answers, [True] * 3)
    assert row["queries"] == 3
    assert row["boosted"] == 0.5
    assert row["flip_ratio"] == 1.0
    assert "seconds_per_query" not in row

    answers = rows((1.0, 1.0, "red", "no"), (10.0, 2.0, "red", "no"))
    assert judges.score(answers, [True, True])["flip_ratio"] == 0.5
    row = judges.score(judges.queries, [False] * 4)
    assert row["flip_ratio"] == 0
    assert row["twins"] is row["near"] is row["odd"] is row["iso"] is None
    with pytest.raises(RequestError, match="one for each query"):
        judges.score(judges.queries, [True] * 3)


def test_outliers_are_told_from_real_rows():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({
        "size": generator.uniform(0, 100, 1000), "debt": generator.uniform(0, 10, 1000),
        "colour": generator.choice(["red", "green", "blue"], 1000, p=[0.49, 0.49, 0.02]),
        "sold": generator.choice(["no", "yes"], 1000, p=[0.98, 0.02]), "y": "yes",
    })  # fmt: skip
    reality = Reality(Dataset("tiny", SCHEMA, frame[:500], frame[500:], None, ""), "yes")
    real, strange = frame[500:], frame[500:].assign(colour="blue", sold="yes")
    ordinary, odd = (reality.judge(real, given) for given in (real, strange))
    for name in ("iso", "lof"):
        assert ordinary[name] == pytest.approx(0.05, abs=0.005)
        assert odd[name] > 0.9


def test_a_network_over_percentiles_has_their_gradient():
    network = PercentileNetwork(SCHEMA, TRAIN)
    points = torch.as_tensor(Encoding(SCHEMA).encode(TRAIN)).float().requires_grad_()
    seen = network.percentiles(points)
    assert seen[:5, 0].tolist() == pytest.approx([0.3, 0.3, 0.3, 0.7, 0.9])
    assert seen[:5, 1].tolist() == pytest.approx([1 / 8, 3 / 8, 5 / 8, 7 / 8, 1 / 2])
    assert torch.equal(seen[:, 2:], points[:, 2:])
    between = torch.tensor([[0.05, 0.5, 1.0, 0, 1, 0, 1]], requires_grad=True)
    (slope,) = torch.autograd.grad(network.percentiles(between)[0, 0], between)
    assert network.percentiles(between)[0, 0].item() == pytest.approx(0.5)
    assert float(slope[0, 0]) == pytest.approx(0.4 / 0.1)
    again = PercentileNetwork(SCHEMA)
    again.load_state_dict(network.state_dict())
    assert torch.equal(again(points), network(points))
    assert adapt(network, SCHEMA).differentiable


@pytest.mark.parametrize("name", ["adult", "months"])
def test_wishes_name_classes_and_features_of_the_schemas(name):
    schema = load(name).schema
    assert WISHES[name].target in schema.label.classes
    assert set(WISHES[name].personal) < set(schema.columns)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["percentile network", "boosted"])
def test_judges_of_a_quick_look(kind):
    judges = Judges.of("adult", 0, kind, quick=True)
    assert judges is Judges.of("adult", 0, kind, quick=True)
    assert len(judges.queries) == 50
    assert len(judges.twins) == 2
    row = judges.score(judges.queries, [True] * 50)
    assert row["flip_ratio"] == row["boosted"] == row["changes"] == 0
    assert 0 < row["near_real"] < row["near"] == row["near_queries"]
    with pytest.raises(RequestError, match="no wish is known for 'digits'"):
        Judges.of("digits", 0, "network", quick=True)
