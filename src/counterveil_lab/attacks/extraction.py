"""Model extraction: rebuild f from its predictions and the counterfactuals that come with them.

| attacker | transfer set | asks |
|---|---|---|
| base-n | n queries with f's probabilities; no counterfactuals | n |
| base-2n | 2n queries of the same kind | 2n |
| drop | what base-n has: counterfactuals thrown away | n |
| naive | and a counterfactual each, with the class it is said to have | n |
| cca | counterfactuals only have to be beyond the boundary (Dissanayake & Dutta 2024) | n |
| relabel | counterfactuals with f's own probabilities, which costs a question each | 2n |
| relabel-cca | relabel, and beyond the boundary the counterfactual of each (Wang 2022) | 2n |

dice-ml is asked for a limited time: of n queries those after `counterfactual_queries` then have
predictions alone, and `limited_by` says "time".

The base is what predictions alone give for as many questions. Fidelity is agreement with f: on test
rows, and on legal rows drawn evenly. Where f answers with probabilities, a few hundred of them
already give it away; so it is also played with an f that says its class and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from counterveil.errors import RequestError
from counterveil_lab.attacks.batched_training import Build, Transfer, train_copies
from counterveil_lab.attacks.defences import DP_BUDGET, TIMED, ByBaseline, Defence, Released
from counterveil_lab.attacks.protocol import Arena, Size, architecture
from counterveil_lab.product import nearest_legal
from counterveil_lab.results import Row
from counterveil_lab.targets import encoded

BASES = ("base-n", "base-2n")
ATTACKERS = ("naive", "cca", "relabel", "relabel-cca")
TWICE = frozenset({"base-2n", "relabel", "relabel-cca"})  # ask n more
# How the names of those with ε begin.
PRIVATE = ("paper", "functional", "elsewhere", "dpsgd", "random-labels")
SETTINGS = (("known", "probabilities"), ("unknown", "probabilities"), ("known", "labels"))


@dataclass(frozen=True, eq=False)
class Answers:
    """Counterfactuals that were found.

    `number`: of the query; `claims`: the class it is said to have, one-hot; `left`: the class that
    f gave to the query; `proba`: what f says of it, for those who ask.
    """

    number: Tensor
    points: Tensor
    claims: Tensor
    left: Tensor
    proba: Tensor

    def only(self, kept: Tensor) -> Answers:
        parts = (self.number, self.points, self.claims, self.left, self.proba)
        return Answers(*(part[kept] for part in parts))

    def head(self, count: int) -> Answers:
        return self.only(self.number < count)


@dataclass(frozen=True, eq=False)
class Loot:
    """What the attackers have gathered.

    `points` and `proba`: all queries, those of base-2n too; `answered`: how many of them, from the
    first on, the explainer was asked about; `first`: counterfactuals; `again`: counterfactuals of
    these.
    """

    points: Tensor
    proba: Tensor
    answered: int
    first: Answers
    again: Answers | None = None

    @property
    def distance(self) -> float | None:
        """From query to counterfactual, on average; None where there is none."""
        moved = self.first.points - self.points[self.first.number]
        return float(moved.norm(dim=1).mean()) if len(moved) else None

    def counts(self, counts: Sequence[int]) -> tuple[int, ...]:
        """Of numbers of queries, smallest first: those that the explainer answered, and the next.

        That one was begun before the time was over.
        """
        begun = zip(counts, (0, *counts), strict=False)
        return tuple(count for count, before in begun if before == 0 or before < self.answered)

    def asked(self, count: int) -> Row:
        """Of so many queries, how many were asked about, and what set the limit."""
        limit = "time" if self.answered < count else None
        return {"counterfactual_queries": min(count, self.answered), "limited_by": limit}

    def labels_only(self) -> Loot:
        """The same from an f that names its class and no probabilities."""

        def named(proba: Tensor) -> Tensor:
            return functional.one_hot(proba.argmax(dim=1), proba.shape[1]).float()

        first = replace(self.first, proba=named(self.first.proba))
        return replace(self, proba=named(self.proba), first=first)

    def has(self, attacker: str) -> bool:
        return self.again is not None or attacker != "relabel-cca"

    def transfer(self, attacker: str, count: int) -> Transfer:
        """What he trains on with `count` queries."""
        if attacker == "base-2n":
            count = 2 * count
        asked = Transfer.of(self.points[:count], self.proba[:count])
        if attacker in BASES:
            return asked
        first = self.first.head(count)
        if attacker in {"relabel", "relabel-cca"}:
            told = asked + Transfer.of(first.points, first.proba)
            if attacker == "relabel" or self.again is None:
                return told
            again = self.again.head(count)
            return told + Transfer.of(again.points, again.claims, left=again.left)
        left = first.left if attacker == "cca" else None
        return asked + Transfer.of(first.points, first.claims, left=left)


@dataclass(frozen=True, eq=False)
class FidelityTest:
    """Rows that nobody trained on, with what is true of them and what f says of them."""

    test: Tensor
    classes: Tensor
    decided: Tensor
    uniform: Tensor
    decided_uniform: Tensor

    @classmethod
    def of(cls, arena: Arena, size: Size) -> FidelityTest:
        """The test rows, and as many legal rows drawn evenly as `size` says."""
        test, classes = encoded(arena.test, arena.schema)
        generator = torch.Generator().manual_seed(arena.seed)
        drawn = torch.rand(size.uniform, test.shape[1], generator=generator)
        uniform = nearest_legal(drawn, arena.judge.encoding)
        decided, evenly = (arena.ask(points).argmax(dim=1) for points in (test, uniform))
        return cls(test, classes, decided, uniform, evenly)

    def marks(self, answers: Tensor, answers_uniform: Tensor) -> Row:
        """Of one model, given its classes for the test rows and for those drawn evenly."""
        row = {"accuracy": _share(answers == self.classes)}
        row |= {"fidelity": _share(answers == self.decided)}
        return row | {"fidelity_uniform": _share(answers_uniform == self.decided_uniform)}


def extract(
    defence: Defence,
    size: Size,
    *,
    epsilon: float | None = None,
    delta: float = 0.0,
    settings: Sequence[tuple[str, str]] = SETTINGS,
    attackers: Sequence[str] = ATTACKERS,
) -> list[Row]:
    """A row for every attacker, setting and number of queries, against one defence.

    `settings`: what is known of the architecture of f, and what f answers.
    With the base of its own f in every call, so that a defence that changes f is compared fairly.
    """
    arena = defence.arena
    loot, test = gather(defence, size, attackers), FidelityTest.of(arena, size)
    counts = loot.counts(query_counts(defence, size))
    accepted = loot.first.proba.argmax(dim=1) == loot.first.claims.argmax(dim=1)
    head: Row = {"dataset": arena.name, "defence": defence.name, "seed": arena.seed}
    head |= budget_of(defence.name, epsilon, delta)
    head |= {"flip_ratio": int(accepted.sum()) / max(loot.answered, 1)}
    head |= {"distance": loot.distance}
    head["target_accuracy"] = _share(test.decided == test.classes)
    rows: list[Row] = []
    for kind, predictions in settings:
        build = architecture(arena.schema, wider=kind == "unknown")
        seen = loot if predictions == "probabilities" else loot.labels_only()
        setting = {"architecture": kind, "predictions": predictions}
        for attacker, count, marks in _play(build, seen, test, counts, attackers, size, arena.seed):
            asked = {"queries": count, "extra_queries": count if attacker in TWICE else 0}
            asked |= loot.asked(count)
            rows.append({**head, "attacker": attacker, **setting, **asked, **marks})
    return rows


def gather(defence: Defence, size: Size, attackers: Sequence[str] = ATTACKERS) -> Loot:
    """Ask f and the defence for all that the attackers will use."""
    arena, most = defence.arena, query_counts(defence, size)[-1]
    points, _ = encoded(arena.d2.head(2 * most), arena.schema)
    proba = arena.ask(points)
    queries, decided = arena.d2.head(most), proba[:most].argmax(dim=1)
    answered, slow = most, defence.name in TIMED
    if slow and isinstance(defence, ByBaseline):
        released, answered = defence.explain_within(size.dice_seconds, queries)
    else:
        released = defence.explain(queries)
    first = _found(released, torch.arange(most), decided, arena)
    again = None
    if "relabel-cca" in attackers and len(first.number) and not slow:
        said, claimed = first.proba.argmax(dim=1), first.claims.argmax(dim=1)
        targets = torch.where(said == first.left, claimed, first.left)  # away from what f says
        back = defence.explain(released.rows.iloc[first.number.numpy()], targets)
        again = _found(back, first.number, said, arena)
    return Loot(points, proba, answered, first, again)


def query_counts(defence: Defence, size: Size) -> tuple[int, ...]:
    """How many queries are sent: `size.queries`, or fewer where a k-d tree or rows set a limit."""
    most = size.kdtree_queries if defence.name == "dice-kdtree" else max(size.queries)
    most = min(most, len(defence.arena.d2) // 2)
    if most < 1:
        raise RequestError("extraction needs at least 2 rows to ask about")
    return tuple(sorted({min(count, most) for count in size.queries}))


def budget_of(defence: str, epsilon: float | None, delta: float = 0.0) -> Row:
    """ε and δ of a defence; None where it has none."""
    if defence == "dp-model":
        return {"epsilon": DP_BUDGET.epsilon, "delta": DP_BUDGET.delta}
    private = defence.startswith(PRIVATE)
    return {"epsilon": epsilon if private else None, "delta": delta if private else None}


def _play(
    build: Build,
    loot: Loot,
    test: FidelityTest,
    counts: Sequence[int],
    attackers: Sequence[str],
    size: Size,
    seed: int,
) -> list[tuple[str, int, Row]]:
    """Train all copies. Who has the same rows gets the same network: it is trained once."""
    names = [*BASES, *(name for name in attackers if loot.has(name))]
    jobs = [(name, count) for count in counts for name in names]
    transfers = [loot.transfer(*job) for job in jobs]
    new = {each.key: each for each in transfers}
    answers: list[tuple[Tensor, Tensor]] = []
    options = {"steps": size.steps, "batch": size.batch, "seed": seed}
    for copies in train_copies(build, list(new.values()), **options):
        logits = (copies.logits(points) for points in (test.test, test.uniform))
        answers += zip(*(part.argmax(dim=2) for part in logits), strict=True)
    marks = {key: test.marks(*pair) for key, pair in zip(new, answers, strict=True)}
    played = [(*job, marks[each.key]) for job, each in zip(jobs, transfers, strict=True)]
    # Who throws the counterfactuals away is left with the base.
    return [*played, *(("drop", count, row) for name, count, row in played if name == "base-n")]


def _found(released: Released, number: Tensor, left: Tensor, arena: Arena) -> Answers:
    """The counterfactuals there are, of the queries `number` that f put into the classes `left`."""
    found = torch.as_tensor(np.asarray(released.found, dtype=bool))
    rows = arena.judge.encoding.encode(released.rows)
    points = torch.as_tensor(rows, dtype=torch.float32)[found]
    claimed = torch.as_tensor(released.claimed, dtype=torch.long)[found]
    claims = functional.one_hot(claimed, arena.classes).float()
    return Answers(number[found], points, claims, left[found], arena.ask(points))


def _share(agreed: Tensor) -> float:
    return float(agreed.float().mean())
