"""Whether what answers say about people is true of people whom no veil has seen.

Held-out people ask the private model of a veil for the class that they want, with personal features
fixed. That is the hardest case: the decisions follow the noise, and so do the answers. Each "at
least N in 10 of the people of the class have this or more" is compared with the held-out people of
the class. The part `few` learns from the first 3,000 rows of the table alone.

| column | what |
|---|---|
| rows | that the veil was made from |
| answers | that were found |
| claims | that they make, in all |
| claims_an_answer | how many that is for each answer |
| false | the share of claims that are too high by more than two points |
| told, true | mean of the shares that are told, and of those of held-out people |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from counterveil.models import adapt
from counterveil.search import Explainer, Explanations
from counterveil.search.results import wording
from counterveil_lab.believability import WISHES, refused
from counterveil_lab.datasets import Dataset
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.runner import Case, Experiment, Options, combined
from counterveil_lab.results import Row

FIRST_SEED = 1  # as of `believable`
TABLES, WHOLE, FEW = ("adult", "hospital", "homecredit"), "whole", "few"
EPSILONS = (0.1, 0.75, 3.0)
QUERIES, QUICK_QUERIES = 120, 20
POINTS = 0.02  # that a claim may be off by


def cases(options: Options) -> Iterable[Case]:
    """Every table and ε; of Adult also a few rows."""
    seeds, names = options.splits(FIRST_SEED), options.names(TABLES, ("adult",))
    epsilons = EPSILONS[1:2] if options.quick else EPSILONS
    every = combined(seed=seeds, dataset=names, part=(WHOLE, FEW), epsilon=epsilons)
    return (case for case in every if case["part"] == WHOLE or case["dataset"] == "adult")


def measure_case(dataset: str, part: str, epsilon: float, seed: int, *, quick: bool) -> list[Row]:
    data = releases.data_for(dataset, seed, quick=quick or part == FEW)
    wish = WISHES[dataset]
    veil = releases.release(data, "functional", epsilon, seed, quick=quick).veil
    model = adapt(veil.model(classes="even"), data.schema)
    goal = data.schema.label.classes.index(wish.target)
    queries = refused(data, model, goal, QUICK_QUERIES if quick else QUERIES)
    row: Row = {"rows": len(data.train), "queries": len(queries), "answers": 0, "claims": 0}
    if not len(queries):
        return [row]
    result = Explainer(veil, model).explain(
        queries, target=wish.target, immutable=wish.personal, progress=False
    )
    pairs = np.array([*claims_of(result, data)]).reshape(-1, 2)
    row |= {"answers": result.answers, "claims": len(pairs)}
    if result.answers:
        row["claims_an_answer"] = len(pairs) / result.answers
    if len(pairs):
        told, true = pairs.T
        row |= {"false": float((told > true + POINTS).mean())}
        row |= {"told": float(told.mean()), "true": float(true.mean())}
    return [row]


def claims_of(result: Explanations, data: Dataset) -> Iterator[tuple[float, float]]:
    """Of each claim the share that is told, and that of the held-out people of the class."""
    label = data.schema.label
    for query in result.found.tolist():
        answer = result.answer_of(query)
        goal = label.classes[result.target[query]]
        people = data.test[data.test[label.name] == goal]
        for change in answer.changes:
            column, before, after = change
            told = answer.beyond.get(column)
            if wording.compared(data.schema, change, told):
                rises = before is None or after > before
                beyond = people[column] >= after if rises else people[column] <= after
                yield told or 0.0, float(beyond.fillna(False).mean())


CLAIMS = Experiment(
    "whether what answers say about people is true of held-out people.",
    cases,
    measure_case,
    chosen_by=("part",),
)
