"""What an Explainer learns of its veil and its model: each thing once, when first needed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch

from counterveil.encoding import Array, Encoding
from counterveil.errors import CallLimitError, InputError
from counterveil.files import Place
from counterveil.models import Rows, TargetModel, TorchModel, distil
from counterveil.models.adapters import STUDENT_EPOCHS
from counterveil.networks import Amortiser
from counterveil.population import TreePopulation
from counterveil.search.actions.believable import believable_answers
from counterveil.search.actions.ground import Ground
from counterveil.search.batch import Found, QueryBatch
from counterveil.search.constraints.projection import Snap
from counterveil.search.images.beliefs import Drawn
from counterveil.search.images.descent import believable_images
from counterveil.search.images.ground import ImageGround
from counterveil.search.options import SearchOptions
from counterveil.search.paper import amortise
from counterveil.search.paper.algorithm2 import Weights
from counterveil.search.paper.pipeline import Pipeline
from counterveil.search.paper.repair import LabelledRows
from counterveil.search.results.quality import AnswerQuality
from counterveil.search.results.wording import DecidedBy
from counterveil.terminal import progress_bar, warn
from counterveil.veil import Veil

STUDENT_ROWS = 20_000  # that a model without a gradient classifies for its student
FEWEST_STUDENT_ROWS = 200


@dataclass(eq=False)
class Learnt:
    """All that a search needs besides its queries.

    `model` is moved to the `device`; `warm_file` and `warm_steps` are those of `Tuning`.
    """

    veil: Veil
    model: TargetModel
    decided_by: DecidedBy
    weights: Weights
    device: torch.device
    warm_file: Place | None = None
    warm_steps: int | None = None
    shows_progress: bool = False  # while something is learnt

    @cached_property
    def encoding(self) -> Encoding:
        return Encoding(self.veil.schema)

    @cached_property
    def snap(self) -> Snap:
        """The legal rows of the schema, on the device."""
        return Snap(self.encoding, self.device)

    @cached_property
    def population(self) -> TreePopulation | Drawn | None:
        """P~, where the veil has one that believable answers can be sought in."""
        if self.veil.record is None:
            return None
        found = self.veil.population()
        return found if isinstance(found, TreePopulation | Drawn) else None

    @cached_property
    def ground(self) -> Ground | ImageGround | None:
        """What believable answers are sought and judged on; None without a population."""
        if self.population is None:
            return None
        stands_in = self.decided_by is DecidedBy.STAND_IN
        if isinstance(self.population, TreePopulation):
            return Ground.of(self.population, self.asked, stands_in=stands_in)
        private = None
        if self.decided_by is DecidedBy.MODEL and self.veil.surrogate is not None:
            private = TorchModel(self.veil.surrogate, self.veil.schema, outputs="logits")
        return ImageGround.of(
            self.population,
            self.veil.schema.images[0],
            self.asked,
            self.guide,
            private=private,
            stands_in=stands_in,
        )

    def believable(self, batch: QueryBatch, options: SearchOptions, k: int) -> Found:
        """Rows (queries, k, width) on the CPU, the cheapest first; which the model accepts."""
        assert self.ground is not None, "there is a population to seek answers in"
        if isinstance(self.ground, ImageGround):
            return believable_images(self.ground, batch, options, k)
        return believable_answers(self.ground, self.asked, batch, options, k)

    @property
    def asked(self) -> TargetModel:
        """The model that is asked freely: where calls of the judge are counted, its student."""
        return self.judge if self.judge.calls_left is None else self.guide

    @cached_property
    def judge(self) -> TargetModel:
        """The model that decides, on the device."""
        return self.model.to(self.device)

    def worth(self, queries: Array, answers: Array, targets: Array) -> AnswerQuality | None:
        """What encoded answers to encoded queries are worth; None without a population."""
        if isinstance(self.ground, ImageGround):
            return self.ground.worth(queries, answers, targets)
        return (
            None
            if self.ground is None
            else AnswerQuality.of(self.ground, queries, answers, targets)
        )

    @cached_property
    def _taught(self) -> tuple[TargetModel, LabelledRows]:
        """A student of a model without a gradient, and the rows that it has learnt from."""
        count = _rows_for_a_student(self.model)
        rows = amortise.legal_rows(self.veil, self.snap, count, seed=0, device=self.device)
        answers = self.model.ask(Rows.of_points(rows, self.encoding))
        title = "learning a student of the model"
        with progress_bar(title, STUDENT_EPOCHS, show=self.shows_progress) as tick:
            student = distil(self.model, rows, answers, seed=0, tick=tick)
        return student, LabelledRows(rows, answers.argmax(dim=1))

    @property
    def guide(self) -> TargetModel:
        """The model whose gradient the search follows: f, or a student of it."""
        return self.judge if self.model.differentiable else self._taught[0]

    @cached_property
    def amortiser(self) -> Amortiser:
        """The amortised search: from the warm file, or learnt and kept there."""
        file, guide, name = self.warm_file, self.guide, ""
        if file is not None:
            name = amortise.fingerprint(self.veil, guide, self.snap)
            kept = amortise.load_amortiser(file, self.veil, name)
            if kept is not None:
                return kept.to(self.device)
        learnt = amortise.learn_amortiser(
            self.veil, guide, self.weights, self.snap, self.shows_progress, self.warm_steps
        )
        if file is not None:
            try:
                amortise.save_amortiser(file, learnt, name)
            except InputError as error:
                warn(f"what the search has learnt is not kept: {error}")
        return learnt.to(self.device)

    def pipeline(self, options: SearchOptions) -> Pipeline:
        """The search for the nearest, with what it has to learn for these options."""
        if options.method == "iterations":
            return self._pipeline
        return replace(self._pipeline, amortiser=self.amortiser)

    @cached_property
    def _pipeline(self) -> Pipeline:
        by_model = self.decided_by is not DecidedBy.STAND_IN
        may_try = not self.model.differentiable and self.model.calls_left is None
        return Pipeline(
            autoencoder=self.veil.autoencoder.to(self.device),
            prototypes=self.veil.prototypes.to(self.device),
            guide=self.guide,
            judge=self.judge,
            weights=self.weights,
            snap=self.snap,
            amortiser=None,
            may_repair=by_model,
            from_both_sides=by_model and self.veil.schema.family == "mixed",
            labelled_rows=self._taught[1] if may_try else None,
        )


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
