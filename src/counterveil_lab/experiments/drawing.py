"""Moved to counterveil_lab.figures_experiments; to be deleted when no experiment imports it."""

from counterveil_lab.figures import grid, save
from counterveil_lab.figures_experiments import (
    case_study,
    datasets_in,
    errors_over_epsilon,
    frontier,
    place_of,
    strips,
    times,
    words_of,
)

__all__ = [
    "case_study",
    "datasets_in",
    "errors_over_epsilon",
    "frontier",
    "grid",
    "place_of",
    "save",
    "strips",
    "times",
    "words_of",
]
