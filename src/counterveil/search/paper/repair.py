"""Repair: for a query without an answer, change one feature at a time.

From a legal row, the move with the largest gain in the margin for its length is made, of those that
a gradient promises most of, again and again, inside the query's box, until the model accepts the
row. No bit or category is moved twice. Rows are legal after every move; finished queries leave the
batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from counterveil.search.asking import Question
from counterveil.search.batch import QueryBatch
from counterveil.search.constraints.projection import SHORT, Snap

STEPS = 80  # single moves of a query, at most
STRIDE = 0.5  # how far a number moves at once, as a share of its range; a bit flips whole
CANDIDATES = 16  # moves that a model is asked about where its student proposes them


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
            here, part = rows[active], batch.select(active)
            barred = moved[active]
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
