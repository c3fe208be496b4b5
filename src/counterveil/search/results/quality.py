"""The quality of answers, as far as the veil's population P~ knows it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Self

import torch

from counterveil.encoding import Array
from counterveil.search.actions.costs import Context


@dataclass(frozen=True, eq=False)
class AnswerQuality:
    """Numbers for each answer, (answers,). They follow from veil, model and answer alone.

    P~ is the noisy population of the veil.

    - `effort`: Σ over the changed features of the difference of percentiles among all people, a
      changed category counting 1.
    - `plausibility`: the share of P~'s rows of the target class that are less likely than the
      answer.
    - `stability`: the share of a committee of models learnt from P~ that gives the target class,
      too.
    - `beyond`, (answers, features): at least what share of the people of the target class have the
      answer's number or one beyond it; see `SureShares.beyond`.
    - `places`, (answers, features, 2): the share of all people whose number is below the query's
      and below the answer's; NaN for what is no number, or missing.

    Of images: `effort` is the mean absolute change of a pixel, `stability` the share of views in
    which the model, and the private model, still see the target class
    (`counterveil.search.images.ground`).

    `veil_knows`: whether the noise leaves enough for any of this to be true of people.
    `knows_pairs`: whether the veil knows which values go together.
    """

    effort: Array
    plausibility: Array
    stability: Array
    beyond: Array
    places: Array
    veil_knows: bool = field(default=True, kw_only=True)
    knows_pairs: bool = field(default=True, kw_only=True)

    @classmethod
    def of(cls, context: Context, before: Array, after: Array, targets: Array) -> Self:
        """The quality of encoded answers `after` to the queries `before`, (answers, width) both."""
        people, committee = context.people, context.committee
        assert people is not None
        assert committee is not None
        queries, rows = (
            torch.as_tensor(each, dtype=torch.float32, device=people.device)
            for each in (before, after)
        )
        goals = torch.as_tensor(targets, device=people.device)
        cells = people.cells(rows)
        places = torch.stack([people.percentile(queries), people.percentile(rows)], dim=2)
        way = (places[..., 1] - places[..., 0]).abs()
        way = torch.where(way.isnan(), (cells != people.cells(queries)).float(), way)
        effort = way.masked_fill(people.derived, 0.0).sum(dim=1)
        rank = people.plausibility(cells, goals)
        stability = (committee.margins(cells, goals) > 0).float().mean(dim=1)
        shares = people.sure_shares
        beyond = torch.as_tensor(shares.beyond(before, after, targets))
        found = effort, rank, stability, beyond, places
        arrays = (each.double().cpu().numpy() for each in found)
        return cls(*arrays, veil_knows=people.veil_knows, knows_pairs=people.knows_pairs)

    def select(self, at: Array) -> Self:
        """The quality of the answers at these positions."""
        arrays = {each.name: getattr(self, each.name) for each in fields(self) if not each.kw_only}
        return replace(self, **{name: values[at] for name, values in arrays.items()})

    @property
    def measures(self) -> dict[str, Array]:
        """What is one number for each answer, by name."""
        names = ("effort", "plausibility", "stability")
        return {name: getattr(self, name) for name in names}
