"""Random worlds for tests of rules: schemas, rules and queries, by a number."""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Any

from campaigns.random_rules import draw_rules
from campaigns.rule_judge import NO_RULES

from counterveil.errors import RequestError
from counterveil.schema import Schema
from counterveil.search.constraints.rules import Rules

OF_FEATURES = ("immutable", "direction", "allowed")  # rules about one feature each


def rules_that_fit(schema: Schema, dice: Random, names: Collection[str]) -> dict[str, Any]:
    """Rules of these names as a JSON file has them, which do not contradict the schema."""
    while True:
        found: dict[str, Any] = {**NO_RULES}
        for _ in range(4):  # a single draw has few rules
            drawn = draw_rules(schema, dice)
            found |= {name: drawn[name] for name in names if drawn.get(name)}
        try:
            Rules.of_mapping(found).tighten(schema)
        except RequestError:
            continue
        return found
