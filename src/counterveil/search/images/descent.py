"""Believable answers for images: like the target class, in the manner of the query.

An image x that f accepts costs

    J(x) = effort·|x − query| + manner·|m(x) − m(query)| + implausible·shortfall(x) + doubt(x)

- |x − query|: mean absolute change of a pixel, times the user's costs; the unit is the mean change
  between two images of P~;
- m: the manner, that is place, slant, thickness and sharpness (`beliefs`);
- shortfall: how far the likelihood of x in the target class under P~ is below a floor (`beliefs`);
- doubt: how far f is from being sure of the target class, and the private model with it, when they
  look at x turned, slanted, moved and grained a little (`ground.Views`); in units of each model.

What P~ says counts as far as f puts P~'s images into the classes that P~ gives them (`trust`).

Images come from a painter (`painters`): the generator of P~ where there is one that can be trusted,
otherwise smooth changes of the query. The search starts from several of P~'s images that are cheap
for the query, follows the gradient of J in the painter's numbers, and goes on from the best.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from counterveil.search.asking import Question
from counterveil.search.batch import Found, QueryBatch, cheapest
from counterveil.search.images.beliefs import NUMBERS
from counterveil.search.images.ground import ImageGround
from counterveil.search.images.painters import Redrawn
from counterveil.search.options import SearchOptions

STARTS, MOST_STARTS = 4, 64  # of a query
FIRST, REST = 15, 60  # steps of all starts, and further ones of the best
JUDGED = 4  # views by which finished images are compared
INSIST = (4.0, 16.0)  # factors on the doubt of f where it accepts nothing, one after the other
ROWS_AT_A_TIME = 1024  # images that are painted together
APART = 0.2  # of the effort: two answers to a query differ by so much


class Tried(NamedTuple):
    """Images of each query, all of the shape (queries, images, …).

    `cost`: J. `accepted`: which of them f accepts.
    """

    strokes: Tensor
    rows: Tensor
    cost: Tensor
    accepted: Tensor


@dataclass(frozen=True)
class ImageSearch:
    """The search for a batch of queries.

    `least`: the probability of the target class that f must give; at 0 it only has to win.
    """

    ground: ImageGround
    batch: QueryBatch
    least: float = 0.0

    def __call__(self, k: int, seed: int) -> Found:
        """Rows of shape (queries, k, width), the cheapest first, and which of them f accepts."""
        everyone = torch.arange(len(self.batch))[:, None]
        first = self._judged(self._descended(self._starts(k, seed), FIRST))
        best = first.strokes[everyone, self._different(first.rows, first.cost, k)[0]]
        pairs = zip(first, self._judged(self._descended(best, REST)), strict=True)
        found = Tried(*(torch.cat(pair, dim=1) for pair in pairs))
        for insist in INSIST:
            left = (~found.accepted.any(dim=1)).nonzero()[:, 0]
            if not len(left):
                break
            part = replace(self, batch=self.batch.select(left))
            strokes = part._descended(best[left], REST, insist)
            best[left] = strokes
            for old, new in zip(found, part._judged(strokes), strict=True):
                old[left, -strokes.shape[1] :] = new
        cost = torch.where(found.accepted, found.cost, torch.inf)
        place, there = self._different(found.rows, cost, k)
        rows = found.rows[everyone, place]
        missing = k - rows.shape[1]
        rows = torch.cat([rows, rows[:, :1].expand(-1, missing, -1)], dim=1)
        return rows, nn.functional.pad(there, (0, missing))

    def _starts(self, k: int, seed: int) -> Tensor:
        painter, latent = self.ground.painter, self.ground.beliefs.latent
        if isinstance(painter, Redrawn):
            assert latent is not None, "a generator has latent numbers"
            goals = self.batch.targets[:, None]
            return painter.starts(latent[goals, self._cheap_samples(starts_for(k))])
        return painter.starts(len(self.batch), min(k, MOST_STARTS), seed)

    @torch.no_grad()
    def _cheap_samples(self, count: int) -> Tensor:
        """Which of P~'s images of its target class are the cheapest for each query: their places.

        (queries, count), or fewer where there are fewer images.
        """
        beliefs, prices, batch = self.ground.beliefs, self.ground.prices, self.batch
        places = torch.zeros(len(batch), min(count, beliefs.count), dtype=torch.long)
        for goal in batch.targets.unique().tolist():
            mine = (batch.targets == goal).nonzero()[:, 0]
            change = torch.cdist(batch.queries[mine], beliefs.samples[goal], p=1)
            effort = change / (beliefs.image.width * beliefs.usual_change)
            manner = torch.cdist(self._manner[mine], beliefs.manners[goal], p=1) / NUMBERS
            cost = prices.effort * effort + prices.manner * manner
            cost = cost + self.ground.cost_of_samples[goal]
            places[mine] = cost.topk(places.shape[1], dim=1, largest=False).indices
        return places

    def _descended(self, strokes: Tensor, steps: int, insist: float = 1.0) -> Tensor:
        """Strokes (queries, any number, numbers) after steps along the gradient of J.

        `insist`: a factor on the doubt of f. Every step looks at the images in the next view.
        """
        many, ground = replace(self, batch=self.batch.repeated(strokes.shape[1])), self.ground
        moving = strokes.flatten(0, 1).clone().requires_grad_(True)
        optimiser, targets = torch.optim.Adam([moving], ground.painter.rate), many.batch.targets
        for step in range(steps):
            with torch.enable_grad():
                images = many._painted(moving)
                cost = many._cost(images, moving)
                cost = cost + ground.doubt(ground.views(images, step), targets, insist)
                (moving.grad,) = torch.autograd.grad(cost.sum(), moving)
            optimiser.step()
        return moving.detach().view_as(strokes)

    def _painted(self, strokes: Tensor) -> Tensor:
        """Images inside the boxes of their queries, not yet in whole levels."""
        batch = self.batch
        return batch.box.project(self.ground.painter(strokes, batch.queries, batch.targets))

    def _cost(self, images: Tensor, strokes: Tensor) -> Tensor:
        """J of images but for the doubt, and what their strokes cost, (rows,)."""
        beliefs, prices = self.ground.beliefs, self.ground.prices
        change = (images - self.batch.queries).abs()
        if self.batch.costs is not None:
            change = change * self.batch.costs
        effort = change.mean(dim=1) / beliefs.usual_change
        manner = (beliefs.manner(images) - self._manner).abs()
        closeness = prices.effort * effort + prices.manner * manner.mean(dim=1)
        strain = self.ground.painter.strain(strokes)
        return closeness + strain + self.ground.implausible(images, self.batch.targets)

    @cached_property
    def _manner(self) -> Tensor:
        return self.ground.beliefs.manner(self.batch.queries)

    @torch.no_grad()
    def _judged(self, strokes: Tensor) -> Tried:
        """The images of strokes (queries, any number, numbers) in whole levels, and their cost."""
        count, ground = strokes.shape[1], self.ground
        many, flat = replace(self, batch=self.batch.repeated(count)), strokes.flatten(0, 1)
        targets = many.batch.targets
        rows = ground.snap(many._painted(flat), many.batch.box)
        doubts = [ground.doubt(ground.views(rows, number), targets) for number in range(JUDGED)]
        cost = many._cost(rows, flat) + torch.stack(doubts).mean(dim=0)
        beyond = Question(ground.judge, self.least).margin(rows.detach(), targets).numpy()
        accepted = torch.from_numpy(beyond >= 0)
        return Tried(strokes, *(each.unflatten(0, (-1, count)) for each in (rows, cost, accepted)))

    def _different(self, rows: Tensor, cost: Tensor, k: int) -> Found:
        """The places of the k cheapest of the images (queries, images, …) that differ."""

        def alike(place: Tensor) -> Tensor:
            mine = rows[torch.arange(len(rows)), place][:, None]
            effort = (mine - self.batch.queries[:, None]).abs().mean(dim=2)
            return (rows - mine).abs().mean(dim=2) < APART * effort

        return cheapest(cost, k, alike)


def starts_for(k: int) -> int:
    return min(max(STARTS, 2 * k), MOST_STARTS)


def believable_images(
    ground: ImageGround, batch: QueryBatch, options: SearchOptions, k: int
) -> Found:
    """Rows of shape (queries, k, width), the cheapest first, and which of them are accepted.

    All tensors are on the CPU; the models are asked where they compute. Queries are taken in parts
    that fit into memory.
    """
    at_a_time, parts = max(1, ROWS_AT_A_TIME // starts_for(k)), []
    for start in range(0, len(batch), at_a_time):
        part = batch.select(slice(start, start + at_a_time))
        parts.append(ImageSearch(ground, part, options.margin)(k, options.seed))
    rows, accepted = zip(*parts, strict=True)
    return torch.cat(rows), torch.cat(accepted)
