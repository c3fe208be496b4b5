"""Several answers to one query that differ from each other.

Further answers are sought with one feature of an earlier answer held as it is in the query ("and
without changing your hours?"). The nearest ones that change different features are chosen.
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
DIFFERENT = 0.1  # of a pixel; whether a feature changes is 0 or 1


def several_answers(
    search: PaperSearch, batch: QueryBatch, options: SearchOptions, k: int, tick: Tick = silent
) -> Found:
    """Rows of shape (queries, k, width), the nearest first, and which of them are accepted."""
    generator = torch.Generator().manual_seed(options.seed)
    found = [search(batch, options, tick)]
    if k == 1:
        return found[0][0][:, None], found[0][1][:, None]
    everyone = torch.arange(len(batch), device=batch.queries.device)
    for _ in range(TRIES * (k - 1)):
        which = torch.randint(len(found), (len(batch),), generator=generator).to(everyone)
        earlier = torch.stack([rows for rows, _ in found])[which, everyone]
        held = _one_change(search.snap, earlier, batch.queries, generator)
        found.append(search(batch.holding(held), options))
    tried, accepted = (torch.stack(each, dim=1) for each in zip(*found, strict=True))
    if len(search.snap.feature_of_part.unique()) == 1:  # a picture: its pixels tell answers apart
        return choose(tried, accepted, batch.queries, k, tried)
    repeated = batch.repeated(tried.shape[1]).queries
    changed = search.snap.changed_features(tried.flatten(0, 1), repeated).float()
    return choose(tried, accepted, batch.queries, k, changed.unflatten(0, tried.shape[:2]))


def choose(tried: Tensor, accepted: Tensor, queries: Tensor, k: int, kinds: Tensor) -> Found:
    """The k nearest rows of different kinds of those tried for each query, the nearest first.

    `tried`: (queries, tries, width). `kinds`: (queries, tries, anything): two answers with the same
    numbers there count as the same answer, and only the nearer of them is chosen.
    """
    distance = torch.where(accepted, (tried - queries[:, None]).norm(dim=2), torch.inf)
    everyone = torch.arange(len(tried), device=tried.device)
    rows, found = [], []
    for _ in range(k):
        nearest, place = distance.min(dim=1)
        rows.append(tried[everyone, place])
        found.append(nearest < torch.inf)
        same = (kinds - kinds[everyone, place][:, None]).abs().amax(dim=2) < DIFFERENT
        distance = distance.masked_fill(same, torch.inf)
    return torch.stack(rows, dim=1), torch.stack(found, dim=1)


def _one_change(snap: Snap, rows: Tensor, queries: Tensor, generator: torch.Generator) -> Tensor:
    """The columns of one changed feature of each row, chosen at random: (rows, width)."""
    changed = snap.changed_features(rows, queries)
    if changed.shape[1] == 1:  # a picture: half of its pixels
        dice = torch.rand(len(rows), snap.parts, generator=generator).to(rows.device)
        return (dice < 0.5)[:, snap.part_of_column]
    dice = torch.rand(changed.shape, generator=generator).to(rows.device)
    chosen = torch.where(changed, dice, -1.0).argmax(dim=1, keepdim=True)
    return snap.columns_of_features(torch.zeros_like(changed).scatter_(1, chosen, True))
