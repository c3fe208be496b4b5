"""Membership inference: was this person among the rows that f was trained on?

Every function turns evidence into one score a candidate, higher for members.

| attack | score |
|---|---|
| threshold | confidence in the true class (Yeom 2018); accuracy at the shadows' best threshold |
| learning | a network that learnt from shadows what members look like (Shokri 2017) |
| lira | likelihood ratio of the logit against shadows with and without the row (Carlini 2022) |
| rmia | how many others the row outdoes in likelihood over its average (Zarifzadeh 2024) |
| cf-distance | the distance to one's own counterfactual (Pawelczyk 2023) |
| cf-distance-lrt | the same as a likelihood ratio against shadow explainers |
| cf-only | nearness to the counterfactuals that others got, over what shadow explainers give |
| cf-probe | whether a twin's counterfactual leads back to the candidate (see `counterfactuals`) |

Where shadows saw no candidate, the shift that training on a row causes is learnt from the pool.
"""

from collections.abc import Callable

import numpy as np
import torch
from scipy.stats import norm, rankdata
from torch import Tensor, nn
from torch.nn import functional

from counterveil.encoding import Array
from counterveil.networks import pick_device, seeded
from counterveil_lab.attacks import shadows
from counterveil_lab.attacks.scores import area
from counterveil_lab.attacks.shadows import Candidates, Evidence, Guess, Signals
from counterveil_lab.product import dense_relu
from counterveil_lab.results import Row

LAYERS = (1024, 512, 256, 64)
EPOCHS, BATCH, RATE, DECAY = 30, 64, 1e-2, 1e-7
TINY = 1e-12
BLENDS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # RMIA's a: how far out-of-shadow averages are trusted


def by_threshold(evidence: Evidence) -> Guess:
    """Members are those whose class the model is sure of."""
    signals = evidence.signals(shadows.confidence)
    inside = signals.pool_shadows[signals.inside]
    outside = signals.pool_shadows[~signals.inside]
    return Guess(signals.target, best_threshold(inside, outside))


def best_threshold(inside: Array, outside: Array) -> float:
    """Where the most are told right, both kinds counting the same."""
    values = np.unique(np.concatenate([inside, outside]))
    kept = 1 - np.searchsorted(np.sort(inside), values) / len(inside)
    refused = np.searchsorted(np.sort(outside), values) / len(outside)
    return float(values[(kept + refused).argmax()])


def by_learning(evidence: Evidence, rows: int, seed: int) -> Guess:
    """A network on sorted predictions and the true class; `rows` of the pool a shadow."""
    network = attack_network(2 * evidence.target.shape[-1], seed)
    generator = torch.Generator().manual_seed(seed)
    inputs, labels = [], []
    for shadow, inside in zip(evidence.pool_shadows, evidence.inside, strict=True):
        for is_in in (True, False):
            known = (inside == is_in).nonzero()[:, 0]
            chosen = known[torch.randperm(len(known), generator=generator)[: rows // 2]]
            inputs.append(_looks(shadow[chosen], evidence.pool_classes[chosen]))
            labels.append(torch.full((len(chosen),), float(is_in)))
    known_inputs, known_labels = torch.cat(inputs), torch.cat(labels)

    def loss(logits: Tensor, numbers: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(logits[:, 0], known_labels[numbers])

    train_attack(network, known_inputs, loss, generator)
    with torch.no_grad():
        scores = network(_looks(evidence.target, evidence.classes))[:, 0]
    return Guess(scores.double().numpy(), 0.0)


def attack_network(width: int, seed: int, outputs: int = 1) -> nn.Module:
    """[u, 1024, 512, 256, 64, 1], ReLU, as the paper has it; `outputs`: more for attributes."""
    sizes = [width, *LAYERS]
    return seeded(lambda: nn.Sequential(*dense_relu(sizes), nn.Linear(sizes[-1], outputs)), seed)


def train_attack(
    network: nn.Module,
    inputs: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor],
    generator: torch.Generator,
) -> None:
    """Train an attack network as the paper does; `loss(logits, numbers)` of those rows."""
    device = pick_device("auto")
    known, learning = inputs.to(device), network.to(device).parameters()
    optimiser = torch.optim.Adagrad(learning, RATE, lr_decay=DECAY, fused=device.type == "cpu")
    for _ in range(EPOCHS):
        order = torch.randperm(len(inputs), generator=generator)
        for numbers in order.split(BATCH):
            optimiser.zero_grad()
            loss(network(known[numbers.to(device)]).cpu(), numbers).backward()
            optimiser.step()
    network.cpu()


def _looks(log_proba: Tensor, classes: Tensor) -> Tensor:
    ordered = log_proba.exp().sort(dim=-1, descending=True).values
    return torch.cat([ordered, functional.one_hot(classes, log_proba.shape[-1])], dim=1).float()


def by_lira(evidence: Evidence) -> Guess:
    """Online where shadows saw the candidates, each in half of them; offline elsewhere."""
    signals = evidence.signals(shadows.margin)
    return Guess(online_ratio(signals) if evidence.online else likelihood_ratio(signals))


def likelihood_ratio(signals: Signals) -> Array:
    """log of the likelihood if the row was in, over that if not; no shadow saw a candidate.

    A row's own average over the shadows says how hard it is. How a signal then spreads, in and out,
    is learnt from the pool, whose rows were in some of the shadows and out of others: from what
    they score beyond their average over shadows that did not see them.
    """
    scores, out = signals.pool_shadows, ~signals.inside
    outs, total = out.sum(axis=0), (scores * out).sum(axis=0)
    others = np.where(out, outs - 1, outs)  # a score is not part of its own average
    moved_pool = scores - (total - scores * out) / np.maximum(others, 1)
    moved_in, moved_out = (moved_pool[(others > 0) & side] for side in (signals.inside, out))
    moved = signals.target - signals.shadows.mean(axis=0)
    likely_in = norm.logpdf(moved, moved_in.mean(), moved_in.std() + TINY)
    return likely_in - norm.logpdf(moved, moved_out.mean(), moved_out.std() + TINY)


def online_ratio(signals: Signals) -> Array:
    """The same with shadows that had the row and shadows that did not, for every candidate.

    With tens of shadows a row's own spread is too rough: one for all rows, as LiRA advises.
    """

    def likely(chosen: Array) -> Array:
        count = chosen.sum(axis=0)
        overall = (signals.shadows * chosen).sum() / max(chosen.sum(), 1)
        mean = (signals.shadows * chosen).sum(axis=0) / np.maximum(count, 1)
        mean = np.where(count > 0, mean, overall)
        squares = ((signals.shadows - mean) ** 2)[chosen].sum()
        spread = np.sqrt(squares / max((np.maximum(count - 1, 0)).sum(), 1)) + TINY
        return norm.logpdf(signals.target, mean, spread)

    return likely(signals.joined) - likely(~signals.joined)


def by_rmia(evidence: Evidence) -> Guess:
    """The share of the attacker's rows z that x outdoes: p(x|f)/p(x) ≥ p(z|f)/p(z)."""
    signals = evidence.signals(shadows.confidence)
    likely = signals.pool_shadows.mean(axis=0)  # every row of the pool was in half of them
    others = np.sort(signals.pool / (likely + TINY))
    average = signals.shadows.mean(axis=0)
    if not evidence.online:
        average = blended(average, best_blend(signals))
    ratios = signals.target / (average + TINY)
    return Guess(np.searchsorted(others, ratios, side="right") / len(others))


def blended(out: Array, blend: float) -> Array:
    """RMIA's guess of p(x) from shadows that did not see x: in-shadows are nearer to 1."""
    return ((1 + blend) * out + (1 - blend)) / 2


def best_blend(signals: Signals) -> float:
    """RMIA's a, tuned where the attacker knows the truth: on his first shadow."""
    out, first = ~signals.inside[1:], signals.pool_shadows[0]
    known = out.any(axis=0)
    average = (signals.pool_shadows[1:] * out).sum(axis=0) / np.maximum(out.sum(axis=0), 1)
    inside = signals.inside[0]

    def told(blend: float) -> float:
        ratios = first / (blended(average, blend) + TINY)
        return area(ratios[known & inside], ratios[known & ~inside])

    return max(BLENDS, key=told)


def by_nearness(candidates: Array, references: list[Array]) -> Guess:
    """How much nearer a candidate is to what was released than to what shadows release.

    `candidates`: distance of each to the nearest released row; `references`: the same to rows that
    were released by shadows of the explainer (or are rows of the attacker's own).
    """
    usual = np.mean([np.log(each + 1e-3) for each in references], axis=0)
    return Guess(usual - np.log(candidates + 1e-3))


def without_model(people: Candidates, seed: int) -> Row:
    """The control of `counterveil-lab attack`: members told from others by their values alone.

    Logistic regression on encoding and label, fitted on one half and scored on the other, both
    ways. Away from .5 the two tables differ by themselves, and membership numbers mean less.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    classes = functional.one_hot(people.classes, int(people.classes.max()) + 1)
    points = torch.cat([people.points, classes.float()], dim=1).numpy()
    member, scores = people.is_member, np.zeros(len(points))
    for learnt, scored in StratifiedKFold(2, shuffle=True, random_state=seed).split(points, member):
        fitted = LogisticRegression(max_iter=1000).fit(points[learnt], member[learnt])
        told = fitted.decision_function(points[scored])
        scores[scored] = rankdata(told) / len(told)  # halves on one scale
    return people.row("values alone", "tables", Guess(scores), seed)
