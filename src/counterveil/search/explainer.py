"""The Explainer: encode -> choose targets -> search -> the model decides on the rows as given."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypedDict, Unpack

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.encoding import Array, Encoding
from counterveil.errors import CallLimitError, InputError, InternalError, RequestError
from counterveil.models import Rows, TargetModel, TorchModel, adapt, distil
from counterveil.models.adapters import STUDENT_EPOCHS
from counterveil.networks import Amortiser, pick_device
from counterveil.population import TreePopulation
from counterveil.privacy import ModelBudget
from counterveil.private_model import PrivateModel
from counterveil.search import amortise, constraints, pipeline
from counterveil.search.algorithm2 import TargetClasses, Weights, select_targets
from counterveil.search.believable import Ground, believable_answers
from counterveil.search.constraints import ManyRules
from counterveil.search.diverse import several_answers
from counterveil.search.explanations import NO_FURTHER, Explanations, Status
from counterveil.search.pipeline import Found, Pipeline, QueryBatch, SearchOptions
from counterveil.search.repair import LabelledRows, margin_beyond
from counterveil.search.rules import Rules
from counterveil.search.snap import Snap
from counterveil.search.wording import DecidedBy
from counterveil.terminal import Tick, progress_bar, warn
from counterveil.veil import Veil

STUDENT_ROWS = 20_000  # that a model without a gradient classifies for its student
FEWEST_STUDENT_ROWS = 200
MOST_ANSWERS = 1000  # to one query
MOST_WARM_STEPS = 1_000_000


class Tuning(TypedDict, total=False):
    """How an Explainer works; the answers stay the same but for rounding."""

    warm_file: str | os.PathLike[str] | None  # keeps the amortised search; or a folder for many
    warm_steps: int | None  # that it learns at most
    chunk: int  # queries that are searched together; it bounds the memory


@dataclass(frozen=True)
class _Request:
    """What was asked: k answers to each of the queries `asked`."""

    asked: Rows
    index: pd.Index[Any] | None  # of the caller's table
    batch: QueryBatch  # the queries as the search takes them
    before: Tensor  # log-probabilities of the queries by the model, (queries, classes)
    rules: ManyRules
    fixed: tuple[str, ...]  # features held for every query besides those of the schema
    k: int
    target_was_named: bool  # by the caller


class Explainer:
    """Explains the decisions of `model` with the prototypes of `veil`.

    `veil`: a Veil, or the path of its file. `model`: a torch module over the encoding, an estimator
    with predict_proba, an ONNX file, a function from rows to class probabilities, or an adapter of
    `counterveil.models` with options. Without a model the veil's own private model, `veil.model()`,
    is the one that decides and is explained: answers are private in the training rows, end to end.
    `guidance`: "model" consults the model that decides; "surrogate" never asks it and lets the
    private model stand in for it: answers are private end to end, too, and only expected to carry
    over. `model_budget`: the declared privacy of the target model, if it
    was trained with any, to be added to the veil's. `weights`: α, β, γ of Algorithm 2; by default
    the paper's for this family of data. `device`: "cpu", "cuda", "mps" or "auto". `tuning`: see
    `Tuning`.
    """

    def __init__(
        self,
        veil: Veil | str | os.PathLike[str],
        model: Any = None,
        *,
        guidance: pipeline.Guidance = "model",
        model_budget: ModelBudget | None = None,
        weights: Weights | None = None,
        device: str = "cpu",
        **tuning: Unpack[Tuning],
    ) -> None:
        self.chunk = tuning.pop("chunk", 8192)
        self._warm_file = tuning.pop("warm_file", None)
        self._warm_steps = tuning.pop("warm_steps", None)
        if tuning:
            raise TypeError(f"Explainer has no keyword {', '.join(tuning)}")
        steps = 1 if self._warm_steps is None else self._warm_steps
        if self.chunk < 1 or not 1 <= steps <= MOST_WARM_STEPS:
            raise RequestError(
                f"chunk must be at least 1, and warm_steps from 1 to {MOST_WARM_STEPS}"
            )
        if self._warm_file is not None:
            amortise.check_warm_file(self._warm_file)
        self.veil = veil if isinstance(veil, Veil) else Veil.load(veil)
        self.encoding = Encoding(self.veil.schema)
        self.model, self.decided_by = _consulted_model(self.veil, model, guidance)
        self.statement = self.veil.statement
        if self.decided_by is not DecidedBy.MODEL:
            if model_budget is not None:
                raise RequestError("no target model is consulted: leave its budget out")
            self.statement = self.statement.guided_by_surrogate()
        elif model_budget is not None:
            self.statement = self.statement.composed_with(model_budget)
        self.guidance = guidance
        self.weights = weights or Weights.of(self.veil.schema.family, guidance)
        self.device = pick_device(device)
        self._snap = Snap(self.encoding, self.device)
        self._shows_progress = False  # while something is learnt
        self._guide: TargetModel | None = None
        self._amortiser: Amortiser | None = None
        self._ready: Pipeline | None = None
        self._labelled_rows: LabelledRows | None = None

    def warm_up(self, *, prefer: pipeline.Prefer | None = None, progress: bool = True) -> None:
        """Learn what the search needs to know of the model: seconds, once.

        The first `explain` does it otherwise. `prefer`: which search; by default the usual one.
        What the search for the nearest learns is read from the `warm_file`, or kept there for the
        next time; a file that cannot be written only costs a warning.
        """
        self._shows_progress = progress
        chosen: pipeline.SearchChoices = {"prefer": prefer}
        known = self._population is not None
        options = pipeline.search_options(self.guidance, chosen, has_population=known)
        if options.prefer == "nearest":
            self._learn_to_propose()
        else:
            _ = self._ground

    def _learn_to_propose(self) -> None:
        """The amortised search: from the warm file, or learnt and kept there."""
        if self._amortiser is not None:
            return
        guide = self._guide_of_the_search()
        file, name = self._warm_file, ""
        if file is not None:
            name = amortise.fingerprint(self.veil, guide, self._snap)
            self._amortiser = amortise.load_amortiser(file, self.veil, name)
        if self._amortiser is None:
            learnt = amortise.learn_amortiser(
                self.veil,
                guide,
                self.weights,
                self._snap,
                self._shows_progress,
                self._warm_steps,
            )
            if file is not None:
                try:
                    amortise.save_amortiser(file, learnt, name)
                except InputError as error:
                    warn(f"what the search has learnt is not kept: {error}")
            self._amortiser = learnt
        self._amortiser = self._amortiser.to(self.device)

    def explain(
        self,
        queries: Any,
        target: TargetClasses = None,
        *,
        k: int = 1,
        rules: ManyRules = None,
        immutable: Collection[str] = (),
        progress: bool = True,
        **search: Unpack[pipeline.SearchChoices],
    ) -> Explanations:
        """`k` counterfactuals for every row of `queries`.

        `queries`: a table in original units, or one record as a mapping. `target`: a class of the
        label set, or a list with one for each query; by default the class that the model finds most
        likely after the one it predicts. `rules`: what may change, for all queries or a list with
        one `Rules` for each; `immutable`: features that must stay, besides those of schema and
        rules. `search`: `prefer` "believable" answers (see docs/search.md) or the "nearest" ones;
        method, iterations, keep, polish, margin and seed of `SearchOptions`; with
        guidance `model` winning is enough and answers are polished, with guidance `surrogate` a
        probability of .95 is sought.
        """
        options = pipeline.search_options(
            self.guidance, search, has_population=self._population is not None
        )
        if not 1 <= k <= MOST_ANSWERS:
            raise RequestError(f"k must be a whole number from 1 to {MOST_ANSWERS}")
        index = queries.index if isinstance(queries, pd.DataFrame) else None
        asked = Rows.of_frame(self.encoding.pick(queries), self.encoding)
        before = self.model.ask(asked)
        batch = QueryBatch(
            asked.points,
            select_targets(before, target, self.veil.schema.label.classes),
            constraints.box_around(self.encoding, asked.encoded, rules, immutable),
            constraints.column_costs(self.encoding, rules, len(asked)),
            constraints.max_changes_of(rules, len(asked)),
        )
        for_all = rules.immutable if isinstance(rules, Rules) else ()
        fixed = tuple(sorted({*for_all, *immutable}))
        request = _Request(asked, index, batch, before, rules, fixed, k, target is not None)
        self._shows_progress = progress
        return self._judge(request, self._search(batch, options, k, progress), options.iterations)

    def answer_tensors(self, batch: QueryBatch, options: SearchOptions | None = None) -> Found:
        """Encoded answers to encoded queries, and which are accepted: no table is made."""
        options = options or SearchOptions()
        return self._pipeline(options)(batch.to(self.device), options)

    def _search(self, batch: QueryBatch, options: SearchOptions, k: int, progress: bool) -> Found:
        """Rows of shape (queries, k, width), legal and within their boxes; which are accepted."""
        starts = range(0, len(batch), self.chunk)
        ticks = max(options.iterations, 1)  # of a chunk
        all_rows, all_accepted = [], []
        with progress_bar("searching", len(starts) * ticks, show=progress) as tick:
            for number, start in enumerate(starts):
                part = batch.select(slice(start, start + self.chunk)).to(self.device)
                shifted = _shifted(tick, number * options.iterations)
                rows, accepted = self._answers(part, options, k, shifted)
                if bool(self._snap.broken(rows.flatten(0, 1), part.repeated(k).box).any()):
                    raise InternalError("an answer broke a rule of the schema; please report this")
                all_rows.append(rows.cpu())
                all_accepted.append(accepted.cpu())
                tick((number + 1) * ticks, "")
        return torch.cat(all_rows), torch.cat(all_accepted)

    def _answers(self, batch: QueryBatch, options: SearchOptions, k: int, tick: Tick) -> Found:
        """Rows (queries, k, width) for some queries.

        Who has no believable answer gets the nearest one that can be found.
        """
        if options.prefer == "nearest":
            return several_answers(self._pipeline(options), batch, options, k, tick)
        judge = self.model.to(self.device)
        counted = self.model.calls_left is not None
        asked = self._guide_of_the_search() if counted else judge
        rows, accepted = believable_answers(self._ground_of_answers(), asked, batch, options, k)
        if counted:  # the guide stood in, and the model is asked once
            goals = batch.targets.repeat_interleave(k)
            agreed = margin_beyond(judge, options.margin, rows.flatten(0, 1), goals) >= 0
            accepted &= agreed.unflatten(0, (-1, k))
        left = (~accepted[:, 0]).nonzero()[:, 0]
        if len(left):
            nearest = replace(options, prefer="nearest")
            found = several_answers(self._pipeline(nearest), batch.select(left), nearest, k)
            rows, accepted = rows.clone(), accepted.clone()
            rows[left], accepted[left] = found
        return rows, accepted

    @cached_property
    def _population(self) -> TreePopulation | None:
        """P~, where the veil has one that believable answers can be sought in."""
        if self.veil.record is None or self.veil.schema.family != "mixed":
            return None
        found = self.veil.population()
        return found if isinstance(found, TreePopulation) else None

    @cached_property
    def _ground(self) -> Ground | None:
        """What believable answers are sought on; learnt when first needed."""
        if self._population is None:
            return None
        stand_in = self.decided_by is DecidedBy.STAND_IN
        model = self._guide_of_the_search() if self.model.calls_left is not None else self.model
        return Ground.of(self._population, self._snap, model, stands_in=stand_in)

    def _ground_of_answers(self) -> Ground:
        if self._ground is None:
            raise InternalError("there is no population to seek answers in")
        return self._ground

    def _judge(self, request: _Request, found: Found, iterations: int) -> Explanations:
        """The model has the last word, on the rows (queries, k, width) as they are given out."""
        rows, accepted = found
        k, rules = request.k, request.rules
        frame, points = request.asked.frame, request.asked.encoded
        if k > 1:  # one row an answer
            query_of = np.repeat(np.arange(len(frame)), k)
            frame, points = frame.loc[query_of].reset_index(drop=True), points[query_of]
            if rules is not None and not isinstance(rules, Rules):
                rules = [rules[query] for query in query_of.tolist()]
        before = request.before.repeat_interleave(k, dim=0)
        targets = request.batch.targets.repeat_interleave(k)
        predicted = before.argmax(dim=1)
        already = predicted == targets
        if self.guidance == "surrogate" and request.target_was_named:
            # f~ does not know what was decided: a class that was asked for is always sought.
            already = torch.zeros_like(already)
        wanted = accepted.flatten() & ~already
        tried = np.where(wanted.numpy()[:, None], rows.flatten(0, 1).double().numpy(), points)
        answers = constraints.decode_answers(self.encoding, frame, points, tried, rules)
        given_out = Rows.of_frame(answers, self.encoding)
        encoded, after = given_out.encoded, self.model.ask(given_out)
        valid = (after.argmax(dim=1) == targets) & wanted
        lost = (wanted & ~valid).numpy()
        if lost.any():
            answers = answers.where(pd.Series(~lost), frame)
            encoded[lost] = points[lost]
        moved = np.abs(encoded - points)
        block_starts = [block.start for block in self.encoding.blocks]
        log_proba = torch.where(valid[:, None], after, before)
        worth = self._worth(points, encoded, targets)
        ways = [already.numpy(), valid.numpy()]
        return Explanations(
            schema=self.veil.schema,
            statement=self.statement,
            queries=frame,
            rows=answers,
            status=np.select(ways, [Status.ALREADY, Status.FOUND], Status.NOT_FOUND),
            predicted=predicted.numpy(),
            target=targets.numpy(),
            probability=log_proba.exp().gather(1, targets[:, None])[:, 0].double().numpy(),
            distance=np.sqrt((moved**2).sum(axis=1)),
            **worth,
            changed=(np.maximum.reduceat(moved, block_starts, axis=1) > 0).sum(axis=1),
            iterations=iterations,
            k=k,
            reason=_reasons(request, valid.numpy(), already.numpy(), self.decided_by),
            fixed=request.fixed,
            signer=self.veil.signer,
            index=request.index,
            decided_by=self.decided_by,
        )

    def _worth(self, points: Array, encoded: Array, targets: Tensor) -> dict[str, Array]:
        """Effort, plausibility and stability of answers; nothing where there is no population."""
        if self._ground is None:
            return {}
        before, after = (torch.as_tensor(each, dtype=torch.float32) for each in (points, encoded))
        beliefs, committee = self._ground.beliefs, self._ground.committee
        effort, rank = beliefs.judged(before, after, targets)
        agree = (committee.margins(beliefs.codes(after), targets) > 0).float().mean(dim=1)
        standing = beliefs.standing(after, targets)
        found = {"effort": effort, "plausibility": rank, "stability": agree, "standing": standing}
        return {name: each.double().numpy() for name, each in found.items()}

    def _guide_of_the_search(self) -> TargetModel:
        """The model whose gradient the search follows: f, or a student of it."""
        if self._guide is None and self.model.differentiable:
            self._guide = self.model.to(self.device)
        if self._guide is None:
            count = _rows_for_a_student(self.model)
            rows = amortise.legal_rows(self.veil, self._snap, count, seed=0, device=self.device)
            answers = self.model.ask(Rows.of_points(rows, self.encoding))
            self._labelled_rows = LabelledRows(rows, answers.argmax(dim=1))
            title = "learning a student of the model"
            with progress_bar(title, STUDENT_EPOCHS, show=self._shows_progress) as tick:
                self._guide = distil(self.model, rows, answers, seed=0, tick=tick)
        return self._guide

    def _pipeline(self, options: SearchOptions) -> Pipeline:
        """The search for the nearest, with what it has to learn for these options."""
        if options.method == "amortised":
            self._learn_to_propose()
        if self._ready is None or self._ready.amortiser is not self._amortiser:
            by_model = self.guidance == "model"
            self._ready = Pipeline(
                autoencoder=self.veil.autoencoder.to(self.device),
                prototypes=self.veil.prototypes.to(self.device),
                guide=self._guide_of_the_search(),
                judge=self.model.to(self.device),
                weights=self.weights,
                snap=self._snap,
                amortiser=self._amortiser,
                may_repair=by_model,
                polish_both_starts=by_model and self.veil.schema.family == "mixed",
                labelled_rows=self._labelled_rows if self.model.calls_left is None else None,
            )
        return self._ready


def _consulted_model(veil: Veil, model: Any, guidance: str) -> tuple[TargetModel, DecidedBy]:
    """What the search may consult, and whose decisions its answers are.

    That is f; or f~ where it decides itself; or f~ in place of f, which is then not even kept.
    """
    if guidance not in {"model", "surrogate"}:
        raise RequestError("guidance must be 'model' or 'surrogate'")
    own = isinstance(model, PrivateModel) and model.veil == veil.digest
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


def _rows_for_a_student(model: TargetModel) -> int:
    """How many rows a student may learn from; where calls are counted, half are for answers."""
    left, batch = model.calls_left, model.batch
    if left is None:
        return STUDENT_ROWS
    rows = STUDENT_ROWS * min(1, left // 2) if batch is None else batch * (left // 2)
    if rows < FEWEST_STUDENT_ROWS:
        raise CallLimitError(
            f"{left} calls of at most {batch} rows are too few to learn how the model answers; "
            "allow more calls or larger batches"
        )
    return min(STUDENT_ROWS, rows)


def _reasons(request: _Request, valid: Array, already: Array, decided_by: DecidedBy) -> Array:
    """Why there is no answer, for each that is missing, (queries · k,); "" for all others."""
    batch, k, asked = request.batch, request.k, decided_by.asked
    reasons = np.full(len(valid), f"no row within the rules convinced {asked}", dtype=object)
    if batch.max_changes is not None:
        for number, most in enumerate(batch.max_changes.tolist()):
            if most < constraints.ANY_NUMBER:
                said = f"no row with at most {most} changes convinced {asked}"
                reasons[number * k : (number + 1) * k] = said
    nothing_may_change = (batch.box.upper <= batch.box.lower).all(dim=1).numpy()
    reasons[nothing_may_change.repeat(k)] = "the rules leave nothing that may change"
    has_first = valid.reshape(-1, k)[:, :1].repeat(k, axis=1)
    reasons[(has_first & (np.arange(k) > 0)).ravel()] = NO_FURTHER
    reasons[valid | already] = ""
    return reasons


def _shifted(tick: Tick, start: int) -> Tick:
    return lambda done, words="": tick(start + done, words)
