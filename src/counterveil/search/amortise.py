"""The amortised search: Algorithm 2's answer in one step.

Algorithm 2 minimises the same objective L_cs anew for every query. Here a small network learns the
minimiser once: a(q, s, what may move) -> δ, trained by L_cs itself on legal rows that are drawn
from the Veil, towards random other classes, with random features held. Nothing else enters: it is
post-processing of the Veil and of the guide, so with guidance `surrogate` of the Veil alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from counterveil.amortiser import Amortiser, is_free
from counterveil.encoding import Encoding
from counterveil.models import TargetModel, TorchModel
from counterveil.schema import Family
from counterveil.search.constraints import box_around
from counterveil.search.objective import SearchObjective, Weights
from counterveil.search.sampling import legal_rows
from counterveil.search.snap import Snap
from counterveil.terminal import Tick, progress_bar, silent
from counterveil.training import seeded
from counterveil.veil import Veil

POOL = 20_000  # rows to learn from
RATE = 3e-3


@dataclass(frozen=True)
class Lessons:
    """How long to learn for one family of data."""

    steps: int
    batch: int


LESSONS: dict[Family, Lessons] = {
    "mixed": Lessons(4000, 256),
    "image": Lessons(1000, 128),
    "binary": Lessons(1500, 128),
}


def shipped(
    veil: Veil, *, device: torch.device, progress: bool, most_steps: int | None = None
) -> Veil:
    """The veil with the amortised search for guidance `surrogate`, if it has a surrogate."""
    if veil.surrogate is None:
        return veil
    amortiser = learn_for(
        veil,
        TorchModel(veil.surrogate, veil.schema, outputs="logits").to(device),
        Weights.of(veil.schema.family, "surrogate"),
        Snap(Encoding(veil.schema), device),
        device=device,
        progress=progress,
        most_steps=most_steps,
    )
    veil.autoencoder.cpu()
    return replace(veil, amortiser=amortiser.cpu())


def learn_for(
    veil: Veil,
    guide: TargetModel,
    weights: Weights,
    snap: Snap,
    *,
    device: torch.device,
    progress: bool,
    most_steps: int | None = None,
) -> Amortiser:
    """a for a guide under a veil, from rows that the veil gives."""
    schema = veil.schema
    lessons = LESSONS[schema.family]
    steps = min(lessons.steps, most_steps or lessons.steps)
    rows = legal_rows(veil, snap, POOL, seed=0, device=device)
    box = box_around(Encoding(schema), rows.cpu().double().numpy()).to(device)
    objective = SearchObjective(
        model=guide,
        autoencoder=veil.autoencoder.to(device),
        weights=weights,
        queries=rows,
        targets=torch.zeros(len(rows), dtype=torch.long, device=device),
        all_prototypes=veil.prototypes.to(device),
        box=box,
    )
    feature_of_column = snap.feature_of_part[snap.part_of_column]
    with progress_bar("learning to search", steps, show=progress) as tick:
        return learn(
            objective, feature_of_column, seed=0, steps=steps, batch=lessons.batch,
            tick=tick,
        )  # fmt: skip


def learn(
    objective: SearchObjective,
    feature_of_column: Tensor,
    *,
    seed: int,
    steps: int,
    batch: int,
    tick: Tick = silent,
) -> Amortiser:
    """a for the guide, autoencoder and weights of `objective`, whose rows are what it learns from.

    The objective's targets are replaced by random ones: any class but the one the guide gives.
    """
    queries = objective.queries
    device = queries.device
    classes, latent = len(objective.all_prototypes), objective.all_prototypes.shape[1]
    network = seeded(lambda: Amortiser(queries.shape[1], classes, latent), seed).to(device)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        order = torch.cat(
            [objective.model.log_proba(part) for part in queries.split(8192)]
        ).argsort(dim=1, descending=True)
    optimiser = torch.optim.Adam(network.parameters(), RATE, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps)
    features = int(feature_of_column.max()) + 1
    for step in range(steps):
        rows = torch.randint(len(queries), (batch,), generator=generator).to(device)
        # Half of the time the runner-up, which is what people ask for when they name no class.
        rank = torch.randint(1, classes, (batch,), generator=generator)
        rank = torch.where(torch.rand(batch, generator=generator) < 0.5, rank, 1).to(device)
        targets = order[rows].gather(1, rank[:, None])[:, 0]
        part = objective.rows(rows, targets=targets)
        share = torch.rand(batch, 1, generator=generator) * (
            torch.rand(batch, 1, generator=generator) < 0.5
        )
        held = (torch.rand(batch, features, generator=generator) < share).to(device)
        part = part.holding(held[:, feature_of_column])
        loss = part(network(part.queries, targets, is_free(part.box.lower, part.box.upper))).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        tick(step + 1, "steps")
    return network.requires_grad_(False).eval()
