"""What all believable searches for images of one veil and model share.

A model has blind spots: images that it puts into a class and no other model would. What it still
puts there in all views, turned, slanted, stretched, moved or grained a little, is seldom one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from counterveil.encoding import Array
from counterveil.models import Rows, TargetModel
from counterveil.networks import AsImages, random_maps
from counterveil.population import FeaturePopulation
from counterveil.schema import Pixels
from counterveil.search.asking import Question, class_margin, go_on
from counterveil.search.constraints.projection import Snap
from counterveil.search.images.beliefs import Drawn, ImageBeliefs
from counterveil.search.images.painters import Painter, Redrawn, Retouched
from counterveil.search.results.quality import AnswerQuality

LEAST_UNIT = 1e-3  # log-odds
DRAWS_WELL = 0.5  # trust from which images of the generator are taken for answers
VIEWS = 16
TURN = 0.65  # of the largest changes that surrogates learn with
GRAIN = 0.1  # deviation of a pixel


class Views:
    """`VIEWS` views of images of one shape: public, and always the same."""

    def __init__(self, image: Pixels) -> None:
        self._as_images = AsImages(image)
        dice = torch.Generator().manual_seed(0)
        shape = [VIEWS, image.channels, image.height, image.breadth]
        maps = random_maps(VIEWS, dice, TURN)
        self._grids = nn.functional.affine_grid(maps, shape, align_corners=False)
        self._grain = GRAIN * torch.randn(VIEWS, image.width, generator=dice)

    def __call__(self, points: Tensor, number: int) -> Tensor:
        """One view of encoded images (rows, width), in the unit cube; a gradient flows through."""
        grid = self._grids[number % VIEWS].expand(len(points), -1, -1, -1)
        seen = nn.functional.grid_sample(self._as_images(points), grid, align_corners=False)
        return (seen.movedim(1, -1).flatten(1) + self._grain[number % VIEWS]).clamp(0, 1)


@dataclass(frozen=True)
class ImagePrices:
    """What an image costs. A unit of a model is the deviation of its log-odds over P~'s images."""

    effort: float = 1.4  # as much change as between two images of P~
    manner: float = 0.8  # a standard deviation of the manner, mean over its numbers
    doubt: float = 1.0  # a unit that a model is short of being sure
    sure: float = 1.0  # units beyond its boundary from which a model is sure
    surer: float = 1.0  # units more that are asked of it where P~ is not trusted at all
    implausible: float = 0.3  # a standard deviation below the floor
    floor: float = 0.3  # the share of P~'s own images of the class below it


UNASKED = ImagePrices(sure=1.5)  # where f~ stands in for f


@dataclass(frozen=True)
class Member:
    """A model with a gradient that should see the target class; its word counts by `weight`.

    `unit`: the standard deviation of its log-odds over P~'s images.
    """

    model: TargetModel
    unit: float
    weight: float = 1.0

    def margin(self, points: Tensor, targets: Tensor) -> Tensor:
        """By how many units it prefers the target class, (rows,); a gradient flows through."""
        go_on()
        rows = Rows.of_points(points.to(self.model.device), self.model.encoding)
        return class_margin(self.model.ask(rows).cpu(), targets) / self.unit


@dataclass(frozen=True)
class ImageGround:
    """What all searches of one veil and model share. All tensors are on the CPU.

    `judge`: the model that decides. `members`: the judge, or its student if it has no gradient, and
    perhaps the private model. `trust`: how far P~ is believed, from 0 to 1: the share of its images
    that the judge puts into P~'s class, beyond chance.
    """

    beliefs: ImageBeliefs
    judge: TargetModel
    members: tuple[Member, ...]
    trust: float
    painter: Painter
    views: Views
    prices: ImagePrices
    snap: Snap

    @classmethod
    def of(
        cls,
        population: Drawn,
        image: Pixels,
        judge: TargetModel,
        guide: TargetModel,
        *,
        private: TargetModel | None = None,
        stands_in: bool = False,
    ) -> ImageGround:
        """The ground for a model that decides, `judge`, and one that has a gradient, `guide`.

        `private`: the private model, unless it is the judge; `stands_in`: it is, for another model.
        """
        beliefs = ImageBeliefs(population, image)
        samples = beliefs.samples.flatten(0, 1)
        own = torch.arange(beliefs.classes).repeat_interleave(beliefs.count)
        said = Question(guide).log_proba(samples)
        chance = 1 / beliefs.classes
        right = float((said.argmax(dim=1) == own).float().mean())
        trust = max(0.0, (right - chance) / (1 - chance))
        members = [Member(guide, _unit(said), 1.0 if private is None else 2 - trust)]
        if private is not None:  # what its word counts less, that of the guide counts more
            members.append(Member(private, _unit(Question(private).log_proba(samples)), trust))
        painter: Painter = Retouched(image)
        if isinstance(population, FeaturePopulation) and population.generator is not None:
            painter = Redrawn(population.generator) if trust >= DRAWS_WELL else painter
        return cls(
            beliefs=beliefs,
            judge=judge,
            members=tuple(members),
            trust=trust,
            painter=painter,
            views=Views(image),
            prices=UNASKED if stands_in else ImagePrices(),
            snap=Snap(guide.encoding),
        )

    def doubt(self, points: Tensor, targets: Tensor, insist: float = 1.0) -> Tensor:
        """What images cost because members are not sure of the target class, (rows,).

        `insist`: a factor for the first of them, which has to be convinced.
        """
        sure, found = self.prices.sure + self.prices.surer * (1 - self.trust), []
        for place, each in enumerate(self.members):
            weight = each.weight if place else insist * each.weight
            found.append(weight * (sure - each.margin(points, targets)).clamp(min=0))
        return self.prices.doubt * torch.stack(found).sum(dim=0)

    def implausible(self, points: Tensor, targets: Tensor) -> Tensor:
        """What images cost because they are unlikely under P~, as far as it is trusted, (rows,)."""
        floor = self.beliefs.floor(self.prices.floor)[targets]
        shortfall = floor - self.beliefs.likelihood(points, targets)
        return self.trust * self.prices.implausible * shortfall.clamp(min=0)

    @cached_property
    @torch.no_grad()
    def cost_of_samples(self) -> Tensor:
        """What the images of P~ cost, but for how far they are from a query: (classes, count)."""
        found = []
        for goal, samples in enumerate(self.beliefs.samples):
            goals = torch.full((len(samples),), goal)
            found.append(self.doubt(samples, goals) + self.implausible(samples, goals))
        return torch.stack(found)

    @torch.no_grad()
    def quality(self, before: Array, after: Array, goals: Array) -> AnswerQuality:
        """The worth of encoded answers `after` to the queries `before`, (answers, width) both."""
        queries, rows = (torch.as_tensor(each, dtype=torch.float32) for each in (before, after))
        targets = torch.as_tensor(goals)
        effort = (rows - queries).abs().mean(dim=1)
        rank = self.beliefs.rank(self.beliefs.likelihood(rows, targets), targets)
        no_numbers = torch.full((len(rows), 1, 2), torch.nan)
        found = effort, rank, self._stability(rows, targets), no_numbers[:, :, 0], no_numbers
        return AnswerQuality(*(each.double().numpy() for each in found))

    def _stability(self, rows: Tensor, targets: Tensor) -> Tensor:
        """The share of all views in which members see the target class, by their weight."""
        models = [(self.judge, 1.0), *((each.model, each.weight) for each in self.members[1:])]
        agreed = torch.zeros(len(rows))
        for number in range(VIEWS):
            seen = self.views(rows, number)
            for model, weight in models:
                said = Question(model).log_proba(seen)
                agreed += weight * (said.argmax(dim=1) == targets)
        return agreed / (VIEWS * sum(weight for _, weight in models))


def _unit(log_proba: Tensor) -> float:
    """The standard deviation of log-odds, mean over the classes, of (rows, classes)."""
    goals = [torch.full((len(log_proba),), goal) for goal in range(log_proba.shape[1])]
    margins = torch.stack([class_margin(log_proba, goal) for goal in goals])
    return max(float(margins.std(dim=1).mean()), LEAST_UNIT)
