"""dice-ml where values may be missing, which it does not know.

It is given the same numbers under a schema without missing values: a missing category is one more
category, and that a number is missing is a feature of its own. Both encode alike, so f is the same;
what comes back is made a legal row of the real schema and judged by f as always.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from counterveil.encoding import Encoding
from counterveil.models import adapt
from counterveil.schema import Binary, Categorical, Feature, Numeric, Schema
from counterveil_lab.baselines import Answers, Dice
from counterveil_lab.baselines.base import Problem

ABSENT = "(missing)"


def complete(schema: Schema) -> Schema:
    """The schema with nothing missing that encodes to the same places."""
    features: list[Feature] = []
    for feature in schema.features:
        known = feature.model_copy(update={"missing": False})
        if not getattr(feature, "missing", False):
            features.append(feature)
        elif isinstance(feature, Numeric):
            features += [known, Binary(name=f"{feature.name} {ABSENT}")]
        elif isinstance(feature, Categorical):
            categories = (*feature.categories, ABSENT)
            features.append(known.model_copy(update={"categories": categories}))
    return Schema(name=schema.name, note=schema.note, label=schema.label, features=tuple(features))


class CompleteDice:
    """`Dice` on the complete schema, answering on the real one."""

    def __init__(
        self, schema: Schema, model: nn.Module, train: pd.DataFrame, *, seed: int = 0,
        **options: Any,
    ) -> None:  # fmt: skip
        self._real, self._complete = Encoding(schema), Encoding(complete(schema))
        self._judge = adapt(model, schema)
        label = train[[schema.label.name]].reset_index(drop=True)
        self._dice = Dice(
            self._complete.schema, adapt(model, self._complete.schema),
            pd.concat([self._same(train), label], axis=1), seed=seed, **options,
        )  # fmt: skip
        self.name = self._dice.name

    def explain(self, queries: pd.DataFrame, targets: Tensor, *, k: int = 1) -> Answers:
        problem = Problem.pose(self._judge, queries, targets, k)
        found = self._dice.explain(self._same(queries), targets, k=k)
        points = torch.as_tensor(self._complete.encode(found.rows)).reshape(len(queries), k, -1)
        return problem.answers(problem.legal(points.to(problem.queries), problem.numbers))

    def _same(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The same rows in the words of the complete schema."""
        return self._complete.decode(self._real.encode(frame))
