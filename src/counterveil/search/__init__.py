"""The public side: Veil + model + queries -> Explanations. Pure post-processing."""

from counterveil.search.explainer import Explainer
from counterveil.search.explanations import Explanations
from counterveil.search.rules import Rules

__all__ = ["Explainer", "Explanations", "Rules"]
