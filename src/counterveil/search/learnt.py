"""What an Explainer learns of its veil and its model: each thing once, when first needed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from counterveil.encoding import Array, Encoding
from counterveil.models import TargetModel, TorchModel
from counterveil.population import TreePopulation
from counterveil.search.actions.believable import believable_answers
from counterveil.search.actions.ground import Ground
from counterveil.search.batch import Found, QueryBatch
from counterveil.search.constraints.projection import Snap
from counterveil.search.images.beliefs import Drawn
from counterveil.search.images.descent import believable_images
from counterveil.search.images.ground import ImageGround
from counterveil.search.options import SearchOptions
from counterveil.search.paper.algorithm2 import Weights
from counterveil.search.paper.search import PaperSearch
from counterveil.search.paper.student import learn_student
from counterveil.search.results.wording import DecidedBy
from counterveil.search.results.worth import Worth
from counterveil.veil import Veil


@dataclass(eq=False)
class Learnt:
    """All that a search needs besides its queries.

    `model` is moved to the `device`.
    """

    veil: Veil
    model: TargetModel
    decided_by: DecidedBy
    weights: Weights
    device: torch.device
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

    def worth(self, queries: Array, answers: Array, targets: Array) -> Worth | None:
        """What encoded answers to encoded queries are worth; None without a population."""
        if isinstance(self.ground, ImageGround):
            return self.ground.worth(queries, answers, targets)
        return None if self.ground is None else Worth.of(self.ground, queries, answers, targets)

    @cached_property
    def guide(self) -> TargetModel:
        """The model whose gradient the search follows: f, or a student of it."""
        if self.model.differentiable:
            return self.judge
        return learn_student(self.veil, self.model, self.snap, show=self.shows_progress)

    @cached_property
    def paper_search(self) -> PaperSearch:
        """Algorithm 2, and what makes its results answers."""
        return PaperSearch(
            autoencoder=self.veil.autoencoder.to(self.device),
            prototypes=self.veil.prototypes.to(self.device),
            guide=self.guide,
            target_model=self.judge,
            weights=self.weights,
            snap=self.snap,
        )
