"""The Explainer: encode -> choose targets -> search -> the model decides on the rows as given."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from functools import cached_property
from typing import Any, Unpack

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.encoding import Array, Encoding
from counterveil.errors import InternalError, RequestError
from counterveil.models import ModelFile, Rows, TargetModel, TorchModel, adapt
from counterveil.networks import pick_device
from counterveil.population import TreePopulation
from counterveil.privacy import ModelBudget
from counterveil.private_model import PrivateModel
from counterveil.schema import Category
from counterveil.search import bulk
from counterveil.search.actions.ground import Ground
from counterveil.search.batch import Found, QueryBatch
from counterveil.search.choices import Choices, FileChoices, rules_in
from counterveil.search.constraints import bounds as constraints
from counterveil.search.constraints.bounds import ManyRules
from counterveil.search.constraints.projection import Snap
from counterveil.search.constraints.rules import Rules
from counterveil.search.images.ground import ImageGround
from counterveil.search.learnt import Learnt
from counterveil.search.options import (
    Guidance,
    Prefer,
    SearchChoices,
    SearchOptions,
    search_options,
)
from counterveil.search.paper.algorithm2 import TargetClasses, Weights, select_targets
from counterveil.search.paper.diverse import several_answers
from counterveil.search.paper.repair import margin_beyond
from counterveil.search.results.explanations import Explanations
from counterveil.search.results.judge import Judge, Request
from counterveil.search.results.wording import DecidedBy
from counterveil.tables import as_frame
from counterveil.terminal import Tick, progress_bar, silent
from counterveil.veil import Veil

MOST_ANSWERS = 1000  # to one query


class Explainer:
    """Explains the decisions of `model` with what `veil` knows of the people.

    - `veil`: a Veil, or the path of its file.
    - `model`: a torch module over the encoding, an estimator with predict_proba, the path of a
      model's file (`load_model`), a function from rows to class probabilities, or an adapter of
      `counterveil.models` with options. Without a model the veil's own private model,
      `veil.model()`, is the one that decides and is explained: answers are private in the training
      rows, end to end.
    - `guidance`: "model" consults the model that decides. "surrogate" never asks it and lets the
      private model stand in for it: answers are private end to end, too, and only expected to
      carry over.
    - `model_budget`: the declared privacy of the target model, if it was trained with any, to be
      added to the veil's.
    - `weights`: α, β, γ of Algorithm 2; by default the paper's for this family of data.
    - `device`: "cpu", "cuda", "mps" or "auto".
    - `chunk`: how many queries are searched together; it bounds the memory.
    """

    def __init__(
        self,
        veil: Veil | str | os.PathLike[str],
        model: Any = None,
        *,
        guidance: Guidance = "model",
        model_budget: ModelBudget | None = None,
        weights: Weights | None = None,
        device: str = "cpu",
        chunk: int = 8192,
    ) -> None:
        if chunk < 1:
            raise RequestError("chunk must be at least 1")
        self.chunk = chunk
        self.veil = veil if isinstance(veil, Veil) else Veil.load(veil)
        self.encoding = Encoding(self.veil.schema)
        if isinstance(model, (str, os.PathLike)):
            model = ModelFile(model)
        self.model, self.decided_by = _consulted_model(self.veil, model, guidance)
        self.statement = self.veil.statement
        if self.decided_by is not DecidedBy.MODEL:
            if model_budget is not None:
                raise RequestError("no target model is consulted: leave its budget out")
            self.statement = self.statement.guided_by_surrogate()
        elif model_budget is not None:
            self.statement = self.statement.composed_with(model_budget)
        self.guidance = guidance
        self._keywords = {  # of the same Explainer elsewhere
            "model": None if self.decided_by is DecidedBy.STAND_IN else model,
            "guidance": guidance,
            "model_budget": model_budget,
            "weights": weights,
            "device": device,
            "chunk": self.chunk,
        }
        self.weights = weights or Weights.of(self.veil.schema.family, guidance)
        self.device = pick_device(device)
        self._learnt = Learnt(self.veil, self.model, self.decided_by, self.weights, self.device)

    @property
    def _snap(self) -> Snap:
        return self._learnt.snap

    @property
    def _ground(self) -> Ground | ImageGround | None:
        return self._learnt.ground

    def warm_up(self, *, prefer: Prefer | None = None, progress: bool = True) -> None:
        """Learn what the search needs to know of the model: seconds, once.

        The first `explain` does it otherwise. `prefer`: which search; by default the usual one.
        The search for the nearest learns nothing of a model that has a gradient.
        """
        self._learnt.shows_progress = progress
        if self.options({"prefer": prefer}).prefer == "nearest":
            _ = self._learnt.paper_search
        else:
            _ = self._learnt.ground

    def options(self, chosen: SearchChoices) -> SearchOptions:
        """The options of the search that is asked for, checked."""
        population = self._learnt.population
        return search_options(
            self.guidance,
            chosen,
            can_believe=population is not None,
            can_act=isinstance(population, TreePopulation),
        )

    def explain(
        self,
        queries: Any,
        target: TargetClasses = None,
        *,
        k: int = 1,
        rules: ManyRules = None,
        immutable: Collection[str] = (),
        progress: bool = True,
        **choices: Unpack[Choices],
    ) -> Explanations:
        """`k` counterfactuals for every row of `queries`.

        - `queries`: a table in original units (any frame, a mapping of columns, a list of records),
          the path of its file, or one record as a mapping or a Series. The index of a pandas frame
          is that of the answers.
        - `target`: a class of the label set, what people call it, or how it is written ("0" for 0);
          or a list with one for each query. By default the class that the model finds most likely
          after the one it predicts.
        - `rules`: what may change, for all queries, or a list with one `Rules` for each.
        - `immutable`: features that must stay, besides those of schema and rules.
        - `choices`: single rules as keywords, such as max_changes=2, in the place of `rules`;
          `prefer` "believable" answers or the "nearest" ones (see docs/method.md); method,
          iterations, keep, polish, margin and seed of `SearchOptions`.

        It is enough that the target class wins. The one exception is the search for the nearest
        with guidance `surrogate`: it seeks a probability of .95 and does not polish answers.
        """
        rules, search = rules_in(choices, rules)
        options = self.options(search)
        if not 1 <= k <= MOST_ANSWERS:
            raise RequestError(f"k must be a whole number from 1 to {MOST_ANSWERS}")
        if isinstance(queries, pd.Series):
            queries = as_frame(queries)
        index = queries.index if isinstance(queries, pd.DataFrame) else None
        asked = Rows.of_frame(queries, self.encoding)
        before = self.model.ask(asked)
        batch = QueryBatch(
            asked.points,
            self._targets(before, target),
            constraints.box_around(self.encoding, asked.encoded, rules, immutable),
            constraints.column_costs(self.encoding, rules, len(asked)),
            constraints.max_changes_of(rules, len(asked)),
        )
        for_all = rules.held(self.veil.schema) if isinstance(rules, Rules) else ()
        fixed = tuple(sorted({*for_all, *immutable}))
        request = Request(
            asked, index, batch, before, rules, fixed, k, target is not None, options.iterations
        )
        self._learnt.shows_progress = progress
        return self._judge(request, self._search(batch, options, k, progress))

    def explain_files(
        self,
        queries: str | os.PathLike[str],
        out: str | os.PathLike[str],
        target: Category | None = None,
        **choices: Unpack[FileChoices],
    ) -> bulk.Summary:
        """Explain a table of any size: from Parquet files, to Parquet files in the folder `out`.

        Both are paths, or addresses such as s3://bucket/folder. The answers to a part of the table
        are a file as `Explanations.save` writes it; `query` is the number of the row in the whole
        table. A run that was cut off goes on when it is called again, and no row is explained
        twice. A model that was given as a path travels to workers as a file, any other one as a
        pickle. `choices`: see `FileChoices`; and those of `explain`, with one target and one
        `Rules` for all.
        """
        return bulk.explain_files(self, os.fspath(queries), os.fspath(out), target, choices)

    def decide(self, rows: Any) -> Array:
        """What the model that decides says of rows: the probability of each class.

        `rows`: a table in original units, or one record as a mapping. Returns (rows, classes), in
        the order of the label's classes.
        """
        if self.decided_by is DecidedBy.STAND_IN:
            raise RequestError("nobody asks the model that decides: guidance is 'surrogate'")
        return self.model.ask(Rows.of_frame(rows, self.encoding)).exp().double().numpy()

    def _targets(self, before: Tensor, target: TargetClasses) -> Tensor:
        """The number of the target class of each query, (queries,)."""
        label = self.veil.schema.label
        if isinstance(target, (str, int, float, np.generic)):
            target = label.class_called(target)
        elif target is not None:
            target = [label.class_called(name) for name in target]
        return select_targets(before, target, label.classes)

    @cached_property
    def _judge(self) -> Judge:
        return Judge(
            self.veil,
            self.encoding,
            self.model,
            self.decided_by,
            self.statement,
            assess=self._learnt.worth,
        )

    def answer_tensors(self, batch: QueryBatch, options: SearchOptions | None = None) -> Found:
        """Encoded answers to encoded queries, and which are accepted: no table is made."""
        options = options or SearchOptions()
        return self._learnt.paper_search(batch.to(self.device), options)

    def _search(self, batch: QueryBatch, options: SearchOptions, k: int, progress: bool) -> Found:
        """Rows of shape (queries, k, width), legal and within their boxes; which are accepted."""
        starts = range(0, len(batch), self.chunk)
        ticks = max(options.iterations, 1)  # of a chunk
        all_rows, all_accepted = [], []
        with progress_bar("searching", len(starts) * ticks, show=progress) as tick:
            for number, start in enumerate(starts):
                whole = len(starts) == 1
                part = batch if whole else batch.select(slice(start, start + self.chunk))
                shifted = _shifted(tick, number * options.iterations)
                rows, accepted = self._answers(part, options, k, shifted)
                rows = rows.cpu()
                if bool(self._snap.broken(rows.flatten(0, 1), part.repeated(k).box).any()):
                    raise InternalError("an answer broke a rule of the schema; please report this")
                all_rows.append(rows)
                all_accepted.append(accepted.cpu())
                tick((number + 1) * ticks, "")
        return torch.cat(all_rows), torch.cat(all_accepted)

    def _answers(self, batch: QueryBatch, options: SearchOptions, k: int, tick: Tick) -> Found:
        """Rows (queries, k, width) for some queries, on the device of the explainer.

        Queries whose rules tie features are answered apart from the others; nothing is sought where
        no row keeps the rules.
        """
        if batch.box.ties is None:
            return self._sought(batch, options, k, tick)
        there = batch.to(self.device)
        rows = self._snap(there.queries, there.box)[:, None].repeat(1, k, 1)
        accepted = torch.zeros(len(batch), k, dtype=torch.bool, device=self.device)
        for part in batch.box.ties.parts():
            if len(part):
                rows[part], accepted[part] = self._sought(batch.select(part), options, k, tick)
        return rows, accepted

    def _sought(self, batch: QueryBatch, options: SearchOptions, k: int, tick: Tick) -> Found:
        """The same. Who has no believable answer gets the nearest one that can be found.

        Where rules tie features, who has no nearest answer gets a believable one, too.
        """
        is_tied, has_population = batch.box.ties is not None, self._learnt.population is not None
        if options.prefer == "believable":
            search, other, may_fall_back = self._believable, self._nearest, True
        else:
            search, other = self._nearest, self._believable
            may_fall_back = is_tied and has_population and options.keep == "best"
        rows, accepted = search(batch, options, k, tick)
        if not may_fall_back or bool(accepted[:, 0].all()):
            return rows, accepted
        left = (~accepted[:, 0]).nonzero()[:, 0]
        found = other(batch.select(left.cpu()), options, k, silent)
        rows, accepted = rows.clone(), accepted.clone()
        rows[left], accepted[left] = found
        return rows, accepted

    def _nearest(self, batch: QueryBatch, options: SearchOptions, k: int, tick: Tick) -> Found:
        options, there = replace(options, prefer="nearest"), batch.to(self.device)
        return several_answers(self._learnt.paper_search, there, options, k, tick)

    def _believable(self, batch: QueryBatch, options: SearchOptions, k: int, tick: Tick) -> Found:
        learnt = self._learnt
        rows, accepted = (each.to(self.device) for each in learnt.believable(batch, options, k))
        if learnt.asked is not learnt.judge:  # a student stood in, and the model is asked once
            goals = batch.targets.to(self.device).repeat_interleave(k)
            agreed = margin_beyond(learnt.judge, options.margin, rows.flatten(0, 1), goals) >= 0
            accepted = accepted & agreed.unflatten(0, (-1, k))
        return rows, accepted


def _consulted_model(veil: Veil, model: Any, guidance: str) -> tuple[TargetModel, DecidedBy]:
    """What the search may consult, and whose decisions its answers are.

    That is f; or f~ where it decides itself; or f~ in place of f, which is then not even kept.
    """
    if guidance not in {"model", "surrogate"}:
        raise RequestError("guidance must be 'model' or 'surrogate'")
    own = isinstance(model, PrivateModel) and model.veil == veil.digest
    if guidance == "model" and isinstance(model, ModelFile):
        return model.load(veil.schema), DecidedBy.MODEL
    if guidance == "model" and model is not None and not own:
        return adapt(model, veil.schema), DecidedBy.MODEL
    if veil.surrogate is None:
        raise RequestError(
            f"this veil has no surrogate, no private model (mechanism {veil.statement.mechanism}); "
            "give a model, with guidance 'model', or release with mechanism functional"
        )
    if guidance == "surrogate":
        stand_in = TorchModel(veil.surrogate, veil.schema, outputs="logits")
        return stand_in, DecidedBy.STAND_IN
    decides = model if own else veil.model()
    return TorchModel(decides.logits, veil.schema, outputs="logits"), DecidedBy.PRIVATE_MODEL


def _shifted(tick: Tick, start: int) -> Tick:
    return lambda done, words="": tick(start + done, words)
