"""Random schemas, rules, queries and models, all drawn by the dice that are given."""

from __future__ import annotations

from random import Random
from typing import Any

import pandas as pd
import torch
from torch import nn

from counterveil.encoding import Encoding
from counterveil.schema import Binary, Categorical, Direction, Feature, Label, Link, Numeric, Schema

Record = dict[str, Any]  # a row; None for a missing value
WAYS: tuple[Direction, ...] = ("any", "any", "any", "increase", "decrease")
LETTERS = "abcdefgh"


SPANS, FEW = (4, 8, 20, 100, 1000), (2, 3, 4, 8)  # of numbers, and where all rows are looked at


def draw_schema(dice: Random, *, small: bool = False) -> Schema:
    """Three to six features of all kinds but pixels, sometimes two of them linked.

    `small`: whole numbers of few values, so that all rows can be looked at.
    """
    features = [_number(dice, f"n{place}", small) for place in range(dice.randint(2, 4 - small))]
    features += [_choice(dice, f"c{place}") for place in range(dice.randint(1, 2))]
    links = []
    sources = [each for each in features if isinstance(each, Categorical)]
    if sources and dice.random() < 0.3:
        source = dice.choice(sources)
        years = Numeric(name="years", lower=0, upper=12, integer=True)
        features.append(years)
        values = {each: dice.randint(0, 12) for each in source.categories}
        links.append(Link(source=source.name, derived="years", values=values))
    label = Label(name="decision", classes=("no", "yes"))
    return Schema(name="random", label=label, features=tuple(features), links=tuple(links))


def _number(dice: Random, name: str, small: bool) -> Feature:
    low = dice.choice((-10, 0, 0, 0, 5))
    span = dice.choice(FEW if small else SPANS)
    allowed = (low + span // 4, low + span) if dice.random() < 0.15 else None
    return Numeric(
        name=name,
        lower=low,
        upper=low + span,
        integer=dice.random() < 0.6 or small,
        missing=dice.random() < 0.3,
        direction=dice.choice(WAYS),
        allowed=allowed,
        immutable=dice.random() < 0.05,
        step=dice.choice((1, 2)) if dice.random() < 0.1 else None,
    )


def _choice(dice: Random, name: str) -> Feature:
    if dice.random() < 0.4:
        return Binary(name=name, direction=dice.choice(WAYS))
    ordered = dice.random() < 0.5
    return Categorical(
        name=name,
        categories=tuple(LETTERS[: dice.randint(2, 4)]),
        ordered=ordered,
        missing=dice.random() < 0.3,
        direction=dice.choice(WAYS) if ordered else "any",
    )


def values_of(feature: Feature, dice: Random) -> Any:
    """A legal value, or None where the feature may be missing."""
    if feature.missing and dice.random() < 0.2:
        return None
    if feature.values is not None:
        return dice.choice(feature.values)
    low, high = feature.number_range or (0.0, 0.0)
    number = dice.uniform(low, high)
    return round(number) if feature.is_whole else round(number, 3)


def draw_record(schema: Schema, dice: Random) -> Record:
    """A legal row; what is derived mostly follows its source."""
    row = {feature.name: values_of(feature, dice) for feature in schema.features}
    for link in schema.links:
        if row[link.source] is not None and dice.random() < 0.9:
            row[link.derived] = link.values[row[link.source]]
    return row


def draw_rules(schema: Schema, dice: Random) -> dict[str, Any]:
    """Rules as a JSON file has them; some contradict each other or the schema."""
    names = [feature.name for feature in schema.features]
    numbers = [feature.name for feature in schema.features if feature.is_one_number]
    derived = {link.derived for link in schema.links}
    free = [name for name in names if name not in derived]
    rules: dict[str, Any] = {
        "immutable": [name for name in names if dice.random() < 0.1],
        "direction": {},
        "allowed": {},
        "steps": {},
        "costs": {name: dice.uniform(0.1, 5) for name in names if dice.random() < 0.1},
    }
    for feature in schema.features:
        if feature.ordered and dice.random() < 0.1:
            rules["direction"][feature.name] = dice.choice(WAYS)
        if dice.random() < 0.1:
            rules["allowed"][feature.name] = _allowed(feature, dice)
        if feature.name in numbers and feature.name in free and dice.random() < 0.2:
            low, high = feature.number_range or (0.0, 0.0)
            size = dice.choice((0.1, 0.25, 0.5)) * (high - low)
            rules["steps"][feature.name] = max(1, round(size)) if feature.is_whole else size
    if dice.random() < 0.6:
        pairs = [dice.sample(numbers, 2) for _ in range(dice.randint(1, 3))]
        offsets: tuple[list[float], ...] = ([], [], [dice.choice((-3, -1, 0.5, 2, 20))])
        rules["relations"] = [
            [a, dice.choice(("<=", "<=", "==")), b, *dice.choice(offsets)] for a, b in pairs
        ]
    if dice.random() < 0.5:
        members = dice.sample(free, min(len(free), dice.randint(2, 4)))
        half = [members[:2], members[2:]] if len(members) == 4 else [members]
        rules["together"] = half
    if dice.random() < 0.2 and len(free) > 1:
        rules["only_one"] = [dice.sample(free, dice.randint(2, min(3, len(free))))]
    listed = [feature for feature in schema.features if feature.values is not None]
    rules["transitions"] = {
        feature.name: [dice.choices(feature.values, k=2) for _ in range(dice.randint(0, 4))]
        for feature in listed
        if dice.random() < 0.15
    }
    if dice.random() < 0.2:
        rules["may_change"] = dice.sample(names, dice.randint(1, len(names)))
    if dice.random() < 0.25:
        rules["max_changes"] = dice.randint(1, 4)
    return rules


def _allowed(feature: Feature, dice: Random) -> list[Any]:
    """A range, or some categories; some reach beyond what the schema allows."""
    if feature.values is not None:
        return dice.sample(feature.values, dice.randint(1, len(feature.values)))
    low, high = feature.number_range or (0.0, 0.0)
    ends = sorted(dice.uniform(low, high) for _ in range(2))
    return [round(ends[0]), round(ends[1])] if feature.is_whole else [round(e, 3) for e in ends]


def draw_model(schema: Schema, seed: int, *, linear: bool = False) -> nn.Module:
    """A small network over the encoding whose decisions are mixed on random rows.

    `linear`: one layer.
    """
    torch.manual_seed(seed)
    first, last = nn.Linear(schema.width, 8), nn.Linear(schema.width if linear else 8, 2)
    layers = nn.Sequential(*([] if linear else [first, nn.Tanh()]), last)
    with torch.no_grad():
        first.weight *= 4.0
        dice = Random(seed)
        rows = [draw_record(schema, dice) for _ in range(200)]
        points = torch.tensor(Encoding(schema).encode(frame_of(schema, rows))).float()
        last.bias.sub_(layers(points).mean(dim=0))
    return layers.requires_grad_(False).eval()


def frame_of(schema: Schema, rows: list[Record]) -> pd.DataFrame:
    """Rows as a frame of the types that readers of files give."""
    columns = {}
    for feature in schema.features:
        values = [row[feature.name] for row in rows]
        if feature.is_one_number:
            kind = "Int64" if feature.is_whole else "Float64"
            columns[feature.name] = pd.Series(values, dtype=kind)
        else:
            columns[feature.name] = pd.Series(values, dtype=object)
    return pd.DataFrame(columns)
