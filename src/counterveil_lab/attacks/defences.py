"""What an attacker gets to see: one counterfactual for each query, from one of several sources.

| defence | counterfactuals |
|---|---|
| dice-gradient | dice-ml by gradient; sees f; as many as it finds in `Size.dice_seconds` |
| dice-random | dice-ml as it is by default: values drawn at random; in the same time |
| dice-kdtree | dice-ml's nearest training rows, given out as they are |
| no-noise | counterveil's search on an autoencoder of the raw rows (`paper` at ε = ∞) |
| no-noise-published | the same autoencoder, Algorithm 2 as published: the twin of `paper` |
| paper | mechanism `paper` at ε, Algorithm 2 as published: every last iterate, f agreeing or not |
| paper-model, paper-surrogate | mechanism `paper`, counterveil's search by either guidance |
| functional-model | mechanism `functional` at ε, guidance `model`: the nearest answers |
| functional-believable | the same, believable answers |
| functional-surrogate | the same veil, guidance `surrogate`; f gives predictions alone |
| elsewhere-surrogate | a veil of D4, which f never saw, guidance `surrogate`: a control |
| dpsgd-model, dpsgd-surrogate | the same two ways on mechanism `dpsgd` |
| random-labels | rows of functional-model, claimed classes drawn at random: a control |
| random-labels-surrogate | the same with rows of functional-surrogate, off f's boundary |
| dp-model | f itself by DP-SGD (ε 3, δ 1e-5), CADEX on it: all that leaves is (3, 1e-5)-DP |

"None" is no defence but no explanations: the base attacks of `extraction` play it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.curator import Curator
from counterveil.encoding import Array
from counterveil.errors import RequestError
from counterveil.privacy import Budget
from counterveil.search import Explainer
from counterveil.search.constraints.decoding import decode_answers
from counterveil.veil import Veil
from counterveil_lab.attacks.protocol import Arena, Size, architecture
from counterveil_lab.baselines import Baseline, Cadex, Dice
from counterveil_lab.product import any_other, last_iterates, runner_up
from counterveil_lab.targets import train_privately

# Those with a veil: the mechanism it is made by.
MECHANISMS: dict[str, str] = {
    "no-noise": "paper",
    "no-noise-published": "paper",
    "paper": "paper",
    "paper-model": "paper",
    "paper-surrogate": "paper",
    "functional-model": "functional",
    "functional-believable": "functional",
    "functional-surrogate": "functional",
    "elsewhere-surrogate": "functional",
    "dpsgd-model": "dpsgd",
    "dpsgd-surrogate": "dpsgd",
    "random-labels": "functional",
    "random-labels-surrogate": "functional",
}
TIMED = frozenset({"dice-gradient", "dice-random"})  # up to minutes a query: asked for a time
SLOW = TIMED | {"dice-kdtree"}  # `Size` limits them
DEFENCES = ("dice-gradient", "dice-random", "dice-kdtree", *MECHANISMS, "dp-model")
PUBLISHED = frozenset({"paper", "no-noise-published"})
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


@dataclass(frozen=True, eq=False)
class Defence:
    """A source of counterfactuals, called by one of `DEFENCES`.

    `arena`: the game as this defence leaves it (dp-model replaces f); attack this one.
    """

    name: str
    arena: Arena

    def explain(self, queries: pd.DataFrame, targets: Tensor | None = None) -> Released:
        """`targets`: class numbers; None: the class that f finds next likely.

        Guidance `surrogate` must not learn what f finds next likely: of more than two classes it
        gets any other.
        """
        raise NotImplementedError


def build(
    name: str, arena: Arena, epsilon: float, size: Size, veil: Veil | None = None, delta: float = 0
) -> Defence:
    """The defence called `name`, trained on D1; `veil` takes the place of a release."""
    if name not in DEFENCES:
        raise RequestError(f"no defence {name!r}; there are: {', '.join(DEFENCES)}")
    if name not in MECHANISMS:
        if name == "dp-model":  # f by DP-SGD on D1
            of_d1 = architecture(arena.schema), arena.schema, arena.d1, DP_BUDGET
            arena = arena.defended(train_privately(*of_d1, clip=DP_CLIP, seed=arena.seed))
        return ByBaseline(name, arena, _baseline(name, arena))
    mechanism = MECHANISMS[name]
    if veil is None:
        epochs = size.epochs
        if epochs is not None and mechanism == "paper" and arena.schema.family == "mixed":
            epochs *= 5  # it learns from the rows and not from 20,000 samples
        rows = arena.d4 if name.startswith("elsewhere") else arena.d1
        epsilon = float("inf") if name.startswith("no-noise") else epsilon
        given: dict[str, Any] = {"mechanism": mechanism, "seed": arena.seed, "epochs": epochs}
        veil = Curator(arena.schema).release(rows, epsilon, delta, progress=False, **given)
    if name.endswith("-surrogate"):
        explainer = Explainer(veil, guidance="surrogate")
    else:
        explainer = Explainer(veil, arena.judge)
    options = {"prefer": "believable"} if name.endswith("-believable") else {}
    own = ByVeil(name, arena, explainer, options)
    return RandomLabels(name, arena, own) if name.startswith("random-labels") else own


def sharing(names: Sequence[str], arena: Arena, epsilon: float, size: Size) -> Iterator[Defence]:
    """Defences of one mechanism one after the other; what has a veil takes the first one's."""
    veil = None
    for name in names:
        defence = build(name, arena, epsilon=epsilon, size=size, veil=veil)
        if isinstance(defence, ByVeil):
            veil = defence.explainer.veil
        yield defence


@dataclass(frozen=True, eq=False)
class ByVeil(Defence):
    """counterveil's search."""

    explainer: Explainer
    options: dict[str, Any] = field(default_factory=dict)

    def explain(self, queries: pd.DataFrame, targets: Tensor | None = None) -> Released:
        judge, classes = self.arena.judge, self.arena.schema.label.classes
        if targets is None and self.explainer.guidance == "surrogate" and len(classes) > 2:
            targets = any_other(judge, queries, self.arena.seed)
        targets = runner_up(judge, queries) if targets is None else targets
        if self.name in PUBLISHED:  # f is not asked whether it agrees
            encoding = self.explainer.encoding
            frame = encoding.pick(queries)
            points = encoding.encode(frame)
            asked = torch.as_tensor(points, dtype=torch.float32)
            found = last_iterates(self.explainer, asked, targets).double().numpy()
            rows = decode_answers(encoding, frame, points, found, None)
            return Released(rows, np.ones(len(rows), dtype=bool), targets.numpy())
        names = [classes[int(number)] for number in targets]
        options = {"progress": False, "prefer": "nearest", **self.options}
        result = self.explainer.explain(queries, names, **options)
        return Released(result.rows, result.valid, targets.numpy())


@dataclass(frozen=True, eq=False)
class ByBaseline(Defence):
    """A published method."""

    baseline: Baseline

    def explain(self, queries: pd.DataFrame, targets: Tensor | None = None) -> Released:
        targets = runner_up(self.arena.judge, queries) if targets is None else targets
        answers = self.baseline.explain(queries, targets)
        return Released(answers.rows, answers.found, targets.numpy())

    def explain_within(self, seconds: float, queries: pd.DataFrame) -> tuple[Released, int]:
        """The same for one of `TIMED`, and how many queries dice-ml was done with in this time."""
        assert isinstance(self.baseline, Dice)
        targets = runner_up(self.arena.judge, queries)
        answers, done = self.baseline.explain_within(seconds, queries, targets)
        return Released(answers.rows, answers.found, targets.numpy()), done


@dataclass(frozen=True, eq=False)
class RandomLabels(Defence):
    """Rows as they are, claimed classes at random: what poisoning alone does to an attacker."""

    own: ByVeil

    def explain(self, queries: pd.DataFrame, targets: Tensor | None = None) -> Released:
        released = self.own.explain(queries, targets)
        rng = np.random.default_rng([self.arena.seed, 0])
        return replace(released, claimed=rng.integers(self.arena.classes, size=len(queries)))


def _baseline(name: str, arena: Arena) -> Baseline:
    given = arena.schema, arena.judge, arena.d1
    if name == "dp-model":
        return Cadex(*given, threshold=0.5)
    if name == "dice-gradient":
        return Dice(*given, seed=arena.seed, method="gradient")
    if name == "dice-random":
        return Dice(*given, seed=arena.seed, method="random")
    # Without the step that pulls numbers back to the query: the rows of the table themselves.
    return Dice(*given, seed=arena.seed, method="kdtree", posthoc_sparsity_param=0)
