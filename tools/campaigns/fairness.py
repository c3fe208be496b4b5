"""Whether the intervals of `Explainer.fairness` hold the numbers of held-out people.

Groups are compared by people drawn from a veil, and then by held-out people, with the same model
and the same search; personal features stay as they are, and one feature may change. A cell is a
number of a group: a value of a column, or two values of two columns. Only cells count that have at
least 30 held-out people.

| column | meaning |
|---|---|
| groups | whether they were named when the veil was released |
| cells | numbers of groups that could be told |
| told | the share of cells with a number: neither "not known" nor "too few to tell" |
| held | of those, the share whose interval holds the number of held-out people |
| width | mean width of their intervals; of shares and stability in points out of 1 |

The number of held-out people has an error of its own, for which no interval allows. What a veil
cannot know of a group (`LIKE_NAMED` and others of `search.fairness`) was chosen on the split of
seed 0, those of means after a look at seed 1; the splits of the seeds from 2 on are measured.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from counterveil.curator import Curator
from counterveil.search import Explainer
from counterveil.search.results.fairness import LEAST_PEOPLE, MEASURES, Fairness
from counterveil_lab.believability import WISHES, trained
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.runner import Case, Experiment, Options, combined
from counterveil_lab.results import Row

FIRST_SEED = 2  # seeds 0 and 1 are for choosing
EPSILONS = (0.1, 0.75, 3.0)
GROUPS: Mapping[str, tuple[str, str]] = {
    "adult": ("sex", "race"),
    "hospital": ("gender", "race"),
    "homecredit": ("CODE_GENDER", "NAME_FAMILY_STATUS"),
}
NAMED, UNNAMED = "named", "not named"
HELD_OUT = 6000  # people
MOST_CHANGES = 1
EVERY = "all"  # in the place of a measure
EVERY_MEASURE = {each.name for each in MEASURES} - {"changes"}  # which are one in each answer


def cases(options: Options) -> Iterator[Case]:
    """Every table, ε and split, with and without naming the groups at release."""
    seeds, names = options.splits(FIRST_SEED), options.names(tuple(GROUPS), ("adult",))
    epsilons = (0.75,) if options.quick else EPSILONS
    return combined(seed=seeds, dataset=names, epsilon=epsilons, groups=(NAMED, UNNAMED))


def measure_case(dataset: str, epsilon: float, groups: str, seed: int, *, quick: bool) -> list[Row]:
    """A row for each measure, and one for all of them."""
    data, wish = releases.data_for(dataset, seed, quick=quick), WISHES[dataset]
    columns = GROUPS[dataset]
    # Fairness asks nothing of the autoencoder: it is trained as briefly as can be.
    how: dict[str, Any] = {"groups": columns if groups == NAMED else (), "epochs": 1, "seed": seed}
    veil = Curator(data.schema).release(data.train, epsilon, progress=False, **how)
    explainer = Explainer(veil, trained(data, "network", seed))
    how = {"immutable": wish.personal, "max_changes": MOST_CHANGES}
    by_veil = explainer.fairness(columns, wish.target, progress=False, **how)
    people = data.test.head(HELD_OUT)
    truth = explainer.fairness(columns, wish.target, people=people, progress=False, **how)
    return [_row(name, by_veil, truth) for name in (*(each.name for each in MEASURES), EVERY)]


def _row(name: str, by_veil: Fairness, truth: Fairness) -> Row:
    cells = [
        (mine.estimate, real.known.mean)
        for one, two in zip(by_veil.groups, truth.groups, strict=True)
        for mine, real in zip(one.cells, two.cells, strict=True)
        if mine.measure.name in (EVERY_MEASURE if name == EVERY else {name})
        and real.known is not None
        and real.known.asked >= LEAST_PEOPLE
    ]
    told = [(found, real) for found, real in cells if found is not None]
    held = [each.low <= real <= each.high for each, real in told]
    widths = [each.high - each.low for each, _ in told]
    return {
        "measure": name,
        "cells": len(cells),
        "told": len(told) / len(cells) if cells else None,
        "held": float(np.mean(held)) if told else None,
        "width": float(np.mean(widths)) if told else None,
    }


FAIRNESS = Experiment(
    "whether the intervals of fairness by groups hold the numbers of held-out people.",
    cases,
    measure_case,
    chosen_by=("groups",),
)
