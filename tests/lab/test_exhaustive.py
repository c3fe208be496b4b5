"""Exhaustive search as judge of answers."""

import numpy as np
import pytest
import torch
from campaigns import exhaustive
from campaigns.random_rules import draw_schema, frame_of
from campaigns.world import World, learning_less

from counterveil import Explainer
from counterveil.encoding import Encoding
from counterveil.schema import Categorical, Label, Numeric, Schema


def test_every_allowed_row_once():
    features = (
        Numeric(name="age", lower=0, upper=9, integer=True, immutable=True),
        Numeric(name="hours", lower=0, upper=9, integer=True, allowed=(0, 4)),
        Categorical(name="work", categories=("a", "b", "c")),
    )
    schema = Schema(name="x", label=Label(name="y", classes=(0, 1)), features=features)
    encoding = Encoding(schema)
    row = {"age": 3, "hours": 7, "work": "b"}  # its hours are not allowed, and may stay
    query = torch.tensor(encoding.encode(frame_of(schema, [row]))).float()[0]
    rows = encoding.decode(exhaustive.allowed_points(encoding, query).double().numpy())
    assert len(rows) == len(rows.drop_duplicates()) == 6 * 3 - 1
    assert set(rows["age"]) == {3}
    assert set(rows["hours"]) == {0, 1, 2, 3, 4, 7}


def test_the_judge_prices_as_the_explainer_does():
    with learning_less():
        world = World.drawn(0, 1, small=True)
        explainer = Explainer(world.veil, exhaustive.random_model(world, 0, "network"))
        tallied = exhaustive.Tally()
        case = next(case for case in iter(lambda: world.draw_case(tallied), 0) if case)
        values = {each.name: exhaustive.every_value(each) for each in world.schema.features}
        rows = frame_of(world.schema, world.allowed_rows(case, values, 10**6))
        asked = frame_of(world.schema, [case.query] * len(rows))
        points = torch.tensor(explainer.encoding.encode(rows)).float()
        query = torch.tensor(explainer.encoding.encode(asked)).float()[0]
        goal = int(explainer.decide(asked.head(1)).argmin())
        best = exhaustive.Judge(explainer).best(query, points, goal, case.rules)
        name = world.schema.label.classes[goal]
        for prefer in exhaustive.PREFERENCES:
            every = explainer.cost_of(asked, rows, name, prefer=prefer, rules=case.rules)
            np.testing.assert_allclose(best[prefer].cost, every.min(), rtol=1e-5)
            assert best[prefer].helping >= best[prefer].cost


def test_what_is_missed_is_counted():
    class Result:
        status = np.array(["found", "not_found", "impossible", "already", "not_found"])

    best = [exhaustive.Best(2.0, 4.0, 1.0)] * 4 + [exhaustive.Best(np.inf, np.inf, -1.0)]
    row = exhaustive.compared(Result, [3.0, np.inf, np.inf, 0.0, np.inf], best, 1)
    assert (row["queries"], row["reachable"], row["missed"], row["disproved"]) == (4, 3, 1, 1)
    assert (row["times_best"], row["times_helping"], row["optimal"]) == (1.5, 0.75, 0.0)


@pytest.mark.parametrize("kind", exhaustive.RANDOM)
def test_small_worlds(kind):
    with learning_less():
        rows = exhaustive.random_rows(2, kind, 6)
    assert [row["prefer"] for row in rows] == list(exhaustive.PREFERENCES)
    assert sum(row["queries"] for row in rows) > 4
    assert sum(row["disproved"] + row["broken"] for row in rows) == 0
    assert all(row["times_best"] is None or row["times_best"] > 0.999 for row in rows)


def test_small_schemas_have_few_rows():
    from random import Random

    for seed in range(20):
        schema = draw_schema(Random(seed), small=True)
        sizes = [len(exhaustive.every_value(each)) for each in schema.features]
        assert max(sizes) <= 13


@pytest.mark.slow
def test_adult():
    for row in exhaustive.adult_rows("network", 3):
        assert row["queries"] == 3
        assert row["missed"] == row["disproved"] == row["broken"] == 0
