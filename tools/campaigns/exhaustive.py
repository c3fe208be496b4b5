"""`exhaustive`: every allowed row is asked about, and answers are held beside.

| part | what |
|---|---|
| `adult` | the embedded Adult table: its four free features at every allowed value, four models |
| `random` | small random tables, rules and models, all of whose rows can be looked at |

A row of results has, for the queries of one model and one search:

| column | meaning |
|---|---|
| queries | people to whom the model does not give the target class already |
| reachable | those for whom it accepts some allowed row |
| found, not_found, impossible | how the searches ended |
| missed, disproved | `not_found` and `impossible`, though the model accepts an allowed row |
| broken | answers that break a rule |
| times_best, worst | J of answers over that of the best allowed row: mean, and largest |
| optimal | answers that cost at most 0.1 % more than the best allowed row |
| times_helping | the mean, beside rows whose every change brings the model closer by itself |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from campaigns.random_rules import draw_model, draw_record, frame_of
from campaigns.rule_judge import NO_RULES, violations
from campaigns.world import CLEARLY, Tally, World, learning_less, record
from counterveil import Explainer, Explanations
from counterveil.demo.adult import train_target
from counterveil.encoding import Encoding
from counterveil.models import Rows, adapt
from counterveil.population import MixedPopulation
from counterveil.schema import Feature
from counterveil.search.actions.beam import HELPS, LEAST_GAIN
from counterveil.search.actions.costs import BatchCosts, Context
from counterveil.search.actions.menu import menu_of
from counterveil.search.actions.search import believable_context
from counterveil.search.asking import Question
from counterveil.search.batch import QueryBatch
from counterveil.search.constraints.bounds import box_around, column_costs
from counterveil.search.constraints.rules import Rules
from counterveil.search.options import Prefer
from counterveil_lab.experiments.runner import Case, Experiment, Options, combined
from counterveil_lab.product import embedded_adult
from counterveil_lab.results import Row

EPSILON, TARGET = 0.75, ">50K"
ADULT = ("logistic", "boosted", "network", "private model")
RANDOM = ("linear", "trees", "network", "private model")
PREFERENCES: tuple[Prefer, ...] = ("believable", "nearest")
PEOPLE, QUICK_PEOPLE = 60, 5
WORLDS, QUICK_WORLDS = 12, 1
EACH, QUICK_EACH = 40, 4  # queries of a model and a search in a world, before some are left out
MOST_ROWS = 20_000  # of a query in a small world
AS_GOOD = 1.001


class Best(NamedTuple):
    """What the cheapest accepted rows cost, infinite where there are none, and the margin."""

    cost: float  # of all rows
    helping: float  # of those whose every change brings the model closer by itself
    margin: float  # the largest, of all rows


@dataclass(frozen=True, eq=False)
class Judge:
    """Asks a model about every row that it is given."""

    explainer: Explainer

    @cached_property
    def contexts(self) -> dict[Prefer, Context]:
        """What answers are priced by, as the explainer has it."""
        population, model, here = self.explainer.veil.population(), self.model, torch.device("cpu")
        assert isinstance(population, MixedPopulation), "a mixed table"
        return {
            "believable": believable_context(population, model, here, stands_in=False),
            "nearest": Context(
                model.encoding, menu_of(model.encoding, population, here, kinks=model.kinks), None
            ),
        }

    @property
    def model(self) -> Any:
        return self.explainer.model

    @property
    def question(self) -> Question:
        return Question(self.model)

    def best(
        self, query: Tensor, rows: Tensor, goal: int, rules: Rules | None = None
    ) -> dict[Prefer, Best]:
        """The best of encoded rows (rows, width) for an encoded query (width,), in each search."""
        asked, target, question = query[None], torch.tensor([goal]), self.question
        margin = question.margin(rows, target.expand(len(rows)))
        fine = (margin >= 0).nonzero()[:, 0]
        rows, whose = rows[fine], torch.zeros(len(fine), dtype=torch.long)
        box = box_around(self.model.encoding, asked.double().numpy())
        batch = QueryBatch(asked, target, box, column_costs(self.model.encoding, rules, 1))
        found = {}
        for prefer, context in self.contexts.items():
            costs = BatchCosts(context, question, batch)
            with torch.inference_mode():
                effort, implausibility = costs.terms(rows, whose)
                at_least = effort + implausibility.clamp(min=0)
                cost = costs.of_accepted(rows, whose, at_least, margin[fine]).numpy()
            helps = self._help(rows, query, goal, context).numpy()
            most = float(margin.max()) if len(margin) else -np.inf
            least, of_helping = (each.min(initial=np.inf) for each in (cost, cost[helps]))
            found[prefer] = Best(float(least), float(of_helping), most)
        return found

    def _help(self, rows: Tensor, query: Tensor, goal: int, context: Context) -> Tensor:
        """For which rows (rows, width) every change brings the model closer by itself, (rows,)."""
        fine, question, target = torch.ones(len(rows), dtype=torch.bool), self.question, [goal]
        own = question.margin(query[None], torch.tensor(target))
        least = HELPS * context.unit if context.prices is not None else LEAST_GAIN
        for number in context.menu.feature.unique().tolist():
            block = self.model.encoding.blocks[number]
            values, which = rows[:, block.at].unique(dim=0, return_inverse=True)
            alone = query.repeat(len(values), 1)
            alone[:, block.at] = values
            gain = question.margin(alone, torch.tensor(target * len(values))) - own
            stays = (values == query[block.at]).all(dim=1)
            fine &= (stays | (gain > least))[which]
        return fine


def every_value(feature: Feature) -> list[Any]:
    """All values of a feature of few values: of a list, or whole numbers."""
    if feature.values is not None:
        return list(feature.values)
    low, high = feature.number_range or (0.0, 0.0)
    return list(range(round(low), round(high) + 1))


def allowed_points(encoding: Encoding, query: Tensor) -> Tensor:
    """All rows that the schema allows for an encoded query (width,), but itself: (rows, width).

    For schemas without directions, steps and links.
    """
    free = [block for block in encoding.blocks if not block.feature.immutable]
    values = []
    for block in free:
        given = [each for each in every_value(block.feature) if block.feature.allows(each)]
        table = torch.tensor([block.feature.encode_value(each) for each in given]).float()
        values.append(torch.cat([table, query[None, block.at]]).unique(dim=0))
    places = torch.cartesian_prod(*(torch.arange(len(table)) for table in values))
    points = query.repeat(len(places), 1)
    for block, table, place in zip(free, values, places.T, strict=True):
        points[:, block.at] = table[place]
    return points[(points != query).any(dim=1)]


def compared(
    result: Explanations, costs: Sequence[float], best: Sequence[Best], broken: int
) -> Row:
    """How answers compare with the best rows: the columns of the results.

    `costs`: J of the answers. A query that has the target class already is left out.
    """
    status = np.asarray(result.status)
    sought = status != "already"
    cost, least, helping, margin = (
        np.array(each)[sought] for each in (costs, *zip(*best, strict=True))
    )
    status, reachable = status[sought], margin > CLEARLY
    at = (status == "found") & np.isfinite(least)
    times, beside = cost[at] / least[at], at & np.isfinite(helping)
    return {
        "queries": len(status),
        "reachable": int(reachable.sum()),
        **{name: int((status == name).sum()) for name in ("found", "not_found", "impossible")},
        "missed": int(((status == "not_found") & reachable).sum()),
        "disproved": int(((status == "impossible") & reachable).sum()),
        "broken": broken,
        "times_best": float(times.mean()) if len(times) else None,
        "worst": float(times.max()) if len(times) else None,
        "optimal": float((times < AS_GOOD).mean()) if len(times) else None,
        "times_helping": float((cost[beside] / helping[beside]).mean()) if beside.any() else None,
    }


def cases(options: Options) -> Iterable[Case]:
    worlds = range(QUICK_WORLDS if options.quick else WORLDS)
    yield from combined(part=["adult"], world=[None], model=ADULT)
    yield from combined(part=["random"], world=worlds, model=RANDOM)


def measure_case(part: str, world: int | None, model: str, *, quick: bool) -> list[Row]:
    if world is None:
        return adult_rows(model, QUICK_PEOPLE if quick else PEOPLE)
    with learning_less():
        return random_rows(world, model, QUICK_EACH if quick else EACH)


def adult_rows(kind: str, count: int) -> list[Row]:
    """Refused people of Adult ask for the other class; rules are those of the schema."""
    schema, people, veil = embedded_adult(EPSILON)
    table = people.train[list(schema.columns)]
    model: Any = None
    if kind == "network":
        model = train_target(people.train, schema)
    elif kind != "private model":
        from campaigns.pipelines import pipeline  # loads scikit-learn

        model = pipeline(kind, table, people.train[schema.label.name])  # type: ignore[arg-type]
    explainer, goal = Explainer(veil, model), schema.label.classes.index(TARGET)
    asked = people.test[list(schema.columns)].head(20 * count)
    asked = asked[explainer.decide(asked)[:, goal] < 0.5].head(count)
    judge, best = Judge(explainer), []
    for query in torch.tensor(explainer.encoding.encode(asked)).float():
        best.append(judge.best(query, allowed_points(explainer.encoding, query), goal))
    found = []
    for prefer in PREFERENCES:
        result = explainer.explain(asked, TARGET, prefer=prefer, progress=False)
        costs = explainer.cost_of(asked, result.rows, TARGET, prefer=prefer)
        pairs = zip(_records(asked), _records(result.rows), strict=True)
        broken = sum(bool(violations(schema, NO_RULES, *pair)) for pair in pairs)
        of_search = [each[prefer] for each in best]
        found.append({"prefer": prefer, **compared(result, costs.tolist(), of_search, broken)})
    return found


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [record(row) for row in frame.to_dict(orient="records")]


def random_rows(number: int, kind: str, count: int, failures: list[str] | None = None) -> list[Row]:
    """Random queries with rules of their own, of one small world; words on what fails."""
    world = World.drawn(number, 0, small=True)
    explainer = Explainer(world.veil, random_model(world, number, kind))
    values = {feature.name: every_value(feature) for feature in world.schema.features}
    encoding, judge, found = explainer.encoding, Judge(explainer), []
    told: list[str] = [] if failures is None else failures
    for prefer in PREFERENCES:
        tally = Tally()
        drawn = [case for case in (world.draw_case(tally) for _ in range(count)) if case]
        rows = {at: world.allowed_rows(case, values, MOST_ROWS) for at, case in enumerate(drawn)}
        kept = [at for at, legal in rows.items() if legal is not None]
        rules = [drawn[at].rules for at in kept]
        asked = frame_of(world.schema, [drawn[at].query for at in kept])
        result = explainer.explain(asked, rules=rules, prefer=prefer, progress=False)
        world.check_rows(result, [drawn[at] for at in kept], tally)
        targets = [world.schema.label.classes[int(each)] for each in result.target]
        costs = explainer.cost_of(asked, result.rows, targets, prefer=prefer, rules=rules)
        points, best = Rows.of_frame(asked, encoding).points, []
        for place, at in enumerate(kept):
            given, legal, goal = points[:0], rows[at], int(result.target[place])
            if legal:
                given = Rows.of_frame(frame_of(world.schema, legal), encoding).points
            best.append(judge.best(points[place], given, goal, drawn[at].rules)[prefer])
            status = result.status[place]
            if status in {"not_found", "impossible"} and best[-1].margin > CLEARLY:
                told.append(f"{number} {kind} {prefer}: {drawn[at].query}, {drawn[at].content}")
        told += tally.failures
        row = compared(result, costs.tolist(), best, tally.counts["violated"])
        found.append({"prefer": prefer, **row})
    return found


def random_model(world: World, seed: int, kind: str) -> Any:
    """A model over the encoding of a small world; None for the veil's own."""
    schema = world.schema
    if kind in {"network", "linear"}:
        return draw_model(schema, seed, linear=kind == "linear")
    if kind == "trees":
        from sklearn.ensemble import RandomForestClassifier

        rng, dice = np.random.default_rng(seed), Random(seed)
        frame = frame_of(schema, [draw_record(schema, dice) for _ in range(400)])
        points = Encoding(schema).encode(frame)
        decided = draw_model(schema, seed)(torch.tensor(points).float()).argmax(dim=1).numpy()
        decided = np.where(rng.random(400) < 0.2, 1 - decided, decided)
        trees = RandomForestClassifier(20, max_depth=5, random_state=seed).fit(points, decided)
        return adapt(trees, schema, inputs="encoding", classes=schema.label.classes)
    return None


EXHAUSTIVE = Experiment(
    "answers beside exhaustive search: what is missed, and what answers cost too much.",
    cases,
    measure_case,
    chosen_by=("model",),
)
