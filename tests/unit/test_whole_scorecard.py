"""The private model of a mixed table: exact sums of whole numbers, whatever is asked beside."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from counterveil.encoding import Encoding
from counterveil.errors import VeilError
from counterveil.population.grid import Grid
from counterveil.population.whole_scorecard import MOST, WHOLE, Scorecard, WholeScorecard
from counterveil.private_model import logits_alone
from counterveil.schema import Binary, Categorical, Label, Numeric, Schema
from counterveil.schema.columns import MISSING_VALUE

SCHEMA = Schema(
    label=Label(name="y", classes=(0, 1)),
    features=(
        Numeric(name="x", lower=-1e6, upper=1e6, missing=True),
        Categorical(name="c", categories=("a", "b", "d")),
        Binary(name="b", values=(0, 1)),
    ),
)


def a_card(seed=0, size=1.0, gap=0.1):
    """A scorecard of random points; the bins of x are so far apart."""
    grid, dice = Grid(SCHEMA, 12), np.random.default_rng(seed)
    points = tuple(dice.normal(size=(2, count)) * size for count in grid.counts)
    cells = grid.cells[0]
    places = 0.5 + gap * np.arange(len(cells.low))
    cells.low[:], cells.high[:] = places, places + gap
    weights = dice.random(3)
    return Scorecard(points, weights, dice.normal(size=2)), grid


def random_points(count, seed):
    dice = np.random.default_rng(seed)
    rows = dice.random((count, Encoding(SCHEMA).width)).astype(np.float32)
    rows[:, 1:] = rows[:, 1:].round()
    return rows


@pytest.mark.parametrize("threads", [1, 2])
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 70),
    gap=st.sampled_from([1e-9, 1e-4, 0.03]),
    size=st.sampled_from([0.01, 1.0, 200.0]),
)
def test_a_decision_depends_on_the_row_alone(threads, seed, count, gap, size):
    """Bit by bit: alone, among others in any order, by torch, without it, with any threads."""
    model, rows = WholeScorecard.of(*a_card(seed, size, gap)), random_points(count, seed)
    rows[::2, 0] = 0.5 + gap * 11 * rows[::2, 0]
    usual = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        together = model(torch.from_numpy(rows)).numpy()
        alone = [model(torch.from_numpy(row.copy()[None])).numpy()[0] for row in rows]
    finally:
        torch.set_num_threads(usual)
    order = np.random.default_rng(seed).permutation(count)
    assert np.array_equal(together, np.stack(alone))
    assert np.array_equal(together[order], model(torch.from_numpy(rows[order])).numpy())
    assert np.array_equal(together, model.of_array(rows))
    assert np.array_equal(together, logits_alone(model, rows))


def test_points_and_gradient_are_those_of_the_scorecard():
    card, grid = a_card(gap=0.03)
    rows = random_points(50, 1)
    rows[:, 0] = 0.4 + rows[:, 0] / 2
    rows[:40, 1], rows[40:, :2] = 0, (MISSING_VALUE, 1)
    middles = (grid.cells[0].low + grid.cells[0].high) / 2
    expected = np.tile(card.offsets, (50, 1))
    for place, own in enumerate(card.points[0] * card.weights[0]):
        line = np.interp(rows[:, 0], middles, own[: len(middles)])
        expected[:, place] += np.where(rows[:, 1] == 1, own[-1], line)
        expected[:, place] += rows[:, 2:5] @ (card.points[1][place] * card.weights[1])
        both = card.points[2][place] * card.weights[2]
        expected[:, place] += both[rows[:, 5].astype(int)]
    model = WholeScorecard.of(card, grid)
    np.testing.assert_allclose(model.of_array(rows), expected, atol=1e-3)
    shifted = model.plus(np.array([0.25, -0.5]))
    np.testing.assert_allclose(
        shifted.of_array(rows) - model.of_array(rows), [[0.25, -0.5]] * 50, atol=1e-5
    )
    card, grid = a_card(gap=0.03)
    model = WholeScorecard.of(card, grid)
    middles = (grid.cells[0].low + grid.cells[0].high) / 2
    rows = torch.from_numpy(random_points(1, 2))
    rows[0, 0] = float(middles[3] + middles[4]) / 2
    rows.requires_grad_(True)
    model(rows)[0, 1].backward()
    own = card.points[0][1] * card.weights[0]
    assert rows.grad[0, 0] == pytest.approx((own[4] - own[3]) / 0.03, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "value"),
    [("points", 0.5), ("points", MOST / WHOLE), ("offsets", 0.25), ("columns", 6), ("columns", -1)],
)
def test_what_is_no_scorecard_of_whole_numbers_is_refused(name, value):
    model = WholeScorecard.of(*a_card())
    model.check(6)
    getattr(model, name)[0] = value
    with pytest.raises(VeilError, match="whole numbers"):
        model.check(6)
