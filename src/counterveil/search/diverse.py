"""Several answers to one query that differ from each other.

Further answers are sought with something of an earlier one held as it is in the query ("and without
changing your hours?"), and from disturbed starts. Of all that the judge accepts, the nearest comes
first and each further one is the farthest from those chosen before it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from counterveil.progress import Tick, silent
from counterveil.search.answer import Answerer, How, Questions

TRIES = 2  # searches for each further answer
SPREAD = 0.3  # of the disturbed starts; codes are sigmoids in (0, 1)
_SAME = 1e-4


def several(
    answerer: Answerer, questions: Questions, how: How, k: int, seed: int, tick: Tick = silent
) -> tuple[Tensor, Tensor]:
    """Rows of shape (queries, k, width), the nearest first, and which of them stand."""
    generator = torch.Generator().manual_seed(seed)
    rows, stands = answerer(questions, how, tick)
    if k == 1:
        return rows[:, None], stands[:, None]
    pool, pool_stands = [rows], [stands]
    for _ in range(TRIES * (k - 1)):
        earlier = torch.randint(len(pool), (len(rows),), generator=generator).to(rows.device)
        model = torch.stack(pool)[earlier, torch.arange(len(rows), device=rows.device)]
        held = _one_change(answerer, model, questions.queries, generator)
        noise = SPREAD * torch.randn(
            len(rows), answerer.autoencoder.latent, generator=generator
        ).to(rows.device)
        tried, accepted = answerer(questions.holding(held), how, noise=noise)
        pool.append(tried)
        pool_stands.append(accepted)
    rows, stands = torch.stack(pool, 1), torch.stack(pool_stands, 1)
    return choose(rows, stands, questions.queries, k, _ways(answerer, rows, questions.queries))


def _ways(answerer: Answerer, pool: Tensor, queries: Tensor) -> Tensor:
    """What tells answers apart: which features change; for a picture, the pixels themselves."""
    tries = pool.shape[1]
    many = queries.repeat_interleave(tries, dim=0)
    changed = answerer.snap.changed_features(pool.flatten(0, 1), many)
    if changed.shape[1] == 1:
        return pool
    return changed.unflatten(0, (-1, tries)).float()


def _one_change(
    answerer: Answerer, rows: Tensor, queries: Tensor, generator: torch.Generator
) -> Tensor:
    """The columns of a feature, at random, of those in which each row differs from its query."""
    snap = answerer.snap
    changed = snap.changed_features(rows, queries)
    if changed.shape[1] == 1:  # a picture: half of its pixels
        dice = torch.rand(len(rows), snap.parts, generator=generator).to(rows.device)
        return (dice < 0.5)[:, snap.part_of_column]
    dice = torch.rand(changed.shape, generator=generator).to(rows.device)
    chosen = torch.where(changed, dice, -1.0).argmax(dim=1, keepdim=True)
    return snap.columns_of_features(torch.zeros_like(changed).scatter_(1, chosen, True))


def choose(
    pool: Tensor, stands: Tensor, queries: Tensor, k: int, ways: Tensor
) -> tuple[Tensor, Tensor]:
    """k of the pool's rows for each query: the nearest, then by greatest distance to those chosen.

    `pool`: (queries, tries, width). An answer by the same way as one chosen before is no other
    answer. Those after the first come in the order of their distance.
    """
    to_query = (pool - queries[:, None]).norm(dim=2)
    first = torch.where(stands, to_query, torch.inf).argmin(dim=1)
    everyone = torch.arange(len(pool), device=pool.device)
    apart = torch.full_like(to_query, torch.inf)
    open_still, place = stands.clone(), first
    places, accepted = [], []
    for _ in range(k):
        places.append(place)
        accepted.append(open_still[everyone, place])
        apart = torch.minimum(apart, (pool - pool[everyone, place][:, None]).norm(dim=2))
        open_still &= (ways - ways[everyone, place][:, None]).abs().amax(dim=2) > _SAME
        place = torch.where(open_still, apart, -torch.inf).argmax(dim=1)
    chosen, found = torch.stack(places, 1), torch.stack(accepted, 1)
    far = torch.where(found, to_query.gather(1, chosen), torch.inf)
    order = far.argsort(dim=1, stable=True)
    chosen, found = chosen.gather(1, order), found.gather(1, order)
    return pool[everyone[:, None], chosen], found
