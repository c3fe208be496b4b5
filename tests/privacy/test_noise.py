"""Calibration of the exact noise where ε and δ are extreme: proved, or refused in one line."""

import math

import numpy as np
import pytest

from counterveil.curator.noise import Noise, add, calibrate
from counterveil.errors import BudgetError
from counterveil.privacy import Budget

L1, L2 = 22, math.nextafter(math.sqrt(22), math.inf)


@pytest.mark.parametrize("epsilon", [1e-300, 1e-9, 0.5, 30.0, 1e3, 1e6, 1e12, 1e300])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_noise_is_proved_however_large_or_small_epsilon_is(epsilon, delta):
    noise = calibrate(L1, L2, Budget(epsilon, delta))
    assert noise.share.epsilon == epsilon
    assert noise.share.delta <= delta
    assert 0 < noise.scale < math.inf
    assert noise.variance <= 2 * (L1 / epsilon) * (L1 / epsilon) * (1 + 1e-9)
    assert add(np.arange(3, dtype=np.int64), noise, L1, L2).shape == (3,)  # or it would refuse


def test_the_smaller_variance_wins():
    assert calibrate(L1, L2, Budget(1e6, 1e-6)).kind == "discrete Laplace"
    assert calibrate(L1, L2, Budget(0.5, 1e-6)).kind == "discrete Gaussian"
    assert calibrate(2, math.sqrt(2), Budget(0.5, 1e-6)).kind == "discrete Laplace"


def test_no_finite_noise_is_enough_for_no_epsilon_at_all():
    for delta in (0.0, 1e-6):
        with pytest.raises(BudgetError, match="raise it"):
            calibrate(L1, L2, Budget(5e-324, delta))


def test_a_variance_too_large_for_a_float_is_infinite():
    assert Noise("discrete Laplace", 1e200, Budget(1e-199)).variance == math.inf
