"""How true the noisy population is, and how good the private model: many draws of the noise.

Settings were chosen on the split of seed 0; `SPLIT` is another one. Only the noise differs from
draw to draw.

| column | better | meaning |
|---|---|---|
| agreement | high | held-out rows that f~ and f put into the same class |
| balanced_accuracy | high | of f~ on held-out rows, mean over the classes; `_of_f` that of f |
| two_way | low | total variation to held-out rows, mean over pairs; numbers in 8 parts |
| two_way_singles | low | the same where the plan may use no pairs |
| worst_number, number | low | largest Kolmogorov distance of a number to held-out rows; which one |

`bounds`: how many times wider than in the schema the bounds of all numbers are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import torch
from scipy.stats import ks_2samp
from torch import nn

from counterveil.curator.functional import make_plan, measure
from counterveil.curator.plan import Plan
from counterveil.encoding import Array, Encoding
from counterveil.population import MixedPopulation
from counterveil.population.grid import Grid
from counterveil.population.whole_scorecard import WholeScorecard, scorecard
from counterveil.privacy import Budget
from counterveil.schema import Numeric, Schema
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.runner import Case, Experiment, Options, combined
from counterveil_lab.results import Row
from counterveil_lab.targets import classes_of

SPLIT = 2
DRAWS, QUICK_DRAWS = 20, 2
TABLES = ("adult", "hospital", "homecredit")
EPSILONS, DELTAS = (0.025, 0.1, 0.75, 3.0), (0.0, 1e-9)
WIDENED = ((0.1, 10.0), (0.75, 10.0))  # ε and how many times wider
SAMPLES, BATCH, PARTS = 40_000, 50_000, 8


def cases(options: Options) -> Iterator[Case]:
    """Every table, ε and δ, and wide bounds at two ε; every draw of the noise."""
    asked = [(epsilon, 1.0) for epsilon in EPSILONS] + list(WIDENED)
    draws = range(QUICK_DRAWS if options.quick else DRAWS)
    for head in combined(dataset=options.names(TABLES, ("adult",)), delta=DELTAS):
        for epsilon, bounds in asked[2:4] if options.quick else asked:
            yield from ({**head, "epsilon": epsilon, "bounds": bounds, "draw": n} for n in draws)


@dataclass(frozen=True)
class EncodedTable:
    """Rows that were encoded before, in the place of a `PrivateTable`: many draws read them."""

    schema: Schema
    points: Array
    classes: Array
    unit: str = "record"
    cluster: None = None

    def tell_all_read(self) -> None:
        """Nobody watches."""

    @property
    def size(self) -> int:
        return len(self.points)

    @property
    def encoding(self) -> Encoding:
        return Encoding(self.schema)

    def private_columns(self, features: object = None) -> Iterator[tuple[list[Array], Array]]:
        """Rows in compact form and their classes."""
        encoding = self.encoding
        for start in range(0, self.size, BATCH):
            part = slice(start, start + BATCH)
            yield encoding.compact(self.points[part]), self.classes[part]

    def private_cells(
        self, grid: Grid, features: object = None, *, alone: bool = False
    ) -> Iterator[tuple[list[Array], list[Array], Array]]:
        """Rows in compact form, the cells of `grid` that they fall in, and their classes."""
        for columns, classes in self.private_columns(features):
            cells = zip(grid.cells, columns, strict=True)
            yield columns, [each.codes_of(column) for each, column in cells], classes


def widened(schema: Schema, times: float) -> Schema:
    """The same with bounds so many times wider about the middle of each number."""
    features: list[Any] = []
    for feature in schema.features:
        told = feature.model_dump()
        if isinstance(feature, Numeric) and times != 1:
            middle, half = (feature.lower + feature.upper) / 2, times * feature.span / 2
            ends = (middle - half, middle + half)
            if feature.integer:
                ends = (float(np.floor(ends[0])), float(np.ceil(ends[1])))
            told |= {"lower": ends[0], "upper": ends[1]}
        features.append(told)
    return Schema.model_validate(schema.model_dump() | {"features": features})


@cache
def prepared(dataset: str, bounds: float, quick: bool) -> tuple[EncodedTable, Array, Array, Array]:
    """The rows, held-out points, their classes, and what f makes of them (in the schema as is)."""
    data = releases.data_for(dataset, SPLIT, quick=quick)
    schema = widened(data.schema, bounds)
    encoding, plain = Encoding(schema), Encoding(data.schema)
    table = EncodedTable(schema, encoding.encode(data.train), encoding.labels(data.train))
    model = releases.target_for(data, SPLIT)
    as_f = torch.as_tensor(plain.encode(data.test), dtype=torch.float32)
    decided = classes_of(model, as_f).numpy()
    return table, encoding.encode(data.test), encoding.labels(data.test), decided


def measure_case(
    dataset: str, epsilon: float, delta: float, bounds: float, draw: int, *, quick: bool
) -> list[Row]:
    """A population of its own noise against held-out rows."""
    table, real, classes, decided = prepared(dataset, bounds, quick)
    schema, plan = table.schema, _plan(dataset, bounds, quick, epsilon, delta)
    population = MixedPopulation(schema, measure(table, plan))  # type: ignore[arg-type]
    network = scorecard_of(population)
    said = network(torch.as_tensor(real, dtype=torch.float32)).argmax(dim=1).numpy()
    points, _ = population.sample(SAMPLES, np.random.default_rng(draw))
    numbers = distances_of_numbers(schema, points, real)
    worst = max(numbers, key=numbers.__getitem__)
    row: Row = {
        "order": plan.order,
        "ranges": plan.ranges,
        "pairs": plan.pairs,
        "bins": plan.fine,
        **quality(said, decided, classes),
        "worst_number": numbers[worst],
        "number": worst,
        "mean_number": float(np.mean(list(numbers.values()))),
    }
    if bounds == 1:
        parts = parts_of(schema, real)
        row["two_way"] = two_way(parts(points), parts(real))
        row["two_way_singles"] = row["two_way"]
        if plan.order == 2:
            plain = _plan(dataset, bounds, quick, epsilon, delta, order=1)
            single = MixedPopulation(schema, measure(table, plain))  # type: ignore[arg-type]
            points, _ = single.sample(SAMPLES, np.random.default_rng(draw))
            row["two_way_singles"] = two_way(parts(points), parts(real))
    return [row]


@cache
def _plan(
    dataset: str, bounds: float, quick: bool, *budget: float, order: int | None = None
) -> Plan:
    table, *_ = prepared(dataset, bounds, quick)
    return make_plan(table.schema, table.size, Budget(*budget), order=order)


def scorecard_of(population: MixedPopulation) -> nn.Module:
    return WholeScorecard.of(scorecard(population), population.grid)


def quality(said: Array, decided: Array, classes: Array) -> Row:
    """How good a private model is that says `said` where f decided `decided`; class numbers."""

    def balanced(answers: Array) -> float:
        return float(np.mean([(answers[classes == c] == c).mean() for c in np.unique(classes)]))

    return {
        "agreement": float((said == decided).mean()),
        "accuracy": float((said == classes).mean()),
        "balanced_accuracy": balanced(said),
        "balanced_accuracy_of_f": balanced(decided),
    }


def distances_of_numbers(schema: Schema, points: Array, real: Array) -> dict[str, float]:
    """The Kolmogorov distance of each number; missing values are left out."""
    found = {}
    for feature, block in zip(schema.features, Encoding(schema).blocks, strict=True):
        if isinstance(feature, Numeric):
            both = [part[:, block.at] for part in (points, real)]
            there = [part[part[:, 1] < 0.5] if feature.missing else part for part in both]
            # Whole steps apart: the last digits of a float are no difference between people.
            one, two = (np.round(part[:, 0], 7) for part in there)
            found[feature.name] = float(ks_2samp(one, two).statistic)
    return found


def parts_of(schema: Schema, real: Array) -> Any:
    """A function from points to codes (rows, features); numbers fall into parts of `real`."""
    encoding = Encoding(schema)
    edges: list[Array | None] = []
    for feature, block in zip(schema.features, encoding.blocks, strict=True):
        if isinstance(feature, Numeric):
            ends = np.quantile(real[:, block.at][:, 0], np.linspace(0, 1, PARTS + 1)[1:-1])
            edges.append(np.unique(ends))
        else:
            edges.append(None)

    def codes(points: Array) -> Array:
        columns = []
        for feature, block, ends in zip(schema.features, encoding.blocks, edges, strict=True):
            mine = points[:, block.at]
            if ends is None:
                wide = mine.shape[1] > 1
                columns.append(mine.argmax(axis=1) if wide else (mine[:, 0] >= 0.5).astype(int))
                continue
            code = np.searchsorted(ends, mine[:, 0] + 1e-9, side="right")
            missing = mine[:, 1] >= 0.5 if getattr(feature, "missing", False) else False
            columns.append(np.where(missing, len(ends) + 1, code))
        return np.stack(columns, axis=1)

    return codes


def two_way(one: Array, two: Array) -> float:
    """Total variation between two tables of codes, mean over all pairs of columns."""
    size = np.maximum(one.max(axis=0), two.max(axis=0)) + 1
    found = []
    for first, second in combinations(range(one.shape[1]), 2):
        cells = int(size[first] * size[second])
        share = [
            np.bincount(codes[:, first] * size[second] + codes[:, second], minlength=cells)
            / len(codes)
            for codes in (one, two)
        ]
        found.append(0.5 * float(np.abs(share[0] - share[1]).sum()))
    return float(np.mean(found))


POPULATION = Experiment(
    "how true the noisy population is and how good the private model, over draws of the noise.",
    cases,
    measure_case,
    chosen_by=(),
)
