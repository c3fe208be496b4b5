"""Many small networks of one architecture trained at once, each on rows of its own.

*Copies* of f learn what attackers have gathered (`train_copies`): all start from the same weights
and see their rows in the same random order, so that they differ only by what they were given, for a
fixed number of steps, whatever the number of rows. *Classifiers* such as shadows of f
(`train_classifiers`) start from weights of their own and learn as `targets.train_target` does.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import cos, log, pi
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional

from counterveil.networks import pick_device, seeded
from counterveil_lab.product import evenly
from counterveil_lab.recorded import Recorded, adam, set_rate
from counterveil_lab.targets import Recipe

RATE = 5e-3  # of copies at the start; it falls as half a cosine
LEAST = 0.02  # of it, at the end
AT_A_TIME = 2000  # rows of a forward pass
COPIES = 104_729  # added to the seed: a copy must never start where f started
ROOM = 2**25  # numbers of padded rows in memory
Build = Callable[[], nn.Module]


@dataclass(frozen=True, eq=False)
class Transfer:
    """What one attacker trains on, one entry a row.

    `goals`: class probabilities to learn. Rows that are `beyond` are only known to lie on the far
    side of a boundary, in the class that `goals` names and not in `left`: they cost something only
    while the network has them on the near side.
    """

    points: Tensor
    goals: Tensor
    beyond: Tensor
    left: Tensor

    @classmethod
    def of(cls, points: Tensor, goals: Tensor, *, left: Tensor | None = None) -> Transfer:
        """Rows with goals; where `left` is given they are all `beyond`."""
        count = len(points)
        beyond = torch.full((count,), left is not None)
        left = torch.zeros(count, dtype=torch.long) if left is None else left
        return cls(points, goals, beyond, left)

    def __add__(self, other: Transfer) -> Transfer:
        pairs = zip(self.fields(), other.fields(), strict=True)
        return Transfer(*(torch.cat(pair) for pair in pairs))

    def __len__(self) -> int:
        return len(self.points)

    @property
    def key(self) -> bytes:
        """The same for the same rows."""
        content = b"".join(part.numpy().tobytes() for part in self.fields())
        return hashlib.sha256(content).digest()

    def fields(self) -> tuple[Tensor, ...]:
        return self.points, self.goals, self.beyond, self.left


@dataclass(frozen=True, eq=False)
class Networks:
    """Networks of one architecture; `weights` of all of them by name, (networks, ...) each."""

    network: nn.Module
    weights: dict[str, Tensor]

    def __len__(self) -> int:
        return len(next(iter(self.weights.values())))

    @torch.no_grad()
    def logits(self, points: Tensor) -> Tensor:
        """Of every network for the same points: (networks, points, classes)."""
        ask = vmap(self._call, in_dims=(0, None))
        return torch.cat([ask(self.weights, part) for part in points.split(AT_A_TIME)], dim=1)

    def log_proba(self, points: Tensor) -> Tensor:
        return self.logits(points).log_softmax(dim=2)

    def each_on_its_own(self, points: Tensor) -> Any:
        """Logits of every network for points of its own, (networks, points, width), to learn by."""
        return vmap(self._call)(self.weights, points)

    def one(self, number: int) -> nn.Module:
        network = copy.deepcopy(self.network)
        network.load_state_dict({name: value[number] for name, value in self.weights.items()})
        return network.requires_grad_(False).eval()

    def frozen(self) -> Networks:
        """The same on the CPU, with nothing left to learn."""
        weights = {name: x.detach().cpu() for name, x in self.weights.items()}
        return Networks(self.network.cpu(), weights)

    def _call(self, weights: dict[str, Tensor], points: Tensor) -> Any:
        return functional_call(self.network, weights, (points,))


def train_copies(
    build: Build, transfers: Sequence[Transfer], *, steps: int, batch: int, seed: int
) -> list[Networks]:
    """A network for each of `transfers`, in groups that fit into memory, in their order."""
    room = max(map(len, transfers)) * transfers[0].points.shape[1]
    together = max(1, ROOM // room)
    groups = [transfers[at : at + together] for at in range(0, len(transfers), together)]
    return [_train_copies(build, group, steps, batch, seed) for group in groups]


def _train_copies(
    build: Build, transfers: Sequence[Transfer], steps: int, batch: int, seed: int
) -> Networks:
    network, count, device = seeded(build, COPIES + seed), len(transfers), pick_device("auto")
    starts = {
        name: value.detach()[None].repeat(count, *[1] * value.ndim).to(device).requires_grad_()
        for name, value in network.named_parameters()
    }
    networks = Networks(network.to(device), starts)
    columns = zip(*(transfer.fields() for transfer in transfers), strict=True)
    padded = [nn.utils.rnn.pad_sequence(list(column), batch_first=True) for column in columns]
    points, goals, beyond, left = (it.to(device) for it in padded)  # none past an end is drawn
    lengths = torch.tensor([len(transfer) for transfer in transfers])[:, None]
    each = torch.arange(count, device=device)[:, None]
    generator = torch.Generator().manual_seed(COPIES + seed)
    optimiser = adam(list(starts.values()), RATE, device)
    losses_of = one_sided_losses if bool(beyond.any()) else plain_losses

    def learn(numbers: Tensor) -> None:
        at = each, numbers
        logits = networks.each_on_its_own(points[at])
        losses = losses_of(logits, goals[at], beyond[at], left[at])
        optimiser.zero_grad(set_to_none=False)
        losses.mean(dim=1).sum().backward()
        optimiser.step()

    step = Recorded(learn, optimiser, device)
    for number in range(steps):
        falling = (1 + cos(pi * number / steps)) / 2
        set_rate(optimiser, RATE * (LEAST + (1 - LEAST) * falling))
        drawn = torch.rand(batch, generator=generator)
        step((drawn * lengths).long().clamp(max=lengths - 1))
    return networks.frozen()


def plain_losses(logits: Tensor, goals: Tensor, *_: Tensor) -> Tensor:
    """Cross-entropy."""
    return -(goals * logits.log_softmax(dim=-1)).sum(dim=-1)


def one_sided_losses(logits: Tensor, goals: Tensor, beyond: Tensor, left: Tensor) -> Tensor:
    """Cross-entropy; for rows beyond a boundary KL(½ ‖ p) while p ≤ ½, and nothing after it.

    p is the probability of the claimed class against the one that was left, as if there were no
    others; with two classes it is the probability itself.
    """
    claimed = logits.gather(-1, goals.argmax(dim=-1, keepdim=True))[..., 0]
    ahead = claimed - logits.gather(-1, left[..., None])[..., 0]
    short = -(functional.logsigmoid(ahead) + functional.logsigmoid(-ahead)) / 2
    one_sided = torch.where(ahead <= 0, short - log(2), 0.0)
    return torch.where(beyond, one_sided, plain_losses(logits, goals))


def train_classifiers(
    build: Build,
    points: Tensor,
    classes: Tensor,
    numbers: Tensor,
    count: int,
    recipe: Recipe,
    seed: int,
) -> Networks:
    """Classifiers into `count` classes, each trained on its own rows: `numbers` (networks, rows).

    As `targets.train_target` trains one: the same loss, batches and settling.
    """
    networks = [seeded(build, 10_000 * (seed + 1) + each) for each in range(len(numbers))]
    device = pick_device("auto")
    starts = {
        name: x.detach().to(device).requires_grad_()
        for name, x in stack_module_state(networks)[0].items()
    }
    batched = Networks(networks[0].to(device), starts)
    weights = torch.stack([evenly(known, count) for known in classes[numbers]]).to(device)
    points, classes, numbers = points.to(device), classes.to(device), numbers.to(device)
    generator = torch.Generator().manual_seed(seed)
    each = torch.arange(len(numbers), device=device)[:, None]
    for epochs, batch, rate in recipe.stages:
        optimiser = adam(list(starts.values()), rate, device)

        def learn(places: Tensor, optimiser: torch.optim.Adam = optimiser) -> None:
            rows = numbers.gather(1, places)
            logits, truth = batched.each_on_its_own(points[rows]), classes[rows]
            flat = logits.flatten(0, 1), truth.flatten()
            losses = functional.cross_entropy(*flat, reduction="none").reshape(truth.shape)
            weight = weights[each, truth]
            optimiser.zero_grad(set_to_none=False)
            ((losses * weight).sum(dim=1) / weight.sum(dim=1)).sum().backward()
            optimiser.step()

        step = Recorded(learn, optimiser, device)
        for _ in range(epochs):
            order = torch.rand(numbers.shape, generator=generator).argsort(dim=1)
            for places in order.split(batch, dim=1):
                step(places)
    return batched.frozen()
