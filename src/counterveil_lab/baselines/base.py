"""What the baselines share: the question, the nearest answers seen, and the last word of f.

Whatever a method proposes is snapped to a legal row inside the query's box, so that no baseline
loses by rows that cannot exist. An answer counts as found if f accepts the row as it is given out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from typing import Protocol

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.encoding import Array, Encoding
from counterveil.errors import RequestError
from counterveil.models import TargetModel
from counterveil.schema import Schema
from counterveil.search.constraints.bounds import Box, box_around
from counterveil.search.constraints.decoding import decode_answers
from counterveil.search.constraints.projection import Snap
from counterveil_lab.metrics import legal_share, plausibility
from counterveil_lab.product import decided, log_proba_at


class Baseline(Protocol):
    """A method that is ready to explain a model; tables call it by its `name`."""

    name: str

    def explain(self, queries: pd.DataFrame, targets: Tensor, *, k: int = 1) -> Answers:
        """`k` answers for each query; `targets` are positions in the label set, one a query."""
        ...


@dataclass(eq=False)
class Fitted:
    """What a baseline is made of: (schema, model, train, *, seed, its published options).

    A method is a dataclass on top of this one, with its options as fields. Its `fit` sets `name`.
    """

    schema: Schema
    model: TargetModel
    train: InitVar[pd.DataFrame]
    seed: int = field(default=0, kw_only=True)
    name: str = field(init=False)

    def __post_init__(self, train: pd.DataFrame) -> None:
        if self.model.schema != self.schema:
            raise RequestError("the model was adapted to another schema than the one given")
        self.fit(train)

    def fit(self, train: pd.DataFrame) -> None:
        """Check the options, and learn from the training rows what the method needs of them."""
        raise NotImplementedError

    def require_gradient(self) -> None:
        if not self.model.differentiable:
            raise RequestError(
                f"{self.name} follows the gradient of the model, and this one has none"
            )


@dataclass(frozen=True, eq=False)
class Answers:
    """k rows for each query, one query after the other, those that were found first.

    Where nothing was found the row is the query itself. `left`: whether f gave the row that was
    proposed any other class than the query, wanted or not. `asked` says which queries were not of
    the target class already; the others count as neither found nor failed.
    """

    schema: Schema
    queries: pd.DataFrame
    rows: pd.DataFrame
    found: Array
    left: Array
    asked: Array

    @classmethod
    def joined(cls, parts: Sequence[Answers]) -> Answers:
        """Answers to some queries and to others, as one."""
        frames = [
            pd.concat([getattr(part, name) for part in parts], ignore_index=True)
            for name in ("queries", "rows")
        ]
        arrays = [
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("found", "left", "asked")
        ]
        return cls(parts[0].schema, *frames, *arrays)

    @property
    def k(self) -> int:
        """Answers a query."""
        return len(self.rows) // len(self.queries)

    def metrics(self, reference: pd.DataFrame | None = None) -> dict[str, float]:
        """The metrics of `counterveil_lab.metrics`; plausibility only against a `reference`.

        A query counts as flipped with one answer; the means are over all answers found.
        """
        flipped = self.found[:: self.k][self.asked]
        rows = self.rows[self.found]
        encoding = Encoding(self.schema)
        before = np.repeat(encoding.encode(self.queries), self.k, axis=0)
        moved = np.abs(encoding.encode(self.rows) - before)[self.found]
        row = {"flip_ratio": float(flipped.mean()) if len(flipped) else np.nan}
        left = self.left.reshape(-1, self.k).max(axis=1)[self.asked]
        row["flip_ratio_any"] = float(left.mean()) if len(left) else np.nan
        row |= dict.fromkeys(("legal", "distance", "changed_features"), np.nan)
        if len(rows):
            starts = [block.start for block in encoding.blocks]
            changed = (np.maximum.reduceat(moved, starts, axis=1) > 0).sum(axis=1)
            row["legal"] = legal_share(rows, self.schema)
            row["distance"] = float(np.linalg.norm(moved, axis=1).mean())
            row["changed_features"] = float(changed.mean())
        if reference is not None:
            row["plausibility"] = plausibility(rows, self.schema, reference)
        return row


@dataclass(frozen=True, eq=False)
class Problem:
    """The queries of one call, encoded on the model's device, each with its target and box."""

    model: TargetModel
    snap: Snap
    frame: pd.DataFrame
    points: Array
    queries: Tensor
    targets: Tensor
    box: Box
    k: int

    @classmethod
    def pose(cls, model: TargetModel, queries: pd.DataFrame, targets: Tensor, k: int) -> Problem:
        """Check and encode what was asked."""
        encoding, device = model.encoding, model.device
        frame = encoding.pick(queries)
        if k < 1:
            raise RequestError("k must be at least 1")
        if targets.shape != (len(frame),):
            raise RequestError(f"targets: {tuple(targets.shape)} for {len(frame)} queries")
        if bool(((targets < 0) | (targets >= model.classes)).any()):
            raise RequestError(f"targets must be class numbers from 0 to {model.classes - 1}")
        points = encoding.encode(frame)
        asked = torch.as_tensor(points, dtype=torch.float32, device=device)
        box, snap = box_around(encoding, points).to(device), Snap(encoding, device)
        return cls(model, snap, frame, points, asked, targets.to(device), box, k)

    @property
    def numbers(self) -> Tensor:
        return torch.arange(len(self.queries), device=self.queries.device)

    def legal(self, points: Tensor, numbers: Tensor) -> Tensor:
        """The legal rows nearest to `points` of shape (queries, points each, width)."""
        boxes = self.box.select(numbers.repeat_interleave(points.shape[1]))
        return self.snap(points.flatten(0, 1), boxes).reshape(points.shape)

    @torch.no_grad()
    def accepted(self, rows: Tensor, numbers: Tensor) -> Tensor:
        """Which of `rows`, shaped as above, f puts into the target class of their query."""
        winner = log_proba_at(self.model, rows.flatten(0, 1)).argmax(dim=1)
        return winner.reshape(rows.shape[:2]) == self.targets[numbers][:, None]

    def answers(self, rows: Tensor) -> Answers:
        """Legal `rows` of shape (queries, k, width) in original units, judged by f."""
        count = len(self.frame)
        again = np.repeat(np.arange(count), self.k)
        frame = self.frame.iloc[again].reset_index(drop=True)
        legal = rows.flatten(0, 1).double().cpu().numpy()
        given = decode_answers(self.model.encoding, frame, self.points[again], legal, None)
        targets = self.targets.cpu()
        before, after = decided(self.model, self.frame), decided(self.model, given)
        asked = (before != targets).numpy()
        found = (after == targets[again]).numpy() & asked[again]
        left = (after != before[again]).numpy()
        given = given.where(pd.Series(found), frame)
        first = np.argsort(~found.reshape(count, self.k), axis=1, kind="stable")
        order = (first + self.k * np.arange(count)[:, None]).ravel()
        given = given.iloc[order].reset_index(drop=True)
        return Answers(self.model.schema, self.frame, given, found[order], left[order], asked)


class Nearest:
    """The k nearest (L1) different rows that f accepted, for each query; else the query."""

    def __init__(self, problem: Problem) -> None:
        self._queries, self._k = problem.queries, problem.k
        self.rows = problem.queries[:, None].repeat(1, problem.k, 1)
        self._distance = torch.full(self.rows.shape[:2], torch.inf, device=self.rows.device)

    def look(self, numbers: Tensor, rows: Tensor, accepted: Tensor) -> None:
        """Consider `rows` of shape (queries, rows each, width) for the queries `numbers`."""
        distance = (rows - self._queries[numbers][:, None]).abs().sum(dim=2)
        distance = torch.where(accepted, distance, torch.inf)
        rows = torch.cat([self.rows[numbers], rows], dim=1)
        distance = torch.cat([self._distance[numbers], distance], dim=1)
        for place in range(self._k):
            best, which = distance.min(dim=1)
            chosen = rows[torch.arange(len(rows), device=rows.device), which]
            self.rows[numbers, place] = torch.where(
                best.isfinite()[:, None], chosen, self.rows[numbers, place]
            )
            self._distance[numbers, place] = best
            if place + 1 < self._k:
                equal = (rows == chosen[:, None]).all(dim=2)
                distance = torch.where(equal, torch.inf, distance)
