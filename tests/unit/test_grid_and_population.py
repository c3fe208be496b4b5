"""From rows to cells and back, and from noisy counts to a population."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import random_rows

from counterveil.curator.coefficients import MomentSums, PairCounts
from counterveil.encoding import Encoding
from counterveil.errors import RequestError, VeilError
from counterveil.population import BitPopulation, ImagePopulation, MixedPopulation, population_of
from counterveil.population.base import to_simplex
from counterveil.population.copula import likely, spanning_tree
from counterveil.population.images import Frequencies
from counterveil.population.marginals import Marginals
from counterveil.population.mixed import Grid, believable
from counterveil.population.moments import whole_scores
from counterveil.population.shares import SureShares, _both_ways
from counterveil.population.whole_scorecard import weights_of
from counterveil.privacy.record import Measurement, NoisyRecord, Sensitivity
from counterveil.schema import Binary, Label, Numeric, Pixels, Schema

LABEL = Label(name="y", classes=(0, 1))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(1, 1e6))
def test_simplex_projection(values, total):
    projected = to_simplex(np.array(values), total)
    assert (projected >= 0).all()
    assert projected.sum() == pytest.approx(total, rel=1e-6)
    inside = np.abs(np.array(values)) + 1
    inside *= total / inside.sum()
    np.testing.assert_allclose(to_simplex(inside, total), inside, rtol=1e-6)


def measured(name, values, variance=1e-6):
    """A measurement of whole numbers with Laplace noise of that variance."""
    whole = np.round(values).astype(np.int64)
    scale = float(np.sqrt(variance / 2))
    return Measurement(name, name, whole, Sensitivity(1, 1.0), "discrete Laplace", scale, 1.0, 0.0)


def recorded(family, units, *measurements, **settings):
    return NoisyRecord(family, "record", units, measurements, **settings)


def population_of_rows(schema, rows, *, noise=0.0, moments=True, pairs=0):
    """P~ of counts of rows, with Laplace noise of this scale on singles; bins as in the schema."""
    grid = Grid(schema, 32)
    codes = grid.codes(grid.encoding.encode(rows))
    labels = grid.encoding.labels(rows)
    rng = np.random.default_rng(1)
    singles = []
    for number, count in enumerate(grid.counts):
        table = np.zeros((2, count))
        np.add.at(table, (labels, codes[:, number]), 1)
        singles.append(table + rng.laplace(0, noise, table.shape) if noise else table)
    made = [measured("singles", np.hstack(singles), max(2 * noise**2, 1e-6))]
    settings = {"fine": 32, "coarse": 8, "norm": 2 if moments else 0}
    if moments:
        known = Marginals(schema, recorded("mixed", len(rows), *made, **settings))
        sums = MomentSums(grid, whole_scores(known.scores, known.tables, 2), 2)
        sums.add(codes.T, labels)
        made.append(measured("moments", sums.moments, 1.0))
    if pairs:
        told = MixedPopulation(schema, recorded("mixed", len(rows), *made, **settings))
        settings["pairs"] = told.copula.strongest(pairs)
        counted = PairCounts(grid, known.coarse, settings["pairs"])
        counted.add(codes.T, labels)
        made.append(measured("pairs", np.concatenate([each.ravel() for each in counted.tables])))
    return MixedPopulation(schema, recorded("mixed", len(rows), *made, **settings))


def test_without_noise_the_population_has_the_tables_marginals(schema):
    rows = random_rows(schema, 4000, seed=2)
    population = population_of_rows(schema, rows)
    points, labels = population.sample(20_000, np.random.default_rng(0))
    real, real_labels = Encoding(schema).encode(rows), Encoding(schema).labels(rows)
    assert labels.mean() == pytest.approx(real_labels.mean(), abs=0.02)
    for label in (0, 1):
        mean = points[labels == label].mean(axis=0)
        np.testing.assert_allclose(mean, real[real_labels == label].mean(axis=0), atol=0.04)
    Encoding(schema).encode(Encoding(schema).decode(points[:500]))


@pytest.mark.parametrize("pairs", [0, 4])
def test_moments_keep_what_independence_loses(schema, pairs):
    rows = random_rows(schema, 4000, seed=2)
    rows["member"] = np.where(rows.age > 60, "yes", "no")

    def agreement(population):
        points, _ = population.sample(5000, np.random.default_rng(0))
        decoded = Encoding(schema).decode(points)
        return ((decoded.age > 60) == (decoded.member == "yes")).mean()

    assert agreement(population_of_rows(schema, rows, pairs=pairs)) > (0.9 if pairs else 0.8)
    assert agreement(population_of_rows(schema, rows, moments=False)) < 0.7


def test_rows_that_contradict_themselves_are_less_likely(schema):
    rows = random_rows(schema, 4000, seed=2)
    rows["member"] = np.where(rows.age > 60, "yes", "no")
    other = rows.assign(member=np.where(rows.age > 60, "no", "yes"))
    encoding = Encoding(schema)
    for pairs in (0, 4):
        population, label = population_of_rows(schema, rows, pairs=pairs), encoding.labels(rows)
        one, two = (population.log_density(encoding.encode(each)) for each in (rows, other))
        more = np.take_along_axis(one - two, label[:, None], axis=1)
        assert (more > 0).mean() > 0.9
        assert more.mean() > 1.0


def test_weights_are_learnt_beside_each_other_and_never_below_nothing():
    rng, rows = np.random.default_rng(0), 20_000
    labels = np.arange(rows) % 2
    sign = np.array([-0.5, 0.5])
    x = rng.normal(size=rows) + 1.5 * labels
    told_by = x * 1.5 - 1.5**2 / 2  # log-odds of x alone
    noise = rng.normal(size=rows)
    told = np.stack([told_by, told_by, noise, -told_by], axis=1)[:, None] * sign[:, None]
    once, _ = weights_of(told[:, :, [0, 2]], labels)
    np.testing.assert_allclose(once, [1, 0], atol=0.1)
    twice, offsets = weights_of(told[:, :, [0, 1]], labels)
    np.testing.assert_allclose(twice.sum(), 1, atol=0.1)
    assert abs(offsets[1] - offsets[0]) < 0.1
    against, _ = weights_of(told[:, :, [3]], labels)
    assert against == 0


def test_noise_that_drowns_everything_still_gives_legal_rows(schema):
    rows = random_rows(schema, 200)
    population = population_of_rows(schema, rows, noise=1e4)
    points, labels = population.sample(300, np.random.default_rng(0))
    Encoding(schema).encode(Encoding(schema).decode(points))
    assert set(labels) <= {0, 1}


def test_bits():
    frequencies = np.array([[0.9, 0.1, 0.0, 0.3], [0.1, 0.8, 0.0, 0.3]])
    counts = np.array([4000.0, 6000.0])
    sums = frequencies * counts[:, None]
    schema = Schema(features=tuple(Binary(name=f"b{i}") for i in range(4)), label=LABEL)

    def population_of_sums(sums, variance):
        pooled = measured("pooled", (frequencies * counts[:, None]).sum(axis=0))
        own = measured("sums", np.column_stack([counts, sums]), variance)
        return BitPopulation(schema, recorded("binary", 10_000, pooled, own))

    population = population_of_sums(sums, 1e-6)
    np.testing.assert_allclose(population.frequencies, frequencies, atol=0.01)
    points, labels = population.sample(4000, np.random.default_rng(0))
    assert set(np.unique(points)) == {0.0, 1.0}
    np.testing.assert_allclose(points[labels == 0].mean(axis=0), frequencies[0], atol=0.05)
    pooled = population_of_sums(sums * 0, 1e12).frequencies
    np.testing.assert_allclose(pooled[0], pooled[1], atol=0.02)


def test_frequencies_are_an_orthonormal_transform():
    image = Pixels(name="p", height=6, breadth=6, channels=2, levels=10)
    pictures = np.random.default_rng(0).random((5, 72))
    whole = Frequencies(image, 6)
    coefficients = whole.of(pictures)
    np.testing.assert_allclose(whole.back(coefficients), pictures, atol=1e-9)
    np.testing.assert_allclose((coefficients**2).sum(axis=1), (pictures**2).sum(axis=1))
    low = Frequencies(image, 3)
    assert low.of(pictures).shape == (5, 18)


def test_image_population_has_class_means_and_whole_levels():
    image = Pixels(name="p", height=8, breadth=8, levels=16)
    frequencies = Frequencies(image, 4)
    means = frequencies.of(np.stack([np.full(64, 0.2), np.full(64, 0.7)]))
    sums = measured("sums", 16 * np.column_stack([[1000.0, 1000.0], means * 1000]), 1e-4)
    record = recorded("image", 2000, sums, frequencies=4, fixed_point=16)
    population = ImagePopulation(Schema(features=(image,), label=LABEL), record)
    points, labels = population.sample(600, np.random.default_rng(0))
    assert (np.abs(points * 16 - np.round(points * 16)) < 1e-9).all()
    assert points[labels == 1].mean() > points[labels == 0].mean() + 0.2


def test_a_small_class_keeps_what_tells_it_apart():
    """One class is a tenth of the other: its own deviation is believed, not the large one's."""
    rng = np.random.default_rng(0)
    exact = np.array([[40_000.0] * 4, [7_000.0, 5_000.0, 3_000.0, 1_000.0]])
    expected = exact.sum(axis=1)[:, None] * exact.sum(axis=0) / exact.sum()
    noisy = exact + rng.laplace(scale=100, size=exact.shape)
    kept = believable(noisy, expected, 2 * 100**2)
    assert np.abs(kept[1] - exact[1]).max() < 500


def test_the_density_adds_up_to_one(schema):
    """Over all cells of three features, in each class, with moments and without."""
    rows = random_rows(schema, 2000, seed=5)
    small = Schema(name="s", label=schema.label, features=schema.features[4:7])
    rows = rows[[*small.columns, small.label.name]]
    for moments in (False, True):
        population = population_of_rows(small, rows, noise=3.0, moments=moments)
        counts = population.grid.counts
        codes = np.stack([grid.ravel() for grid in np.indices(counts)], axis=1)
        points = population.grid.points(codes, np.random.default_rng(0))
        whole = np.exp(population.log_density(points)).sum(axis=0)
        np.testing.assert_allclose(whole, 1, rtol=0.05 if moments else 1e-6)


def test_a_record_of_another_table_is_refused(schema):
    bits = Schema(features=tuple(Binary(name=f"b{i}") for i in range(4)), label=LABEL)
    image = Schema(features=(Pixels(name="p", height=4, breadth=4),), label=LABEL)
    width = Grid(schema, 8).width
    singles, pooled = measured("singles", np.zeros((2, width))), measured("pooled", np.zeros(4))
    for wrong, of in (
        (recorded("mixed", 9, singles, fine=9), schema),  # other bins
        (recorded("mixed", 9, measured("singles", np.zeros((3, width))), fine=8), schema),
        (recorded("mixed", 9, fine=8), schema),
        (recorded("mixed", 9, singles, singles, fine=8), schema),
        (recorded("binary", 9, pooled, measured("sums", np.zeros((2, 4)))), bits),
        (recorded("binary", 9, pooled, measured("sums", np.zeros((2, 5)))), image),
        (recorded("image", 9, measured("sums", np.zeros((2, 5))), frequencies=3), image),
        (recorded("image", 9, measured("sums", np.zeros((2, 26))), frequencies=5), image),
    ):
        with pytest.raises(VeilError):
            population_of(of, wrong)
    features = len(schema.features)
    moments = measured("moments", np.zeros(features * (features + 1) // 2 + 2 * features))
    for pairs in ((), ((0, 0),), ((1, 0),), ((0, 99),), ((-1, 1),), ((0, 1), (0, 2))):
        tables = measured("pairs", np.zeros(10))
        whole = recorded(
            "mixed", 9, singles, moments, tables, fine=8, coarse=8, norm=1, pairs=pairs
        )
        with pytest.raises(VeilError):
            population_of(schema, whole)
    pixels = Schema(features=(Pixels(name="p", height=2, breadth=2),), label=LABEL)
    with pytest.raises(RequestError):
        Grid(pixels, 8)


def test_dependence_is_found_through_noise_that_hides_every_pair():
    rng, features = np.random.default_rng(0), 24
    true = np.where(np.arange(features) < 12, 0.9, 0.0)
    cov, noise = np.outer(true, true), 0.3
    errors = rng.normal(scale=noise, size=cov.shape)
    noisy = cov + np.triu(errors, 1) + np.triu(errors, 1).T
    found = likely(noisy, np.ones(features), noise)
    assert (np.diag(found) == 0).all()
    off = ~np.eye(features, dtype=bool)
    assert np.sqrt(((found - cov)[off] ** 2).mean()) < noise / 2
    assert not likely(noisy - cov, np.ones(features), noise).any()  # noise alone
    noisy = np.zeros((12, 12))
    noisy[3, 7] = noisy[7, 3] = 0.5
    found = likely(noisy, np.ones(12), 0.05)
    assert 0.4 < found[3, 7] < 0.5  # a little less than it looks: noise may have helped
    assert np.count_nonzero(np.abs(found) > 0.02) == 2


def test_a_tree_takes_the_strongest_pairs_and_parents_come_first():
    strength = np.zeros((5, 5))
    for one, two, much in ((0, 1, 0.9), (1, 2, 0.5), (0, 2, 0.4), (3, 2, 0.1)):
        strength[one, two] = strength[two, one] = much
    tree = spanning_tree(strength)
    pairs = {frozenset(pair) for pair in tree if pair[0] >= 0}
    assert pairs == {frozenset({0, 1}), frozenset({1, 2}), frozenset({2, 3})}
    seen = {-1}
    for parent, child in tree:
        assert parent in seen
        seen.add(child)
    assert [parent for parent, child in tree if child == 4] == [-1]


def test_rows_that_are_drawn_have_the_counted_pairs(schema):
    rows = random_rows(schema, 4000, seed=2)
    rows["member"] = np.where(rows.age > 60, "yes", "no")
    rows["housing"] = np.where(rows.member == "yes", "own", rows.housing)
    population = population_of_rows(schema, rows, pairs=6)
    points, _ = population.sample(20_000, np.random.default_rng(0))
    drawn = Encoding(schema).decode(points)
    told = pd.crosstab(rows.member, rows.housing, normalize=True)
    found = pd.crosstab(drawn.member, drawn.housing, normalize=True).reindex_like(told).fillna(0)
    assert float((told - found).abs().to_numpy().sum()) < 0.1


SHARED = Schema(
    label=LABEL,
    features=(
        Numeric(name="late", lower=0, upper=9, integer=True, missing=True),
        Numeric(name="income", lower=0, upper=100),
    ),
)


def shared_rows(count, seed=0):
    rng = np.random.default_rng(seed)
    late = pd.array(rng.binomial(9, 0.3, count), dtype="Int64")
    late[rng.random(count) < 0.1] = pd.NA
    income = np.where(rng.random(count) < 0.4, 20.0, rng.uniform(0, 100, count))
    return pd.DataFrame({"late": late, "income": income, "y": rng.integers(0, 2, count)})


@pytest.mark.parametrize("noise", [0.0, 20.0])
def test_so_many_people_have_a_number_or_are_beyond_it(noise):
    rows = shared_rows(6000)
    population = population_of_rows(SHARED, rows, noise=noise, moments=False)
    after = Encoding(SHARED).encode(rows.head(400))
    before, goals = after[::-1].copy(), np.arange(400) % 2
    found = SureShares(population).beyond(before, after, goals)
    told = 0
    for number, name in enumerate(("late", "income")):
        for at in np.flatnonzero(found[:, number] > 0):
            value, was = rows[name][at], rows[name][399 - at]
            people = rows[name][rows.y == goals[at]]
            beyond = people >= value if pd.isna(was) or value > was else people <= value
            share = beyond.fillna(False).mean()
            assert found[at, number] <= share
            told += found[at, number] >= share - (0.3 if noise else 0.2)
    assert told > 300  # what is said is not far from what is so
    assert np.isnan(found[before[:, 0] == after[:, 0], 0]).all()
    assert np.isnan(found[after[:, 1] == 1, 0]).all()  # a missing number


def test_what_nearly_everybody_has_is_not_told():
    rows = shared_rows(2000).assign(late=0)
    rows.loc[:20, "late"] = 5
    shares = SureShares(population_of_rows(SHARED, rows, moments=False))
    points = Encoding(SHARED).encode(rows.iloc[[0, -1]])
    goals = np.zeros(2, dtype=int)
    to_none, to_five = shares.beyond(points, points[::-1], goals)[:, 0]
    assert np.isnan(to_none)
    assert to_five == 0
    assert shares.veil_knows
    assert not SureShares(population_of_rows(SHARED, rows, noise=1e4, moments=False)).veil_knows


@settings(max_examples=20, deadline=None)
@given(
    share=st.floats(0.05, 0.95), people=st.integers(20, 5000), scale=st.floats(0.1, 200),
    cells=st.integers(2, 30), seed=st.integers(0, 999),
)  # fmt: skip
def test_noise_seldom_makes_a_share_too_large(share, people, scale, cells, seed):
    rng = np.random.default_rng(seed)
    whose = np.append(share, np.full(cells - 1, (1 - share) / (cells - 1)))
    counts = rng.multinomial(people, whose, size=4000) + rng.laplace(0, scale, (4000, cells))
    said = _both_ways(counts, cells, 2 * scale**2)[0, :, 1]
    assert (said > share).mean() < 0.01
