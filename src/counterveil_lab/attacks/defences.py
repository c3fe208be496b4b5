"""What an attacker gets to see: one counterfactual for each query, from one of several sources.

| defence | counterfactuals |
|---|---|
| dice-gradient | dice-ml by gradient; sees f |
| dice-kdtree | dice-ml's nearest training rows, given out as they are |
| no-noise | counterveil's search on an autoencoder of the raw rows (`paper` at ε = ∞) |
| no-noise-published | the same autoencoder, Algorithm 2 as published: the twin of `paper` |
| paper | mechanism `paper` at ε, Algorithm 2 as published: every last iterate, f agreeing or not |
| paper-model, paper-surrogate | mechanism `paper`, counterveil's search by either guidance |
| functional-model | mechanism `functional` at ε, guidance `model` |
| functional-surrogate | the same veil, guidance `surrogate`; f gives predictions alone |
| elsewhere-surrogate | a veil of D4, which f never saw, guidance `surrogate`: a control |
| dpsgd-model, dpsgd-surrogate | the same two ways on mechanism `dpsgd` |
| random-labels | rows of functional-model, claimed classes drawn at random: a control |
| random-labels-surrogate | the same with rows of functional-surrogate, off f's boundary |
| dp-model | f itself by DP-SGD (ε 3, δ 1e-5), CADEX on it: all that leaves is (3, 1e-5)-DP |
| cf-k | rows of public grid cells that hold at least 5 training rows: a reading of CF-K |

"None" is no defence but no explanations: the base attacks of `extraction` play it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from counterveil.autoencoder import ARCHITECTURES
from counterveil.curator import Curator, dpsgd
from counterveil.encoding import Array
from counterveil.errors import RequestError
from counterveil.models import TargetModel
from counterveil.privacy import Budget
from counterveil.progress import silent
from counterveil.search import Explainer
from counterveil.search.answer import How, Questions
from counterveil.search.constraints import box_around, decode_answers
from counterveil.search.explainer import ITERATIONS
from counterveil.training import seeded
from counterveil.veil import Veil
from counterveil_lab.attacks.kanonymous import KAnonymous
from counterveil_lab.attacks.protocol import Arena, Size, architecture
from counterveil_lab.baselines import Baseline, Cadex, Dice
from counterveil_lab.targets import encoded

DEFENCES: tuple[str, ...] = (
    "dice-gradient", "dice-kdtree", "no-noise", "no-noise-published", "paper", "paper-model",
    "paper-surrogate", "functional-model", "functional-surrogate", "elsewhere-surrogate",
    "dpsgd-model", "dpsgd-surrogate", "random-labels", "random-labels-surrogate", "dp-model",
    "cf-k",
)  # fmt: skip
SLOW = frozenset({"dice-gradient", "dice-kdtree"})  # up to seconds a query: `Size` limits them
PUBLISHED = frozenset({"paper", "no-noise-published"})
AS_PUBLISHED = How("iterations", ITERATIONS, "last", polish=False)
DP_BUDGET = Budget(3.0, 1e-5)
DP_CLIP = 4.0


@dataclass(frozen=True, eq=False)
class Released:
    """What an attacker sees for queries he sent.

    `rows`: one counterfactual a query, the query itself where none was found; `claimed`: the
    number of the class that each is said to have.
    """

    rows: pd.DataFrame
    found: Array
    claimed: Array

    def head(self, count: int) -> Released:
        """The first `count` of them."""
        return Released(self.rows.head(count), self.found[:count], self.claimed[:count])


class Defence(Protocol):
    """A source of counterfactuals."""

    @property
    def name(self) -> str:
        """One of `DEFENCES`."""
        ...

    @property
    def arena(self) -> Arena:
        """The game as this defence leaves it: dp-model replaces f. Attack this one."""
        ...

    @property
    def varies(self) -> bool:
        """Whether the same query may get another answer with another seed."""
        ...

    def explain(
        self, queries: pd.DataFrame, targets: Tensor | None = None, *, seed: int = 0
    ) -> Released:
        """`targets`: class numbers; None: the class that f finds next likely. `seed`: of search.

        Guidance `surrogate` must not learn what f finds next likely: of more than two classes it
        gets any other.
        """
        ...


def build(
    name: str, arena: Arena, *, epsilon: float, size: Size, veil: Veil | None = None,
    delta: float = 0.0,
) -> Defence:  # fmt: skip
    """The defence called `name`, trained on D1; `veil` takes the place of a release."""
    if name not in DEFENCES:
        raise RequestError(f"no defence {name!r}; there are: {', '.join(DEFENCES)}")
    if name in SLOW:
        return ByBaseline(name, arena, _dice(name, arena))
    if name == "cf-k":
        method = KAnonymous(arena.schema, arena.judge, arena.d1, seed=arena.seed)
        return ByBaseline(name, arena, method)
    if name == "dp-model":
        arena = arena.defended(_private_target(arena))
        cadex = Cadex(arena.schema, arena.judge, arena.d1, threshold=0.5)
        return ByBaseline(name, arena, cadex)
    if veil is None:
        mechanism = mechanism_of(name)
        veil = Curator(arena.schema).release(
            arena.d4 if name.startswith("elsewhere") else arena.d1,
            float("inf") if name.startswith("no-noise") else epsilon,
            mechanism=mechanism, delta=delta, seed=arena.seed,
            epochs=_epochs(mechanism, arena, size), progress=False,
        )  # fmt: skip
    explainer = (Explainer(veil, guidance="surrogate") if name.endswith("-surrogate")
                 else Explainer(veil, arena.judge, warm_steps=size.warm_steps))  # fmt: skip
    own = ByVeil(name, arena, explainer, {})
    return RandomLabels(own, name) if name.startswith("random-labels") else own


def sharing(names: Sequence[str], arena: Arena, epsilon: float, size: Size) -> Iterator[Defence]:
    """Defences of one mechanism one after the other; what has a veil takes the first one's."""
    veil = None
    for name in names:
        defence = build(name, arena, epsilon=epsilon, size=size, veil=veil)
        if isinstance(defence, ByVeil):
            veil = defence.explainer.veil
        yield defence


def mechanism_of(name: str) -> str:
    """Of the veil of a defence that has one."""
    first = name.split("-", maxsplit=1)[0]
    return {"no": "paper", "paper": "paper", "dpsgd": "dpsgd"}.get(first, "functional")


@dataclass(frozen=True, eq=False)
class ByVeil:
    """counterveil's search. The same queries always get the same answers: the seed is for k > 1."""

    name: str
    arena: Arena
    explainer: Explainer
    way: dict[str, Any]
    varies: bool = False

    def explain(
        self, queries: pd.DataFrame, targets: Tensor | None = None, *, seed: int = 0
    ) -> Released:
        classes = self.arena.schema.label.classes
        if targets is None:
            blind = self.explainer.guidance == "surrogate" and len(classes) > 2
            targets = (any_other(self.arena, queries) if blind
                       else runner_up(self.arena.judge, queries))  # fmt: skip
        if self.name in PUBLISHED:
            rows = self._last_iterates(queries, targets)
            return Released(rows, np.ones(len(rows), dtype=bool), targets.numpy())
        result = self.explainer.explain(
            queries, [classes[int(number)] for number in targets], seed=seed, progress=False,
            **self.way,
        )  # fmt: skip
        return Released(result.rows, result.valid, targets.numpy())

    def _last_iterates(self, queries: pd.DataFrame, targets: Tensor) -> pd.DataFrame:
        """As published: f is not asked whether it agrees, which `Explainer.explain` always does."""
        encoding = self.explainer.encoding
        frame = encoding.pick(queries)
        points = encoding.encode(frame)
        asked = Questions(torch.as_tensor(points, dtype=torch.float32), targets,
                          box_around(encoding, points))  # fmt: skip
        answerer = self.explainer._answerer(progress=False)
        found, _ = self.explainer._search(answerer, asked, AS_PUBLISHED, 1, 0, False)
        return decode_answers(encoding, frame, points, found[:, 0].double().numpy(), None)


@dataclass(frozen=True, eq=False)
class ByBaseline:
    """A published method."""

    name: str
    arena: Arena
    baseline: Baseline

    @property
    def varies(self) -> bool:
        """Of these dice-ml alone draws at random."""
        return isinstance(self.baseline, Dice)

    def explain(
        self, queries: pd.DataFrame, targets: Tensor | None = None, *, seed: int = 0
    ) -> Released:
        targets = runner_up(self.arena.judge, queries) if targets is None else targets
        if isinstance(self.baseline, Dice):
            self.baseline.seed = seed
        answers = self.baseline.explain(queries, targets)
        return Released(answers.rows, answers.found, targets.numpy())


@dataclass(frozen=True, eq=False)
class RandomLabels:
    """Rows as they are, claimed classes at random: what poisoning alone does to an attacker."""

    own: ByVeil
    name: str
    varies: bool = True

    @property
    def arena(self) -> Arena:
        """The game."""
        return self.own.arena

    def explain(
        self, queries: pd.DataFrame, targets: Tensor | None = None, *, seed: int = 0
    ) -> Released:
        released = self.own.explain(queries, targets, seed=seed)
        rng = np.random.default_rng([self.arena.seed, seed])
        claimed = rng.integers(len(self.arena.schema.label.classes), size=len(queries))
        return replace(released, claimed=claimed)


def runner_up(judge: TargetModel, queries: pd.DataFrame) -> Tensor:
    """The class that f finds most likely after the one it predicts, for each query."""
    decided = judge.log_proba_rows(judge.encoding.pick(queries))
    first = decided.argmax(dim=1, keepdim=True)
    return decided.scatter(1, first, -torch.inf).argmax(dim=1)


def any_other(arena: Arena, queries: pd.DataFrame) -> Tensor:
    """A class that f does not predict, drawn evenly, for each query."""
    decided = arena.judge.log_proba_rows(arena.judge.encoding.pick(queries))
    count = decided.shape[1]
    further = np.random.default_rng(arena.seed).integers(1, count, size=len(decided))
    return (decided.argmax(dim=1) + torch.as_tensor(further)) % count


def _dice(name: str, arena: Arena) -> Dice:
    if name == "dice-gradient":
        return Dice(arena.schema, arena.judge, arena.d1, seed=arena.seed, method="gradient")
    # Without the step that pulls numbers back to the query: the rows of the table themselves.
    return Dice(
        arena.schema, arena.judge, arena.d1, seed=arena.seed, method="kdtree",
        posthoc_sparsity_param=0,
    )  # fmt: skip


def _epochs(mechanism: str, arena: Arena, size: Size) -> int | None:
    """`paper` learns from the rows and not from 20,000 samples: it needs five times the epochs."""
    if size.epochs is None or mechanism != "paper" or arena.schema.family != "mixed":
        return size.epochs
    return 5 * size.epochs


def _private_target(arena: Arena) -> nn.Module:
    """f by DP-SGD on D1. How many rows each class has counts as public, to even the classes out."""
    dpsgd.check_installed()
    points, classes = encoded(arena.d1, arena.schema)
    counts = torch.bincount(classes, minlength=len(arena.schema.label.classes)).clamp(min=1)
    model = seeded(architecture(arena.schema), arena.seed)
    settings = replace(ARCHITECTURES[arena.schema.family], epochs=20, batch=512)
    shares = (counts / counts.sum()).log()
    dpsgd.train(
        model,
        lambda rows: nn.functional.cross_entropy(
            model(points[rows]) + shares, classes[rows], reduction="sum"
        ),
        dpsgd.Schedule.of(settings, len(points)),
        DP_BUDGET,
        DP_CLIP,
        "training of f",
        silent,
    )
    return model
