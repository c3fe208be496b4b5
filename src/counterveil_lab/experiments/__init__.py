"""Experiments by name."""

from __future__ import annotations

from collections.abc import Callable

from counterveil_lab.experiments import frontier, paper_adult

EXPERIMENTS: dict[str, Callable[..., None]] = {
    "paper-adult": paper_adult.run,
    "frontier": frontier.run,
}
