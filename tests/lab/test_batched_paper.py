"""Releases of `paper` that are trained together are those that are trained one by one."""

from dataclasses import replace

import pytest
import torch

from counterveil.curator import paper
from counterveil.curator.table import PrivateTable
from counterveil.networks import ARCHITECTURES
from counterveil_lab.datasets import load
from counterveil_lab.experiments import batched_paper, releases
from counterveil_lab.experiments.batched_paper import Wanted

CPU = torch.device("cpu")
ROWS = 300
CASES = [Wanted(0, 0.75), Wanted(1, 0.75), Wanted(0, "none"), Wanted(1, 0.025)]


def known_noise(scale, size):
    """Noise that a test can draw twice."""
    return scale * torch.linspace(-1, 1, size, dtype=torch.float64)


@pytest.mark.parametrize(
    "reading", [None, *(pytest.param(name, marks=pytest.mark.slow) for name in ("tied", "signed"))]
)
def test_together_is_as_one_by_one(reading):
    usual = replace(ARCHITECTURES["image"], epochs=1, batch=128)
    architecture = replace(usual, **({reading: True} if reading else {}))
    data = {seed: load("digits", seed=seed) for seed in (0, 1)}
    tables = {s: PrivateTable(it.train.head(ROWS), it.schema) for s, it in data.items()}
    made = dict(batched_paper.train(tables, CASES, architecture, CPU, noise=known_noise))
    assert list(made) == CASES
    for wanted, (autoencoder, prototypes) in made.items():
        alone, means = paper.build_prototypes(
            tables[wanted.seed], wanted.budget, architecture, seed=wanted.seed, device=CPU,
            noise=known_noise,
        )  # fmt: skip
        torch.testing.assert_close(prototypes, means, atol=1e-4, rtol=1e-3)
        points = torch.rand(20, data[0].schema.width)
        torch.testing.assert_close(autoencoder(points), alone(points), atol=1e-4, rtol=1e-3)


def test_experiments_find_the_veils(tmp_path, monkeypatch):
    monkeypatch.setenv(releases.CACHE, str(tmp_path))
    monkeypatch.setenv(releases.PAPER_EPOCHS, "1")
    said = []
    assert batched_paper.leave_veils("digits", 1, (0.75,), CPU, said.append) == 1
    stored = {path.name for path in tmp_path.glob("*.veil")}
    made = releases.release(load("digits", seed=0), "paper", 0.75, 0)
    assert {path.name for path in tmp_path.glob("*.veil")} == stored
    assert made.veil.statement.mechanism == "paper"
    assert batched_paper.leave_veils("digits", 1, (0.75,), CPU, said.append) == 0
