"""Numbers between wide bounds: ladders, chosen bins, and people told from noise."""

import numpy as np
import pytest

from counterveil.population.numbers import (
    ChosenCells,
    chosen_cells,
    denoised,
    ladder,
    pooled_counts,
    shaped,
)
from counterveil.schema import Binary, Numeric

ROWS, NOISE = 20_000, 60.0
KINDS = {
    "unit": Numeric(name="x", lower=0, upper=1),
    "amount": Numeric(name="x", lower=-4e6, upper=5e6, missing=True),
    "debt": Numeric(name="x", lower=-1e6, upper=0),
    "far": Numeric(name="x", lower=1e6, upper=1.001e6),
    "years": Numeric(name="x", lower=1700, upper=2300, integer=True),
    "hours": Numeric(name="x", lower=-440, upper=550, integer=True, missing=True),
    "cents": Numeric(name="x", lower=0, upper=1e12, integer=True),
    "two": Numeric(name="x", lower=0, upper=1, integer=True),
    "below": Numeric(name="x", lower=-30, upper=-1, integer=True),
}


def encoded(feature, values, missing=0):
    """Encoded rows of one feature; the first ones are missing."""
    unit = np.zeros((len(values), feature.width))
    unit[:, 0] = (np.asarray(values) - feature.lower) / feature.span
    unit[:missing] = [0.5, 1.0][: feature.width]
    return unit


def some_values(feature, rng, rows=ROWS):
    spread = feature.span / 50
    values = (feature.lower + feature.upper) / 2 + spread * rng.standard_t(2, size=rows)
    values = np.clip(values, feature.lower, feature.upper)
    return np.rint(values) if feature.integer else values


def told(feature, values, rng, bins=32, missing=0):
    """Cells chosen for these values by noisy counts, and the people in each."""
    unit, steps = encoded(feature, values, missing), ladder(feature)
    noisy = np.bincount(steps.codes(unit), minlength=steps.count) + rng.normal(
        0, NOISE, steps.count
    )
    cells = chosen_cells(steps, noisy, NOISE**2, len(values), bins)
    noisy = np.bincount(cells.codes(unit), minlength=cells.count) + rng.normal(
        0, NOISE, cells.count
    )
    counts = pooled_counts(noisy, NOISE**2, len(values), cells)
    return shaped(cells, counts), counts


def drawn(feature, cells, counts, rng, rows=ROWS):
    unit = cells.points(rng.choice(len(counts), size=rows, p=counts / counts.sum()), rng)
    present = unit[:, 1] < 0.5 if feature.missing else np.ones(rows, dtype=bool)
    values = feature.lower + unit[present, 0] * feature.span
    return np.rint(values) if feature.integer else values


def kolmogorov(one, two):
    one, two = np.sort(one), np.sort(two)
    at = np.concatenate([one, two]) + 1e-9
    return abs(np.searchsorted(one, at) / len(one) - np.searchsorted(two, at) / len(two)).max()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", ["ladder", "public", "chosen"])
def test_every_legal_value_has_one_cell_and_points_fall_back_into_theirs(kind, which):
    feature, rng = KINDS[kind], np.random.default_rng(3)
    cells = ladder(feature)
    if which != "ladder":
        cells, _ = told(feature, some_values(feature, rng), rng)
        assert isinstance(cells, ChosenCells)
    if which == "public":
        cells = shaped(ladder(feature), np.ones(ladder(feature).count))
    assert (cells.low <= cells.high).all()
    assert (cells.low[1:] >= cells.high[:-1]).all()  # one after the other
    assert (cells.low[1:] - cells.high[:-1]).max(initial=0) <= max(cells.step, 1e-11) * 1.001
    assert cells.low[0] == 0
    assert cells.high[-1] == pytest.approx(1, abs=1e-15)
    ends = [feature.lower, feature.upper, *([0.0] if feature.lower <= 0 <= feature.upper else [])]
    codes = cells.codes(encoded(feature, ends))
    assert (codes >= 0).all()
    assert (codes < len(cells.low)).all()
    codes = np.repeat(np.arange(cells.count), 50)
    points = cells.points(codes, rng)
    assert points.shape == (len(codes), feature.width)
    assert (points >= 0).all()
    assert (points <= 1).all()
    np.testing.assert_array_equal(cells.codes(points), codes)
    if feature.integer:
        values = feature.lower + points[:, 0] * feature.span
        gone = codes >= len(cells.low)
        assert abs(values - np.rint(values))[~gone].max() < 0.01


def test_a_ladder_is_small_and_gives_zero_a_cell():
    for feature in KINDS.values():
        assert ladder(feature).count <= 90, feature
    for name in ("amount", "debt", "unit", "hours", "cents"):
        cells = ladder(KINDS[name])
        code = cells.codes(encoded(KINDS[name], [0.0]))[0]
        assert cells.low[code] == cells.high[code], name
    assert not KINDS["two"].is_wide
    assert not Binary(name="b", values=(0, 1)).is_wide


def test_people_are_found_between_wide_bounds():
    rng = np.random.default_rng(1)
    feature = KINDS["years"]
    values = rng.integers(1990, 2021, size=ROWS)
    cells, counts = told(feature, values, rng)
    assert kolmogorov(drawn(feature, cells, counts, rng), values) < 0.05
    rng = np.random.default_rng(4)
    feature = KINDS["hours"]
    values = np.where(rng.random(ROWS) < 0.47, 40, np.rint(rng.normal(40, 12, ROWS)).clip(1, 99))
    cells, counts = told(feature, values, rng)
    sample = drawn(feature, cells, counts, rng)
    assert (sample == 40).mean() == pytest.approx((values == 40).mean(), abs=0.03)
    assert kolmogorov(sample, values) < 0.05
    rng = np.random.default_rng(2)
    feature = KINDS["amount"]
    values = np.exp(rng.normal(10, 1.5, size=ROWS)) * rng.choice([-1, 1], p=[0.3, 0.7], size=ROWS)
    values = np.clip(values, feature.lower, feature.upper)
    cells, counts = told(feature, values, rng, bins=48, missing=ROWS // 4)
    sample = drawn(feature, cells, counts, rng)
    assert kolmogorov(sample, values[ROWS // 4 :]) < 0.05
    assert np.quantile(sample, 0.98) < 1.3 * np.quantile(values, 0.98)
    assert counts[-1] == pytest.approx(ROWS / 4, abs=5 * NOISE)


def test_noise_alone_gives_nearly_empty_cells():
    rng = np.random.default_rng(6)
    exact = np.zeros(60)
    exact[20:30] = 2000
    noisy = exact + rng.normal(0, 200, 60)
    found = denoised(noisy, np.full(60, 200.0**2), 20_000, 60)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(20_000)
    assert found[:18].sum() + found[32:].sum() < 1200
    assert abs(found - exact).sum() < abs(np.maximum(noisy, 0) - exact).sum() / 2
    rng = np.random.default_rng(7)
    for feature in KINDS.values():
        steps = ladder(feature)
        for noisy in (
            np.zeros(steps.count),
            np.full(steps.count, -1e12),
            rng.normal(0, 1e9, steps.count),
        ):
            cells = chosen_cells(steps, noisy, 1e18, 10, 24)
            counts = pooled_counts(rng.normal(0, 1e9, cells.count), 1e18, 10, cells)
            assert np.isfinite(counts).all()
            assert counts.sum() == pytest.approx(10)
            points = shaped(cells, counts).points(np.arange(cells.count), rng)
            np.testing.assert_array_equal(cells.codes(points), np.arange(cells.count))


def test_coarse_bins_hold_about_as_many_people_each():
    rng = np.random.default_rng(8)
    feature = KINDS["amount"]
    cells, counts = told(feature, some_values(feature, rng), rng, bins=64, missing=100)
    coarse = cells.merged(8)
    assert (np.diff(coarse) >= 0).all()
    assert (np.diff(coarse) <= 1).all()
    assert coarse[-1] == coarse.max() > coarse[-2]  # a missing value stays alone
    assert coarse[-2] < 8
    people = np.bincount(coarse[:-1], counts[:-1])
    assert people.max() < 2.5 * people.sum() / 8
