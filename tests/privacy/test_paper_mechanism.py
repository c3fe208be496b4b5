"""Mechanism `paper`: its noise is that of Algorithm 1, drawn once, and enters as published."""

import copy
import math
import pickle

import numpy as np
import pandas as pd
import pytest
import torch

from counterveil.curator import Curator, noise, paper
from counterveil.curator.table import PrivateTable
from counterveil.errors import BudgetError, RequestError
from counterveil.networks import ARCHITECTURES, Architecture, Autoencoder, class_means
from counterveil.privacy import Budget
from counterveil.schema import Binary, Label, Pixels, Schema


def test_objective_is_the_formula():
    generator = torch.Generator().manual_seed(0)
    rows, width, total = 7, 5, 1000
    eta0, eta1, eta2 = torch.randn(3, width, generator=generator, dtype=torch.float64) * 500
    x = torch.rand(rows, width, generator=generator)
    x_hat = torch.rand(rows, width, generator=generator)
    eta = torch.stack([eta0, eta1, eta2])
    objective = paper.perturbed_objective(eta, total, torch.device("cpu"))
    expected = 0.0
    for i in range(rows):
        for j in range(width):
            expected += float(x[i, j] ** 2 + eta0[j] / total)
            expected += float((-2 * x[i, j] + eta1[j] / total) * x_hat[i, j])
            expected += float((1 + eta2[j] / total) * x_hat[i, j] ** 2)
    assert float(objective(x, x_hat)) == pytest.approx(expected / rows, rel=1e-5)


def test_tied_weights_are_one_matrix_for_both_ways():
    """h = σ(Wᵀx), x̂ = σ(hW) behind the normalisation; then an autoencoder of the usual kind."""
    torch.manual_seed(0)
    tied, rows = paper.Tied(6, (4, 3)), torch.rand(9, 6)
    one, two = tied.encoder[1].weight, tied.encoder[4].weight

    def normal(x):
        return torch.nn.functional.layer_norm(x, x.shape[-1:]).clamp(-1, 1)

    codes = torch.sigmoid(normal(torch.sigmoid(normal(rows) @ one.T)) @ two.T)
    back = torch.sigmoid(normal(torch.sigmoid(normal(codes) @ two)) @ one)
    assert torch.allclose(tied(rows), back, atol=1e-6)
    usual = tied.as_usual()
    assert type(usual) is Autoencoder
    assert torch.allclose(usual(rows), back, atol=1e-6)


@pytest.mark.parametrize("family", ["mixed", "image", "binary"])
@pytest.mark.parametrize("epsilon", [0.025, 0.75])
def test_scale_is_four_times_widest_plus_one_over_epsilon(family, epsilon):
    asked = []

    def record(scale, size):
        asked.append((scale, size))
        return torch.zeros(size, dtype=torch.float64)

    widest = ARCHITECTURES[family].widest
    assert widest == {"mixed": 32, "image": 256, "binary": 512}[family]
    paper.perturbation(11, paper.sensitivity(widest), Budget(epsilon), record)
    assert asked == [(4 * (widest + 1) / epsilon, 3 * 11)]


def test_noise_is_laplace_and_drawn_once_a_training(schema, rows, monkeypatch):
    scale, size = 176.0, 20_000
    draws = noise.laplace(scale, size)
    assert draws.dtype == torch.float64
    # |Lap(b)| is exponential with mean b: its mean over n draws has deviation b/√n.
    assert abs(float(draws.abs().mean()) - scale) < 6 * scale / math.sqrt(size)
    assert abs(float(draws.mean())) < 6 * math.sqrt(2) * scale / math.sqrt(size)
    inside = float((draws.abs() < scale * math.log(2)).double().mean())
    assert abs(inside - 0.5) < 6 * 0.5 / math.sqrt(size)
    calls = []
    original = noise.laplace

    def counted(scale, size):
        calls.append((scale, size))
        return original(scale, size)

    defaults = paper.build_prototypes.__kwdefaults__
    monkeypatch.setitem(defaults, "noise", counted)
    Curator(schema).release(rows, epsilon=2, mechanism="paper", epochs=3, progress=False)
    assert calls == [(4 * 33 / 2, 3 * schema.width)]


def test_seeds_steer_training_but_never_the_noise(schema, rows):
    def release(epsilon):
        veil = Curator(schema).release(
            rows, epsilon, mechanism="paper", epochs=1, seed=7, progress=False
        )
        return veil.prototypes

    assert torch.equal(release(math.inf), release(math.inf))
    assert not torch.equal(release(0.01), release(0.01))
    torch.manual_seed(3)
    before = torch.get_rng_state()
    Curator(schema).release(rows, 1.0, epochs=1, progress=False)
    assert torch.equal(torch.get_rng_state(), before)


def test_prototypes_are_class_means():
    autoencoder = Autoencoder.new(4, (3, 2), seed=0).requires_grad_(False)
    rows, labels = torch.rand(10, 4), torch.tensor([0, 1, 1, 0, 1, 3, 3, 0, 1, 0])
    means = class_means(autoencoder, rows, labels, 4)
    for s in (0, 1, 3):
        expected = autoencoder.encode(rows[labels == s]).mean(dim=0)
        torch.testing.assert_close(means[s], expected)
    torch.testing.assert_close(means[2], means[[0, 1, 3]].mean(dim=0))


def test_statement_says_nominal_and_why(schema, rows):
    veil = Curator(schema).release(rows, 100, mechanism="paper", epochs=1, progress=False)
    text = veil.statement.text()
    assert veil.statement.level.value == "none"
    assert "nominal" in text
    assert len(veil.statement.reasons) == 6
    assert veil.statement.accesses[0].scale == 4 * 33 / 100
    assert veil.statement.accesses[1].scale is None
    reference = paper.state(Budget(math.inf), Architecture((2,), 1, 1))
    assert "nothing is protected" in reference.headline


def test_private_tables_do_not_leak_by_accident(schema, rows):
    table = PrivateTable(rows, schema)
    assert repr(table) == str(table) == "PrivateTable(…)"
    for attempt in (list, pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            attempt(table)


@pytest.mark.parametrize("mechanism", ["paper", "functional"])
@pytest.mark.parametrize("epsilon", [0, -1, math.nan, "1", True, None])
def test_meaningless_budgets(schema, rows, epsilon, mechanism):
    with pytest.raises(BudgetError, match="epsilon must be a number above 0"):
        Curator(schema).release(rows, epsilon, mechanism=mechanism, progress=False)


def test_tables_that_cannot_be_released(schema, rows):
    curator = Curator(schema)
    with pytest.raises(RequestError, match="unknown mechanism"):
        curator.release(rows, 1, mechanism="magic", progress=False)
    with pytest.raises(RequestError, match="no option 'epoch'; did you mean 'epochs'"):
        curator.release(rows, 1, epoch=1, progress=False)
    with pytest.raises(RequestError, match="epochs"):
        curator.release(rows, 1, epochs=0, progress=False)
    with pytest.raises(RequestError, match=r"no 'cuda' device|unknown device"):
        Curator(schema, device="cuda" if not torch.cuda.is_available() else "warp")


@pytest.mark.parametrize("classes", [2, 5])
def test_binary_and_image_families_train(classes):
    rng = np.random.default_rng(0)
    label = Label(name="y", classes=tuple(range(classes)))
    bits = Schema(features=tuple(Binary(name=f"b{i}") for i in range(20)), label=label)
    image = Schema(features=(Pixels(name="p", height=4, breadth=5),), label=label)
    for schema, top in ((bits, 2), (image, 256)):
        frame = dict(zip(schema.columns, rng.integers(0, top, (20, 60)), strict=True))
        frame["y"] = np.arange(60) % classes
        veil = Curator(schema).release(
            pd.DataFrame(frame), 1, mechanism="paper", epochs=1, progress=False
        )
        assert veil.prototypes.shape == (classes, 32)
