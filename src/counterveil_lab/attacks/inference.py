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

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterveil.veil import Veil
from counterveil_lab.attacks import attribute, membership, shadows
from counterveil_lab.attacks.batched_training import Networks, Transfer, train_copies
from counterveil_lab.attacks.counterfactuals import distances, linkage, twins
from counterveil_lab.attacks.defences import SLOW, TIMED, Defence
from counterveil_lab.attacks.extraction import Loot, gather, query_counts
from counterveil_lab.attacks.protocol import Arena, Size, architecture
from counterveil_lab.attacks.shadows import Ask, Candidates, Evidence, Guess, Pool, Signals
from counterveil_lab.metrics import nearest
from counterveil_lab.results import Row
from counterveil_lab.targets import Recipe, encoded

PIPELINES = 3  # shadow f -> shadow explainer -> shadow f', as the paper has it
COPIED = ("naive", "relabel")  # how f' is extracted; the strongest attacker has his choice
TEACHERS, MOST_LESSONS = 8, 32  # shadows that teach the classifier of attributes, at least, at most
Say = Callable[[str], None]


def on_model(
    arena: Arena, size: Size, say: Say = lambda words: None, recipe: Recipe | None = None
) -> list[Row]:
    """Membership: f asked directly, and f' from its probabilities alone."""
    asked = min(size.queries[-1], len(arena.d2) // 2)
    people, pool = Candidates.of(arena, size.candidates), Pool.of(arena, asked)
    networks, inside = shadows.shadows_of(arena, pool, shadow_count(arena, size), recipe)
    evidence = Evidence.of(people, pool, inside, _f(arena), networks.log_proba)
    rows = _attacks(evidence, people, "f", size, arena.seed)
    say(f"{arena.name}: f attacked with {len(inside)} shadows")
    both = Pool.of(arena, asked, people.frame)
    joint, joined = shadows.shadows_of(arena, both, shadow_count(arena, size), recipe, seed=1)
    evidence = Evidence.of(people, both, joined, _f(arena), joint.log_proba)
    evidence = replace(evidence, joined=joined[:, : len(people.frame)])
    for name, attack in (("lira", membership.by_lira), ("rmia", membership.by_rmia)):
        rows.append(people.row(f"{name}-online", "f", attack(evidence), arena.seed))
    say(f"{arena.name}: f attacked with {len(joined)} shadows that saw candidates")
    queries, _ = encoded(arena.d2.head(asked), arena.schema)
    answers = [_f(arena)(queries), *networks.log_proba(queries)[:PIPELINES]]
    transfers = [Transfer.of(queries, each.exp()) for each in answers]
    rows += _on_copies(arena, people, pool, inside[:PIPELINES], transfers, size)
    say(f"{arena.name}: f' of predictions alone attacked")
    return rows


def on_defence(
    arena: Arena,
    defence: Defence,
    size: Size,
    say: Say = lambda words: None,
    *,
    epsilon: float | None = None,
    recipe: Recipe | None = None,
    veils: dict[int, Veil] | None = None,
) -> list[Row]:
    """Membership and linkage: counterfactuals, and f' from them; a defended f as well.

    `epsilon`: what shadow explainers are made with; that of the defence's own veil, if it has one.
    `veils`: of shadows, which defences of one mechanism can share; filled here.
    """
    count = query_counts(defence, size)[-1]
    people, pool = Candidates.of(arena, size.candidates), Pool.of(arena, count)
    networks, inside = shadows.shadows_of(arena, pool, PIPELINES, recipe)
    loot = gather(defence, size, ("naive",))
    made: list[Defence] = []
    if defence.name not in SLOW and size.imitate:
        veils = {} if veils is None else veils
        made = shadows.shadow_defences(arena, defence, pool, networks, inside, size, epsilon, veils)
    loots = [gather(each, size, ("naive",)) for each in made]
    say(f"{defence.name}: {len(made)} shadow explainers")
    rows: list[Row] = []
    if defence.arena is not arena and made:

        def others(points: Tensor) -> Tensor:
            return torch.stack([_f(one.arena)(points) for one in made])

        evidence = Evidence.of(people, pool, inside, _f(defence.arena), others)
        rows += _attacks(evidence, people, "f", size, arena.seed)
    queries = loot.points[:count]
    # What is too slow to imitate has shadows that do without counterfactuals.
    plain = [Transfer.of(queries, each.exp()) for each in networks.log_proba(queries)]
    for way in COPIED:
        shadow = [each.transfer(way, count) for each in loots] if made else plain
        transfers, first = [loot.transfer(way, count), *shadow], way == COPIED[0]
        found = _on_copies(arena, people, pool, inside, transfers, size, learning=first)
        ending = "" if first else f"-{way}"
        rows += [{**row, "attack": row["attack"] + ending} for row in found]
    say(f"{defence.name}: f' attacked")
    rows += _on_counterfactuals(arena, defence, made, loot, loots, pool, inside, size)
    say(f"{defence.name}: counterfactuals attacked")
    return [{**row, **loot.asked(count)} for row in rows]


def on_attribute(
    arena: Arena,
    defence: Defence | None,
    size: Size,
    say: Say = lambda words: None,
    recipe: Recipe | None = None,
    *,
    name: str = attribute.SENSITIVE,
    as_paper: bool = False,
) -> list[Row]:
    """Attribute inference with f, and with f' from the defence (None: predictions alone).

    f' is copied in each of the ways `COPIED`; its shadows are extracted from predictions alone.
    `as_paper`: f' is attacked with the paper's network, too.
    """
    limit: Row = {}
    if defence is None:
        asked, game = min(size.queries[-1], len(arena.d2) // 2), arena
        queries, _ = encoded(arena.d2.head(asked), arena.schema)
        transfers = {"f'": Transfer.of(queries, arena.ask(queries))}
    else:
        loot, game = gather(defence, size, ("naive",)), defence.arena
        asked = query_counts(defence, size)[-1]
        queries, limit = loot.points[:asked], loot.asked(asked)
        names = {way: "f'" if way == COPIED[0] else f"f' {way}" for way in COPIED}
        transfers = {names[way]: loot.transfer(way, asked) for way in COPIED}
    pool = Pool.of(arena, asked)
    wanted = 2 * len(arena.d3)
    count = min(MOST_LESSONS, max(TEACHERS, round(2 * wanted / len(pool.frame))))
    networks, inside = shadows.shadows_of(arena, pool, count, recipe)
    answers = networks.logits(queries).softmax(dim=2)
    shadow = [Transfer.of(queries, each) for each in answers]
    copies = _separate(_copies(arena, [*transfers.values(), *shadow], size))
    of_f = {"f": _f(game)}, _separate([networks])
    of_copies = dict(zip(transfers, copies, strict=False)), copies[len(transfers) :]
    taught = [pool.frame[kept].head(wanted // count) for kept in inside.numpy()]
    options: dict[str, Any] = {
        "name": name,
        "seed": arena.seed,
        "as_paper": of_copies if as_paper else None,
    }
    rows = attribute.infer(arena, [of_f, of_copies], taught, size.candidates, **options)
    say(f"{arena.name}: {name} inferred")
    return [{**row, **limit} for row in rows]


def on_memoriser(arena: Arena, size: Size) -> list[Row]:
    """The control of attribute inference that has to succeed: f has seen D1 and forgets nothing."""
    pool = Pool.of(arena, len(arena.d2))
    half = np.arange(len(pool.frame)) < len(pool.frame) // 2
    learnt = shadows.memoriser(pool.points[half], pool.classes[half], arena.classes)
    own = shadows.memoriser(*encoded(arena.d1, arena.schema), arena.classes)
    taught, models = [pool.frame[half]], [({"f": own}, [learnt])]
    return attribute.infer(arena, models, taught, size.candidates, seed=arena.seed)


def shadow_count(arena: Arena, size: Size) -> int:
    """How many shadows of f: small dense networks train many at once, convolutions do not."""
    return max(PIPELINES, size.shadows // 4 if arena.schema.family == "image" else 4 * size.shadows)


def _copies(arena: Arena, transfers: list[Transfer], size: Size) -> list[Networks]:
    options = {"steps": size.steps, "batch": size.batch, "seed": arena.seed}
    return train_copies(architecture(arena.schema), transfers, **options)


def _on_copies(
    arena: Arena,
    people: Candidates,
    pool: Pool,
    inside: Tensor,
    transfers: list[Transfer],
    size: Size,
    *,
    learning: bool = True,
) -> list[Row]:
    """f' and its shadows, trained at once: `transfers` of the game, then of its shadows."""
    groups = _copies(arena, transfers, size)

    def told(points: Tensor) -> Tensor:
        return torch.cat([group.log_proba(points) for group in groups])

    evidence = Evidence.of(people, pool, inside, lambda x: told(x)[0], lambda x: told(x)[1:])
    return _attacks(evidence, people, "f'", size, arena.seed, learning=learning)


def _attacks(
    evidence: Evidence,
    people: Candidates,
    target: str,
    size: Size,
    seed: int,
    *,
    learning: bool = True,
) -> list[Row]:
    """`learning`: the slowest of them, played on one of the copies alone."""
    guesses = {"threshold": membership.by_threshold(evidence)}
    guesses |= {"lira": membership.by_lira(evidence), "rmia": membership.by_rmia(evidence)}
    if learning:
        few, rows = evidence.first(PIPELINES), size.candidates // 2
        guesses["learning"] = membership.by_learning(few, rows, seed)
    return [people.row(name, target, guess, seed) for name, guess in guesses.items()]


def _on_counterfactuals(
    arena: Arena,
    defence: Defence,
    made: list[Defence],
    loot: Loot,
    loots: list[Loot],
    pool: Pool,
    inside: Tensor,
    size: Size,
) -> list[Row]:
    found, seed = loot.first.points, arena.seed
    rows: list[Row] = [{"attack": "linkage", "target": "cf", **linkage(arena, found, seed=seed)}]
    people = Candidates.of(arena, size.candidates)
    if len(found):
        near = nearest(people.points, found).numpy()
        given = [each.first.points for each in loots if len(each.first.points)]
        usual = [nearest(people.points, x).numpy() for x in given or [pool.points[: len(found)]]]
        rows.append(people.row("cf-only", "cf", membership.by_nearness(near, usual), seed))
    if defence.name in TIMED:  # up to minutes a candidate
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
        own, other = (
            np.log(np.stack([distances(each, frame) for each in made]) + 1e-3)
            for frame in (people.frame, some)
        )
        none, kept = np.zeros(own.shape, dtype=bool), inside[:, : len(some)].numpy()
        signals = Signals(np.log(far + 1e-3), own, none, np.zeros(len(some)), other, kept)
        ratio = Guess(membership.likelihood_ratio(signals))
        rows.append(people.row("cf-distance-lrt", "cf", ratio, seed))
    return rows


def _f(arena: Arena) -> Ask:
    return lambda points: arena.ask(points).log()


def _separate(groups: list[Networks]) -> list[Ask]:
    """Each network of each group by itself."""

    def alone(networks: Networks, number: int) -> Ask:
        one = {name: x[number : number + 1] for name, x in networks.weights.items()}
        return lambda points: Networks(networks.network, one).log_proba(points)[0]

    return [alone(group, number) for group in groups for number in range(len(group))]
