"""The exact noise: where ε and δ are extreme, where it is drawn, how its numbers go together."""

import ast
import math
import re
from pathlib import Path

import numpy as np
import pytest

from counterveil import curator
from counterveil.audit import fast_noise, joint
from counterveil.curator.noise import EXACT, Noise, add, calibrate
from counterveil.errors import BudgetError
from counterveil.privacy import Budget, Rho
from counterveil.privacy.record import Sensitivity

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


def test_the_smaller_variance_wins_and_some_budgets_have_none():
    assert calibrate(L1, L2, Budget(1e6, 1e-6)).kind == "discrete Laplace"
    assert calibrate(L1, L2, Budget(0.5, 1e-6)).kind == "discrete Gaussian"
    assert calibrate(2, math.sqrt(2), Budget(0.5, 1e-6)).kind == "discrete Laplace"
    for delta in (0.0, 1e-6):
        with pytest.raises(BudgetError, match="raise it"):
            calibrate(L1, L2, Budget(5e-324, delta))
    assert Noise("discrete Laplace", 1e200, Budget(1e-199)).variance == math.inf


# What draws, or steers what is drawn, on the private side besides `noise`: public dice that hold no
# data, and the trainings of dpsgd, whose noise is torch's and documented as such.
DRAWS = {
    "bits.py": ["default_rng", "integers", "permutation"],
    "dpsgd.py": ["Generator", "default_rng", "manual_seed", "randbits", "random", "token_bytes"],
    "score.py": ["default_rng", "sample"],
    "scored.py": ["beta", "beta", "default_rng", "default_rng"],
}
DRAWING = re.compile(
    "rand|gauss|normal$|laplace|geometric|choice|permut|shuffle|integers|beta|poisson|binomial|"
    "exponential|uniform|bernoulli|multinomial|token_|_seed|^seed$|^sample|default_rng|"
    "Generator|dirichlet|gamma|^add_noise|EXACT|NoiseSource"
)


def test_noise_is_drawn_behind_one_door():
    """`NoiseSource.perturb`: the audit, which listens there, hears all noise that there is."""
    for path in sorted(Path(curator.__file__).parent.glob("*.py")):
        tree, imported = ast.parse(path.read_text()), set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "counterveil.curator.noise":
                imported |= {alias.name for alias in node.names}
        calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
        names = sorted(getattr(call, "attr", getattr(call, "id", "")) for call in calls)
        if path.name == "noise.py":
            assert [names.count(name) for name in ("add", "NoiseSource")] == [1, 1]
            continue
        assert [name for name in names if DRAWING.search(name)] == DRAWS.get(path.name, []), path
        assert "opendp" not in path.read_text().replace('"opendp"', ""), path
        allowed = {"EXACT", "NoiseSource", "calibrate", "rho_of"}
        assert imported <= allowed | ({"laplace"} if path.name == "paper.py" else set()), path


# How the numbers of noise go together


SHARES = {"laplace": Budget(0.5), "gaussian": Rho(0.5)}


def heard(share, size=200_000):
    """What a measurement says of its noise, and fast noise of that kind."""
    answer = EXACT.perturb("x", "x", np.zeros(1, np.int64), Sensitivity(2, math.sqrt(2)), share)
    return answer, fast_noise.draw(answer, (size,), np.random.default_rng(0))


@pytest.mark.parametrize("name", SHARES)
def test_tails_are_exact_and_sound_noise_is_not_accused(name):
    answer, noise = heard(SHARES[name])
    support = np.arange(-500, 501)
    weights = np.exp(-np.abs(support) / answer.scale)
    if answer.rho:
        weights = np.exp(-((support / answer.scale) ** 2) / 2)
    far = [weights[np.abs(support) >= at].sum() / weights.sum() for at in range(1, 9)]
    assert joint.tail(answer, np.arange(1, 60))[:8] == pytest.approx(far)
    assert not [*joint.other_tails(noise, answer)]
    assert not [*joint.goes_together([noise[None] / math.sqrt(answer.variance)], ["x"])]
    most = int(3 * answer.scale)
    for wrong in (noise.clip(-most, most), noise * 2, np.abs(noise), noise // 2 * 2):
        assert [*joint.other_tails(wrong, answer)]


def test_noise_that_comes_again_is_heard_at_any_shift():
    _, noise = heard(SHARES["gaussian"], 20_000)
    fresh = heard(SHARES["gaussian"], 40_000)[1][20_000:]
    for shift in (1, 4096, 9999):
        again = noise.copy()
        again[shift:] = noise[:-shift] if shift > 1 else (noise[1:] + noise[:-1]) / math.sqrt(2)
        assert joint.comes_again(again / noise.std()) == shift
    assert not joint.comes_again(noise / noise.std())
    both = [each.reshape(10, -1) / noise.std() for each in (noise, fresh)]
    assert not [*joint.goes_together(both, ["one", "two"])]
    assert [*joint.goes_together([both[0], both[0][:, :30]], ["one", "two"])]
