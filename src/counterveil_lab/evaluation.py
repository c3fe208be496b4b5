"""The queries that all methods are asked, and what their answers are worth.

Held-out rows, towards the class that f finds next likely (unspecified, as in the paper: any other
class will do, and this is the easiest) and, with more than two classes, towards a class drawn at
random (specified). All answers are legal rows: those of every method are snapped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
from torch import Tensor, nn

from counterveil.encoding import Array
from counterveil.models import TargetModel, adapt
from counterveil.search import Explainer, Explanations
from counterveil_lab.baselines import Answers, Baseline
from counterveil_lab.datasets import Dataset
from counterveil_lab.metrics import measure, plausibility, timed
from counterveil_lab.product import any_other, decided, runner_up
from counterveil_lab.results import Row

QUERIES = 500
# Algorithm 2 as published: the last iterate, made a legal row; nothing repaired, nothing polished.
AS_PUBLISHED: dict[str, Any] = {"method": "iterations", "keep": "last", "polish": False}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """f, the rows to explain, real rows to compare answers with, and the classes to reach.

    `targets`: for each query the class that f finds next likely; `specified`: another class drawn
    at random, None where there are two classes.
    """

    data: Dataset
    model: nn.Module
    judge: TargetModel
    queries: pd.DataFrame
    reference: pd.DataFrame
    targets: Tensor
    specified: Tensor | None

    @classmethod
    def of(cls, data: Dataset, model: nn.Module, seed: int, queries: int = QUERIES) -> Evaluation:
        """The same questions for every method asked with this seed."""
        judge = adapt(model, data.schema)
        count = min(queries, len(data.test) // 2)
        asked, reference = data.test.head(count), data.test.iloc[count:]
        specified = any_other(judge, asked, seed) if judge.classes > 2 else None
        return cls(data, model, judge, asked, reference, runner_up(judge, asked), specified)

    def explain(
        self,
        explainer: Explainer,
        start: int = 0,
        stop: int | None = None,
        *,
        targets: Tensor | None = None,
        **options: Any,
    ) -> Explanations:
        """Answers of an explainer to the queries from `start` to `stop`.

        The nearest ones, as the paper's tables have them, unless `prefer` says otherwise.
        """
        options.setdefault("prefer", "nearest")
        chosen = (self.targets if targets is None else targets)[start:stop]
        classes = [self.data.schema.label.classes[int(number)] for number in chosen]
        queries = self.queries.iloc[start:stop]
        return explainer.explain(queries, classes, progress=False, **options)

    def explain_by(
        self, baseline: Baseline, start: int = 0, stop: int | None = None, k: int = 1
    ) -> Answers:
        """Answers of a baseline to the queries from `start` to `stop`."""
        return baseline.explain(self.queries.iloc[start:stop], self.targets[start:stop], k=k)

    def accepted(self, result: Explanations, targets: Tensor | None = None) -> Array:
        """Which answers f accepts; with guidance `surrogate` f is asked only now."""
        wanted = (self.targets if targets is None else targets).repeat_interleave(result.k)
        return (decided(self.judge, result.rows) == wanted).numpy() & result.valid

    def score_explainer(self, explainer: Explainer, k: int = 1, **options: Any) -> Row:
        """Flip ratios, and the other metrics for the unspecified class; f judges, whoever guides.

        With `k` answers a query, means over all of them that f accepts.
        """
        if k > 1:
            result, seconds = timed(lambda: self.explain(explainer, k=k, **options))
            accepted, count = self.accepted(result), len(self.queries)
            far, moved = result.distance[accepted], result.changed[accepted]
            return {
                "flip_ratio": float(accepted.reshape(-1, k).any(axis=1).mean()),
                "answers_per_query": float(accepted.sum() / count),
                "distance": float(far.mean()) if len(far) else None,
                "changed_features": float(moved.mean()) if len(far) else None,
                "plausibility": plausibility(result.rows[accepted], result.schema, self.reference),
                "queries": count,
                "k": k,
                "seconds_per_query": seconds / count,
            }
        self.explain(explainer, stop=2, **options)  # the first call loads and learns
        result, seconds = timed(lambda: self.explain(explainer, **options))
        row: Row = {**measure(result, self.reference), "queries": len(self.queries)}
        row["flip_ratio"] = float(self.accepted(result).mean())
        if self.specified is not None:
            other = self.explain(explainer, targets=self.specified, **options)
            row["flip_ratio_specified"] = float(self.accepted(other, self.specified).mean())
        return {**row, "seconds_per_query": seconds / len(self.queries)}

    def score_baseline(self, baseline: Baseline, queries: int, k: int = 1) -> Row:
        """The same of a baseline, asked the first `queries` questions."""
        count = min(queries, len(self.queries))
        answers, seconds = timed(lambda: self.explain_by(baseline, stop=count, k=k))
        row: Row = {**answers.metrics(self.reference), "queries": count}
        if k > 1:
            row |= {"k": k, "answers_per_query": float(answers.found.sum() / count)}
        elif self.specified is not None:
            other = baseline.explain(self.queries.head(count), self.specified[:count])
            row["flip_ratio_specified"] = other.metrics()["flip_ratio"]
        return {**row, "seconds_per_query": seconds / count}
