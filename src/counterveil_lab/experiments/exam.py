"""The questions that all methods are asked, and what their answers are worth.

500 held-out rows, towards the class that f finds next likely (`unspecified`, as in the paper: any
other class will do, and this is the easiest) and, with more than two classes, towards a class
drawn at random (`specified`). All answers are legal rows: every method's are snapped.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from counterveil.models import Rows, TargetModel, adapt
from counterveil.schema import Category
from counterveil.search import Explainer, Explanations
from counterveil_lab.baselines import Baseline
from counterveil_lab.datasets import Dataset
from counterveil_lab.metrics import measure, plausibility
from counterveil_lab.results import Row

QUERIES = 500
QUICK_QUERIES = 20
# Algorithm 2 as published: the last iterate, made a legal row; nothing repaired, nothing polished.
AS_PUBLISHED: dict[str, Any] = {"method": "iterations", "keep": "last", "polish": False}


@dataclass(frozen=True, eq=False)
class Exam:
    """f, the rows to explain, real rows to compare answers with, and the classes to reach."""

    data: Dataset
    model: nn.Module
    judge: TargetModel
    queries: pd.DataFrame
    reference: pd.DataFrame
    runner_up: Tensor
    specified: Tensor | None

    @classmethod
    def of(cls, data: Dataset, model: nn.Module, seed: int, *, queries: int = QUERIES) -> Exam:
        """The same questions for every method asked with this seed."""
        judge = adapt(model, data.schema)
        count = min(queries, len(data.test) // 2)
        asked, reference = data.test.head(count), data.test.iloc[count:]
        order = judge.ask(Rows.of_frame(judge.encoding.pick(asked), judge.encoding)).argsort(dim=1)
        specified = None
        if judge.classes > 2:
            rng = np.random.default_rng(seed)
            shift = torch.as_tensor(rng.integers(1, judge.classes, count))
            specified = (order[:, -1] + shift) % judge.classes
        return cls(data, model, judge, asked, reference, order[:, -2], specified)

    def classes(self, numbers: Tensor) -> list[Category]:
        """Names of classes."""
        return [self.data.schema.label.classes[int(number)] for number in numbers]

    def ours(self, explainer: Explainer, **way: Any) -> Row:
        """Flip ratios, and the rest for the unspecified class; f judges, whoever guided."""
        self._ask(explainer, self.runner_up, 2, way)  # the first call loads and learns
        started = time.perf_counter()
        result = self._ask(explainer, self.runner_up, len(self.queries), way)
        seconds = time.perf_counter() - started
        row: Row = {**measure(result, self.reference), "queries": len(self.queries)}
        row["flip_ratio"] = self._flipped(result, self.runner_up)
        if self.specified is not None:
            other = self._ask(explainer, self.specified, len(self.queries), way)
            row["flip_ratio_specified"] = self._flipped(other, self.specified)
        return {**row, "seconds_per_query": seconds / len(self.queries)}

    def theirs(self, baseline: Baseline, queries: int) -> Row:
        """The same of a baseline, asked some of the questions."""
        count = min(queries, len(self.queries))
        started = time.perf_counter()
        answers = baseline.explain(self.queries.head(count), self.runner_up[:count])
        seconds = time.perf_counter() - started
        row: Row = {**answers.metrics(self.reference), "queries": count}
        if self.specified is not None:
            other = baseline.explain(self.queries.head(count), self.specified[:count])
            row["flip_ratio_specified"] = other.metrics()["flip_ratio"]
        return {**row, "seconds_per_query": seconds / count}

    def ours_of_several(self, explainer: Explainer, k: int, **way: Any) -> Row:
        """Means over all of the `k` answers a query that f accepts."""
        started = time.perf_counter()
        result = self._ask(explainer, self.runner_up, len(self.queries), {"k": k, **way})
        seconds = time.perf_counter() - started
        stands = self._stands(result, self.runner_up)
        found = stands.any()
        return {
            "flip_ratio": float(stands.reshape(-1, k).any(axis=1).mean()),
            "answers_per_query": float(stands.sum() / len(self.queries)),
            "distance": float(result.distance[stands].mean()) if found else None,
            "changed_features": float(result.changed[stands].mean()) if found else None,
            "plausibility": plausibility(result.rows[stands], result.schema, self.reference),
            "queries": len(self.queries),
            "k": k,
            "seconds_per_query": seconds / len(self.queries),
        }

    def theirs_of_several(self, baseline: Baseline, queries: int, k: int) -> Row:
        """The same of a baseline."""
        count = min(queries, len(self.queries))
        started = time.perf_counter()
        answers = baseline.explain(self.queries.head(count), self.runner_up[:count], k=k)
        seconds = time.perf_counter() - started
        row: Row = {**answers.metrics(self.reference), "queries": count, "k": k}
        row["answers_per_query"] = float(answers.found.sum() / count)
        return {**row, "seconds_per_query": seconds / count}

    def ask(self, explainer: Explainer, start: int, stop: int, **way: Any) -> Explanations:
        """Answers to some of the queries, towards the class that f finds next likely."""
        names = self.classes(self.runner_up[start:stop])
        return explainer.explain(self.queries.iloc[start:stop], names, progress=False, **way)

    def _ask(
        self, explainer: Explainer, targets: Tensor, count: int, way: dict[str, Any]
    ) -> Explanations:
        names = self.classes(targets[:count])
        return explainer.explain(self.queries.head(count), names, progress=False, **way)

    def _stands(self, result: Explanations, targets: Tensor) -> Any:
        """Which answers f accepts; with guidance `surrogate` f is asked when all is over."""
        agreed = self.judge.ask(Rows.of_frame(result.rows, self.judge.encoding)).argmax(dim=1)
        return (agreed == targets.repeat_interleave(result.k)).numpy() & result.valid

    def _flipped(self, result: Explanations, targets: Tensor) -> float:
        return float(self._stands(result, targets).mean())
