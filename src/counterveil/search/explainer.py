"""The Explainer: encode -> choose targets -> Algorithm 2 -> snap -> the model decides."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.autoencoder import pick_device
from counterveil.encoding import Array, Encoding
from counterveil.errors import InternalError, RequestError
from counterveil.models import TargetModel, adapt, distil
from counterveil.models.student import EPOCHS
from counterveil.progress import Tick, progress_bar
from counterveil.schema import Category
from counterveil.search.constraints import Box, box_around
from counterveil.search.latent import search
from counterveil.search.objective import SearchObjective, Weights
from counterveil.search.result import Explanations, Status
from counterveil.search.sampling import legal_rows
from counterveil.search.snap import Snap
from counterveil.veil import Veil

STUDENT_ROWS = 20_000


class Explainer:
    """Explains the decisions of `model` with the prototypes of `veil`.

    `model`: a torch module over the encoding, an estimator with predict_proba, a function from
    rows to class probabilities, or an adapter of `counterveil.models` built with options.
    `weights`: α, β, γ of the search; the paper's for this family of data if not given.
    `chunk`: how many queries are searched together; bounds the memory.
    """

    def __init__(
        self,
        veil: Veil,
        model: Any,
        *,
        weights: Weights | None = None,
        device: str = "cpu",
        chunk: int = 8192,
    ) -> None:
        if chunk < 1:
            raise RequestError("chunk must be at least 1")
        self.veil = veil
        self.encoding = Encoding(veil.schema)
        self.model = adapt(model, veil.schema)
        self.weights = weights or Weights.of(veil.schema.family)
        self.device = pick_device(device)
        self.chunk = chunk
        self._snap = Snap(self.encoding, self.device)
        self._students: dict[int, TargetModel] = {}

    def explain(
        self,
        queries: Any,
        target: Category | None = None,
        *,
        immutable: Collection[str] = (),
        iterations: int = 300,
        seed: int = 0,
        progress: bool = True,
    ) -> Explanations:
        """One counterfactual for every row of `queries`.

        `target`: a class of the label set; by default, for each query, the class that the model
        finds most likely after the one it predicts. `immutable`: features that must stay, besides
        those of the schema. `seed` steers the student of a model without gradients.
        """
        if iterations < 0:
            raise RequestError("iterations must not be negative")
        if isinstance(immutable, str):
            raise RequestError("immutable must be a list of feature names")
        frame = self.encoding.pick(queries)
        points = self.encoding.encode(frame)
        box = box_around(self.encoding, points, immutable)
        log_proba = self.model.log_proba_rows(frame)
        predicted = log_proba.argmax(dim=1)
        targets = self._choose(log_proba, predicted, target)
        guide = self._guide(seed, progress)
        parts = list(range(0, len(frame), self.chunk))
        found: list[Tensor] = []
        query_points = torch.as_tensor(points, dtype=torch.float32)
        with progress_bar("searching", len(parts) * iterations, show=progress) as tick:
            for number, start in enumerate(parts):
                part = slice(start, start + self.chunk)
                batch = query_points[part], targets[part], box.rows(part)
                found.append(
                    self._search(guide, *batch, iterations, _shifted(tick, number * iterations))
                )
        rows = self._decode(frame, points, torch.cat(found).double().numpy())
        return self._judge(frame, points, rows, predicted, targets, log_proba, iterations)

    def _choose(self, log_proba: Tensor, predicted: Tensor, target: Category | None) -> Tensor:
        """Step 1 of Algorithm 2: the target class of each query."""
        if target is None:
            others = log_proba.scatter(1, predicted[:, None], -torch.inf)
            return others.argmax(dim=1)
        classes = self.veil.schema.label.classes
        if target not in classes:
            known = ", ".join(str(name) for name in classes[:12])
            raise RequestError(f"target: no class {target!r}; the label has: {known}")
        return torch.full_like(predicted, classes.index(target))

    def _guide(self, seed: int, progress: bool) -> TargetModel:
        """The model whose gradient the search follows: f, or a student of it."""
        if self.model.differentiable:
            return self.model.to(self.device)
        if seed not in self._students:
            rows = legal_rows(self.veil, self._snap, STUDENT_ROWS, seed=seed, device=self.device)
            with progress_bar("learning a student of the model", EPOCHS, show=progress) as tick:
                self._students[seed] = distil(self.model, rows, seed=seed, tick=tick)
        return self._students[seed]

    def _search(
        self, guide: TargetModel, queries: Tensor, targets: Tensor, box: Box,
        iterations: int, tick: Tick,
    ) -> Tensor:  # fmt: skip
        targets, box = targets.to(self.device), box.to(self.device)
        autoencoder = self.veil.autoencoder.to(self.device)
        objective = SearchObjective(
            model=guide,
            autoencoder=autoencoder,
            weights=self.weights,
            queries=queries.to(self.device),
            targets=targets,
            prototypes=self.veil.prototypes.to(self.device)[targets],
            box=box,
        )
        rows = self._snap(search(objective, iterations, tick), box)
        if bool(self._snap.broken(rows, box).any()):
            raise InternalError("an answer broke a rule of the schema; please report this")
        return rows.cpu()

    def _decode(self, frame: pd.DataFrame, points: Array, found: Array) -> pd.DataFrame:
        """Rows in original units; what did not change keeps the query's own value, exactly."""
        rows = self.encoding.decode(found)
        for block in self.encoding.blocks:
            same = (np.abs(found[:, block.at] - points[:, block.at]) < 1e-6).all(axis=1)
            for column in block.feature.columns:
                rows[column] = rows[column].where(~same, frame[column])
        return rows

    def _judge(
        self, frame: pd.DataFrame, points: Array, rows: pd.DataFrame, predicted: Tensor,
        targets: Tensor, before: Tensor, iterations: int,
    ) -> Explanations:  # fmt: skip
        """The model has the last word, on the rows exactly as they are given out."""
        after = self.model.log_proba_rows(rows)
        already = (predicted == targets).numpy()
        valid = (after.argmax(dim=1) == targets).numpy() & ~already
        rows = rows.where(pd.Series(valid), frame)
        moved = np.abs(self.encoding.encode(rows) - points)
        log_proba = torch.where(torch.from_numpy(valid)[:, None], after, before)
        status = np.where(valid, Status.FOUND.value, Status.NOT_FOUND.value)
        return Explanations(
            schema=self.veil.schema,
            statement=self.veil.statement,
            queries=frame,
            rows=rows,
            status=np.where(already, Status.ALREADY.value, status),
            predicted=predicted.numpy(),
            target=targets.numpy(),
            probability=log_proba.exp().gather(1, targets[:, None])[:, 0].double().numpy(),
            distance=np.sqrt((moved**2).sum(axis=1)),
            changed=sum(
                (moved[:, block.at] > 0).any(axis=1).astype(int) for block in self.encoding.blocks
            ),
            iterations=iterations,
        )


def _shifted(tick: Tick, start: int) -> Tick:
    return lambda done, words="": tick(start + done, words)
