"""Rules of the schema and of single queries hold in every answer, linked features included."""

from random import Random

import numpy as np
import pandas as pd
import pytest
import torch
from campaigns.random_rules import draw_record, draw_schema, frame_of
from campaigns.rule_judge import violations
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import random_rows
from worlds import OF_FEATURES, rules_that_fit

from counterveil.encoding import Encoding
from counterveil.errors import RequestError, SchemaError
from counterveil.schema import Binary, Categorical, Label, Link, Numeric, Schema
from counterveil.search.constraints.bounds import (
    ANY_NUMBER,
    Box,
    box_around,
    column_costs,
    max_changes_of,
)
from counterveil.search.constraints.decoding import clip_to_rules, decode_answers
from counterveil.search.constraints.projection import Snap
from counterveil.search.constraints.rules import Rules
from counterveil.tables import plain_rows


def world_of(number):
    """A schema, rules for each of six queries as JSON has them, and the queries."""
    dice = Random(number)
    schema = draw_schema(dice)
    ways = Random(-number)  # what is good for the person, wherever that has a meaning
    features = tuple(
        each.model_copy(update={"good": ways.choice((None, None, "up", "down"))})
        if each.ordered and each.direction == "any"
        else each
        for each in schema.features
    )
    schema = schema.model_copy(update={"features": features})
    rules = [rules_that_fit(schema, dice, OF_FEATURES) for _ in range(6)]
    return schema, rules, frame_of(schema, [draw_record(schema, dice) for _ in range(6)])


WORLDS = st.integers(0, 10**6).map(world_of)


@settings(max_examples=80, deadline=None)
@given(world=WORLDS, seed=st.integers(0, 10**6))
def test_no_rule_is_ever_broken(world, seed):
    schema, contents, queries = world
    encoding, rules = Encoding(schema), [Rules.of_mapping(each) for each in contents]
    points = encoding.encode(queries)
    box, snap = box_around(encoding, points, rules), Snap(encoding)
    generator = torch.Generator().manual_seed(seed)
    wild = torch.randn(points.shape, generator=generator).mul(3).round(decimals=seed % 3)
    found = snap(wild, box)
    assert not snap.broken(found, box).any()
    torch.testing.assert_close(snap(found, box), found, rtol=0, atol=0)
    rows = decode_answers(encoding, queries, points, found.double().numpy(), rules)
    for content, before, after in zip(contents, plain_rows(queries), plain_rows(rows), strict=True):
        assert violations(schema, content, before, after) == []


@settings(max_examples=60, deadline=None)
@given(world=WORLDS)
def test_a_query_may_always_stay(world):
    schema, contents, queries = world
    encoding, snap = Encoding(schema), Snap(Encoding(schema))
    points, rules = encoding.encode(queries), [Rules.of_mapping(each) for each in contents]
    box, own = box_around(encoding, points, rules), torch.tensor(points).float()
    torch.testing.assert_close(snap(own, box), own, rtol=0, atol=0)
    assert not snap.broken(own, box).any()
    outside = ((own < box.lower - 1e-6) | (own > box.upper + 1e-6)).numpy()
    for block in encoding.blocks:
        feature, values = block.feature, queries[block.feature.name]
        if not isinstance(feature, Numeric):
            assert not outside[:, block.at].any()
            continue
        for number in outside[:, block.at].any(axis=1).nonzero()[0]:
            here = rules[number].allowed.get(feature.name, (feature.lower, feature.upper))
            low, high = np.array([here, feature.allowed or here]).T
            value = values[number]
            assert pd.isna(value) or not max(low) <= value <= min(high)
            assert pd.isna(value) or box.stays[number, block.start]
        assert clip_to_rules(feature, values.array, values.array, rules) is values.array
    alone = [box_around(encoding, points[n : n + 1], rules[n]) for n in range(len(rules))]
    torch.testing.assert_close(torch.cat([each.lower for each in alone]), box.lower)
    torch.testing.assert_close(torch.cat([each.upper for each in alone]), box.upper)


@settings(max_examples=40, deadline=None)
@given(world=WORLDS, seed=st.integers(0, 10**6))
def test_every_move_of_a_repair_keeps_the_rules(world, seed):
    schema, contents, queries = world
    encoding, rules = Encoding(schema), [Rules.of_mapping(each) for each in contents]
    points = encoding.encode(queries)
    box, snap = box_around(encoding, points, rules), Snap(encoding)
    rows = snap(torch.tensor(points).float(), box)
    gradient = torch.randn(rows.shape, generator=torch.Generator().manual_seed(seed))
    moved = torch.zeros_like(rows, dtype=torch.bool)
    for _ in range(5):
        before, (after, moved) = moved, snap.best_move(rows, gradient, box, moved, 0.25)
        assert (before <= moved).all()
        assert not snap.broken(after, box).any()
        uphill = (((after - rows) * gradient).sum(dim=1) >= -1e-5).all()
        assert uphill or box.ties is not None  # to the next multiple of a step may be back
        rows = after


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"immutable": "age"}, "immutable: must be a list"),
        ({"immutable": ["agee"]}, "immutable: no feature 'agee'; the schema has: age, income"),
        ({"direction": {"age": "up"}}, "'age' must be any, increase or decrease"),
        ({"direction": ["age"]}, "direction: must say something for each feature"),
        ({"direction": {"housing": "increase"}}, "direction: 'housing' has no order"),
        ({"allowed": {"incom": [1, 2]}}, "allowed: no feature 'incom'"),
        ({"allowed": {"income": ["low"]}}, "allowed: 'income' is a number; a range"),
        ({"allowed": {"income": 3}}, "allowed: 'income' must be a range"),
        ({"allowed": {"income": [3, 2]}}, "the range 3 to 2 is empty"),
        ({"allowed": {"age": [20.2, 20.8]}}, "the range 20.2 to 20.8 is empty"),
        ({"allowed": {"income": [3, 12]}}, "3 to 12 is outside the bounds 0 to 10"),
        ({"allowed": {"debt": [3, 5]}}, "the schema allows -2.5 to 2.5 only"),
        ({"allowed": {"housing": ["tent"]}}, "'housing' has no category 'tent'; it has: rent"),
        ({"allowed": {"housing": [["own"]]}}, "allowed: 'housing' must be a range"),
        ({"allowed": {"housing": []}}, "'housing': the list is empty"),
        ({"allowed": {"member": [1]}}, "'member' has no category 1; it has: no, yes"),
        ({"costs": {"age": 0}}, "costs: 'age' must be a positive number"),
        ({"costs": {"age": True}}, "costs: 'age' must be a positive number"),
        ({"costs": {"age": 1e308}}, "from 1e-6 to 1e6"),
        ({"costs": {"age": 5e-324}}, "from 1e-6 to 1e6"),
        ({"costs": {"age": 10**400}}, "from 1e-6 to 1e6"),
        ({"costs": {"age": float("nan")}}, "from 1e-6 to 1e6"),
        ({"allowed": {"income": [0, 10**400]}}, "a number is too large"),
        ({"max_changes": 0}, "max_changes: must be a whole number from 1"),
        ({"max_changes": 1.5}, "max_changes: must be a whole number from 1"),
        ({"fixed": ["age"]}, "no rule 'fixed'; there are: immutable, direction"),
        ([], "rules must be a JSON object"),
    ],
)
def test_rules_that_do_not_fit_are_refused_in_one_line(schema, content, words):
    with pytest.raises(RequestError, match=words) as caught:
        Rules.of_mapping(content).tighten(schema)
    assert "\n" not in str(caught.value)


def test_equal_rules_are_one(schema):
    one = Rules(immutable=["age"], allowed={"income": (1, 2)}, direction={})
    other = Rules.of_mapping({"immutable": ["age"], "allowed": {"income": [1, 2]}})
    assert one == other
    assert hash(one) == hash(other)
    assert one != Rules(immutable=["age"])
    assert one.and_immutable(["income"]).immutable == {"age", "income"}


def test_costs_and_limits_by_query(schema):
    encoding = Encoding(schema)
    rules = [Rules(costs={"housing": 3}), Rules(max_changes=2)]
    costs = column_costs(encoding, rules, 2)
    assert costs[0].tolist() == [1.0] * 6 + [3.0] * 4 + [1.0] * 7
    assert costs[1].tolist() == [1.0] * 17
    assert max_changes_of(rules, 2)[1] == 2
    assert max_changes_of(rules, 2)[0] > 1000
    assert column_costs(encoding, None, 2) is None
    assert max_changes_of(rules[0], 2) is None
    assert max_changes_of(Rules(max_changes=10**400), 2).tolist() == [ANY_NUMBER] * 2


def linked_schema(**changes):
    features = {
        "education": Categorical(name="education", categories=("school", "ba", "ma"), missing=True),
        "years": Numeric(name="years", lower=0, upper=20, integer=True, missing=True),
        "graduate": Binary(name="graduate", values=("no", "yes")),
        "hours": Numeric(name="hours", lower=0, upper=100),
        **changes,
    }
    return Schema(
        features=tuple(features.values()),
        label=Label(name="y", classes=(0, 1)),
        links=(
            Link(source="education", derived="years", values={"school": 9, "ba": 13, "ma": 14}),
            Link(
                source="education",
                derived="graduate",
                values={"school": "no", "ba": "yes", "ma": "yes"},
            ),
        ),
    )


def test_linked_features_move_together_or_stay():
    schema = linked_schema()
    encoding, snap = Encoding(schema), Snap(Encoding(schema))
    queries = pd.DataFrame(
        {
            "education": ["school", "school", None, "ma"],
            "years": [9, 11, None, 14],  # the second row is inconsistent
            "graduate": ["no", "yes", "no", "yes"],
            "hours": [40.0, 50.0, 60.0, 70.0],
        }
    )
    points = encoding.encode(queries)
    own, box = torch.tensor(points).float(), box_around(encoding, points)
    stay = encoding.decode(snap(own, box).double().numpy())
    assert stay.years.fillna(-1).tolist() == [9, 11, -1, 14]
    own[:, :4], own[:, 4:] = torch.tensor([0.0, 1.0, 0.0, 0.0]), 0.9
    moved = encoding.decode(snap(own, box).double().numpy())
    assert moved.education.tolist() == ["ba"] * 4
    assert moved.years.tolist() == [13] * 4
    assert moved.graduate.tolist() == ["yes"] * 4
    wrong = snap(own, box)
    wrong[:, 4] = 0.5
    assert snap.broken(wrong, box).all()
    for name in ("education", "years", "graduate"):
        fixed = box_around(encoding, points, Rules(immutable=[name]))
        assert torch.equal(fixed.lower[:, :7], torch.tensor(points).float()[:, :7])
        assert torch.equal(fixed.upper[:, :7], torch.tensor(points).float()[:, :7])
    few = box_around(encoding, points, Rules(allowed={"years": (13, 13)}))
    assert few.upper[:, :4].tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1], [0, 1, 1, 0]]
    up = box_around(encoding, points, Rules(direction={"years": "decrease"}))
    assert up.upper[3, :4].tolist() == [1, 1, 1, 0]
    assert snap.parts == 2
    assert snap.part_of_column.tolist() == [0] * 7 + [1]
    assert snap.feature_of_part.tolist() == [0, 3]
    assert snap.is_number.tolist() == [False] * 7 + [True]
    anywhere = torch.rand(50, 8, generator=torch.Generator().manual_seed(0))
    free = Box(torch.zeros_like(anywhere), torch.ones_like(anywhere))
    drawn = encoding.decode(snap(anywhere, free).double().numpy())
    known = drawn.dropna(subset="education")
    assert (known.education.map({"school": 9, "ba": 13, "ma": 14}) == known.years).all()


def test_a_box_is_nobody_elses():
    encoding = Encoding(linked_schema())
    cells = {"education": ["ba"], "years": [1], "graduate": ["no"], "hours": [1.0]}
    query = encoding.encode(pd.DataFrame(cells))
    before, changed = (box_around(encoding, query) for _ in range(2))
    changed.lower.fill_(7)
    changed.upper.fill_(7)
    after = box_around(encoding, query)
    assert torch.equal(after.lower, before.lower)
    assert torch.equal(after.upper, before.upper)


def test_rules_of_all_queries_and_of_each(schema):
    encoding = Encoding(schema)
    points = encoding.encode(random_rows(schema, 4))
    with pytest.raises(RequestError, match="rules: 2 of them for 4 queries"):
        box_around(encoding, points, [Rules(), Rules()])
    with pytest.raises(RequestError, match="rules must be Rules"):
        box_around(encoding, points, [Rules(), None] * 2)
    both = box_around(encoding, points, Rules(immutable=["age", "income"]))
    for how in ((None, ["age", "income"]), ([Rules(immutable=["age"])] * 4, ["income"])):
        box = box_around(encoding, points, *how)
        assert torch.equal(box.lower, both.lower)
        assert torch.equal(box.upper, both.upper)
    points = np.repeat(points, 1000, axis=0)
    few = [Rules(immutable=["income"]), Rules(allowed={"income": (2, 4)})]
    box = box_around(encoding, points, few * 2000)
    assert torch.equal(box.upper[1::2, 1], torch.full((2000,), 0.4))
    np.testing.assert_allclose(box.upper[0::2, 1], points[0::2, 1], atol=1e-7)


@pytest.mark.parametrize("linked", [False, True])
def test_snap_compiles_as_one_piece(schema, linked):
    encoding = Encoding(linked_schema() if linked else schema)
    snap = Snap(encoding)
    wild = torch.randn(9, encoding.width, generator=torch.Generator().manual_seed(0))
    ends = torch.zeros_like(wild), torch.ones_like(wild)
    box = Box(*ends, queries=snap(wild.flip(0), Box(*ends)) if linked else None)
    compiled = torch.compile(lambda points: snap(points, box), backend="eager", fullgraph=True)
    assert torch.equal(compiled(wild), snap(wild, box))


def test_numbers_out_of_a_table_are_numbers():
    drawn = np.array([20, 40])
    rules = Rules(allowed={"hours": (drawn[0], drawn[1])}, costs={"hours": np.float64(2)})
    assert rules == Rules(allowed={"hours": (20, 40)}, costs={"hours": 2.0})
    assert Rules(allowed={"hours": drawn}).allowed == {"hours": [20, 40]}


def test_a_rule_that_is_none_says_nothing():
    names = [*Rules.model_fields]
    assert Rules(**dict.fromkeys(names)) == Rules()
    assert Rules.of_mapping(dict.fromkeys(names)) == Rules()
    assert Rules(immutable=None).immutable == frozenset()
    with pytest.raises(RequestError, match="no rule 'age'"):
        Rules.of_mapping({"age": None})


def test_answers_move_no_worse_way_unless_asked():
    schema = Schema(
        label=Label(name="loan", classes=("no", "yes")),
        features=(
            Numeric(name="debt", lower=0, upper=10, missing=True, good="down"),
            Categorical(name="degree", categories=("none", "school"), ordered=True, good="up"),
            Binary(name="savings", good="up"),
        ),
    )
    encoding = Encoding(schema)
    frame = pd.DataFrame({"debt": [4.0, None], "degree": ["school"] * 2, "savings": [1, 0]})
    box = box_around(encoding, encoding.encode(frame))
    debt, none, savings = 0, 2, 4
    assert box.upper[:, debt].tolist() == [pytest.approx(0.4), 1]  # a missing debt may be any
    assert box.upper[0, none] == 0
    assert box.lower[:, savings].tolist() == [1, 0]
    asked = Rules(direction={"debt": "increase", "degree": "any"})
    box = box_around(encoding, encoding.encode(frame), asked)
    assert (box.lower[0, debt], box.upper[0, debt]) == (pytest.approx(0.4), 1)
    assert box.upper[0, none] == 1
    assert asked != Rules(direction={"debt": "increase"})
    assert schema.feature("debt").changes_in_words == "may decrease"
    with pytest.raises(SchemaError, match="leads away from 'good'"):
        Numeric(name="debt", lower=0, upper=1, good="up", direction="decrease")
    with pytest.raises(SchemaError, match="'ordered'"):
        Categorical(name="c", categories=("a", "b"), good="up")
