"""`counterveil-lab fuzz-rules`: random rules and queries against the search, in small worlds.

A world is a random schema, rows, a veil, and a model. A case is a query with rules of its own. The
rules of a case are refused where they contradict themselves; otherwise the answers of every kind of
search are looked at by `rule_judge`. A case fails where

- an answer that is given out breaks a rule, or is no legal row, or holds a NaN ("violated");
- a row that was not found differs from its query;
- no answer was found, although rules tie features or give numbers steps, and a row of the menu
  keeps all rules and convinces the model ("missed"). It is looked for where there are at most
  `MOST_ROWS` such rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod
from random import Random
from typing import Any

import numpy as np
import pandas as pd

from counterveil import Explainer, Explanations
from counterveil.curator import Curator
from counterveil.encoding import Encoding
from counterveil.errors import RequestError
from counterveil.models import Rows
from counterveil.population import MixedPopulation
from counterveil.schema import Feature, Schema
from counterveil.search.actions.menu import menu_of
from counterveil.search.asking import class_margin
from counterveil.search.constraints.rules import Rules
from counterveil.veil import Veil
from counterveil_lab.fuzz.random_rules import (
    Record,
    draw_model,
    draw_record,
    draw_rules,
    draw_schema,
    frame_of,
)
from counterveil_lab.fuzz.rule_judge import violations
from counterveil_lab.fuzz.world import learning_less
from counterveil_lab.results import Row

ROWS = 400  # of the table of a world
MOST_ROWS = 2000  # of the menu that are looked at for a query without an answer
CLEARLY = 1e-3  # log-odds by which a row of the menu must convince the model
SURELY = 3.0  # the same where a probability of .95 is sought
DECIDES = ("model", "private model", "surrogate")
SEARCHES: dict[str, dict[str, Any]] = {
    "believable": {},
    "nearest": {"prefer": "nearest"},
    "three answers": {"k": 3},
    "iterations": {"method": "iterations", "iterations": 20},
}


@dataclass
class Tally:
    """How some cases went, and words on those that failed."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def fail(self, kind: str, words: str) -> None:
        self.counts[kind] += 1
        self.failures.append(f"{kind}: {words}")


@dataclass(frozen=True)
class Case:
    """A query, and its rules as a JSON file has them."""

    query: Record
    content: dict[str, Any]
    rules: Rules
    under: dict[str, Feature]  # the features under these rules

    @property
    def is_tied(self) -> bool:
        """Whether the rules tie features, or give numbers steps."""
        rules, has_steps = self.rules, any(feature.step for feature in self.under.values())
        return bool(rules.relations or rules.together or rules.only_one) or has_steps


def run_worlds(cases: int, seed: int, *, per_world: int = 1250) -> Iterator[tuple[Row, list[str]]]:
    """Run so many cases; for each world and search how they went, and words on failures."""
    with learning_less():
        for number in range(-(-cases // per_world)):
            world = World.drawn(number, seed)
            ways = list(product(DECIDES, SEARCHES))
            left = min(per_world, cases - number * per_world)
            for place, (decides, search) in enumerate(ways):
                share = left // len(ways) + (place < left % len(ways))
                tally = world.run(decides, search, share)
                row = {"seed": seed, "world": number, "decides": decides, "search": search}
                names = ("cases", "refused", "found", "not_found", "already", "compared")
                counts = {name: tally.counts[name] for name in (*names, "violated", "missed")}
                yield {**row, **counts}, tally.failures


@dataclass(frozen=True, eq=False)
class World:
    """A random schema with rows, a veil and a model."""

    schema: Schema
    veil: Veil
    model: Any
    dice: Random

    @classmethod
    def drawn(cls, number: int, seed: int, *, small: bool = False) -> World:
        """The world of a number: the same for the same seed. `small`: as of `draw_schema`."""
        dice = Random(f"{seed} {number}")
        schema = draw_schema(dice, small=small)
        model = draw_model(schema, dice.randrange(1 << 30))
        frame = frame_of(schema, [draw_record(schema, dice) for _ in range(ROWS)])
        decided = model(Rows.of_frame(frame, Encoding(schema)).points).argmax(dim=1).numpy()
        frame["decision"] = np.where(decided == 1, "yes", "no")
        # So large an ε that the noise is 0: the veil is the same each time.
        veil = Curator(schema).release(frame, 1e4, progress=False)
        return cls(schema, veil, model, dice)

    @cached_property
    def explainers(self) -> dict[str, Explainer]:
        """An Explainer for each that may decide."""
        return {
            "model": Explainer(self.veil, self.model),
            "private model": Explainer(self.veil),
            "surrogate": Explainer(self.veil, guidance="surrogate"),
        }

    def run(self, decides: str, search: str, count: int) -> Tally:
        """So many new cases with one search."""
        tally = Tally()
        cases = [case for case in (self.draw_case(tally) for _ in range(count)) if case is not None]
        if not cases:
            return tally
        result = self.explainers[decides].explain(
            frame_of(self.schema, [case.query for case in cases]),
            rules=[case.rules for case in cases],
            progress=False,
            **SEARCHES[search],
        )
        for name in ("found", "not_found", "already"):
            tally.counts[name] += int((result.status[:: result.k] == name).sum())
        self.check_rows(result, cases, tally)
        sure = decides == "surrogate" and search in ("nearest", "iterations")
        for at in np.flatnonzero(result.status[:: result.k] == "not_found").tolist():
            if not cases[at].is_tied:
                continue
            target = int(result.target[at * result.k])
            self._look_for_missed(decides, cases[at], target, SURELY if sure else CLEARLY, tally)
        return tally

    def draw_case(self, tally: Tally) -> Case | None:
        """A new case; None where its rules contradict themselves, which one line must say."""
        query, content = draw_record(self.schema, self.dice), draw_rules(self.schema, self.dice)
        tally.counts["cases"] += 1
        try:
            rules = Rules.of_mapping(content)
            under = {feature.name: feature for feature in rules.tighten(self.schema)}
        except RequestError as error:
            tally.counts["refused"] += 1
            if "\n" in str(error) or str(error).split(":")[0] not in content:
                tally.fail("violated", f"a message that names no rule: {error}")
            return None
        return Case(query, content, rules, under)

    def check_rows(self, result: Explanations, cases: Sequence[Case], tally: Tally) -> None:
        """Every answer is legal and keeps the rules; where there is none, the query is given."""
        numbers = (result.probability, result.distance, result.effort, result.stability)
        for values in numbers:
            if values is not None and not np.isfinite(values).all():
                tally.fail("violated", "a number of an answer is not finite")
        rows = [record(row) for row in result.rows.to_dict(orient="records")]
        for place, (row, status) in enumerate(zip(rows, result.status, strict=True)):
            case = cases[place // result.k]
            if status == "found":
                broken = violations(self.schema, case.content, case.query, row)
            else:
                broken = [] if row == case.query else ["a row that was not found"]
            if broken:
                tally.fail("violated", f"{broken} {case.query} -> {row}, {case.content}")

    def _look_for_missed(
        self, decides: str, case: Case, target: int, margin: float, tally: Tally
    ) -> None:
        """Try all rows of the menu, if they are few, where no answer was found."""
        legal = self.allowed_rows(case, self._menu, MOST_ROWS)
        if legal is None:
            return
        tally.counts["compared"] += 1
        if not legal:
            return
        model = self.explainers[decides].model
        asked = Rows.of_frame(frame_of(self.schema, legal), model.encoding)
        answers = model.ask(asked)
        goals = asked.points.new_full((len(legal),), target).long()
        beyond = class_margin(answers, goals)
        if float(beyond.max()) > margin:
            best = legal[int(beyond.argmax())]
            tally.fail("missed", f"{case.query} -> {best}, {case.content}")

    def allowed_rows(
        self, case: Case, values: Mapping[str, Sequence[Any]], most: int
    ) -> list[Record] | None:
        """All rows within the rules, but for the query; None where more than `most` are to be seen.

        They are made of the query's own values and of the `values` of each feature.
        """
        features = self.schema.features
        choices = [self._alone(feature, case, values[feature.name]) for feature in features]
        if prod(map(len, choices)) > most:
            return None
        names, legal = [feature.name for feature in features], []
        for chosen in product(*choices):
            row, fits = dict(zip(names, chosen, strict=True)), True
            for link in self.schema.links:
                if row[link.source] != case.query[link.source]:
                    row[link.derived] = link.values[row[link.source]]
                    # Nobody is led to a value that is not allowed, though it be the query's own.
                    fits &= case.under[link.derived].allows(row[link.derived])
            broken = violations(self.schema, case.content, case.query, row)
            if row != case.query and fits and not broken:
                legal.append(row)
        return legal

    def _alone(self, feature: Feature, case: Case, values: Sequence[Any]) -> list[Any]:
        """The query's value and those of `values` that a feature may move to by itself."""
        own = case.query[feature.name]
        if feature.name in {link.derived for link in self.schema.links}:
            return [own]
        step = case.rules.steps.get(feature.name, feature.step)
        values = [] if case.under[feature.name].immutable else values
        if step is not None:
            values = [round(value / step) * step for value in values]
        alone = {
            name: case.content[name]
            for name in ("immutable", "direction", "allowed", "steps", "transitions")
        }
        kept = []
        for value in dict.fromkeys(value for value in values if value != own):
            row = {**case.query, feature.name: value}
            broken = violations(self.schema, alone, case.query, row)
            if not [words for words in broken if words.endswith(f" {feature.name}")]:
                kept.append(value)
        return list(dict.fromkeys([own, *kept]))

    @cached_property
    def _menu(self) -> dict[str, list[Any]]:
        """The values of each feature on the menu, in original units."""
        population, encoding = self.veil.population(), Encoding(self.schema)
        assert isinstance(population, MixedPopulation), "mixed tables have one"
        menu = menu_of(encoding, population)
        found = {}
        for number, block in enumerate(encoding.blocks):
            points = menu.points[menu.feature == number][:, block.at].double().numpy()
            column = block.feature.decode(points)[0] if len(points) else []
            values = [_plain(value) for value in pd.Series(column).tolist()]
            is_number = block.feature.is_one_number and not block.feature.is_whole
            found[block.feature.name] = [round(v, 6) for v in values] if is_number else values
        return found


def record(row: dict[Any, Any]) -> Record:
    """A row of a frame, with values of Python."""
    return {str(name): _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    """A value of Python; None where it is missing."""
    if pd.isna(value):
        return None
    return value.item() if isinstance(value, np.generic) else value
