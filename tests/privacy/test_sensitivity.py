"""What a record can do to each statistic: never more than declared, and as much as declared.

Neighbours: the same table with one record (or all records of one person) replaced.
"""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import random_rows

from counterveil.audit.concentrated import overspent
from counterveil.curator import functional
from counterveil.curator.bits import keep_ones
from counterveil.curator.coefficients import BoundedSums, GridCounts, cut
from counterveil.curator.functional import make_plan
from counterveil.curator.noise import EXACT, add, calibrate
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Encoding
from counterveil.errors import InternalError
from counterveil.population import population_of
from counterveil.population.ladder import Ladders
from counterveil.population.mixed import Grid
from counterveil.population.scorecard import WholePoints
from counterveil.population.spikes import Slices
from counterveil.privacy import Budget, Rho
from counterveil.privacy.record import UNIT, Sensitivity
from counterveil.schema import Binary, Label, Numeric, Pixels, Schema

LABEL = Label(name="y", classes=(0, 1))


def counted(schema, frame, **unit):
    grid = Grid(schema, 16)
    counts = GridCounts(grid, len(schema.label.classes), grid.merged(4), pairs=True)
    for columns, classes in PrivateTable(frame, schema, **unit).private_columns():
        counts.add(columns, classes)
    return counts


def pairs_of(counts, schema):
    return [
        counts.pair(one, two)
        for one in range(len(schema.features))
        for two in range(one)
    ]  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_replacing_a_record_moves_counts_by_at_most_what_is_declared(schema, seed):
    frame = random_rows(schema, 30, seed=seed)
    other = pd.concat([random_rows(schema, 1, seed=seed + 1), frame.iloc[1:]], ignore_index=True)
    before, after = counted(schema, frame), counted(schema, other)
    features = len(schema.features)
    moved = before.singles - after.singles
    declared = Sensitivity.of_counts(features, 1)
    assert np.abs(moved).sum() <= declared.l1
    assert np.sqrt((moved**2).sum()) <= declared.l2 + 1e-9
    scores = Sensitivity.of_counts(1, 1).l1
    for one, two in zip(pairs_of(before, schema), pairs_of(after, schema), strict=True):
        assert np.abs(one - two).sum() <= scores


def two_columns(values, labels, people=None):
    frame = pd.DataFrame({"a": values, "b": values, "y": labels})
    return frame if people is None else frame.assign(who=people)


NUMBERS = Schema(
    features=(Numeric(name="a", lower=0, upper=9), Numeric(name="b", lower=0, upper=9)), label=LABEL
)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_products_and_ladders_move_by_at_most_what_is_declared(schema, seed):
    frame = random_rows(schema, 30, seed=seed)
    other = pd.concat([random_rows(schema, 1, seed=seed + 1), frame.iloc[1:]], ignore_index=True)
    before, after = counted(schema, frame), counted(schema, other)
    dice = np.random.default_rng(seed)
    features = dice.permutation(len(schema.features))[:5]
    cells = [before.pair(number, 0).shape[0] for number in features]
    size = UNIT / math.sqrt(len(features))  # each feature's largest whole point
    points = WholePoints(
        features, tuple(np.trunc(dice.choice([-size, size, 1], cell)) for cell in cells), 1.0
    )
    points = replace(points, values=tuple(each.astype(np.int64) for each in points.values))
    moved, declared = (
        before.products(points) - after.products(points),
        Sensitivity.of_products(5, 1),
    )
    assert np.abs(moved).sum() <= declared.l1
    assert np.sqrt((moved.astype(float) ** 2).sum()) <= declared.l2
    ladders, encoding = Ladders(schema, 12), Encoding(schema)
    looked = [ladders.counts(encoding.compact(encoding.encode(rows))) for rows in (frame, other)]
    assert np.abs(looked[0] - looked[1]).sum() <= 2 * len(ladders.places)
    noisy = dice.normal(looked[0] + 10.0, 5.0)
    slices = Slices(Grid(schema, 12, ladders.chosen(noisy, 25.0, 30, 12)))
    sliced = [slices.counts(encoding.compact(encoding.encode(rows))) for rows in (frame, other)]
    assert np.abs(sliced[0] - sliced[1]).sum() <= 2 * len(ladders.places)


def test_the_bound_of_slices_is_attained():
    """By a record all of whose numbers move to another slice."""
    ladders, encoding = Ladders(NUMBERS, 12), Encoding(NUMBERS)
    grid = Grid(NUMBERS, 12, ladders.chosen(np.full(ladders.width, 5.0), 1.0, 100, 12))
    slices = Slices(grid)
    tables = (pd.DataFrame({"a": [at, 5.0], "b": [at, 5.0], "y": [0, 1]}) for at in (1.0, 9.0))
    one, two = (slices.counts(encoding.compact(encoding.encode(table))) for table in tables)
    declared = Sensitivity.of_counts(len(slices.places), 1)
    assert np.abs(one - two).sum() == declared.l1
    assert math.sqrt(((one - two) ** 2).sum()) == pytest.approx(declared.l2)


def test_the_bounds_of_products_are_attained():
    most = math.isqrt(UNIT**2 // 2)
    both = np.array([-most] + [most] * 3)
    points = WholePoints(np.array([0, 1]), (both, both), 1.0)
    before, after = (
        counted(NUMBERS, pd.DataFrame({"a": [0.0, 9.0], "b": [b, 9.0], "y": [0, 1]}))
        for b in (0.0, 9.0)
    )
    declared = Sensitivity.of_products(2, 1)
    moved = np.abs(before.products(points) - after.products(points)).sum()
    assert 0.999 * declared.l1 < moved <= declared.l1
    assert 0.999 * declared.l2 < moved <= declared.l2


def test_the_bound_is_attained():
    before = counted(NUMBERS, two_columns([0, 5, 9], [0, 1, 0]))
    after = counted(NUMBERS, two_columns([9, 5, 9], [1, 1, 0]))
    declared = Sensitivity.of_counts(2, 1)
    moved = before.singles - after.singles
    assert np.abs(moved).sum() == declared.l1 == 4
    assert np.sqrt((moved**2).sum()) == pytest.approx(declared.l2)
    assert np.abs(before.pair(1, 0) - after.pair(1, 0)).sum() == 2


@pytest.mark.parametrize("most", [1, 3])
def test_replacing_a_person_with_all_records(most):
    unit = {"unit_column": "who", "max_records": most}
    values, labels, people = [5] * 4 + [4], [1, 1, 1, 0, 0], [2] * 4 + [3]

    def with_person(records, value, label):
        frame = two_columns(
            [value] * records + values, [label] * records + labels, [1] * records + people
        )
        return counted(NUMBERS, frame, **unit)

    before, after = with_person(6, 0, 0), with_person(6, 9, 1)
    declared = Sensitivity.of_counts(2, most)
    moved = before.singles - after.singles
    assert np.abs(moved).sum() == declared.l1
    assert np.sqrt((moved**2).sum()) == pytest.approx(declared.l2)
    fewer = with_person(1, 9, 1)
    assert np.abs(before.singles - fewer.singles).sum() <= declared.l1


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


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("epsilon", [0.025, 0.75, 3.0])
def test_noise_gives_what_it_claims(epsilon, delta):
    declared = Sensitivity.of_counts(11, 1)
    noise = calibrate(declared.l1, declared.l2, Budget(epsilon, delta))
    noisy = add(np.zeros(20_000, dtype=np.int64), noise, declared.l1, declared.l2)
    assert noisy.std() == pytest.approx(math.sqrt(noise.variance), rel=0.05)
    if noise.kind == "discrete Laplace":
        assert noise.scale >= declared.l1 / epsilon
    else:
        assert noise.share.delta == delta
        assert noise.variance < 2 * (declared.l1 / epsilon) ** 2


def test_noise_refuses_a_sensitivity_it_was_not_made_for():
    noise = calibrate(2, math.sqrt(2), Budget(1.0))
    with pytest.raises(InternalError, match="privacy that was promised"):
        add(np.zeros(3, dtype=np.int64), noise, 3, math.sqrt(3))
    with pytest.raises(InternalError, match="whole numbers"):
        add(np.zeros(3), noise, 2, math.sqrt(2))


def test_noisy_max_prefers_high_scores():
    for share in (Budget(0.2), Rho(0.005)):
        picks = [EXACT.choose([0, 0, 400], 2, share) for _ in range(30)]
        assert picks.count(2) > 25
        assert len({EXACT.choose([5, 5, 5], 2, share) for _ in range(60)}) == 3


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_steps_add_up_to_the_budget(schema, rows, order, delta):
    budget = Budget(0.7, delta)
    plan = make_plan(schema, len(rows), budget, order=order)
    assert not overspent([share for share in plan.shares if share is not None], budget)
    record = functional.measure(PrivateTable(rows, schema), plan)
    accesses = record.accesses
    assert not overspent([found.share for found in record.measurements], budget)
    assert len(accesses) == (1 if order == 1 else 3) + bool(plan.ranges)


def test_every_family_is_measured_within_its_budget():
    rng = np.random.default_rng(0)
    bits = Schema(features=tuple(Binary(name=f"b{i}") for i in range(30)), label=LABEL)
    image = Schema(features=(Pixels(name="p", height=8, breadth=8, levels=16),), label=LABEL)
    for schema, top in ((bits, 2), (image, 17)):
        frame = pd.DataFrame(rng.integers(0, top, (80, schema.width)), columns=schema.columns)
        frame["y"] = np.arange(80) % 2
        plan = make_plan(schema, 80, Budget(0.5))
        record = functional.measure(PrivateTable(frame, schema), plan)
        assert sum(access.epsilon for access in record.accesses) <= 0.5
        points, labels = population_of(schema, record).sample(50, rng)
        assert points.shape == (50, schema.width)
        assert len(labels) == 50


def test_noise_is_drawn_from_the_system_and_not_from_seeds(schema, rows):
    plan = make_plan(schema, len(rows), Budget(0.5), order=1)
    np.random.seed(0)
    first = functional.measure(PrivateTable(rows, schema), plan).measurements[0].values
    np.random.seed(0)
    second = functional.measure(PrivateTable(rows, schema), plan).measurements[0].values
    assert not np.array_equal(first, second)
    shares = [
        population_of(schema, functional.measure(PrivateTable(rows, schema), plan)).class_share
        for _ in range(2)
    ]
    assert not np.array_equal(*shares)
