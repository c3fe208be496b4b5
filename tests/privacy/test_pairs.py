"""What must hold for every pair of neighbours: drawn by a generator, with public dice for noise."""

from dataclasses import dataclass
from functools import partial
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pairs import batches, budgets, pairs

from counterveil.audit import score
from counterveil.audit.checks import Dice, both, more_than_noise, moves, too_quiet
from counterveil.audit.releases import plan_differs
from counterveil.curator import coefficients, sources

FEW = settings(max_examples=60, suppress_health_check=list(HealthCheck), derandomize=True)
MANY = settings(FEW, max_examples=5000, derandomize=False)


@dataclass
class Answers(Dice):
    """Public answers of a drawn size: what follows from noise must be sound whatever it is."""

    size: int = 1000

    def answer_to(self, exact):
        noise = self.dice.integers(-self.size, self.size, exact.shape, endpoint=True)
        return noise + 1000 * self.size * (noise > 0)


def answers(seed, size):
    return Answers(dice=np.random.default_rng(seed), size=size)


def batched(rows):
    """Rows are read and summed so many at a time."""
    return mock.patch.multiple(sources, BATCH=rows), mock.patch.multiple(
        coefficients, ROWS_AT_A_TIME=rows, ROWS_OF_SCORES=rows
    )


def holds(pair, budget, batch, seed, size):
    read, summed = batched(batch)
    with read, summed:
        one, two = both(pair, budget, partial(answers, seed, size))
        found = [*more_than_noise(one, two, budget), *moves(one, two), *too_quiet(one)]
        found += plan_differs(pair, budget)
    assert not found


drawn = given(pairs(), budgets, batches, st.integers(0, 99), st.sampled_from([0, 3, 1000, 10**6]))


@pytest.mark.long
@FEW
@drawn
def test_no_pair_tells_more_than_its_noise(pair, budget, batch, seed, size):
    holds(pair, budget, batch, seed, size)


@pytest.mark.long
@settings(FEW, max_examples=12)
@given(pairs(families=("mixed",)), budgets, batches)
def test_no_pair_moves_the_score_of_a_real_model_further_than_stated(pair, budget, batch):
    read, summed = batched(batch)
    with read, summed:
        found = [*moves(*score.listened(pair, budget)), *score.noise_alone(pair, budget)]
    assert not found


@pytest.mark.slow
@pytest.mark.timeout(3600)
@MANY
@drawn
def test_none_of_many_pairs_tells_more_than_its_noise(pair, budget, batch, seed, size):
    holds(pair, budget, batch, seed, size)
