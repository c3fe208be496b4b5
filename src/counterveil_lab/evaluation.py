"""The queries that all methods are asked, and what their answers are worth.

Held-out rows, towards the class that f finds next likely (unspecified: the easiest one) and, with
more than two classes, towards a class drawn at random (specified). Where no class is specified the
paper counts an answer that f puts into any other class, `flip_ratio_any`; `flip_ratio` wants the
class that was asked for. With two classes they are the same. All answers are legal rows: those of
every method are snapped. Of the published search, what the decoder gives is measured beside, as the
paper has it: columns that end in `_unsnapped`, over all queries whether f accepts or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from counterveil.encoding import Array, Encoding
from counterveil.models import TargetModel, adapt
from counterveil.search import Explainer, Explanations
from counterveil.veil import Veil
from counterveil_lab.baselines import Answers, Baseline
from counterveil_lab.datasets import Dataset
from counterveil_lab.metrics import measure, plausibility, timed
from counterveil_lab.product import (
    any_other,
    decided,
    last_iterates,
    log_proba_at,
    runner_up,
    unsnapped,
)
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

    def left(self, explainer: Explainer, result: Explanations, **options: Any) -> Array:
        """Which queries f puts into another class after the search, whichever it is.

        The published search ends where it ends: `result` has the query where f does not give the
        class asked for, so its last rows are made once more.
        """
        before = decided(self.judge, self.queries)
        if options.get("keep") != "last":
            return (decided(self.judge, result.rows) != before).numpy()
        rows = last_iterates(explainer, self.points.to(explainer.device), self.targets)
        return (log_proba_at(self.judge, rows).argmax(dim=1).cpu() != before).numpy()

    @property
    def points(self) -> Tensor:
        """The queries encoded: (queries, width), float32."""
        return torch.as_tensor(Encoding(self.data.schema).encode(self.queries)).float()

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
        row["flip_ratio_any"] = float(self.left(explainer, result, **options).mean())
        if self.specified is not None:
            other = self.explain(explainer, targets=self.specified, **options)
            row["flip_ratio_specified"] = float(self.accepted(other, self.specified).mean())
        row |= self._unsnapped(explainer.veil) if options.get("keep") == "last" else {}
        return {**row, "seconds_per_query": seconds / len(self.queries)}

    def _unsnapped(self, veil: Veil) -> Row:
        """Flip ratios and distance of the rows that Algorithm 2 ends at, before they are legal."""
        points, judge = self.points, self.judge
        ends = unsnapped(veil, judge, points, self.targets)
        said, before = (log_proba_at(judge, each).argmax(dim=1) for each in (ends, points))
        row: Row = {"flip_ratio_any_unsnapped": float((said != before).double().mean())}
        row["distance_unsnapped"] = float((ends - points).norm(dim=1).mean())
        if self.specified is not None:
            said = log_proba_at(judge, unsnapped(veil, judge, points, self.specified)).argmax(dim=1)
            reached = (said == self.specified).double().mean()
            row["flip_ratio_specified_unsnapped"] = float(reached)
        return row

    def _until(
        self, baseline: Baseline, starts: range, k: int, limit: float | None
    ) -> Iterator[Answers]:
        """Answers to one part of the queries after the other, while there is time."""
        over = monotonic() + (inf if limit is None else limit)
        for start in starts:
            if start and monotonic() > over:
                return
            yield self.explain_by(baseline, start, min(start + starts.step, starts.stop), k)

    def score_baseline(
        self, baseline: Baseline, queries: int, k: int = 1, limit: float | None = None
    ) -> Row:
        """The same of a baseline, asked the first `queries` questions.

        `limit`: seconds; with it questions are asked one by one until the time is over, and a row
        that was cut short says so.
        """
        asked = min(queries, len(self.queries))
        steps = range(0, asked, asked if limit is None else 1)
        parts, seconds = timed(lambda: list(self._until(baseline, steps, k, limit)))
        answers = Answers.joined(parts)
        count = len(answers.queries)
        row: Row = {**answers.metrics(self.reference), "queries": count}
        if limit is not None:
            row["limited_by"] = f"{limit:g} s" if count < asked else None
        if k > 1:
            row |= {"k": k, "answers_per_query": float(answers.found.sum() / count)}
        elif self.specified is not None:
            other = baseline.explain(self.queries.head(count), self.specified[:count])
            row["flip_ratio_specified"] = other.metrics()["flip_ratio"]
        return {**row, "seconds_per_query": seconds / count}
