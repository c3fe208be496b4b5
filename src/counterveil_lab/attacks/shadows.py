"""Shadow models: networks like f that an attacker trains on rows of his own.

Each of K networks learns from a random half of a pool of rows, so that the attacker knows for each
row and network whether it was in. They are trained as f was, all at once, from weights of their
own. What f (or f') and its shadows say of the same people is `Evidence`: all that attacks on a
model's answers need.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import stack_module_state, vmap
from torch.nn import functional

from counterveil.encoding import Array
from counterveil.networks import seeded
from counterveil.schema import Schema
from counterveil_lab.attacks.protocol import architecture
from counterveil_lab.attacks.stack import Stack
from counterveil_lab.targets import ANY_OTHER, RECIPES, Recipe

MOST = 30.0  # a logit beyond it says no more than "sure"


@dataclass(frozen=True, eq=False)
class Evidence:
    """Log-probabilities of the classes for candidates and for rows of the pool.

    `target`: of the model under attack, for (candidates, classes); `shadows`: of each shadow,
    (K, candidates, classes); `joined`: which candidates each shadow learnt from (none, where the
    attacker trains on rows of his own alone); `pool`, `pool_shadows` and `inside`: the same for the
    pool. `classes` and `pool_classes`: the true ones, which he knows.
    """

    classes: Tensor
    target: Tensor
    shadows: Tensor
    joined: Tensor
    pool_classes: Tensor
    pool: Tensor
    pool_shadows: Tensor
    inside: Tensor

    @property
    def online(self) -> bool:
        """Whether the shadows learnt from some of the candidates."""
        return bool(self.joined.any())

    def first(self, count: int) -> Evidence:
        """With the first few shadows of the pool alone."""
        return replace(self, pool_shadows=self.pool_shadows[:count], inside=self.inside[:count])

    def signals(self, signal: Callable[[Tensor, Tensor], Array]) -> Signals:
        """One number a row in the place of a vector."""
        return Signals(
            signal(self.target, self.classes), signal(self.shadows, self.classes),
            self.joined.numpy(), signal(self.pool, self.pool_classes),
            signal(self.pool_shadows, self.pool_classes), self.inside.numpy(),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Signals:
    """Evidence as single numbers: (candidates,), (K, candidates), and the same of the pool."""

    target: Array
    shadows: Array
    joined: Array
    pool: Array
    pool_shadows: Array
    inside: Array


def confidence(log_proba: Tensor, classes: Tensor) -> Array:
    """The probability of the true class."""
    return _own(log_proba, classes).exp().double().numpy()


def margin(log_proba: Tensor, classes: Tensor) -> Array:
    """log p/(1 - p) of the true class: nearly normal over shadow models, which LiRA relies on."""
    others = log_proba.scatter(-1, _at(log_proba, classes), -torch.inf).logsumexp(dim=-1)
    return (_own(log_proba, classes) - others).clamp(-MOST, MOST).double().numpy()


def _own(log_proba: Tensor, classes: Tensor) -> Tensor:
    return log_proba.gather(-1, _at(log_proba, classes))[..., 0]


def _at(log_proba: Tensor, classes: Tensor) -> Tensor:
    return classes.expand(log_proba.shape[:-1])[..., None]


def halves(rows: int, networks: int, seed: int) -> Tensor:
    """The numbers of a random half of the rows for each network."""
    rng = np.random.default_rng(seed)
    return torch.as_tensor(np.stack([rng.permutation(rows)[: rows // 2] for _ in range(networks)]))


def mask(numbers: Tensor, rows: int) -> Tensor:
    """Which of the rows are among the numbers, for each network."""
    inside = torch.zeros(len(numbers), rows, dtype=torch.bool)
    return inside.scatter(1, numbers, True)


def train_shadows(
    schema: Schema,
    points: Tensor,
    classes: Tensor,
    numbers: Tensor,
    seed: int,
    recipe: Recipe | None = None,
) -> Stack:
    """Networks like f, each trained on its own `numbers` of the rows."""
    recipe = recipe or RECIPES.get(schema.name, ANY_OTHER)
    count = len(schema.label.classes)
    return train_many(architecture(schema), points, classes, numbers, count, recipe, seed)


def train_many(
    build: Callable[[], nn.Module],
    points: Tensor,
    classes: Tensor,
    numbers: Tensor,
    count: int,
    recipe: Recipe,
    seed: int,
) -> Stack:
    """Classifiers into `count` classes, each from initial weights of its own; classes count even.

    As `targets.train_target` trains one: the same loss, batches and settling.
    """
    networks = [seeded(build, 10_000 * (seed + 1) + each) for each in range(len(numbers))]
    weights, _ = stack_module_state(networks)
    stack = Stack(networks[0], {name: value.detach().requires_grad_()
                                for name, value in weights.items()})  # fmt: skip
    known = classes[numbers]
    counts = torch.stack([torch.bincount(each, minlength=count) for each in known])
    evenly = known.shape[1] / (count * counts.clamp(min=1).float())
    generator = torch.Generator().manual_seed(seed)
    each = torch.arange(len(numbers))[:, None]

    def learn(epochs: int, batch: int, rate: float) -> None:
        optimiser = torch.optim.Adam(list(stack.weights.values()), rate, fused=True)
        for _ in range(epochs):
            order = torch.rand(numbers.shape, generator=generator).argsort(dim=1)
            for places in order.split(batch, dim=1):
                rows = numbers.gather(1, places)
                logits = vmap(stack._call)(stack.weights, points[rows])
                losses = functional.cross_entropy(
                    logits.flatten(0, 1), classes[rows].flatten(), reduction="none"
                ).reshape(rows.shape)
                weight = evenly[each, classes[rows]]
                optimiser.zero_grad()
                ((losses * weight).sum(dim=1) / weight.sum(dim=1)).sum().backward()
                optimiser.step()

    learn(recipe.epochs, recipe.batch, recipe.rate)
    if recipe.settling:
        learn(recipe.settling, 4 * recipe.batch, recipe.rate / 10)
    return Stack(stack.network, {name: value.detach() for name, value in stack.weights.items()})


def one_of(stack: Stack, number: int) -> nn.Module:
    """A network of a stack by itself."""
    network = copy.deepcopy(stack.network)
    network.load_state_dict({name: value[number] for name, value in stack.weights.items()})
    return network.requires_grad_(False).eval()
