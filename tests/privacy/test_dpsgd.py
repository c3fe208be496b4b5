"""Mechanism `dpsgd`: sensitivities, accounting, refusals, randomness."""

import math
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from rows import random_rows

from counterveil.curator import dpsgd
from counterveil.curator.table import PrivateTable
from counterveil.errors import RequestError
from counterveil.privacy import Budget
from counterveil.schema import Binary, Label, Schema

BUDGET = Budget(3.0, 1e-5)
SMALL = replace(dpsgd.ARCHITECTURES["mixed"], epochs=2, batch=64)


@pytest.fixture
def _opacus():
    pytest.importorskip("opacus", reason="opacus is absent: pip install 'counterveil[dpsgd]'")


needs_opacus = pytest.mark.usefixtures("_opacus")


def release(schema, rows, budget=BUDGET, architecture=SMALL, **options):
    table = PrivateTable(rows, schema)
    cpu = torch.device("cpu")
    made, accesses = dpsgd.release(table, budget, architecture, seed=7, device=cpu, **options)
    return made.autoencoder, made.prototypes, made.surrogate, accesses


def sums_of(codes, classes, count):
    sums = dpsgd.CodeSums(codes.shape[1], count)
    sums.add(codes, classes)
    return sums


@pytest.mark.parametrize("latent", [1, 2, 16, 32])
@pytest.mark.parametrize("classes", [2, 5])
def test_sensitivity_of_the_code_sums(latent, classes):
    rng = np.random.default_rng(0)
    farthest = 0.0
    for trial in range(200):
        codes = rng.random((6, latent)) if trial % 2 else rng.integers(0, 2, (6, latent)) * 1.0
        if trial % 10 == 0:
            codes[0], codes[1] = 0, 1
        labels = rng.integers(0, classes, 6)
        if trial % 20 == 0:
            labels[1] = labels[0]
        one = sums_of(np.delete(codes, 1, axis=0), np.delete(labels, 1), classes)
        two = sums_of(np.delete(codes, 0, axis=0), np.delete(labels, 0), classes)
        moved = one.exact - two.exact
        assert np.abs(moved).sum() <= one.sensitivity.l1
        distance = math.sqrt((moved**2).sum())
        assert distance <= one.sensitivity.l2
        farthest = max(farthest, distance)
    assert farthest == pytest.approx(one.sensitivity.l2, rel=1e-3)  # and it is attained


def test_prototypes_are_class_means_of_cut_codes():
    wild = np.array([[math.nan, -7.0, math.inf, 0.5]])
    sums = sums_of(wild, np.array([1]), 2)
    assert sums.exact.tolist() == [
        [0] * 5,
        [2 * dpsgd.FIXED_POINT, 0, -dpsgd.FIXED_POINT, dpsgd.FIXED_POINT, 0],
    ]
    rng = np.random.default_rng(0)
    codes, labels = rng.random((500, 4)), np.arange(500) % 2
    prototypes, counts, access = sums_of(codes, labels, 3).release(Budget(100, 1e-6))
    for label in (0, 1):
        np.testing.assert_allclose(
            prototypes[label], codes[labels == label].mean(axis=0), atol=0.02
        )
    np.testing.assert_allclose(counts, [250, 250, 1], atol=3)  # the last class has no rows
    assert counts.min() >= 1
    assert ((prototypes >= 0) & (prototypes <= 1)).all()
    assert "discrete" in access.mechanism


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 0.7, 1.0, 3.0, 7.7])
@pytest.mark.parametrize("delta", [1e-9, 3e-6])
def test_shares_add_up(epsilon, delta):
    shares = dpsgd.split(Budget(epsilon, delta))
    for name, total in (("epsilon", epsilon), ("delta", delta)):
        spent = sum(getattr(share, name) for share in shares)
        assert spent <= total
        assert spent == pytest.approx(total)


@needs_opacus
@pytest.mark.parametrize("epsilon", [0.3, 1.5, 8.0])
@pytest.mark.parametrize("rate", [0.02, 1.0])
def test_training_costs_no_more_than_asked(epsilon, rate):
    from opacus.accountants import RDPAccountant

    schedule = dpsgd.Schedule(rate, math.ceil(1 / rate), 3, 100.0)
    budget = Budget(epsilon, 1e-6)
    noise = dpsgd.calibrate_training(schedule, budget)
    inner = dpsgd.add_remove(budget)
    # One removal and one addition: ε doubles, δ is carried through the second step.
    assert 2 * inner.epsilon == epsilon
    assert (1 + math.exp(inner.epsilon)) * inner.delta == pytest.approx(budget.delta)
    accountant = RDPAccountant()
    for _ in range(schedule.steps):
        accountant.step(noise_multiplier=noise, sample_rate=rate)
    orders = list(dpsgd.ORDERS)
    again, _ = accountant.get_privacy_spent(delta=inner.delta, alphas=orders)
    assert again <= inner.epsilon
    less = dpsgd.training_epsilon(0.99 * noise, rate, schedule.steps, inner.delta)
    assert less > inner.epsilon


@needs_opacus
def test_without_sampling_the_noise_covers_the_gaussian_mechanism():
    """Rate 1, one step: replace-one has sensitivity 2; its exact δ (Balle & Wang 2018) fits."""
    from scipy.stats import norm

    budget = Budget(1.0, 1e-5)
    noise = dpsgd.calibrate_training(dpsgd.Schedule(1.0, 1, 1, 10.0), budget)
    ratio = 2 / noise
    exact = norm.cdf(ratio / 2 - 1 / ratio) - math.e * norm.cdf(-ratio / 2 - 1 / ratio)
    assert exact <= budget.delta


def test_refusals_cost_nothing(schema, rows, monkeypatch):
    monkeypatch.setattr(dpsgd, "find_spec", lambda name: object())
    monkeypatch.setattr(PrivateTable, "private_batches", None)  # reading a row would fail
    with pytest.raises(RequestError, match="delta above 0"):
        release(schema, rows, Budget(3.0))
    for too_much in (math.inf, 1e6):
        with pytest.raises(RequestError, match="at most 500"):
            release(schema, rows, Budget(too_much, 1e-6))
    for most in (1, 2):
        people = rows.assign(who=np.arange(len(rows)) // 2)
        table = PrivateTable(people, schema, unit_column="who", max_records=most)
        with pytest.raises(RequestError, match="use mechanism functional"):
            dpsgd.check(table, BUDGET)
    monkeypatch.setattr(dpsgd, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(RequestError, match=r"pip install 'counterveil\[dpsgd\]'"):
        release(schema, rows)


@needs_opacus
def test_release(schema, rows):
    ticks = []
    before = torch.get_rng_state()
    autoencoder, prototypes, surrogate, accesses = release(
        schema, rows, tick=lambda done, words="": ticks.append(done)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert ticks == [1, 2, 3, 4]
    assert prototypes.shape == (2, 16)
    assert bool(((prototypes >= 0) & (prototypes <= 1)).all())
    points = torch.rand(5, schema.width)
    assert autoencoder(points).shape == points.shape
    assert surrogate is not None
    assert surrogate(points).shape == (5, 2)
    for network in (autoencoder, surrogate):
        for weights in network.parameters():
            assert bool(weights.isfinite().all())
            assert not weights.requires_grad
            assert weights.grad is None
            for name in ("grad_sample", "summed_grad"):  # exact gradients stay here
                assert getattr(weights, name, None) is None
        assert all(not module._forward_hooks for module in network.modules())
    assert sum(access.epsilon or 0 for access in accesses) <= BUDGET.epsilon
    assert sum(access.delta for access in accesses) <= BUDGET.delta
    for access in (accesses[0], accesses[2]):
        assert "not exact and not cryptographic" in access.mechanism


@needs_opacus
def test_seeds_steer_weights_but_neither_noise_nor_batches(schema, rows):
    brief = replace(SMALL, epochs=1)
    first, second = (release(schema, rows, architecture=brief) for _ in range(2))
    assert not torch.equal(first[1], second[1])
    assert first[2] is not None
    assert second[2] is not None
    for one, two in ((first[0], second[0]), (first[2], second[2])):
        pairs = zip(one.parameters(), two.parameters(), strict=True)
        assert not any(torch.equal(*pair) for pair in pairs)


@needs_opacus
def test_gradients_are_cut_and_get_the_noise_that_was_calibrated(schema, rows, monkeypatch):
    from opacus.optimizers import DPOptimizer

    before, after = [], []
    original = DPOptimizer.add_noise

    def watched(self):
        before.append(torch.cat([p.summed_grad.flatten() for p in self.params]))
        original(self)
        after.append(torch.cat([p.grad.flatten() for p in self.params]))

    monkeypatch.setattr(DPOptimizer, "add_noise", watched)
    monkeypatch.setattr(dpsgd, "AT_ONCE", 30_000)  # several parts a batch, still one noise
    _, _, _, accesses = release(schema, rows.head(40), architecture=replace(SMALL, batch=20))
    schedule = dpsgd.Schedule.of(replace(SMALL, batch=20), 40)
    assert len(before) == 2 * schedule.steps
    steps = slice(0, schedule.steps), slice(schedule.steps, None)
    clips = dpsgd.CLIP, dpsgd.SURROGATE_CLIP
    for part, access, clip in zip(steps, (accesses[0], accesses[2]), clips, strict=True):
        for grad in before[part]:
            assert float(grad.norm()) <= 40 * clip
        noise = torch.stack(after[part]) - torch.stack(before[part])
        deviation = float(noise.std())
        assert deviation == pytest.approx(access.scale, rel=6 / math.sqrt(2 * noise.numel()))
        assert len(torch.unique(noise[:, 0])) == schedule.steps  # fresh at every step


@needs_opacus
@pytest.mark.parametrize("rows", [1, 3])
def test_one_record_moves_a_sum_by_at_most_the_clip(rows):
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    network = dpsgd.Autoencoder.new(6, (4, 3), seed=0)
    wrapped = GradSampleModule(network, loss_reduction="sum")
    optimiser = DPOptimizer(
        torch.optim.Adam(network.parameters()), noise_multiplier=1.0,
        max_grad_norm=dpsgd.CLIP, expected_batch_size=1,
    )  # fmt: skip

    def summed(points):
        with dpsgd._quiet():
            dpsgd.reconstruction_loss(network, points).sum().backward()
        optimiser.clip_and_accumulate()
        found = torch.cat([p.summed_grad.flatten() for p in optimiser.params])
        optimiser.zero_grad()
        return found

    points = torch.rand(rows, 6, generator=torch.Generator().manual_seed(0)).round()
    moved = summed(points) - summed(points[1:])  # the second may be empty
    assert 0 < float(moved.norm()) <= dpsgd.CLIP * (1 + 1e-5)
    wrapped.to_standard_module()


@needs_opacus
def test_empty_batches_are_noise_alone():
    """20 rows at rate 1/20: a third of the batches is empty."""
    label = Label(name="y", classes=(0, 1))
    schema = Schema(features=tuple(Binary(name=f"b{i}") for i in range(4)), label=label)
    frame = pd.DataFrame({name: np.arange(20) % 2 for name in schema.columns})
    frame["y"] = np.arange(20) % 2
    tiny = replace(SMALL, encoder=(3, 2), batch=1, epochs=1)
    autoencoder, prototypes, _, _ = release(schema, frame, architecture=tiny)
    assert prototypes.shape == (2, 2)
    assert bool(autoencoder(torch.rand(3, 4)).isfinite().all())


@needs_opacus
def test_it_learns(schema):
    rows = random_rows(schema, 4000, seed=1)
    loud = replace(SMALL, epochs=8, batch=200)
    autoencoder, _, surrogate, _ = release(schema, rows, Budget(50.0, 1e-5), loud)
    points, classes = PrivateTable(random_rows(schema, 500, seed=2), schema).private_rows()
    held_out = torch.tensor(points).float()
    mean = held_out.mean(dim=0)
    error = (autoencoder(held_out) - held_out).square().mean()
    assert float(error) < float((mean - held_out).square().mean())
    assert surrogate is not None
    right = surrogate(held_out).argmax(dim=1) == torch.tensor(classes)
    assert float(right.double().mean()) > 0.75


def test_every_bit_of_the_generators_state_is_renewed():
    """A seed would not do: torch keeps 32 bits of it on the CPU."""
    states = []
    for _ in range(2):
        generator = torch.Generator()
        dpsgd.renew(generator)
        words = generator.get_state().numpy()[dpsgd.TWISTER].view(np.uint64).astype(np.uint32)
        states.append(words)
        # numpy's twister with the same words is the same twister: they are where we think.
        twin = np.random.MT19937()
        twin.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": 624}}
        drawn = torch.empty(1000, dtype=torch.int32).random_(generator=generator)
        assert drawn.tolist() == [int(word) % (1 << 31) for word in twin.random_raw(1000)]
        seeded = torch.Generator().manual_seed(generator.initial_seed())
        assert not torch.equal(drawn, torch.empty_like(drawn).random_(generator=seeded))
    assert (states[0] != states[1]).mean() > 0.99
