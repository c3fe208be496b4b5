"""The Explainer: encode -> choose targets -> search -> the model decides on the rows as given."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.amortiser import Amortiser
from counterveil.autoencoder import pick_device
from counterveil.encoding import Array, Encoding
from counterveil.errors import InputError, InternalError, RequestError
from counterveil.models import TargetModel, distil
from counterveil.models.student import EPOCHS
from counterveil.privacy import Budget
from counterveil.progress import Tick, progress_bar
from counterveil.schema import Category
from counterveil.search import amortise, request, warm
from counterveil.search.answer import Answerer, How, Questions
from counterveil.search.constraints import (
    ManyRules,
    box_around,
    column_costs,
    decode_answers,
    max_changes_of,
)
from counterveil.search.diverse import several
from counterveil.search.objective import Weights
from counterveil.search.pool import Pool
from counterveil.search.result import Explanations, Status
from counterveil.search.rules import Rules
from counterveil.search.sampling import legal_rows
from counterveil.search.snap import Snap
from counterveil.veil import Veil

ITERATIONS = 300  # of Algorithm 2
SURE_SURROGATE = 0.95  # f~ must be this sure, for it is not the model that decides


class Explainer:
    """Explains the decisions of `model` with the prototypes of `veil`.

    `model`: a torch module over the encoding, an estimator with predict_proba, an ONNX file, a
    function from rows to class probabilities, or an adapter of `counterveil.models` with options.
    `guidance`: "model" consults the target model; "surrogate" consults f~ of the veil for
    everything and needs no model: answers are then private in the training rows, end to end.
    `model_budget`: the declared privacy of the target model, if it was trained with any.
    `weights`: α, β, γ of the search; the paper's for this family of data if not given.
    `warm_file`: where the amortised search is kept once it has been learnt (see `warm_up`);
    `warm_steps`: how long it learns at most.
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
        warm_file: str | os.PathLike[str] | None = None,
        warm_steps: int | None = None,
        device: str = "cpu",
        chunk: int = 8192,
    ) -> None:
        if chunk < 1 or (warm_steps is not None and warm_steps < 1):
            raise RequestError("chunk and warm_steps must be at least 1")
        self.veil = veil
        self.encoding = Encoding(veil.schema)
        self.model = request.guide_model(veil, model, guidance)
        self.statement = request.statement_of(veil, guidance, model_budget)
        self.guidance = guidance
        self.weights = weights or Weights.of(veil.schema.family, guidance)
        self.device = pick_device(device)
        self.chunk = chunk
        self._warm_file, self._warm_steps = warm_file, warm_steps
        self._snap = Snap(self.encoding, self.device)
        self._guide: TargetModel | None = None
        self._amortiser: Amortiser | None = None
        self._ready: Answerer | None = None
        self._pool: Pool | None = None

    def warm_up(self, *, progress: bool = True) -> None:
        """Learn what the amortised search needs to know of the model: seconds, once.

        The first `explain` does it otherwise. With a `warm_file` it is read from there, or kept
        there for the next time. With guidance `surrogate` it comes with the veil.
        """
        guide = self._follow(progress)
        if self._amortiser is not None:
            return
        shipped = self.veil.amortiser if self.guidance == "surrogate" else None
        if shipped is not None:
            self._amortiser = shipped.to(self.device)
            return
        latent = self.veil.autoencoder.latent
        network = Amortiser(self.encoding.width, self.model.classes, latent)
        name = ""
        if self._warm_file is not None:
            probes = legal_rows(self.veil, self._snap, 256, seed=1, device=self.device)
            name = warm.fingerprint(self.veil.digest, guide, probes)
            if warm.load(self._warm_file, network, name):
                self._amortiser = network.requires_grad_(False).eval().to(self.device)
                return
        self._amortiser = amortise.learn_for(
            self.veil, guide, self.weights, self._snap, device=self.device, progress=progress,
            most_steps=self._warm_steps,
        )  # fmt: skip
        if self._warm_file is not None:
            with suppress(InputError):  # a folder that cannot be written only costs time
                warm.save(self._warm_file, self._amortiser, name)

    def explain(
        self,
        queries: Any,
        target: Category | Sequence[Category] | None = None,
        *,
        k: int = 1,
        rules: ManyRules = None,
        immutable: Collection[str] = (),
        method: Literal["amortised", "iterations"] = "amortised",
        iterations: int | None = None,
        keep: Literal["best", "last"] = "best",
        polish: bool | None = None,
        margin: float | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> Explanations:
        """`k` counterfactuals for every row of `queries`.

        `target`: a class of the label set, or a list with one for each query; by default the class
        that the model finds most likely after the one it predicts. `rules`: what may change, for
        all queries or a list with one `Rules` for each; `immutable`: features that must stay,
        besides those of schema and rules. `method`: the amortised search, or Algorithm 2.
        `iterations`: of Algorithm 2 (300 by default), or to refine an amortised answer (none).
        `keep`: the nearest legal row seen on the way that the model accepts, or literally the last
        iterate, as in the paper. `polish`: give back what an answer does not need; by default with
        guidance `model`. `margin`: the probability of the target class from which a row is
        accepted; winning is enough with guidance `model`, .95 is wished for with `surrogate`.
        `seed` steers the variety of k answers.
        """
        how = self._how(method, iterations, keep, polish, margin)
        if k < 1:
            raise RequestError("k must be at least 1")
        frame = self.encoding.pick(queries)
        points = self.encoding.encode(frame)
        box = box_around(self.encoding, points, rules, immutable)
        query_points = torch.as_tensor(points, dtype=torch.float32)
        before = self.model.decide(frame, query_points)
        predicted = before.argmax(dim=1)
        targets = self._choose(before, predicted, target)
        if how.method == "amortised":
            self.warm_up(progress=progress)
        answerer = self._answerer(progress)
        questions = Questions(
            query_points,
            targets,
            box,
            column_costs(self.encoding, rules, len(frame)),
            max_changes_of(rules, len(frame)),
        )
        found, stands = self._search(answerer, questions, how, k, seed, progress)
        fixed = request.fixed_features(rules, immutable)
        sure = self.guidance == "model" or target is None
        return self._judge(
            frame, points, questions, found, stands, before, how, k, rules, fixed, sure
        )

    def answer_tensors(
        self, questions: Questions, *, polish: bool = True, margin: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Encoded answers to encoded questions, and which stand: the search without any table."""
        how = How(polish=polish, margin=margin)
        self.warm_up(progress=False)
        return self._answerer(progress=False)(questions.to(self.device), how)

    def _how(
        self, method: str, iterations: int | None, keep: str, polish: bool | None,
        margin: float | None,
    ) -> How:  # fmt: skip
        if iterations is not None and iterations < 0:
            raise RequestError("iterations must not be negative")
        if method not in {"amortised", "iterations"}:
            raise RequestError("method must be 'amortised' or 'iterations'")
        if keep not in {"best", "last"} or (keep == "last" and method != "iterations"):
            raise RequestError("keep must be 'best', or 'last' with method 'iterations'")
        if margin is not None and not 0 <= margin < 1:
            raise RequestError("margin must be a probability from 0 to below 1")
        by_model = self.guidance == "model"
        if iterations is None:
            iterations = ITERATIONS if method == "iterations" else 0
        return How(
            method,  # type: ignore[arg-type]
            iterations,
            keep,  # type: ignore[arg-type]
            by_model if polish is None else polish,
            (0.0 if by_model else SURE_SURROGATE) if margin is None else margin,
            wish=margin is None,
        )

    def _choose(
        self, log_proba: Tensor, predicted: Tensor, target: Category | Sequence[Category] | None
    ) -> Tensor:
        """Step 1 of Algorithm 2: the target class of each query."""
        if target is None:
            others = log_proba.scatter(1, predicted[:, None], -torch.inf)
            return others.argmax(dim=1)
        classes = self.veil.schema.label.classes
        if isinstance(target, np.generic):
            target = target.item()
        one = isinstance(target, (str, int, float))
        wanted: list[Any] = [target] * len(predicted) if one else [*target]  # type: ignore[misc]
        if len(wanted) != len(predicted):
            raise RequestError(f"target: {len(wanted)} classes for {len(predicted)} queries")
        numbers = {name: number for number, name in enumerate(classes)}
        for name in wanted:
            if name not in numbers or isinstance(name, bool):
                known = ", ".join(str(name) for name in classes[:12])
                raise RequestError(f"target: no class {name!r}; the label has: {known}")
        return torch.tensor([numbers[name] for name in wanted])

    def _follow(self, progress: bool) -> TargetModel:
        """The model whose gradient the search follows: f, or a student of it."""
        if self._guide is None:
            if self.model.differentiable:
                self._guide = self.model.to(self.device)
            else:
                count = request.rows_for_a_student(self.model)
                rows = legal_rows(self.veil, self._snap, count, seed=0, device=self.device)
                answers = self.model.log_proba(rows)
                self._pool = Pool(rows, answers.argmax(dim=1))
                with progress_bar("learning a student of the model", EPOCHS, show=progress) as tick:
                    self._guide = distil(self.model, rows, answers, seed=0, tick=tick)
        return self._guide

    def _answerer(self, progress: bool) -> Answerer:
        if self._ready is None or self._ready.amortiser is not self._amortiser:
            self._ready = self._make_answerer(progress)
        return self._ready

    def _make_answerer(self, progress: bool) -> Answerer:
        return Answerer(
            autoencoder=self.veil.autoencoder.to(self.device),
            prototypes=self.veil.prototypes.to(self.device),
            guide=self._follow(progress),
            judge=self.model.to(self.device),
            weights=self.weights,
            snap=self._snap,
            amortiser=self._amortiser,
            mends=self.guidance == "model",
            both_sides=self.guidance == "model" and self.veil.schema.family == "mixed",
            pool=None if self.model.calls_left is not None else self._pool,
        )

    def _search(
        self, answerer: Answerer, questions: Questions, how: How, k: int, seed: int, progress: bool
    ) -> tuple[Tensor, Tensor]:
        """Rows of shape (queries, k, width), legal and within their boxes, and which stand."""
        starts = range(0, len(questions), self.chunk)
        rows, stands = [], []
        with progress_bar("searching", len(starts) * max(how.iterations, 1), show=progress) as tick:
            for number, start in enumerate(starts):
                part = questions.rows(slice(start, start + self.chunk)).to(self.device)
                shifted = _shifted(tick, number * how.iterations)
                found, accepted = several(answerer, part, how, k, seed, shifted)
                whole = found.flatten(0, 1)
                if bool(self._snap.broken(whole, part.repeated(k).box).any()):
                    raise InternalError("an answer broke a rule of the schema; please report this")
                rows.append(found.cpu())
                stands.append(accepted.cpu())
                tick((number + 1) * max(how.iterations, 1), "")
        return torch.cat(rows), torch.cat(stands)

    def _judge(
        self, frame: pd.DataFrame, points: Array, questions: Questions, found: Tensor,
        stands: Tensor, before: Tensor, how: How, k: int, rules: ManyRules,
        fixed: tuple[str, ...], sure: bool,
    ) -> Explanations:  # fmt: skip
        """The model has the last word, on the rows exactly as they are given out."""
        predicted, targets = before.argmax(dim=1), questions.targets
        # f~ does not know what was decided: a class that was asked for by name is always sought.
        already = (predicted == targets) & sure
        stands = (stands & ~already[:, None]).flatten()
        if k > 1:
            frame = frame.loc[np.repeat(np.arange(len(frame)), k)].reset_index(drop=True)
            rules = (
                rules
                if rules is None or isinstance(rules, Rules)
                else [each for each in rules for _ in range(k)]
            )
            predicted, targets, already, before = (
                each.repeat_interleave(k, dim=0) for each in (predicted, targets, already, before)
            )
        points = points.repeat(k, axis=0)
        tried = np.where(stands.numpy()[:, None], found.flatten(0, 1).double().numpy(), points)
        rows = decode_answers(self.encoding, frame, points, tried, rules)
        final = self.encoding.encode(rows)
        after = self.model.decide(rows, torch.as_tensor(final, dtype=torch.float32))
        valid = (after.argmax(dim=1) == targets) & stands
        lost = (stands & ~valid).numpy()
        if lost.any():
            rows = rows.where(pd.Series(~lost), frame)
            final[lost] = points[lost]
        moved = np.abs(final - points)
        log_proba = torch.where(valid[:, None], after, before)
        status = np.where(valid.numpy(), Status.FOUND.value, Status.NOT_FOUND.value)
        return Explanations(
            schema=self.veil.schema,
            statement=self.statement,
            queries=frame,
            rows=rows,
            status=np.where(already.numpy(), Status.ALREADY.value, status),
            predicted=predicted.numpy(),
            target=targets.numpy(),
            probability=log_proba.exp().gather(1, targets[:, None])[:, 0].double().numpy(),
            distance=np.sqrt((moved**2).sum(axis=1)),
            changed=request.features_changed(self.encoding, moved),
            iterations=how.iterations,
            k=k,
            reason=request.reasons(questions, valid, already, k),
            fixed=fixed,
        )


def _shifted(tick: Tick, start: int) -> Tick:
    return lambda done, words="": tick(start + done, words)
