"""Games on real releases, with the curator's own noise, of tiny tables.

| view | the adversary sees |
|---|---|
| autoencoder + prototypes | every number of a veil's networks, and the class prototypes |
| prototypes | the class prototypes alone |
| counterfactuals | answers of an explainer to fixed queries, guided by the surrogate |
| outcome | whether the mechanism gives a release at all |

What is computed from noisy numbers can only lose information, so these games look for what reaches
a release in some other way. Training is short: hundreds of releases have to be made.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from counterveil.audit import neighbours
from counterveil.audit.game import Claim, Effort, Game, Scores, project
from counterveil.audit.neighbours import Pair
from counterveil.build import Training
from counterveil.curator import Curator
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array, Encoding
from counterveil.errors import InputError
from counterveil.privacy import Budget
from counterveil.search import Explainer
from counterveil.veil import Veil

SHORT = Training(
    samples=256,
    epochs=2,
    batch=128,
    rate=5e-3,
    surrogate=(8,),
    surrogate_epochs=2,
    generator_steps=2,
)
SEARCH_STEPS = 10


def view_games(
    mechanism: str, budget: Budget, effort: Effort, pair: Pair, views: Sequence[str] = ()
) -> Iterator[Game]:
    """The named views, or all of them, of the same real veils of a pair."""
    claim, runs = Claim(budget.epsilon, budget.delta), effort.runs_for(budget.epsilon)

    @cache
    def veils(table: int) -> list[Veil]:
        return [release(pair, budget, mechanism, table) for _ in range(runs)]

    def scores(view: Callable[[Veil], Array]) -> Scores:
        one, two = (np.stack([view(veil) for veil in veils(table)]) for table in (0, 1))
        return project(one, two)

    for name in views or VIEWS:
        yield Game(mechanism, name, pair.name, claim, runs, partial(scores, VIEWS[name]))


def outcome_games(
    mechanism: str, budget: Budget, runs: int, attempt: Callable[[Pair, PrivateTable], object]
) -> Iterator[Game]:
    """Whether the mechanism, run by `attempt`, refuses a table: an error is 1, no error is 0."""
    claim = Claim(budget.epsilon, budget.delta)

    def scores(pair: Pair) -> Scores:
        refused = np.zeros((2, runs))
        for table, run in np.ndindex(2, runs):
            try:
                attempt(pair, pair.tables[table])
            except InputError:
                refused[table, run] = 1
        return refused[0], refused[1]

    for pair in (make() for make in neighbours.LAST_ONES):
        yield Game(mechanism, "outcome", pair.name, claim, runs, partial(scores, pair))


def release(pair: Pair, budget: Budget, mechanism: str, table: int) -> Veil:
    """A real veil of D (table 0) or of D' (1). The adversary knows the fixed training seed."""
    curator = Curator(pair.schema, unit_column=pair.unit_column, max_records=pair.max_records)
    return curator.release(
        (pair.one, pair.two)[table],
        budget.epsilon,
        budget.delta,
        mechanism=mechanism,
        order=pair.order,
        epochs=SHORT.epochs,
        training=SHORT,
        progress=False,
    )


def _weights_and_prototypes(veil: Veil) -> Array:
    made = veil.autoencoder, veil.surrogate, veil.generator
    networks = [network for network in made if network is not None]
    parts = [weights.reshape(-1) for network in networks for weights in network.parameters()]
    return torch.cat([*parts, veil.prototypes.reshape(-1)]).double().numpy()


def _counterfactuals(veil: Veil) -> Array:
    """Answers to one query in each cell of the first feature: rows, validity and probability."""
    encoding = Encoding(veil.schema)
    queries = encoding.decode(np.eye(veil.schema.width))
    target = veil.schema.label.classes[-1]
    search: Any = {"method": "iterations", "iterations": SEARCH_STEPS, "margin": 0.0}
    explainer = Explainer(veil, guidance="surrogate")
    answer = explainer.explain(queries, target, polish=False, progress=False, **search)
    rows = encoding.encode(answer.rows).reshape(-1)
    return np.concatenate([rows, answer.valid.astype(np.float64), answer.probability])


# What an adversary sees of a veil, as one vector.
VIEWS: dict[str, Callable[[Veil], Array]] = {
    "autoencoder + prototypes": _weights_and_prototypes,
    "prototypes": lambda veil: veil.prototypes.reshape(-1).double().numpy(),
    "counterfactuals": _counterfactuals,
}
FIRST_VIEW = (next(iter(VIEWS)),)
