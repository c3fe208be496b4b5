"""What the searches of one veil and model are made of, each part made when it is first needed."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from counterveil.encoding import Array, Encoding
from counterveil.errors import CallLimitError, CounterveilWarning, ModelError, RequestError
from counterveil.hints import named
from counterveil.models import ModelFile, Rows, TargetModel, TorchModel, adapt
from counterveil.population import MixedPopulation
from counterveil.population.shares import SureShares
from counterveil.private_model import PrivateModel
from counterveil.search.actions.costs import Context
from counterveil.search.actions.menu import menu_of
from counterveil.search.actions.search import answers, believable_context
from counterveil.search.asking import Question
from counterveil.search.batch import Answers, QueryBatch
from counterveil.search.constraints.projection import Snap
from counterveil.search.images.beliefs import Drawn
from counterveil.search.images.descent import believable_images
from counterveil.search.images.ground import ImageGround
from counterveil.search.options import SearchOptions
from counterveil.search.paper.algorithm2 import Weights
from counterveil.search.paper.search import PaperSearch
from counterveil.search.paper.student import learn_student
from counterveil.search.results.quality import AnswerQuality
from counterveil.search.results.wording import DecidedBy
from counterveil.terminal import Tick, progress_bar, silent
from counterveil.veil import Veil

COMPARED = 500  # rows of P~ by which a model's columns are compared
ALIKE = 0.2  # correlation with the private model: below it both say different things


@dataclass(eq=False)
class SearchComponents:
    """All that a search needs besides its queries. `model` is moved to the `device`."""

    veil: Veil
    model: TargetModel
    decided_by: DecidedBy
    weights: Weights
    device: torch.device
    shows_progress: bool = False  # while something is learnt

    def search(
        self, batch: QueryBatch, options: SearchOptions, k: int, tick: Tick = silent
    ) -> Answers:
        """`k` answers to each query, by the search that the options ask for.

        `tick` counts queries; of Algorithm 2 it counts iterations.
        """
        batch = batch.to(self.device)
        if options.method == "actions":
            return self._by_actions(batch, options, k, tick)
        if options.prefer == "believable":
            return self._believable_images(batch, options, k)
        return Answers.of(*self.paper_search.several(batch, options, k, tick))

    def _believable_images(self, batch: QueryBatch, options: SearchOptions, k: int) -> Answers:
        """Believable images; whoever has none gets the nearest one."""
        ground, here = self.believable, batch.to(torch.device("cpu"))
        assert isinstance(ground, ImageGround), "mixed tables are searched by actions"
        found = Answers.of(
            *(each.to(self.device) for each in believable_images(ground, here, options, k))
        )
        left = (~found.accepted[:, 0]).nonzero()[:, 0]
        if len(left):
            nearest = options.model_copy(update={"prefer": "nearest"})
            others = self.paper_search.several(batch.select(left), nearest, k)
            found.put(left, Answers.of(*others))
        return found

    def _by_actions(self, batch: QueryBatch, options: SearchOptions, k: int, tick: Tick) -> Answers:
        """By sets of actions; with a soft margin a class that only wins is enough in the end."""
        context = self.nearest if options.prefer == "nearest" else self.believable
        assert isinstance(context, Context), "believable answers need a population"
        question = Question(self.queryable_model, options.margin)
        if question.model is not self.target_model:
            batch = replace(batch, before=None)
        found = answers(context, question, batch, self.projection, k, tick)
        left = (~found.accepted[:, 0]).nonzero()[:, 0]
        if options.soft_margin and options.margin > 0 and len(left):
            question = replace(question, least=0.0)
            again = answers(context, question, batch.select(left), self.projection, k)
            found.put(left, again)
        if self.queryable_model is not self.target_model:  # a student stood in: ask the model once
            question = Question(self.target_model, options.margin)
            goals = batch.targets.repeat_interleave(k)
            agreed = question.margin(found.rows.flatten(0, 1), goals) >= 0
            found.accepted &= agreed.unflatten(0, (-1, k))
        return found

    @cached_property
    def encoding(self) -> Encoding:
        return Encoding(self.veil.schema)

    @cached_property
    def projection(self) -> Snap:
        """The legal rows of the schema, on the device."""
        return Snap(self.encoding, self.device)

    @cached_property
    def target_model(self) -> TargetModel:
        return self.model.to(self.device)

    @property
    def queryable_model(self) -> TargetModel:
        """The model that may be asked freely: where calls are counted, a student of it."""
        return self.target_model if self.target_model.calls_left is None else self.guide

    @cached_property
    def guide(self) -> TargetModel:
        """The model whose gradient Algorithm 2 follows: the target model, or a student of it."""
        if self.model.differentiable:
            return self.target_model
        return learn_student(self.veil, self.model, self.projection, show=self.shows_progress)

    @cached_property
    def population(self) -> MixedPopulation | Drawn | None:
        """P~, where the veil has one that believable answers can be sought in."""
        if self.veil.record is None:
            return None
        found = self.veil.population()
        return found if isinstance(found, MixedPopulation | Drawn) else None

    @cached_property
    def nearest(self) -> Context:
        """What the nearest answers of a mixed table are sought with. Nothing is learnt."""
        known = self.population if isinstance(self.population, MixedPopulation) else None
        kinks = self.queryable_model.kinks
        return Context(self.encoding, menu_of(self.encoding, known, self.device, kinks=kinks), None)

    @cached_property
    def believable(self) -> Context | ImageGround | None:
        """What believable answers are sought and judged with; None without a population."""
        if self.population is None:
            return None
        stands_in = self.decided_by is DecidedBy.STAND_IN
        if isinstance(self.population, MixedPopulation):
            model = self.queryable_model
            with progress_bar("learning how such models decide", 1, show=self.shows_progress):
                return believable_context(self.population, model, self.device, stands_in=stands_in)
        private = None
        if self.decided_by is DecidedBy.MODEL and self.veil.surrogate is not None:
            private = TorchModel(self.veil.surrogate, self.veil.schema, outputs="logits")
        return ImageGround.of(
            self.population,
            self.veil.schema.images[0],
            self.queryable_model,
            self.guide,
            private=private,
            stands_in=stands_in,
        )

    def warn_of_column_order(self) -> None:
        """Say how a model without names of columns gets them, unless the private model agrees.

        Both are asked about a few rows of P~, at even shares of the classes, if the veil is not
        mostly noise.
        """
        if not self.target_model.goes_by_place:
            return
        people, contradicts = self.population, ""
        with suppress(ModelError):  # which the first query tells
            if (
                self.veil.surrogate is not None
                and isinstance(people, MixedPopulation)
                and SureShares(people).veil_knows
            ):
                contradicts = self._contradiction(people)
                if not contradicts:
                    return
            columns = self.encoding.schema.columns
            encoded = ", encoded," if self.target_model.goes_by_place == "encoding" else ""
            warnings.warn(
                f"the model was fitted without column names{contradicts}: it gets its columns"
                f"{encoded} in the schema's order, {named(columns)}; if it was fitted in another "
                f"one{' or on other numbers' if encoded else ''}, fit it on a frame with names",
                CounterveilWarning,
                stacklevel=3,
            )

    def _contradiction(self, population: MixedPopulation) -> str:
        """How the model contradicts the private model on rows of P~; "" where it does not."""
        model, count = self.target_model, COMPARED
        even = np.full(model.classes, 1 / model.classes)
        points, _ = population.sample(count, np.random.default_rng(0), even)
        asked = Rows.of_array(points.astype(np.float32), model.encoding, without_noise=True)
        ours = model.ask(asked).exp().double().numpy()
        theirs = self.veil.model("even").of_encoded(points)
        ranks = (each.argsort(axis=0).argsort(axis=0) for each in (ours, theirs))
        varies = (np.ptp(ours, axis=0) > 0) & (np.ptp(theirs, axis=0) > 0)
        pairs = zip(*(each.T for each in ranks), varies, strict=True)
        if np.mean([varied and np.corrcoef(*pair)[0, 1] for *pair, varied in pairs]) >= ALIKE:
            return ""
        same = int((ours.argmax(axis=1) == theirs.argmax(axis=1)).sum())
        return f", and contradicts what the veil knows (they agree on {same} of {count} rows)"

    @cached_property
    def paper_search(self) -> PaperSearch:
        """Algorithm 2, and what makes its results answers."""
        return PaperSearch(
            autoencoder=self.veil.autoencoder.to(self.device),
            prototypes=self.veil.prototypes.to(self.device),
            guide=self.guide,
            target_model=self.target_model,
            asked=self.queryable_model,
            weights=self.weights,
            snap=self.projection,
        )

    def quality(self, queries: Array, answers: Array, targets: Array) -> AnswerQuality | None:
        """The quality of encoded answers to encoded queries; None without a population.

        Nor where the model cannot take rows of that: answers do not fail for it.
        """
        try:
            known = self.believable
        except CallLimitError:
            raise
        except ModelError:
            return None
        if isinstance(known, ImageGround):
            return known.quality(queries, answers, targets)
        return None if known is None else AnswerQuality.of(known, queries, answers, targets)


def consulted_model(
    veil: Veil, model: Any, guidance: str
) -> tuple[TargetModel, DecidedBy, dict[str, str]]:
    """What the search may consult, whose decisions its answers are, and how certificates name it.

    That is f; or f~ where it decides itself; or f~ in place of f, which is then not even kept.
    """
    if guidance not in {"model", "surrogate"}:
        raise RequestError("guidance must be 'model' or 'surrogate'")
    own = isinstance(model, PrivateModel) and model.veil == veil.digest
    if guidance == "model" and isinstance(model, ModelFile):
        loaded = model.load(veil.schema)
        return loaded, DecidedBy.MODEL, {"kind": "file", "sha256": model.digest}
    if guidance == "model" and model is not None and not own:
        return adapt(model, veil.schema), DecidedBy.MODEL, {"kind": "in memory"}
    if veil.surrogate is None:
        raise RequestError(
            f"this veil has no surrogate, no private model (mechanism {veil.statement.mechanism}); "
            "give a model, with guidance 'model', or release with mechanism functional"
        )
    if guidance == "surrogate":
        stand_in = TorchModel(veil.surrogate, veil.schema, outputs="logits")
        return stand_in, DecidedBy.STAND_IN, {"kind": DecidedBy.STAND_IN.value}
    decides = veil.model(model.classes if own else None)  # by the veil's own weights
    named = {"kind": DecidedBy.PRIVATE_MODEL.value, "classes": decides.classes}
    private_model = TorchModel(decides.logits, veil.schema, outputs="logits")
    return private_model, DecidedBy.PRIVATE_MODEL, named
