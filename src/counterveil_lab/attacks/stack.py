"""Many small networks trained at once, each on rows of its own.

All of a stack start from the same weights and see their rows in the same random order, so that two
of them differ only by what they were given. Training takes a fixed number of steps, whatever the
number of rows: no attacker gets more of it than another. Hard labels at the boundary are slow to
learn: with small batches at an even rate, copies from more and true labels came out worse than from
fewer. Large batches and a rate that falls to nearly nothing do what many more steps would.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import cos, pi
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from counterveil.networks import seeded

RATE = 5e-3  # at the start; it falls as half a cosine
LEAST = 0.02  # of it, at the end
AT_A_TIME = 2000  # rows of a forward pass
COPIES = 104_729  # added to the seed: a copy must never start where f started
ROOM = 2**25  # numbers of padded rows in memory


@dataclass(frozen=True, eq=False)
class Transfer:
    """What one attacker trains on.

    `goals`: class probabilities to learn, weighed by `weights`. Rows that are `beyond` are only
    known to lie on the far side of a boundary, in the class that `goals` names and not in `left`:
    they cost something only while the network has them on the near side.
    """

    points: Tensor
    goals: Tensor
    weights: Tensor
    beyond: Tensor
    left: Tensor

    @classmethod
    def of(
        cls,
        points: Tensor,
        goals: Tensor,
        *,
        weights: Tensor | None = None,
        left: Tensor | None = None,
    ) -> Transfer:
        """Rows with goals; with an `left` they are all `beyond`."""
        count = len(points)
        return cls(
            points,
            goals,
            torch.ones(count) if weights is None else weights,
            torch.full((count,), left is not None),
            torch.zeros(count, dtype=torch.long) if left is None else left,
        )

    def __add__(self, other: Transfer) -> Transfer:
        return Transfer(*(torch.cat(pair) for pair in zip(self._all(), other._all(), strict=True)))

    def __len__(self) -> int:
        return len(self.points)

    @property
    def key(self) -> bytes:
        """The same for the same rows."""
        digest = hashlib.sha256()
        for part in self._all():
            digest.update(part.numpy().tobytes())
        return digest.digest()

    def _all(self) -> tuple[Tensor, ...]:
        return self.points, self.goals, self.weights, self.beyond, self.left

    def padded(self, count: int) -> tuple[Tensor, ...]:
        """Every part, filled up with zeros that are never drawn."""
        return tuple(
            torch.cat([part, part.new_zeros(count - len(part), *part.shape[1:])])
            for part in self._all()
        )


@dataclass(frozen=True, eq=False)
class Stack:
    """Networks of one architecture with weights of their own."""

    network: nn.Module
    weights: dict[str, Tensor]

    @torch.no_grad()
    def logits(self, points: Tensor) -> Tensor:
        """Of every network for the same points: (networks, points, classes)."""
        parts = [
            vmap(self._call, in_dims=(0, None))(self.weights, part)
            for part in points.split(AT_A_TIME)
        ]
        return torch.cat(parts, dim=1)

    def _call(self, weights: dict[str, Tensor], points: Tensor) -> Any:
        return functional_call(self.network, weights, (points,))


def train_all(
    build: Callable[[], nn.Module],
    transfers: Sequence[Transfer],
    *,
    steps: int,
    batch: int,
    seed: int,
) -> list[Stack]:
    """A network for each of `transfers`, in stacks that fit into memory, in their order."""
    stacks = []
    start = 0
    while start < len(transfers):
        stop = start + 1
        longest = len(transfers[start])
        while stop < len(transfers):
            longest = max(longest, len(transfers[stop]))
            if (stop + 1 - start) * longest * transfers[start].points.shape[1] > ROOM:
                break
            stop += 1
        stacks.append(_train(build, transfers[start:stop], steps, batch, seed))
        start = stop
    return stacks


def _train(
    build: Callable[[], nn.Module], transfers: Sequence[Transfer], steps: int, batch: int, seed: int
) -> Stack:
    network = seeded(build, COPIES + seed)
    count = len(transfers)
    stack = Stack(
        network,
        {
            name: value.detach()[None].repeat(count, *[1] * value.ndim).requires_grad_()
            for name, value in network.named_parameters()
        },
    )
    longest = max(map(len, transfers))
    padded = [transfer.padded(longest) for transfer in transfers]
    points, goals, weights, beyond, left = (torch.stack(part) for part in zip(*padded, strict=True))
    lengths = torch.tensor([len(transfer) for transfer in transfers])[:, None]
    each = torch.arange(count)[:, None]
    generator = torch.Generator().manual_seed(COPIES + seed)
    optimiser = torch.optim.Adam(list(stack.weights.values()), RATE, fused=True)
    for step in range(steps):
        falling = (1 + cos(pi * step / steps)) / 2
        optimiser.param_groups[0]["lr"] = RATE * (LEAST + (1 - LEAST) * falling)
        drawn = torch.rand(batch, generator=generator)
        at = each, (drawn * lengths).long().clamp(max=lengths - 1)
        logits = vmap(stack._call)(stack.weights, points[at])
        losses = weights[at] * _losses(logits, goals[at], beyond[at], left[at])
        optimiser.zero_grad()
        losses.mean(dim=1).sum().backward()
        optimiser.step()
    return Stack(network, {name: value.detach() for name, value in stack.weights.items()})


def _losses(logits: Tensor, goals: Tensor, beyond: Tensor, left: Tensor) -> Tensor:
    """Cross-entropy; for rows beyond a boundary KL(½ ‖ p) while p ≤ ½, and nothing after it.

    p is the probability of the claimed class against the one that was left, as if there were no
    others; with two classes it is the probability itself.
    """
    plain = -(goals * logits.log_softmax(dim=-1)).sum(dim=-1)
    if not bool(beyond.any()):
        return plain
    claimed = logits.gather(-1, goals.argmax(dim=-1, keepdim=True))[..., 0]
    ahead = claimed - logits.gather(-1, left[..., None])[..., 0]
    short = -(functional.logsigmoid(ahead) + functional.logsigmoid(-ahead)) / 2
    one_sided = torch.where(ahead <= 0, short - torch.log(torch.tensor(2.0)), 0.0)
    return torch.where(beyond, one_sided, plain)
