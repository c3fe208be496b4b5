"""What a record can do to each statistic: never more than declared, and as much as declared.

Neighbours: the same table with one record (or all records of one person) replaced.
"""

import math
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterveil.audit.concentrated import overspent
from counterveil.curator import functional
from counterveil.curator.bits import keep_ones
from counterveil.curator.coefficients import (
    BoundedSums,
    GridCounts,
    GroupCounts,
    MomentSums,
    PairCounts,
    cut,
    fill,
)
from counterveil.curator.functional import make_plan
from counterveil.curator.noise import add, calibrate
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Encoding
from counterveil.errors import InternalError
from counterveil.population.groups import Groups
from counterveil.population.mixed import Grid
from counterveil.population.moments import WholeScores
from counterveil.population.numbers import Ladders
from counterveil.population.spikes import Slices
from counterveil.privacy import Budget
from counterveil.privacy.record import UNIT, Sensitivity
from counterveil.schema import Categorical, Label, Numeric, Schema

LABEL = Label(name="y", classes=(0, 1))


def summed(sums, schema, frame, **unit):
    fill(PrivateTable(frame, schema, **unit), sums)
    return sums


def counted(schema, frame, **unit):
    return summed(GridCounts(Grid(schema, 16), len(schema.label.classes)), schema, frame, **unit)


def pairs_of(schema, frame):
    grid = Grid(schema, 16)
    every = list(combinations(range(len(schema.features)), 2))
    return summed(PairCounts(grid, grid.merged(4), every), schema, frame).tables


def moments_of(schema, frame, whole):
    sums = MomentSums(Grid(schema, 16), whole, len(schema.label.classes))
    return summed(sums, schema, frame).moments


def two_columns(values, labels, people=None):
    frame = pd.DataFrame({"a": values, "b": values, "y": labels})
    return frame if people is None else frame.assign(who=people)


NUMBERS = Schema(
    features=(Numeric(name="a", lower=0, upper=9), Numeric(name="b", lower=0, upper=9)), label=LABEL
)


def two_scores(first, second, l1, l2_squared):
    """Scores of the features of `NUMBERS` at 0 and at 9; no weight of the class."""
    cells = Grid(NUMBERS, 16).counts
    values = [np.full(count, each[1]) for count, each in zip(cells, (first, second), strict=True)]
    for own, each in zip(values, (first, second), strict=True):
        own[0] = each[0]
    return WholeScores(tuple(values), 1.0, 0, l1, l2_squared)


def test_the_bounds_of_moments_are_attained():
    def moved_by(whole, one, two):
        frames = (pd.DataFrame({"a": [a], "b": [b], "y": [0]}) for a, b in (one, two))
        before, after = (moments_of(NUMBERS, frame, whole) for frame in frames)
        return np.abs(before - after)

    # L1: all of the norm on one feature, and then on the other.
    whole = two_scores((0, UNIT), (0, UNIT), UNIT, UNIT**2)
    assert moved_by(whole, (9.0, 0.0), (0.0, 9.0)).sum() == Sensitivity.of_moments(1, 2, 1).l1
    # L2: both features alike, and then one of them turned around.
    half = math.isqrt(UNIT**2 // 2)
    whole = two_scores((half, half), (half, -half), 2 * UNIT, UNIT**2)
    moved = moved_by(whole, (0.0, 0.0), (0.0, 9.0))
    declared = Sensitivity.of_moments(2, 2, 1).l2
    assert 0.995 * declared < math.sqrt((moved**2).sum()) <= declared


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), most=st.integers(1, 3))
def test_the_bound_of_groups_holds_and_is_attained(seed, most):
    letters = [Categorical(name=name, categories=("a", "b", "c")) for name in "uv"]
    schema = Schema(features=(*letters, *NUMBERS.features), label=LABEL)
    rng, groups = np.random.default_rng(seed), Groups.counted(schema, ["u", "v"])

    def drawn(records):
        cells = {name: rng.choice(list("abc"), records) for name in "uv"}
        cells |= {name: rng.integers(0, 10, records) for name in "ab"}
        return pd.DataFrame({**cells, "y": rng.integers(0, 2, records), "who": 1})

    others = drawn(6).assign(who=2)

    def counts(person):
        sums = GroupCounts(Grid(schema, 16), groups, 2)
        frame = pd.concat([person, others], ignore_index=True)
        return summed(sums, schema, frame, unit_column="who", max_records=most).counts

    declared = Sensitivity.of_counts(3, most)
    moved = counts(drawn(rng.integers(1, 6))) - counts(drawn(rng.integers(1, 6)))
    assert np.abs(moved).sum() <= declared.l1
    assert math.sqrt((moved**2).sum()) <= declared.l2
    here, there = (
        pd.DataFrame([{"u": at, "v": at, "a": 0, "b": 0, "y": 0, "who": 1}] * 4) for at in "ab"
    )
    moved = counts(here) - counts(there)
    assert np.abs(moved).sum() == declared.l1
    assert math.sqrt((moved**2).sum()) == pytest.approx(declared.l2)


def test_scores_are_cut_by_their_own_row_alone():
    whole = two_scores((5 * UNIT, 1), (-5 * UNIT, 1), UNIT, UNIT**2)
    alone = moments_of(NUMBERS, pd.DataFrame({"a": [0.0], "b": [0.0], "y": [0]}), whole)
    rest = moments_of(NUMBERS, pd.DataFrame({"a": [9.0], "b": [9.0], "y": [1]}), whole)
    both = moments_of(NUMBERS, pd.DataFrame({"a": [0.0, 9.0], "b": [0.0, 9.0], "y": [0, 1]}), whole)
    np.testing.assert_array_equal(both, alone + rest)


def test_the_bound_is_attained():
    before = counted(NUMBERS, two_columns([0, 5, 9], [0, 1, 0]))
    after = counted(NUMBERS, two_columns([9, 5, 9], [1, 1, 0]))
    declared = Sensitivity.of_counts(2, 1)
    moved = before.singles - after.singles
    assert np.abs(moved).sum() == declared.l1 == 4
    assert np.sqrt((moved**2).sum()) == pytest.approx(declared.l2)
    tables = (pairs_of(NUMBERS, two_columns([at, 5], [0, 1])) for at in (0, 9))
    (one,), (two,) = tables
    assert np.abs(one - two).sum() == Sensitivity.of_counts(1, 1).l1 == 2
    # By a record all of whose numbers move to another slice.
    ladders, encoding = Ladders(NUMBERS, 12), Encoding(NUMBERS)
    grid = Grid(NUMBERS, 12, ladders.chosen(np.full(ladders.width, 5.0), 1.0, 100, 12))
    slices = Slices(grid)
    tables = (pd.DataFrame({"a": [at, 5.0], "b": [at, 5.0], "y": [0, 1]}) for at in (1.0, 9.0))
    one, two = (slices.counts(encoding.compact(encoding.encode(table))) for table in tables)
    declared = Sensitivity.of_counts(len(slices.places), 1)
    assert np.abs(one - two).sum() == declared.l1
    assert math.sqrt(((one - two) ** 2).sum()) == pytest.approx(declared.l2)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(-(10**6), 10**6), min_size=3, max_size=3),
    st.integers(1, 1000),
    st.integers(1, 10**6),
)
def test_cut_vectors_keep_their_bounds_exactly(vector, l1, l2_squared):
    kept = cut(np.array([vector]), l1, l2_squared)[0]
    assert np.abs(kept).sum() <= l1
    assert int((kept.astype(object) ** 2).sum()) <= l2_squared
    inside = np.ones((1, 6), dtype=np.int64)
    assert (cut(inside, 6, 6) == inside).all()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_bounded_sums(seed):
    rng = np.random.default_rng(seed)
    vectors, labels = rng.integers(-50, 50, (20, 6)), rng.integers(0, 3, 20)

    def summed(first, label):
        sums = BoundedSums(6, 3, l1=40, l2_squared=625, count_weight=4)
        sums.add(np.concatenate([first, vectors[1:]]), np.append(label, labels[1:]))
        return sums

    before = summed(vectors[:1], labels[:1])
    after = summed(rng.integers(-50, 50, (1, 6)), rng.integers(0, 3, 1))
    declared = Sensitivity.of_sums(before.l1, before.l2_squared, 1)
    moved = before.sums - after.sums
    assert np.abs(moved).sum() <= declared.l1
    assert np.sqrt((moved**2).sum()) <= declared.l2 + 1e-9
    tight = np.array([[7, 7, 7, 7, 6, 6]])
    assert np.abs(summed(tight, [0]).sums - summed(tight, [1]).sums).sum() == declared.l1


def test_bits_keep_at_most_so_many_ones():
    rng = np.random.default_rng(0)
    rows = (rng.random((200, 40)) < 0.4).astype(np.int64)
    kept = keep_ones(rows, 5)
    assert (kept <= rows).all()
    assert (kept.sum(axis=1) == np.minimum(rows.sum(axis=1), 5)).all()
    changed = rows.copy()
    changed[0] = 1 - changed[0]
    assert (keep_ones(changed, 5)[1:] == kept[1:]).all()  # other records are none of its business


def test_noise_is_that_of_its_sensitivity_and_of_no_seed(schema, rows):
    noise = calibrate(2, math.sqrt(2), Budget(1.0))
    with pytest.raises(InternalError, match="privacy that was promised"):
        add(np.zeros(3, dtype=np.int64), noise, 3, math.sqrt(3))
    with pytest.raises(InternalError, match="whole numbers"):
        add(np.zeros(3), noise, 2, math.sqrt(2))
    plan = make_plan(schema, len(rows), Budget(0.5), order=1)
    np.random.seed(0)
    first = functional.measure(PrivateTable(rows, schema), plan).measurements[0].values
    np.random.seed(0)
    second = functional.measure(PrivateTable(rows, schema), plan).measurements[0].values
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_steps_add_up_to_the_budget(schema, rows, order, delta):
    budget = Budget(0.7, delta)
    plan = make_plan(schema, len(rows), budget, order=order)
    assert not overspent([share for share in plan.shares if share is not None], budget)
    record = functional.measure(PrivateTable(rows, schema), plan)
    accesses = record.accesses
    assert not overspent([found.share for found in record.measurements], budget)
    assert len(accesses) == sum(share is not None for share in plan.shares)
    assert bool(record.find("moments")) == (order == 2)
