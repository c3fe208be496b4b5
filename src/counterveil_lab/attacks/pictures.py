"""Moved to counterveil_lab.figures_experiments; to be deleted when no experiment imports it."""

from counterveil_lab.figures_experiments import best_gains, extraction_figure, tradeoff_figure

__all__ = ["best_gains", "extraction_figure", "tradeoff_figure"]
