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
from counterveil.search.parts import changed_features, columns_of_features

TRIES = 2  # searches for each further answer
SPREAD = 0.3  # of the disturbed starts; codes are sigmoids in (0, 1)
_SAME = 1e-4


def several(
    answerer: Answerer, questions: Questions, how: How, k: int, seed: int, tick: Tick = silent
) -> tuple[Tensor, Tensor]:
    """Rows of shape (queries, k, width), the nearest first, and which of them stand."""
    generator = torch.Generator().manual_seed(seed)
    rows, stands = answerer(questions, how, tick)
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
    return choose(torch.stack(pool, 1), torch.stack(pool_stands, 1), questions.queries, k)


def _one_change(
    answerer: Answerer, rows: Tensor, queries: Tensor, generator: torch.Generator
) -> Tensor:
    """The columns of one feature, at random, of those in which each row differs from its query."""
    changed = changed_features(answerer.snap, rows, queries)
    dice = torch.rand(changed.shape, generator=generator).to(rows.device)
    chosen = torch.where(changed, dice, -1.0).argmax(dim=1, keepdim=True)
    return columns_of_features(answerer.snap, torch.zeros_like(changed).scatter_(1, chosen, True))


def choose(pool: Tensor, stands: Tensor, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """k of the pool's rows for each query: the nearest, then by greatest distance to those chosen.

    `pool`: (queries, tries, width). A row that equals one chosen before is not chosen again.
    """
    to_query = (pool - queries[:, None]).norm(dim=2)
    first = torch.where(stands, to_query, torch.inf).argmin(dim=1)
    everyone = torch.arange(len(pool), device=pool.device)
    chosen, accepted = [pool[everyone, first]], [stands[everyone, first]]
    apart = (pool - chosen[0][:, None]).norm(dim=2)
    for _ in range(k - 1):
        far = torch.where(stands, apart, -torch.inf).argmax(dim=1)
        chosen.append(pool[everyone, far])
        accepted.append(stands[everyone, far] & (apart[everyone, far] > _SAME))
        apart = torch.minimum(apart, (pool - chosen[-1][:, None]).norm(dim=2))
    return torch.stack(chosen, 1), torch.stack(accepted, 1)
