"""Single values that many people share: found where they stand out of the noise, and only there."""

import numpy as np
import pandas as pd
import pytest

from counterveil.curator.functional import make_plan, measure
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Encoding
from counterveil.errors import VeilError
from counterveil.population import population_of
from counterveil.population.grid import Grid
from counterveil.population.marginals import chosen_grid
from counterveil.population.spikes import Slices, with_spikes
from counterveil.privacy import Budget
from counterveil.schema import Label, Numeric, Schema

SCHEMA = Schema(
    features=(
        Numeric(name="income", lower=0, upper=2_000_000),
        Numeric(name="share", lower=-1, upper=3, missing=True),
        Numeric(name="hours", lower=0, upper=500, integer=True),
    ),
    label=Label(name="y", classes=("no", "yes")),
)
ROWS = 20_000


def people(rng, rows=ROWS):
    income = np.exp(rng.normal(11.9, 0.5, rows)).clip(0, 2_000_000)
    income = np.where(rng.random(rows) < 0.3, 135_000.0, income)
    share = np.where(rng.random(rows) < 0.4, 0.1667, rng.random(rows))
    share[rng.random(rows) < 0.3] = np.nan
    hours = np.where(rng.random(rows) < 0.5, 40, rng.integers(1, 90, rows))
    columns = {
        "income": income, "share": share, "hours": hours, "y": rng.choice(["no", "yes"], rows),
    }  # fmt: skip
    return pd.DataFrame(columns)


@pytest.fixture(scope="module")
def record():
    plan = make_plan(SCHEMA, ROWS, Budget(1.0, 1e-6))
    assert "single values that many people share" in plan.text()
    return measure(PrivateTable(people(np.random.default_rng(0)), SCHEMA), plan)


def sampled(record, feature):
    population = population_of(SCHEMA, record)
    points, _ = population.sample(20_000, np.random.default_rng(1))
    block = Encoding(SCHEMA).blocks[feature]
    unit = points[:, block.at]
    unit = unit[unit[:, 1] < 0.5] if block.feature.missing else unit
    return block.feature.lower + unit[:, 0] * block.feature.span


@pytest.mark.parametrize(
    ("feature", "value", "share"), [(0, 135_000.0, 0.3), (1, 0.1667, 0.4), (2, 40.0, 0.5)]
)
def test_a_value_that_many_share_is_drawn_as_it_is(record, feature, value, share):
    drawn = sampled(record, feature)
    assert np.isclose(drawn, value, rtol=1e-9).mean() == pytest.approx(share, abs=0.04)


def test_values_that_few_share_are_not_made_up(record):
    values, counts = np.unique(np.round(sampled(record, 0), 6), return_counts=True)
    often = values[counts > 200]
    assert often.tolist() == [135_000.0]


def test_percentiles_jump_at_a_spike(record):
    places, shares = population_of(SCHEMA, record).percentiles(0)
    assert (np.diff(places) >= 0).all()
    assert (np.diff(shares) >= -1e-12).all()
    at = np.flatnonzero(np.isclose(places, 135_000 / 2_000_000, rtol=1e-9))
    assert shares[at].max() - shares[at].min() == pytest.approx(0.3, abs=0.04)


def test_every_row_is_in_one_slice_of_each_number(record):
    points = Encoding(SCHEMA).encode(people(np.random.default_rng(2), 300))
    slices = Slices(chosen_grid(SCHEMA, record))
    counts = slices.counts(Encoding(SCHEMA).compact(points))
    assert slices.places == (0, 1, 2)
    assert [part.sum() for part in slices.parts(counts).values()] == [300, 300, 300]
    for place, cells in zip(slices.places, slices.cells, strict=True):
        assert (cells.low <= cells.high).all()
        assert (np.diff(cells.low) > 0).all()
        bins = chosen_grid(SCHEMA, record).cells[place]
        assert (slices.bin_of[place] == bins.codes(cells_in_the_middle(cells))).all()


def cells_in_the_middle(cells):
    middle = (cells.low + cells.high) / 2
    if cells.step:
        middle = cells.low
    return np.stack([middle, np.zeros(len(middle))], axis=1)[:, : 1 + cells.missing]


def test_a_plan_that_drowns_does_not_look_for_spikes():
    plan = make_plan(SCHEMA, 500, Budget(0.1))
    assert plan.shares[-1] is None
    assert "many people share" not in plan.text()
    assert Slices(Grid(SCHEMA, 12)).width == 0


def test_a_record_with_slices_of_another_schema_is_refused(record):
    other = SCHEMA.model_copy(update={"features": SCHEMA.features[:2]})
    with pytest.raises(VeilError, match="does not fit"):
        population_of(other, record)


def test_pieces_are_parted_at_spikes_and_keep_their_weight():
    pieces = [(0.0, 0.5, 1.0), (0.5, 1.0, 3.0)]
    parted = with_spikes(pieces, [0.25, 0.5, 1.0], np.array([0.1, 0.2, 0.3]), 0.0)
    assert sum(weight for *_, weight in parted) == pytest.approx(4.0)
    assert [(low, high) for low, high, _ in parted] == [
        (0.0, 0.25), (0.25, 0.25), (0.25, 0.5), (0.5, 0.5), (0.5, 1.0), (1.0, 1.0),
    ]  # fmt: skip
    assert [weight for low, high, weight in parted if low == high] == pytest.approx([0.4, 0.8, 1.2])


def test_whole_numbers_are_parted_between_values():
    parted = with_spikes([(0.0, 0.4, 5.0)], [0.2], np.array([0.5]), 0.1)
    ends = [end for low, high, _ in parted for end in (low, high)]
    assert ends == pytest.approx([0.0, 0.1, 0.2, 0.2, 0.3, 0.4])
    assert [weight for *_, weight in parted] == pytest.approx([1.0, 3.0, 1.0])
    alone = with_spikes([(0.2, 0.2, 2.0)], [0.2], np.array([0.5]), 0.1)
    assert alone == [(0.2, 0.2, pytest.approx(2.0))]
