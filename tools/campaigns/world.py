"""A random schema with rows, a veil and a model; and queries with rules of their own.

The rules of a query are refused where they contradict themselves; otherwise answers are looked at
by `rule_judge`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from math import prod
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import torch

from campaigns.random_rules import (
    Record,
    draw_model,
    draw_record,
    draw_rules,
    draw_schema,
    frame_of,
)
from campaigns.rule_judge import violations
from counterveil import Explanations
from counterveil.build import TRAININGS, Training
from counterveil.curator import Curator
from counterveil.encoding import Encoding
from counterveil.errors import RequestError
from counterveil.models import Rows
from counterveil.schema import Feature, Schema
from counterveil.search.constraints.rules import Rules
from counterveil.search.paper import student
from counterveil.veil import Veil

ROWS = 400  # of the table of a world
CLEARLY = 1e-3  # log-odds by which a row must convince the model to count as missed


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


def record(row: dict[Any, Any]) -> Record:
    """A row of a frame, with values of Python."""
    return {str(name): _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    """A value of Python; None where it is missing."""
    if pd.isna(value):
        return None
    return value.item() if isinstance(value, np.generic) else value


@contextmanager
def learning_less() -> Iterator[None]:
    """Let networks learn from few samples, with one thread."""
    torch.set_num_threads(1)
    usual = dict(TRAININGS), student.STUDENT_ROWS
    TRAININGS.update(dict.fromkeys(TRAININGS, Training(200, 1, 64, 5e-3, (4,), 1)))
    student.STUDENT_ROWS = 200
    try:
        yield
    finally:
        trainings, student.STUDENT_ROWS = usual
        TRAININGS.update(trainings)
