"""k-anonymous counterfactuals: a cheap reading of CF-K (Goethals et al. 2023).

Their method takes the nearest training row of the other class and generalises it, attribute by
attribute, until k people share it. Here the generalisation is fixed and public: numbers fall into a
few bins, categories stay. Only cells of this grid that hold at least k training rows are given out,
each as one legal row drawn from it once. Rare people are in no such cell; who sees an answer still
learns exactly that at least k rows lie there, so nothing here is differentially private.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.errors import RequestError
from counterveil.grid import Grid
from counterveil.models import Rows, TargetModel
from counterveil.schema import Schema
from counterveil_lab.baselines.base import Answers, Nearest, Problem, check
from counterveil_lab.targets import encoded

BINS = 3
TRIED = 5  # cells a query, the nearest first: inside the query's box f may think otherwise


class KAnonymous:
    """The nearest cells with at least `k_rows` training rows that f puts into the target class."""

    def __init__(
        self,
        schema: Schema,
        model: TargetModel,
        train: pd.DataFrame,
        *,
        seed: int = 0,
        k_rows: int = 5,
    ) -> None:
        check(schema, model, gradient=False, name="CF-K")
        grid = Grid(schema, BINS)
        codes, counts = np.unique(
            grid.codes(encoded(train, schema)[0].double().numpy()), axis=0, return_counts=True
        )
        codes = codes[counts >= k_rows]
        if not len(codes):
            raise RequestError(f"CF-K: no cell of the grid holds {k_rows} training rows")
        self.name = f"cf-k-{k_rows}"
        self.model = model
        points = grid.points(codes, np.random.default_rng(seed))
        self._rows = torch.as_tensor(points, dtype=torch.float32)
        with torch.no_grad():
            self._classes = model.ask(Rows.of_points(self._rows, model.encoding)).argmax(dim=1)

    def explain(self, queries: pd.DataFrame, targets: Tensor, *, k: int = 1) -> Answers:
        """As every baseline does."""
        problem = Problem.pose(self.model, queries, targets, k)
        nearest = Nearest(problem)
        for target in targets.unique():
            numbers = (problem.targets == target).nonzero()[:, 0]
            rows = self._rows[self._classes == target]
            if not len(rows):
                continue
            far = torch.cdist(problem.queries[numbers], rows)
            places = far.topk(min(TRIED, len(rows)), dim=1, largest=False).indices
            legal = problem.legal(rows[places], numbers)
            nearest.look(numbers, legal, problem.accepted(legal, numbers))
        return problem.answers(nearest.rows)
