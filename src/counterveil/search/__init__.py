"""The public side: Veil + model + queries -> Explanations. Pure post-processing."""

from counterveil.search.constraints.rules import Rules
from counterveil.search.explainer import Explainer
from counterveil.search.results.explanations import Explanations

__all__ = ["Explainer", "Explanations", "Rules"]
