"""The last step of the believable search: changed numbers move closer to the query's own."""

from __future__ import annotations

from dataclasses import fields, replace

import torch
from torch import Tensor

from counterveil.search.beam import Beam
from counterveil.search.constraints import SAME
from counterveil.search.cost import Asked

CLOSER = 7  # values of a number on the way back to the query that are tried


def closer(asked: Asked, beam: Beam, ok: Tensor) -> Tensor:
    """The rows with changed numbers as near to the query as is cheapest, one after another."""
    k = beam.rows.shape[1]
    for number, fine in enumerate(asked.menu.fine):
        if fine is None:
            continue
        query, answer = (beam.changed[:, :, number] & ok).nonzero(as_tuple=True)
        if not len(query):
            continue
        rows, column = beam.rows[query, answer], asked.beliefs.first_column[number]
        known = asked.beliefs.is_known(asked.queries[query], number)
        mine, now = asked.queries[query, column], rows[:, column]
        tried = _on_the_way(fine, mine, now, known)  # (rows, tries)
        low, high = asked.box.lower[query, column, None], asked.box.upper[query, column, None]
        usable = (tried >= low - SAME) & (tried <= high + SAME)
        usable &= ((tried - mine[:, None]).abs() > SAME) | ~known[:, None]
        better = _with_values(asked, beam, (query, answer), number, tried)
        judged = asked.judged(better, query, usable)
        cost = torch.cat([beam.cost[query, answer][:, None], judged.cost], dim=1)
        place = cost.argmin(dim=1)
        take = place > 0
        one = judged.at((place - 1).clamp(min=0)[:, None])
        where = query[take], answer[take]
        for each in fields(beam):
            getattr(beam, each.name)[where] = getattr(one, each.name)[take, 0]
    return beam.rows.reshape(len(beam.rows), k, -1)


def _on_the_way(fine: Tensor, mine: Tensor, now: Tensor, known: Tensor) -> Tensor:
    """Fine values between the query's and the answer's; around the answer's where unknown."""
    here = torch.searchsorted(fine, now.contiguous())
    start = torch.where(known, torch.searchsorted(fine, mine.contiguous()), here - CLOSER // 2)
    share = torch.arange(CLOSER) / CLOSER
    place = start[:, None] + ((here - start)[:, None] * share).round().long()
    place = torch.where(known[:, None], place, start[:, None] + torch.arange(CLOSER))
    return fine[place.clamp(0, len(fine) - 1)]


def _with_values(
    asked: Asked, beam: Beam, where: tuple[Tensor, Tensor], number: int, tried: Tensor
) -> Beam:
    """The rows at `where` with other values of a number: a beam of (rows, tries)."""
    query, tries = where[0], tried.shape[1]
    base = type(beam)(*(getattr(beam, each.name)[where][:, None] for each in fields(beam)))
    base = base.at(torch.zeros(len(query), tries, dtype=torch.long))
    column = asked.beliefs.first_column[number]
    rows = base.rows.clone()
    before = rows[:, 0, column]
    rows[:, :, column] = tried
    flat, goals = rows.flatten(0, 1), asked.targets[query].repeat_interleave(tries)
    codes = asked.beliefs.codes(flat)
    density = asked.beliefs.log_density(codes, goals).unflatten(0, (-1, tries))
    shares = asked.beliefs.height(number, torch.stack([before, asked.queries[query, column]]))
    ways = (asked.beliefs.height(number, tried) - shares[1][:, None]).abs()
    known = asked.beliefs.is_known(asked.queries[query], number)[:, None]
    spared = torch.where(known, (shares[0] - shares[1]).abs()[:, None] - ways, 0.0)
    if asked.costs is not None:
        spared = spared * asked.costs[query, column, None]
    return replace(
        base,
        rows=rows,
        codes=codes.unflatten(0, (-1, tries)),
        density=density,
        effort=base.effort - spared,
    )
