"""Boosted trees of XGBoost and LightGBM for tests: small classifiers, and their files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def package_of(name: str) -> Any:
    """The package, or a skipped test."""
    return pytest.importorskip(name, reason=f"{name} is not installed")


def classifier(package: Any, **options: Any) -> Any:
    """A small classifier that is not fitted yet."""
    if package.__name__ == "xgboost":
        return package.XGBClassifier(n_estimators=8, max_depth=3, n_jobs=1, **options)
    options.pop("enable_categorical", None)
    return package.LGBMClassifier(n_estimators=8, n_jobs=1, verbose=-1, **options)


def booster_of(model: Any) -> Any:
    """The booster of a fitted classifier."""
    return model.get_booster() if hasattr(model, "get_booster") else model.booster_


def saved(model: Any, folder: Path) -> Iterator[Path]:
    """The files that the packages themselves write."""
    booster = booster_of(model)
    for kind in ("ubj", "json") if hasattr(booster, "save_config") else ("txt",):
        booster.save_model(folder / f"m.{kind}")
        yield folder / f"m.{kind}"
