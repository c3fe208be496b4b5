"""Several answers to one query that differ from each other.

Further answers are sought with one feature of an earlier answer held as it is in the query ("and
without changing your hours?"). Of all rows that the model accepts, the
nearest comes first, and each further one is the farthest from those chosen before it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from counterveil.search.batch import Found, QueryBatch
from counterveil.search.constraints.projection import Snap
from counterveil.search.options import SearchOptions
from counterveil.search.paper.search import PaperSearch
from counterveil.terminal import Tick, silent

TRIES = 2  # searches for each further answer
_SAME = 1e-4


def several_answers(
    search: PaperSearch, batch: QueryBatch, options: SearchOptions, k: int, tick: Tick = silent
) -> Found:
    """Rows of shape (queries, k, width), the nearest first, and which of them are accepted."""
    generator = torch.Generator().manual_seed(options.seed)
    found = [search(batch, options, tick)]
    if k == 1:
        return found[0][0][:, None], found[0][1][:, None]
    device = batch.queries.device
    everyone = torch.arange(len(batch), device=device)
    for _ in range(TRIES * (k - 1)):
        which = torch.randint(len(found), (len(batch),), generator=generator).to(device)
        earlier = torch.stack([rows for rows, _ in found])[which, everyone]
        held = _one_change(search.snap, earlier, batch.queries, generator)
        found.append(search(batch.holding(held), options))
    tried, accepted = (torch.stack(each, dim=1) for each in zip(*found, strict=True))
    kinds = _kinds_of_answers(search.snap, tried, batch.queries)
    return choose(tried, accepted, batch.queries, k, kinds)


def choose(tried: Tensor, accepted: Tensor, queries: Tensor, k: int, kinds: Tensor) -> Found:
    """k of the rows tried for each query: the nearest, then the farthest from those chosen.

    `tried`: (queries, tries, width). `kinds`: (queries, tries, anything): two answers with the same
    numbers there count as the same answer, and only one of them is chosen. The chosen rows come in
    the order of their distance to the query.
    """
    to_query = (tried - queries[:, None]).norm(dim=2)
    place = torch.where(accepted, to_query, torch.inf).argmin(dim=1)
    everyone = torch.arange(len(tried), device=tried.device)
    to_chosen = torch.full_like(to_query, torch.inf)
    open_still = accepted.clone()
    places, found = [], []
    for _ in range(k):
        places.append(place)
        found.append(open_still[everyone, place])
        chosen = tried[everyone, place]
        to_chosen = torch.minimum(to_chosen, (tried - chosen[:, None]).norm(dim=2))
        open_still &= (kinds - kinds[everyone, place][:, None]).abs().amax(dim=2) > _SAME
        place = torch.where(open_still, to_chosen, -torch.inf).argmax(dim=1)
    all_places, all_found = torch.stack(places, dim=1), torch.stack(found, dim=1)
    distance = torch.where(all_found, to_query.gather(1, all_places), torch.inf)
    order = distance.argsort(dim=1, stable=True)
    all_places, all_found = all_places.gather(1, order), all_found.gather(1, order)
    return tried[everyone[:, None], all_places], all_found


def _kinds_of_answers(snap: Snap, tried: Tensor, queries: Tensor) -> Tensor:
    """What tells answers apart: which features change; for a picture, the pixels themselves."""
    tries = tried.shape[1]
    changed = snap.changed_features(tried.flatten(0, 1), queries.repeat_interleave(tries, dim=0))
    return tried if changed.shape[1] == 1 else changed.unflatten(0, (-1, tries)).float()


def _one_change(snap: Snap, rows: Tensor, queries: Tensor, generator: torch.Generator) -> Tensor:
    """The columns of one changed feature of each row, chosen at random: (rows, width)."""
    changed = snap.changed_features(rows, queries)
    if changed.shape[1] == 1:  # a picture: half of its pixels
        dice = torch.rand(len(rows), snap.parts, generator=generator).to(rows.device)
        return (dice < 0.5)[:, snap.part_of_column]
    dice = torch.rand(changed.shape, generator=generator).to(rows.device)
    chosen = torch.where(changed, dice, -1.0).argmax(dim=1, keepdim=True)
    return snap.columns_of_features(torch.zeros_like(changed).scatter_(1, chosen, True))
