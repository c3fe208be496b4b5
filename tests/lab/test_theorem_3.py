"""The paper's Theorem 3, measured: what is compared, and what the control must give."""

from dataclasses import replace

import pytest
import torch

from counterveil import build
from counterveil.models import adapt
from counterveil.networks import ARCHITECTURES, Autoencoder
from counterveil.search.constraints.bounds import Box
from counterveil.search.paper.algorithm2 import SearchObjective, Weights, minimise
from counterveil_lab import targets
from counterveil_lab.experiments import releases, table, theorem_3
from counterveil_lab.experiments.runner import Options
from counterveil_lab.experiments.theorem_3 import NoisyStart, bias_of, ends
from counterveil_lab.results import stored_rows

FIELDS = ("model", "autoencoder", "weights", "queries", "targets", "prototypes", "box")
STEPS = 20


@pytest.fixture(scope="module")
def start():
    """Four digits on the way to class 5, each from its own noisy prototype."""
    data = releases.data_for("digits", 0, quick=True)
    queries = targets.encoded(data.test.head(4), data.schema)[0]
    autoencoder = Autoencoder.new(64, ARCHITECTURES["image"].encoder, 0).requires_grad_(False)
    f = torch.nn.Sequential(torch.nn.Linear(64, 10)).requires_grad_(False)
    return NoisyStart(
        model=adapt(f, data.schema), autoencoder=autoencoder, weights=Weights.of("image"),
        queries=queries, targets=torch.full((4,), 5),
        prototypes=torch.rand(10, autoencoder.latent, generator=torch.Generator().manual_seed(0)),
        box=Box(torch.zeros_like(queries), torch.ones_like(queries)),
        noise=torch.randn(4, autoencoder.latent, generator=torch.Generator().manual_seed(1)) / 4,
    )  # fmt: skip


def reflected(start, by):
    """½·(cs(ρ + η) + cs(ρ − η)) − cs(ρ): 0 where the search commutes with the reflection."""
    signs = (1, -1, 0)
    plus, minus, without = (
        ends(replace(start, noise=sign * start.noise), by, STEPS) for sign in signs
    )
    return ((plus + minus) / 2 - without).abs().max()


def test_noise_moves_the_prototype_of_algorithm_2(start):
    fields = {name: getattr(start, name) for name in FIELDS}
    found = ends(start, "search", STEPS)
    for query in range(4):
        moved = SearchObjective(**{**fields, "prototypes": start.prototypes + start.noise[query]})
        end = moved.counterfactual(minimise(moved, STEPS))[query]
        assert torch.allclose(found[query], end, atol=1e-5)


def test_reflections_cancel_in_the_affine_map_alone(start):
    assert reflected(start, "affine") < 1e-4
    assert reflected(start, "decoder") > 1e-3
    assert reflected(start, "search") > 1e-3

    # At the prototype the affine map touches the decoder.
    near = replace(start, noise=start.noise / 1000)
    affine, decoder = (theorem_3.ends(near, by, 0) for by in ("affine", "decoder"))
    assert torch.allclose(affine, decoder, atol=1e-6)


def test_bias_is_that_of_the_mean_beside_its_standard_error():
    draws = torch.tensor([1.0, 3.0, 1.0, 3.0])[None, :, None] * torch.tensor([1.0, 0.0])
    found = torch.cat([torch.zeros(1, 1, 2), draws], dim=1)
    row = bias_of(found)
    assert row["bias"] == pytest.approx(2)
    assert row["spread"] == pytest.approx((4 / 3) ** 0.5)
    assert row["standard_error"] == pytest.approx((1 / 3) ** 0.5)
    assert row["ratio"] == pytest.approx(2 * 3**0.5)
    assert row["relative_bias"] == pytest.approx(3**0.5)


def test_the_experiment_leaves_a_row_for_each_map(tmp_path, monkeypatch):
    monkeypatch.setattr(releases, "QUICK_ROWS", 400)
    monkeypatch.setenv("COUNTERVEIL_COMMIT", "test")
    for family, training in build.TRAININGS.items():
        short = replace(training, samples=500, surrogate_epochs=1)
        monkeypatch.setitem(build.TRAININGS, family, short)
    for name in theorem_3.DATASETS:
        monkeypatch.setitem(targets.RECIPES, name, targets.Recipe(epochs=2, batch=64))
    table.run_named("theorem-3", Options(tmp_path, seeds=1, quick=True, workers=1))
    rows = stored_rows(tmp_path, "theorem-3")
    found = [(row["dataset"], row["scale"], row["map"]) for row in rows]
    assert len(set(found)) == len(found) == 2 * 3 * 3
    assert all(row["queries"] == 3 and row["draws"] == 20 for row in rows)
    assert all(row["ratio"] < 2 for row in rows if row["map"] == "affine")
