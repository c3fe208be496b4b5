"""Random features of images: exact, bounded, of one image alone; and the plan that chooses them."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterveil.curator import functional
from counterveil.curator.coefficients import EmbeddingSums
from counterveil.curator.functional import make_plan
from counterveil.curator.images import MOST_NOISE, noise_of_features
from counterveil.curator.table import PrivateTable
from counterveil.errors import InternalError, VeilError
from counterveil.population import FeaturePopulation, population_of
from counterveil.population.features import COSINES, FIXED_POINT, SINES, Features
from counterveil.population.generator import count_weight
from counterveil.privacy import Budget
from counterveil.privacy.statement import GAUSSIAN, LAPLACE
from counterveil.schema import Label, Pixels, Schema

LABEL = Label(name="y", classes=(0, 1, 2))
IMAGE = Pixels(name="p", height=6, breadth=5, channels=2, levels=9)
SCHEMA = Schema(features=(IMAGE,), label=LABEL)
FEATURES = Features(IMAGE, 40)


def pictures(rng, count):
    return rng.integers(0, IMAGE.levels + 1, (count, IMAGE.width)) / IMAGE.levels


def test_features_are_those_of_public_waves_and_of_one_image():
    points = pictures(np.random.default_rng(0), 50)
    angles = points @ FEATURES.radians("cpu").double().numpy()
    exact = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * FIXED_POINT
    assert np.abs(FEATURES.whole(points) - exact).max() < 0.55
    again = Features(IMAGE, 40)
    assert (again.whole(points) == FEATURES.whole(points)).all()
    points = pictures(np.random.default_rng(0), 300)
    together = FEATURES.whole(points)
    for row in (0, 7, 299):
        assert (FEATURES.whole(points[[row]])[0] == together[row]).all()
        assert (FEATURES.whole(points[row : row + 3][::-1])[-1] == together[row]).all()


def test_sums_over_the_largest_image_stay_exact():
    """Whole numbers below 2⁵³, whatever the order of summing."""
    large = Pixels(name="p", height=100, breadth=100, levels=65535)
    features = Features(large, 3)
    steps = features._steps
    assert (steps == np.round(steps)).all()
    assert np.abs(steps).max() * large.levels * large.width <= 2**53
    levels = np.random.default_rng(0).integers(0, 65536, large.width)
    turns = [sum(int(a) * int(b) for a, b in zip(levels, row, strict=True)) for row in steps]
    places = np.array([(turn % (1 << 32)) >> 16 for turn in turns])
    expected = np.concatenate([COSINES[places], SINES[places]])
    assert (features.whole(levels[None] / large.levels)[0] == expected).all()


def test_no_image_exceeds_the_norms_and_some_attain_them():
    rng = np.random.default_rng(1)
    extremes = np.stack([np.zeros(IMAGE.width), np.ones(IMAGE.width), np.eye(IMAGE.width)[3]])
    vectors = FEATURES.whole(np.concatenate([extremes, pictures(rng, 500)]))
    squares = (vectors**2).sum(axis=1)
    assert squares.max() <= FEATURES.l2_squared
    assert np.abs(vectors).sum(axis=1).max() <= FEATURES.l1
    assert squares.min() > 0.98 * FEATURES.l2_squared  # all images are as long as each other
    assert FEATURES.l2_squared >= 40 * FIXED_POINT**2


def summed(points, classes):
    sums = EmbeddingSums(80, 3, FEATURES.l1, FEATURES.l2_squared, count_weight(40))
    sums.add(FEATURES.whole(points), classes)
    return sums


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), extreme=st.booleans())
def test_replacing_an_image_moves_the_sums_by_at_most_what_is_declared(seed, extreme):
    rng = np.random.default_rng(seed)
    points, classes = pictures(rng, 12), rng.integers(0, 3, 12)
    other = np.round(pictures(rng, 1)) if extreme else pictures(rng, 1)
    before = summed(points, classes)
    after = summed(
        np.concatenate([other, points[1:]]), np.append(rng.integers(0, 3, 1), classes[1:])
    )
    declared, moved = before.sensitivity(1), before.sums - after.sums
    assert np.abs(moved).sum() <= declared.l1
    assert math.sqrt(int((moved**2).sum())) <= declared.l2


def test_the_bound_is_attained():
    points = pictures(np.random.default_rng(0), 2)
    declared = summed(points, np.array([0, 1])).sensitivity(1)
    moved = summed(points, np.array([0, 1])).sums - summed(points, np.array([0, 2])).sums
    assert math.sqrt((moved**2).sum()) == pytest.approx(declared.l2, rel=0.06)
    # Of its own class: vectors of this norm that are opposite to each other.
    vector = FEATURES.whole(points[:1])
    sums = EmbeddingSums(80, 3, FEATURES.l1, FEATURES.l2_squared, count_weight(40))
    sums.add(vector, np.array([0]))
    opposite = EmbeddingSums(80, 3, FEATURES.l1, FEATURES.l2_squared, count_weight(40))
    opposite.add(-vector, np.array([0]))
    length = math.sqrt(((sums.sums - opposite.sums) ** 2).sum())
    assert 0.98 * declared.l2 < length <= declared.l2
    three = summed(points, np.array([0, 1])).sensitivity(3)
    assert (three.l1, three.l2) == (3 * declared.l1, pytest.approx(3 * declared.l2))
    with pytest.raises(InternalError, match="weighs more"):
        EmbeddingSums(4, 2, 10, 99, 10)


def rows_of(count, seed=0):
    points = np.random.default_rng(seed).integers(0, IMAGE.levels + 1, (count, IMAGE.width))
    return pd.DataFrame(points, columns=list(IMAGE.columns)).assign(y=np.arange(count) % 3)


def test_the_plan_chooses_by_public_numbers_and_says_why():
    few = make_plan(SCHEMA, 90, Budget(1.0, 1e-6))
    assert not few.features
    assert "too much to see shapes" in few.text()
    pure = make_plan(SCHEMA, 3000, Budget(1.0))
    assert not pure.features
    assert "with --delta 1e-06 this table would get them" in pure.text()
    assert "would get them" not in make_plan(SCHEMA, 90, Budget(1.0)).text()
    asked = make_plan(SCHEMA, 3000, Budget(1.0, 1e-6), order=1)
    assert not asked.features
    assert "as asked for" in asked.text()
    many = make_plan(SCHEMA, 3000, Budget(1.0, 1e-6))
    assert many == make_plan(SCHEMA, 3000, Budget(1.0, 1e-6), order=2)
    assert many.features >= 64
    assert not many.frequencies
    noise = noise_of_features(Budget(1.0, 1e-6), 1)
    assert noise / 1000 < MOST_NOISE
    assert f"deviation {noise:.3g}" in many.text()
    assert noise_of_features(Budget(1.0, 1e-6), 3) == pytest.approx(3 * noise, rel=1e-3)
    wide = Schema(features=(Pixels(name="p", height=200, breadth=200),), label=LABEL)
    assert "more than" in make_plan(wide, 10**6, Budget(1.0, 1e-6)).text()


def test_features_are_measured_with_gaussian_noise_and_told_in_the_record():
    plan = make_plan(SCHEMA, 1500, Budget(2.0, 1e-6))
    record = functional.measure(PrivateTable(rows_of(1500), SCHEMA), plan)
    (sums,) = record.measurements
    assert sums.mechanism == GAUSSIAN != LAPLACE
    assert record.features == plan.features
    assert sums.values.shape == (3, 1 + 2 * plan.features)
    assert sums.scale / FIXED_POINT / math.sqrt(plan.features) == pytest.approx(
        noise_of_features(Budget(2.0, 1e-6), 1), rel=0.01
    )
    population = population_of(SCHEMA, record)
    assert isinstance(population, FeaturePopulation)
    np.testing.assert_allclose(population.class_share, 1 / 3, atol=0.05)
    assert np.linalg.norm(population.embedding, axis=1).max() < 1.2
    with pytest.raises(VeilError):
        population_of(Schema(features=(IMAGE,), label=Label(name="y", classes=(0, 1))), record)
