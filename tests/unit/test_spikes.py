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
from counterveil.population.spikes import Slices
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


def test_a_plan_that_drowns_does_not_look_for_spikes():
    plan = make_plan(SCHEMA, 500, Budget(0.1))
    assert plan.shares[-1] is None
    assert "many people share" not in plan.text()
    assert Slices(Grid(SCHEMA, 12)).width == 0


def test_a_record_with_slices_of_another_schema_is_refused(record):
    other = SCHEMA.model_copy(update={"features": SCHEMA.features[:2]})
    with pytest.raises(VeilError, match="does not fit"):
        population_of(other, record)
