"""Single moves: towards an answer (repair), and back to the query from one (polish).

Repair makes, from a legal row, the move with the largest gain in the margin for its length, of
those that a gradient promises most of, again and again, inside the query's box, until the model
accepts the row. No bit or category is moved twice. Rows are legal after every move; finished
queries leave the batch.

Polish gives back to the query what an answer does not need. Few changes, small changes. Two ways
back, as far as the model still accepts the row, which stays legal and inside its box:

- **give back**: whole parts (features, pixels) take the query's value again, as many at once as the
  model accepts, those first whose return costs little margin for the distance that it saves;
- **pull**: numbers that remain changed move towards the query's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from counterveil.networks import numbers_at_once
from counterveil.search.asking import Question
from counterveil.search.batch import QueryBatch
from counterveil.search.constraints.bounds import SAME
from counterveil.search.constraints.projection import SHORT, Snap

STEPS = 80  # single moves of a query, at most
STRIDE = 0.5  # how far a number moves at once, as a share of its range; a bit flips whole
CANDIDATES = 16  # moves that a model is asked about where its student proposes them
ROUNDS = 3  # of giving back
TRIED_SINGLY = 64  # changed parts of a row up to which each is tried by itself
SPLIT = 8  # places on a way that are tried at once
LEVELS = 2  # how often the way of a number is split
REFUSED = 1e6  # margin counted as lost where the model refuses the row without a part


@dataclass(frozen=True)
class GreedyRepair:
    """Single moves up the margin of a model, as the gradient of a guide proposes them.

    `asked`: the model whose margin counts; the guide itself, or the model that it is a student of.
    """

    guide: Question
    asked: Question
    snap: Snap

    def __call__(self, batch: QueryBatch, beyond: float = 0.0, steps: int = STEPS) -> Tensor:
        """Legal rows after at most `steps` moves each, (queries, width).

        A row is done when the model is `beyond` log-odds past accepting it. At most `max_changes`
        features of the batch differ from the legal row nearest to the query.
        """
        start = self.snap(batch.queries, batch.box)
        rows, moved = start.clone(), torch.zeros_like(start, dtype=torch.bool)
        margin = self.asked.margin_as_is(rows, batch.targets)
        for _ in range(steps):
            active = (margin < beyond).nonzero()[:, 0]
            if not len(active):
                break
            here, part, barred = rows[active], batch.select(active), moved[active]
            if part.max_changes is not None:  # where enough features changed, the others stay
                changed = self.snap.changed_features(here, start[active])
                is_full = changed.sum(dim=1) >= part.max_changes
                barred = barred | self.snap.columns_of_features(is_full[:, None] & ~changed)
            rows[active], margin[active] = self._best_move(here, margin[active], barred, part)
            moved[active] |= (rows[active] != here) & ~self.snap.is_number
        return rows

    def _best_move(
        self, rows: Tensor, margin: Tensor, barred: Tensor, batch: QueryBatch
    ) -> tuple[Tensor, Tensor]:
        """The rows after the move that gains most margin for its length, and their margins.

        The gradient of the model's own margin is right; that of its student's proposes moves that
        the model is asked about. Where none is left the margin is inf: that query is done.
        """
        gradient = self.guide.margin_gradient(rows, batch.targets)
        tried, lengths = [], []
        count = 1 if self.asked.model is self.guide.model else CANDIDATES
        for _ in range(count):
            after, moves = self.snap.best_move(
                rows, gradient, batch.box, barred, STRIDE, batch.costs
            )
            tried.append(after)
            lengths.append(self.snap.squares_by_part(after, rows, batch.costs).sum(dim=1).sqrt())
            barred = barred | moves | (after != rows)
        margins = self.asked.margin_as_is(torch.cat(tried), batch.targets.repeat(count))
        margins, length = margins.view(count, -1), torch.stack(lengths)
        gain = (margins - margin) / length.clamp(min=SHORT)
        best, place = torch.where(length > 0, gain, -torch.inf).max(dim=0)
        everyone = torch.arange(len(rows), device=rows.device)
        reached = torch.where(best > -torch.inf, margins[place, everyone], torch.inf)
        return torch.stack(tried)[place, everyone], reached


@dataclass(frozen=True)
class Polish:
    """The queries of a batch, what the model `asked` asks of answers, and a guide's gradient."""

    guide: Question
    asked: Question
    snap: Snap
    batch: QueryBatch

    def __call__(self, rows: Tensor) -> Tensor:
        """Accepted `rows`, (queries, width), with as little changed as can be found."""
        for _ in range(ROUNDS):
            before, rows = rows, self._give_back(rows)
            if torch.equal(before, rows):
                break
        # All numbers move back, then the farthest alone.
        before, rows = rows, self._move_back(rows, self.snap.is_number.expand_as(rows))
        away = (rows - self.nearest_legal).abs() * self.snap.is_number
        farthest = torch.zeros_like(away).scatter_(1, away.argmax(dim=1, keepdim=True), 1.0)
        rows = self._move_back(rows, (farthest > 0) & (away > SAME))
        return rows if torch.equal(before, rows) else self._give_back(rows)

    @cached_property
    def nearest_legal(self) -> Tensor:
        """The legal row nearest to each query in its box, (queries, width); mostly the query."""
        return self.snap(self.batch.queries, self.batch.box)

    def _give_back(self, rows: Tensor) -> Tensor:
        """The rows with as many parts given back at once as the model accepts."""
        saved = self.snap.squares_by_part(rows, self.nearest_legal, self.batch.costs)
        changed = saved > 0
        order = self._margin_lost(rows, changed) / saved.clamp(min=1e-12)
        rank = torch.where(changed, order, torch.inf).argsort(dim=1).argsort(dim=1)
        rank = torch.where(changed, rank, self.snap.parts)
        kept, unknown = rows, int(changed.sum(dim=1).amax())
        length = torch.zeros(len(rows), 1, dtype=torch.long, device=rows.device)
        while unknown > 0:  # a few lengths are tried at a time, then those between the last two
            step = -(-unknown // SPLIT)
            lengths = length + torch.arange(step, unknown + 1, step, device=rows.device)
            columns = (rank[:, None] < lengths[:, :, None])[:, :, self.snap.part_of_column]
            query = self._everyone.repeat_interleave(lengths.shape[1])
            tried = self._returned(rows[query], columns.flatten(0, 1), query)
            reached = torch.where(self._accepts(tried, query).view_as(lengths), lengths, 0)
            best, place = reached.max(dim=1, keepdim=True)
            longest = tried.unflatten(0, lengths.shape)[self._everyone, place[:, 0]]
            kept = torch.where(best > 0, longest, kept)
            length, unknown = torch.maximum(length, best), step - 1
        return kept

    def _margin_lost(self, rows: Tensor, changed: Tensor) -> Tensor:
        """The margin lost when a part is given back, (rows, parts).

        By the gradient; where few parts changed, by giving each back.
        """
        lost, targets = torch.zeros(changed.shape, device=rows.device), self.batch.targets
        by_column = self.guide.margin_gradient(rows, targets) * (rows - self.nearest_legal)
        lost.index_add_(1, self.snap.part_of_column, by_column)
        few = changed & (changed.sum(dim=1, keepdim=True) <= TRIED_SINGLY)
        before = self.asked.margin_as_is(rows, targets)
        at_once = max(1, numbers_at_once(rows.device) // rows.shape[1])
        for pairs in few.nonzero().split(at_once) if few.any() else ():
            query, part = pairs.unbind(dim=1)
            columns = self.snap.part_of_column == part[:, None]
            returned = self._returned(rows[query], columns, query)
            after = self.asked.margin_as_is(returned, targets[query])
            lost[query, part] = before[query] - after + REFUSED * (after < 0)
        return lost

    def _move_back(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The rows with the marked columns as near to the query's as the model accepts.

        A few shares of the way are tried at once, and then a few between the last two.
        """
        way = torch.where(columns, rows - self.nearest_legal, 0.0)
        if not bool((way.abs() > SAME).any()):
            return rows
        share, width = torch.ones(len(rows), 1, device=rows.device), 1.0
        kept, grid = rows, torch.arange(1, SPLIT, device=rows.device) / SPLIT
        query = self._everyone.repeat_interleave(SPLIT - 1)
        for _ in range(LEVELS):
            # Ascending: the first share that is accepted is the nearest to the query.
            shares = share - width * (1 - grid)
            points = (rows[:, None] - (1 - shares)[:, :, None] * way[:, None]).flatten(0, 1)
            tried = self.snap(points, self.batch.box.select(query))
            accepted = self._accepts(tried, query).view_as(shares)
            first = torch.where(accepted, 0, 1).argmin(dim=1)
            any_accepted = accepted.any(dim=1, keepdim=True)
            nearest = tried.unflatten(0, shares.shape)[self._everyone, first]
            kept = torch.where(any_accepted, nearest, kept)
            share = torch.where(any_accepted, shares.gather(1, first[:, None]), share)
            width /= SPLIT
        return kept

    @property
    def _everyone(self) -> Tensor:
        return torch.arange(len(self.batch), device=self.batch.targets.device)

    def _returned(self, rows: Tensor, columns: Tensor, query: Tensor) -> Tensor:
        """`rows` of the queries `query` with the marked columns given back, (rows, width).

        Of a group that moves together all is given back, and relations are kept.
        """
        if self.batch.box.ties is None:
            return torch.where(columns, self.nearest_legal[query], rows)
        box = self.batch.box.select(query)
        columns = box.with_groups(columns)
        return self.snap(torch.where(columns, self.nearest_legal[query], rows), box, columns)

    def _accepts(self, rows: Tensor, query: Tensor) -> Tensor:
        """Which `rows` of the queries `query` the model accepts, with their relations kept."""
        box, targets = self.batch.box, self.batch.targets[query]
        accepted = self.asked.margin_as_is(rows, targets) >= 0
        return accepted if box.ties is None else accepted & box.select(query).ties_held(rows)
