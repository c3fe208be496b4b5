"""Inference attacks on one game: who was in the training rows, and what was in theirs.

What the attacker knows: the schema, how f and the explainer are trained (not their random numbers),
rows of the same population (D2, D3), and of each candidate all values and the label. He may ask f
for probabilities and the explainer for counterfactuals. He does not know who is a member; half of
the candidates are. His shadows learn from D3 and from rows of D2 that he did not ask about; only
`lira-online` and `rmia-online` also train on candidates, members and outsiders alike and each in
half of the shadows: the game as LiRA and RMIA define it.

Targets: `f` asked directly; `f'` extracted from f's probabilities and counterfactuals for the
queries; `cf`, the counterfactuals themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from counterveil.veil import Veil
from counterveil_lab.attacks import attribute, linkage, membership
from counterveil_lab.attacks.attribute import Ask
from counterveil_lab.attacks.candidates import Candidates, Pool, evidence_of, memoriser, shadows_of
from counterveil_lab.attacks.defences import SLOW, Defence
from counterveil_lab.attacks.extraction import Loot, ask, gather, query_counts
from counterveil_lab.attacks.membership import Guess
from counterveil_lab.attacks.pipelines import shadow_defences
from counterveil_lab.attacks.probe import distances, twins
from counterveil_lab.attacks.protocol import Arena, Size, architecture
from counterveil_lab.attacks.shadows import Evidence, Signals
from counterveil_lab.attacks.stack import Stack, Transfer, train_all
from counterveil_lab.metrics import nearest
from counterveil_lab.results import Row
from counterveil_lab.targets import Recipe, encoded

PIPELINES = 3  # shadow f -> shadow explainer -> shadow f', as the paper has it
COPIED = ("naive", "relabel")  # how f' is extracted; the strongest attacker has his choice
TEACHERS, MOST_LESSONS = 8, 32  # shadows that teach the classifier of attributes, at least, at most
Say = Callable[[str], None]


def suite(
    arena: Arena, defence: Defence, size: Size, say: Say, *, epsilon: float | None = None
) -> list[Row]:
    """Every inference attack on one defence.

    `epsilon`: what shadow explainers are made with; that of the defence's own veil, if it has one.
    """
    rows = on_model(arena, size, say)
    rows += on_defence(arena, defence, size, say, epsilon=epsilon)
    if attribute.sensitive(arena.schema) is not None:
        rows += on_attribute(arena, defence, size, say)
    return rows


def on_model(arena: Arena, size: Size, say: Say, recipe: Recipe | None = None) -> list[Row]:
    """Membership: f asked directly, and f' from its probabilities alone."""
    asked = min(size.queries[-1], len(arena.d2) // 2)
    people, pool = Candidates.of(arena, size.candidates), Pool.of(arena, asked)
    stack, inside = shadows_of(arena, pool, networks(arena, size), recipe)
    own = _by(lambda points: ask(arena, points).log())
    rows = _attacks(
        evidence_of(people, pool, inside, own, _all(stack)), people, "f", size, arena.seed
    )
    say(f"{arena.name}: f attacked with {len(inside)} shadows")
    both = Pool.of(arena, asked, people.frame)
    stack_both, joined = shadows_of(arena, both, networks(arena, size), recipe, seed=1)
    evidence = evidence_of(people, both, joined, own, _all(stack_both))
    evidence = replace(evidence, joined=joined[:, : len(people.frame)])
    for name, attack in (("lira", membership.by_lira), ("rmia", membership.by_rmia)):
        rows.append(people.row(f"{name}-online", "f", attack(evidence), arena.seed))
    say(f"{arena.name}: f attacked with {len(joined)} shadows that saw candidates")
    queries, _ = encoded(arena.d2.head(asked), arena.schema)
    answers = [own(queries)[0], *_all(stack)(queries)[:PIPELINES]]
    transfers = [Transfer.of(queries, each.exp()) for each in answers]
    rows += _on_extracted(arena, people, pool, inside[:PIPELINES], transfers, size)
    say(f"{arena.name}: f' of predictions alone attacked")
    return rows


def on_defence(
    arena: Arena,
    defence: Defence,
    size: Size,
    say: Say,
    *,
    epsilon: float | None = None,
    recipe: Recipe | None = None,
    veils: dict[int, Veil] | None = None,
) -> list[Row]:
    """Membership and linkage: counterfactuals, and f' from them; a defended f as well.

    `veils`: of shadows, which defences of one mechanism can share; filled here.
    """
    count = query_counts(defence, size)[-1]
    people, pool = Candidates.of(arena, size.candidates), Pool.of(arena, count)
    stack, inside = shadows_of(arena, pool, PIPELINES, recipe)
    loot = gather(defence, size, ("naive",))
    made: list[Defence] = []
    if defence.name not in SLOW:
        made = shadow_defences(arena, defence, pool, stack, inside, size, epsilon,
                               {} if veils is None else veils)  # fmt: skip
    loots = [gather(each, size, ("naive",)) for each in made]
    say(f"{defence.name}: {len(made)} shadow explainers")
    rows: list[Row] = []
    if defence.arena is not arena and made:
        own = _by(lambda points: ask(defence.arena, points).log())
        evidence = evidence_of(people, pool, inside, own, _each([one.arena for one in made]))
        rows += _attacks(evidence, people, "f", size, arena.seed)
    queries = loot.points[:count]
    # dice-ml is too slow to imitate: its shadows do without counterfactuals.
    plain = [Transfer.of(queries, each.softmax(dim=1)) for each in stack.logits(queries)]
    for way in COPIED:
        copied = [each.transfer(way, count) for each in loots] if made else plain
        found = _on_extracted(
            arena, people, pool, inside, [loot.transfer(way, count), *copied], size,
            learning=way == COPIED[0],
        )  # fmt: skip
        rows += found if way == COPIED[0] else [
            {**row, "attack": f"{row['attack']}-{way}"} for row in found
        ]  # fmt: skip
    say(f"{defence.name}: f' attacked")
    rows += _on_counterfactuals(arena, defence, made, loot, loots, pool, inside, size)
    say(f"{defence.name}: counterfactuals attacked")
    return rows


def on_attribute(
    arena: Arena, defence: Defence | None, size: Size, say: Say, recipe: Recipe | None = None, *,
    name: str = attribute.SENSITIVE,
) -> list[Row]:  # fmt: skip
    """Attribute inference with f, and with f' from the defence (None: predictions alone).

    f' is copied in each of the ways `COPIED`; its shadows are extracted from predictions alone.
    """
    if defence is None:
        asked, game = min(size.queries[-1], len(arena.d2) // 2), arena
        queries, _ = encoded(arena.d2.head(asked), arena.schema)
        transfers = {"f'": Transfer.of(queries, ask(arena, queries))}
    else:
        loot, game = gather(defence, size, ("naive",)), defence.arena
        asked = query_counts(defence, size)[-1]
        queries = loot.points[:asked]
        transfers = {
            "f'" if way == COPIED[0] else f"f' {way}": loot.transfer(way, asked) for way in COPIED
        }
    pool = Pool.of(arena, asked)
    wanted = 2 * len(arena.d3)
    count = min(MOST_LESSONS, max(TEACHERS, round(2 * wanted / len(pool.frame))))
    stack, inside = shadows_of(arena, pool, count, recipe)
    answers = stack.logits(queries).softmax(dim=2)
    extracted = train_all(
        architecture(arena.schema),
        [*transfers.values(), *(Transfer.of(queries, each) for each in answers)],
        steps=size.steps, batch=size.batch, seed=arena.seed,
    )  # fmt: skip
    copies = [
        _one(each, number)
        for each in extracted
        for number in range(len(next(iter(each.weights.values()))))
    ]
    rows = attribute.infer(
        arena,
        [
            (
                {"f": lambda points: ask(game, points).log()},
                [_one(stack, number) for number in range(count)],
            ),
            (dict(zip(transfers, copies, strict=False)), copies[len(transfers) :]),
        ],
        [pool.frame[kept].head(wanted // count) for kept in inside.numpy()],
        size.candidates,
        name=name,
        seed=arena.seed,
    )
    say(f"{arena.name}: {name} inferred")
    return [{"attack": "attribute", **row} for row in rows]


def on_memoriser(arena: Arena, size: Size) -> list[Row]:
    """The control of attribute inference that has to succeed: f has seen D1 and forgets nothing."""
    pool, count = Pool.of(arena, len(arena.d2)), len(arena.schema.label.classes)
    half = np.arange(len(pool.frame)) < len(pool.frame) // 2
    learnt = memoriser(pool.points[half], pool.classes[half], count)
    own = memoriser(*encoded(arena.d1, arena.schema), count)
    rows = attribute.infer(
        arena, [({"f": own}, [learnt])], [pool.frame[half]], size.candidates, seed=arena.seed
    )
    return [{"attack": "attribute", **row} for row in rows]


def networks(arena: Arena, size: Size) -> int:
    """How many shadows of f: small dense networks train many at once, convolutions do not."""
    return max(PIPELINES, size.shadows // 4 if arena.schema.family == "image" else 4 * size.shadows)


def _on_extracted(
    arena: Arena, people: Candidates, pool: Pool, inside: Tensor, transfers: list[Transfer],
    size: Size, *, learning: bool = True,
) -> list[Row]:  # fmt: skip
    """f' and its shadows, trained at once: `transfers` of the game, then of its shadows."""
    stacks = train_all(architecture(arena.schema), transfers, steps=size.steps, batch=size.batch,
                       seed=arena.seed)  # fmt: skip

    def told(points: Tensor) -> Tensor:
        return torch.cat([stack.logits(points) for stack in stacks]).log_softmax(dim=2)

    evidence = evidence_of(people, pool, inside, lambda points: told(points)[:1],
                         lambda points: told(points)[1:])  # fmt: skip
    return _attacks(evidence, people, "f'", size, arena.seed, learning=learning)


def _attacks(
    evidence: Evidence, people: Candidates, target: str, size: Size, seed: int, *,
    learning: bool = True,
) -> list[Row]:  # fmt: skip
    """`learning`: the slowest of them, played on one of the copies alone."""
    guesses = {
        "threshold": membership.by_threshold(evidence),
        "lira": membership.by_lira(evidence),
        "rmia": membership.by_rmia(evidence),
    }
    if learning:
        guesses["learning"] = membership.by_learning(
            evidence.first(PIPELINES), size.candidates // 2, seed
        )
    return [people.row(name, target, guess, seed) for name, guess in guesses.items()]


def _on_counterfactuals(
    arena: Arena, defence: Defence, made: list[Defence], loot: Loot, loots: list[Loot], pool: Pool,
    inside: Tensor, size: Size,
) -> list[Row]:  # fmt: skip
    rows = [{"attack": "linkage", "target": "cf",
             **linkage.linkage(arena, loot.first.points, seed=arena.seed)}]  # fmt: skip
    people, seed = Candidates.of(arena, size.candidates), arena.seed
    if len(loot.first.points):
        near = nearest(people.points, loot.first.points).numpy()
        given = [each.first.points for each in loots if len(each.first.points)]
        given = given or [pool.points[: len(loot.first.points)]]
        usual = [nearest(people.points, each).numpy() for each in given]
        rows.append(people.row("cf-only", "cf", membership.by_nearness(near, usual), seed))
    if defence.name == "dice-gradient":  # seconds a candidate
        return rows
    few = size.kdtree_queries if defence.name in SLOW else size.candidates // 2
    people = Candidates.of(arena, few)
    far = distances(defence, people.frame)
    rows.append(people.row("cf-distance", "cf", Guess(far), seed))
    twin, decided = twins(defence.arena, people.frame, arena.d3)
    near, *usual = (
        distances(each, people.frame, queries=twin, targets=decided) for each in (defence, *made)
    )
    guess = membership.by_nearness(near, usual or [np.ones_like(near)])
    rows.append(people.row("cf-probe", "cf", guess, seed))
    if made:
        some = pool.frame.head(few)
        shadow = [(distances(each, people.frame), distances(each, some)) for each in made]
        signals = Signals(
            np.log(far + 1e-3), np.log(np.stack([own for own, _ in shadow]) + 1e-3),
            np.zeros((len(made), len(far)), dtype=bool), np.zeros(len(some)),
            np.log(np.stack([other for _, other in shadow]) + 1e-3),
            inside[:, : len(some)].numpy(),
        )  # fmt: skip
        ratio = Guess(membership.likelihood_ratio(signals))
        rows.append(people.row("cf-distance-lrt", "cf", ratio, seed))
    return rows


def _by(answer: Ask) -> Ask:
    return lambda points: answer(points)[None]


def _all(stack: Stack) -> Ask:
    return lambda points: stack.logits(points).log_softmax(dim=2)


def _one(stack: Stack, number: int) -> Ask:
    alone = Stack(stack.network, {name: value[number : number + 1]
                                  for name, value in stack.weights.items()})  # fmt: skip
    return lambda points: alone.logits(points)[0].log_softmax(dim=1)


def _each(arenas: list[Arena]) -> Ask:
    return lambda points: torch.stack([ask(each, points).log() for each in arenas])
