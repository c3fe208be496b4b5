"""Whether a model that was fitted without column names gets its columns in another order."""

from __future__ import annotations

import warnings

import numpy as np

from counterveil.encoding import Array
from counterveil.errors import CounterveilWarning
from counterveil.hints import named
from counterveil.models import Rows, TargetModel
from counterveil.population import MixedPopulation
from counterveil.population.shares import SureShares
from counterveil.veil import Veil

COMPARED = 500  # rows of P~
LEAST = 0.2  # correlation with the private model: below it both say different things


def warn_of_column_order(model: TargetModel, veil: Veil, population: MixedPopulation) -> None:
    """Warn where a model that takes columns by their place contradicts the veil's private model.

    Both are asked about a few rows of P~, at even shares of the classes. Nothing is said where the
    veil is mostly noise, or the model knows the names of its columns.
    """
    known = model.goes_by_place and veil.surrogate is not None
    if not known or not SureShares(population).veil_knows:
        return
    even = np.full(model.classes, 1 / model.classes)
    points, _ = population.sample(COMPARED, np.random.default_rng(0), even)
    asked = Rows.of_array(points.astype(np.float32), model.encoding, without_noise=True)
    ours, theirs = model.ask(asked).exp().double().numpy(), veil.model("even").of_encoded(points)
    if _correlation(ours, theirs) < LEAST:
        same = int((ours.argmax(axis=1) == theirs.argmax(axis=1)).sum())
        warnings.warn(
            "the model was fitted without column names, and contradicts what the veil knows (they "
            f"agree on {same} of {COMPARED} rows): it gets its columns in the schema's order, "
            f"{named(model.schema.columns)}; if it was fitted in another one, fit it on a frame "
            "with names",
            CounterveilWarning,
            stacklevel=2,
        )


def _correlation(ours: Array, theirs: Array) -> float:
    """The mean over classes of the correlation of ranks of two arrays (rows, classes)."""
    found = []
    for one, two in zip(ours.T, theirs.T, strict=True):
        ranks = [each.argsort().argsort() for each in (one, two)]
        varies = np.ptp(one) > 0 and np.ptp(two) > 0
        found.append(np.corrcoef(*ranks)[0, 1] if varies else 0.0)
    return float(np.mean(found))
