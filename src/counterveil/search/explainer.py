"""The Explainer: encode -> choose targets -> Algorithm 2 -> snap -> the model decides."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.autoencoder import pick_device
from counterveil.encoding import Array, Encoding
from counterveil.errors import InternalError, RequestError
from counterveil.models import TargetModel, TorchModel, adapt, distil
from counterveil.models.student import EPOCHS
from counterveil.privacy import Budget, Statement
from counterveil.progress import Tick, progress_bar
from counterveil.schema import Category, Numeric
from counterveil.search.best import Best
from counterveil.search.constraints import Box, box_around, obey
from counterveil.search.latent import search
from counterveil.search.objective import SearchObjective, Weights
from counterveil.search.repair import repair
from counterveil.search.result import Explanations, Status
from counterveil.search.sampling import legal_rows
from counterveil.search.snap import Snap
from counterveil.veil import Veil

STUDENT_ROWS = 20_000
REPAIR_STEPS = 80  # single moves for a query that no search could answer
ATTEMPTS, INSIST = 3, 4.0  # searches for a query without an answer; the factor on α each time
SURE_SURROGATE = 0.95  # f~ must be this sure, for it is not the model that decides


class Explainer:
    """Explains the decisions of `model` with the prototypes of `veil`.

    `model`: a torch module over the encoding, an estimator with predict_proba, a function from
    rows to class probabilities, or an adapter of `counterveil.models` built with options.
    `guidance`: "model" consults the target model; "surrogate" consults f~ of the veil for
    everything and needs no model: answers are then private in the training rows, end to end.
    `model_budget`: the declared privacy of the target model, if it was trained with any.
    `weights`: α, β, γ of the search; the paper's for this family of data if not given.
    `chunk`: how many queries are searched together; bounds the memory.
    """

    def __init__(
        self,
        veil: Veil,
        model: Any = None,
        *,
        guidance: Literal["model", "surrogate"] = "model",
        model_budget: Budget | None = None,
        weights: Weights | None = None,
        device: str = "cpu",
        chunk: int = 8192,
    ) -> None:
        if chunk < 1:
            raise RequestError("chunk must be at least 1")
        self.veil = veil
        self.encoding = Encoding(veil.schema)
        self.model = _guide_model(veil, model, guidance)
        self.statement = _statement(veil, guidance, model_budget)
        self.guidance = guidance
        self.weights = weights or Weights.of(veil.schema.family)
        self.device = pick_device(device)
        self.chunk = chunk
        self._snap = Snap(self.encoding, self.device)
        self._students: dict[int, TargetModel] = {}

    def explain(
        self,
        queries: Any,
        target: Category | Sequence[Category] | None = None,
        *,
        immutable: Collection[str] = (),
        iterations: int = 300,
        keep: Literal["best", "last"] = "best",
        margin: float | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> Explanations:
        """One counterfactual for every row of `queries`.

        `target`: a class of the label set, or a list with one for each query; by default the class
        that the model finds most likely after the one it predicts. `immutable`: features that must
        stay, besides those of the schema. `keep`: the nearest legal row seen on the way that the
        model accepts, or literally the last iterate, as in the paper. `margin`: the probability of
        the target class from which a row on the way is accepted; the winning class is enough with
        guidance `model`, .95 is asked for with `surrogate`. `seed` steers the student of a model
        without gradients.
        """
        if iterations < 0:
            raise RequestError("iterations must not be negative")
        if isinstance(immutable, str):
            raise RequestError("immutable must be a list of feature names")
        if margin is None:
            margin = SURE_SURROGATE if self.guidance == "surrogate" else 0.0
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
                shifted = _shifted(tick, number * iterations)
                found.append(self._search(guide, *batch, iterations, keep, margin, shifted))
        rows = self._decode(frame, points, torch.cat(found).double().numpy())
        named = target is not None
        return self._judge(frame, points, rows, predicted, targets, log_proba, iterations, named)

    def _choose(
        self, log_proba: Tensor, predicted: Tensor, target: Category | Sequence[Category] | None
    ) -> Tensor:
        """Step 1 of Algorithm 2: the target class of each query."""
        if target is None:
            others = log_proba.scatter(1, predicted[:, None], -torch.inf)
            return others.argmax(dim=1)
        classes = self.veil.schema.label.classes
        wanted = [target] * len(predicted) if isinstance(target, (str, int)) else [*target]
        if len(wanted) != len(predicted):
            raise RequestError(f"target: {len(wanted)} classes for {len(predicted)} queries")
        for name in wanted:
            if name not in classes:
                known = ", ".join(str(name) for name in classes[:12])
                raise RequestError(f"target: no class {name!r}; the label has: {known}")
        return torch.tensor([classes.index(name) for name in wanted])

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
        iterations: int, keep: str, margin: float, tick: Tick,
    ) -> Tensor:  # fmt: skip
        """Algorithm 2, and again with a heavier L_pred for queries it left without an answer."""
        queries, targets = queries.to(self.device), targets.to(self.device)
        box = box.to(self.device)
        objective = SearchObjective(
            model=guide,
            autoencoder=self.veil.autoencoder.to(self.device),
            weights=self.weights,
            queries=queries,
            targets=targets,
            prototypes=self.veil.prototypes.to(self.device)[targets],
            box=box,
        )
        if keep == "last":
            rows = self._snap(search(objective, iterations, tick), box)
        else:
            rows = queries.clone()
            left = torch.arange(len(queries), device=self.device)
            for attempt in range(ATTEMPTS):
                part = objective.rows(left, alpha=INSIST**attempt)
                best = Best(self._snap, guide, part.queries, part.targets, part.box, margin)
                last = search(part, iterations, tick, look=best.look)
                rows[left] = best.or_else(self._snap(last, part.box))
                left = left[~best.found]
                if not len(left):
                    break
            # A single move over the boundary of f~ would convince nobody but f~.
            if len(left) and self.guidance == "model":
                start, goal, around = queries[left], targets[left], box.rows(left)
                mended = repair(
                    self._snap(start, around), goal, around, self._snap, guide, steps=REPAIR_STEPS
                )
                won = guide.log_proba(mended).argmax(dim=1) == goal
                rows[left[won]] = mended[won]
        if bool(self._snap.broken(rows, box).any()):
            raise InternalError("an answer broke a rule of the schema; please report this")
        return rows.cpu()

    def _decode(self, frame: pd.DataFrame, points: Array, found: Array) -> pd.DataFrame:
        """Rows in original units; what did not change keeps the query's own value, exactly."""
        rows = self.encoding.decode(found)
        for block in self.encoding.blocks:
            same = (np.abs(found[:, block.at] - points[:, block.at]) < 1e-6).all(axis=1)
            if isinstance(block.feature, Numeric):
                name = block.feature.name
                rows[name] = obey(block.feature, frame[name], rows[name])
            for column in block.feature.columns:
                rows[column] = rows[column].where(~same, frame[column])
        return rows

    def _judge(
        self, frame: pd.DataFrame, points: Array, rows: pd.DataFrame, predicted: Tensor,
        targets: Tensor, before: Tensor, iterations: int, named: bool,
    ) -> Explanations:  # fmt: skip
        """The model has the last word, on the rows exactly as they are given out."""
        after = self.model.log_proba_rows(rows)
        # f~ does not know what was decided: a class that was asked for by name is always sought.
        already = (predicted == targets).numpy() & (self.guidance == "model" or not named)
        valid = (after.argmax(dim=1) == targets).numpy() & ~already
        rows = rows.where(pd.Series(valid), frame)
        moved = np.abs(self.encoding.encode(rows) - points)
        log_proba = torch.where(torch.from_numpy(valid)[:, None], after, before)
        status = np.where(valid, Status.FOUND.value, Status.NOT_FOUND.value)
        return Explanations(
            schema=self.veil.schema,
            statement=self.statement,
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


def _guide_model(veil: Veil, model: Any, guidance: str) -> TargetModel:
    """What the search may consult: f, or f~ and then f is not even kept."""
    if guidance == "surrogate":
        if veil.surrogate is None:
            raise RequestError(
                f"this veil has no surrogate (mechanism {veil.statement.mechanism}); "
                "use guidance 'model', or release with mechanism functional"
            )
        return TorchModel(veil.surrogate, veil.schema, outputs="logits")
    if guidance != "model":
        raise RequestError("guidance must be 'model' or 'surrogate'")
    if model is None:
        raise RequestError("guidance 'model' needs a model; or use guidance='surrogate'")
    return adapt(model, veil.schema)


def _statement(veil: Veil, guidance: str, model_budget: Budget | None) -> Statement:
    if guidance == "surrogate":
        return veil.statement.guided_by_surrogate()
    return veil.statement if model_budget is None else veil.statement.composed_with(model_budget)


def _shifted(tick: Tick, start: int) -> Tick:
    return lambda done, words="": tick(start + done, words)
