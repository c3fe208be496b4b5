"""A small world for all tests: a schema with every kind of feature, rows, a model and a veil.

A veil takes about ten seconds to train, so it is trained once and kept in pytest's cache folder,
for all workers of a run and for the next runs.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from filelock import FileLock
from hypothesis import settings
from rows import random_rows
from torch import nn

import counterveil
from counterveil import Explainer, build
from counterveil.audit import fast_noise
from counterveil.build import Training
from counterveil.curator import Curator, noise
from counterveil.encoding import Array
from counterveil.privacy import Share
from counterveil.privacy.record import Measurement, Sensitivity, spent_by
from counterveil.schema import Binary, Categorical, Label, Numeric, Schema
from counterveil.search.actions import committee
from counterveil.search.paper import student
from counterveil.veil import Veil

torch.set_num_threads(1)
settings.register_profile("no deadline", deadline=None)  # a busy machine is not a failure
settings.load_profile("no deadline")

PACKAGE = Path(counterveil.__file__).parent
# What cannot change a veil:
AFTER_A_RELEASE = {
    *("audit", "cli", "demo", "models", "pages", "private_model.py", "report", "search"),
    *("service", "studio"),
}
ALONE = "COUNTERVEIL_TEST_ALONE"


@pytest.fixture(autouse=True)
def _short_lessons(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases and searches learn quickly and not so well, and a search soon gives up.

    Few tests ask how good answers are. Those are marked `full_lessons`, and do as users do.
    """
    if request.node.get_closest_marker("full_lessons"):
        return
    for family, training in build.TRAININGS.items():
        short = replace(training, samples=5000, surrogate_epochs=4)
        monkeypatch.setitem(build.TRAININGS, family, short)
    monkeypatch.setattr(committee, "STEPS", 100)
    monkeypatch.setattr(committee, "OF_MODEL", 3000)
    monkeypatch.setattr(committee, "OF_PEOPLE", 1000)
    monkeypatch.setattr(student, "STUDENT_ROWS", 4000)
    # A minute of cases: their names stand for what they give.
    monkeypatch.setattr(
        "counterveil_lab.fingerprints.behaviours", lambda names: {n: n for n in names}
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test marked `forks` runs in a process of its own.

    A fork beside the threads that other tests have started can wait for ever.
    """
    if not pyfuncitem.get_closest_marker("forks") or os.environ.get(ALONE):
        return None
    root = pyfuncitem.config.rootpath
    options = [*("-n", "0", "-p", "no:cacheprovider", "-q", "--rootdir"), str(root)]
    command = [sys.executable, "-m", "pytest", *options, pyfuncitem.nodeid]
    alone = {**os.environ, ALONE: "1", "OMP_NUM_THREADS": "1", "PYTEST_ADDOPTS": ""}
    how = {"capture_output": True, "text": True, "env": alone, "cwd": root}
    ended = subprocess.run(command, check=False, **how)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
    return True


@pytest.fixture(scope="session")
def schema() -> Schema:
    return Schema(
        name="loans",
        label=Label(name="loan", classes=("refused", "granted")),
        features=(
            Numeric(name="age", lower=18, upper=100, integer=True, direction="increase"),
            Numeric(name="income", lower=0, upper=10),
            Numeric(name="debt", lower=-5, upper=5, missing=True, allowed=(-2.5, 2.5)),
            Numeric(name="children", lower=0, upper=9, integer=True, missing=True),
            Categorical(name="housing", categories=("rent", "own", "free"), missing=True),
            Categorical(
                name="degree",
                categories=("none", "school", "college"),
                ordered=True,
                direction="increase",
            ),
            Categorical(name="region", categories=(1, 2, 3), immutable=True),
            Binary(name="member", values=("no", "yes")),
        ),
    )


@pytest.fixture(scope="session")
def rows(schema: Schema) -> pd.DataFrame:
    return random_rows(schema, 600)


@pytest.fixture(scope="session")
def frame(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows without their label."""
    return rows.drop(columns="loan")


ReleaseOnce = Callable[..., Veil]


@contextmanager
def repeatable_noise() -> Iterator[None]:
    """Noise of the right kind and scale, but the same in every run.

    For tests of what is done with a veil: they would else be thrown again in every run. The
    product has no such noise; what tests a release draws the product's own.
    """
    rng = np.random.default_rng(0)

    def perturb(_: object, name: str, what: str, exact: Array, bound: Sensitivity, share: Share):
        made = noise.calibrate(bound.l1, bound.l2, share)
        how, spent = (made.kind, made.scale), spent_by(made.share)
        measured = Measurement(name, what, exact, bound, *how, **spent)
        return replace(measured, values=exact + fast_noise.draw(measured, exact.shape, rng))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise.NoiseSource, "perturb", perturb)
        yield


@pytest.fixture(scope="session")
def release_once(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ReleaseOnce:
    """`release_once(schema, rows, epsilon, **options)`: a veil, trained only if it is not kept yet.

    For tests that need some veil; those that test a release call the Curator themselves.
    """
    cache = getattr(request.config, "cache", None)
    folder = cache.mkdir("veils") if cache else tmp_path_factory.getbasetemp().parent

    def release(schema: Schema, rows: pd.DataFrame, epsilon: float, **options: Any) -> Veil:
        path = folder / f"{_fingerprint(schema, rows, epsilon, options)}.veil"
        with FileLock(f"{path}.lock"):
            if not path.exists():
                with repeatable_noise():
                    made = Curator(schema).release(rows, epsilon, progress=False, **options)
                made.save(path)
            return Veil.load(path)

    return release


def _fingerprint(schema: Schema, rows: pd.DataFrame, epsilon: float, options: object) -> str:
    """Names a veil by all that shapes it: schema, rows, options, torch and the source code."""
    digest = hashlib.sha256(repr((epsilon, options, torch.__version__)).encode())
    digest.update(schema.to_json().encode())
    digest.update(rows.to_csv().encode())
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] not in AFTER_A_RELEASE:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


@pytest.fixture(scope="session")
def veil(release_once: ReleaseOnce, schema: Schema, rows: pd.DataFrame) -> Veil:
    return release_once(schema, rows, 100.0, epochs=6)


@pytest.fixture(scope="session")
def digits() -> Any:
    """The digits of scikit-learn: 8 by 8 pixels."""
    from counterveil_lab.datasets import load

    return load("digits")


@pytest.fixture(scope="session")
def digits_veil(release_once: ReleaseOnce, digits: Any) -> Veil:
    """A veil of images, trained for a short time."""
    short = Training(6000, 3, 256, 2e-3, (32, 32), 4, generator_steps=100)
    return release_once(digits.schema, digits.train, 5.0, delta=1e-6, training=short)


@pytest.fixture(scope="session")
def explainer(veil: Veil, model: nn.Module) -> Explainer:
    """Explains the model below; learns to search for two seconds when it is first asked."""
    return Explainer(veil, model)


class Linear(nn.Module):
    """f: granted where 10·income + 3·own outweighs 6."""

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        weights = torch.zeros(schema.width)
        weights[1], weights[7] = 10.0, 3.0
        self.register_buffer("weights", weights)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        score = points @ self.weights - 6
        return torch.stack([-score, score], dim=1)


@pytest.fixture(scope="session")
def model(schema: Schema) -> nn.Module:
    return Linear(schema)
