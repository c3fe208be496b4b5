"""Ten thousand random (query, rules) cases: no rule is ever broken, no row is ever illegal.

What is checked is the table as it is given out, in original units, by means that share nothing with
the search: plain comparisons of cells.
"""

import numpy as np
import pandas as pd
import pytest
import torch
from rows import random_rows

from counterveil.encoding import Encoding
from counterveil.schema import Binary, Categorical, Numeric
from counterveil.search.constraints.rules import Rules

CASES, SETS = 10_000, 250


def random_rules(schema, rng):
    immutable, direction, allowed, costs = [], {}, {}, {}
    for feature in schema.features:
        dice = rng.random()
        if dice < 0.15:
            immutable.append(feature.name)
        elif dice < 0.3 and isinstance(feature, Numeric):
            low, high = np.sort(
                rng.uniform(*(feature.allowed or (feature.lower, feature.upper)), 2)
            )
            if feature.integer:
                low, high = np.floor(low), np.ceil(high)
            allowed[feature.name] = [float(low), float(high)]
        elif dice < 0.3 and isinstance(feature, Categorical):
            count = rng.integers(1, len(feature.categories) + 1)
            allowed[feature.name] = [*rng.permutation(np.array(feature.categories, dtype=object))][
                :count
            ]
        ordered = not isinstance(feature, Categorical) or feature.ordered
        if ordered and rng.random() < 0.15:
            direction[feature.name] = str(rng.choice(["increase", "decrease"]))
        if rng.random() < 0.1:
            costs[feature.name] = float(rng.uniform(0.1, 5))
    most = int(rng.integers(1, 5)) if rng.random() < 0.3 else None
    return Rules(immutable, direction, allowed, most, costs)


def rank_of(feature, values):
    if isinstance(feature, Numeric):
        return values.to_numpy(np.float64, na_value=np.nan)
    names = feature.values if isinstance(feature, Binary) else feature.categories
    return values.map({name: float(place) for place, name in enumerate(names)}).to_numpy(float)


def broken_rules(schema, before, after, rules):
    """Names of rules that the row `after` breaks, one row each."""
    for feature in schema.features:
        name = feature.name
        was, now = before[name], after[name]
        same = (was == now) | (was.isna() & now.isna())
        changed = ~same.to_numpy(dtype=bool)
        if feature.immutable or name in rules.immutable:
            yield f"immutable {name}", changed
        if feature.missing if hasattr(feature, "missing") else False:
            yield f"known becomes unknown {name}", (now.isna() & was.notna()).to_numpy()
        ways = {feature.direction, rules.direction.get(name, "any")}
        steps = rank_of(feature, now) - rank_of(feature, was)
        if "increase" in ways:
            yield f"increase {name}", steps < 0
        if "decrease" in ways:
            yield f"decrease {name}", steps > 0
        for limits in (getattr(feature, "allowed", None), rules.allowed.get(name)):
            if limits is None:
                continue
            if isinstance(feature, Numeric):
                inside = (now >= limits[0]) & (now <= limits[1])
            else:
                inside = now.isin(list(limits))
            yield f"allowed {name}", changed & ~inside.fillna(True).to_numpy(dtype=bool)


@pytest.mark.long
def test_no_rule_is_broken_and_no_row_is_illegal(explainer, model, schema):
    rng = np.random.default_rng(0)
    kinds = [random_rules(schema, rng) for _ in range(SETS)]
    queries = random_rows(schema, CASES, seed=77)
    rules = [kinds[number % SETS] for number in range(CASES)]
    result = explainer.explain(queries, rules=rules, progress=False)
    found = result.valid
    assert found.mean() > 0.3
    Encoding(schema).encode(result.rows)  # every row is legal
    before = Encoding(schema).pick(queries)
    differs = np.zeros(CASES, dtype=int)
    for name in schema.columns:
        was, now = before[name], result.rows[name]
        same = (was == now).astype("boolean").fillna(False) | (was.isna() & now.isna())
        differs += ~same.to_numpy(dtype=bool)
    assert (differs[~found] == 0).all()
    for number, each in enumerate(kinds):
        mine = np.arange(number, CASES, SETS)
        mine = mine[found[mine]]
        if each.max_changes is not None:
            assert (differs[mine] <= each.max_changes).all()
        part, answers = (table.iloc[mine].reset_index(drop=True) for table in (before, result.rows))
        for rule, bad in broken_rules(schema, part, answers, each):
            assert not bad.any(), f"{rule}: {part[bad].head(1)} {answers[bad].head(1)} {each}"
    points = torch.tensor(Encoding(schema).encode(result.rows)).float()
    assert (model(points).argmax(dim=1).numpy()[found] == result.target[found]).all()
    assert all(result.reason[(result.status == "not_found")])


@pytest.mark.parametrize("k", [2, 4])
def test_several_answers_differ_and_all_convince(explainer, model, schema, k):
    queries = random_rows(schema, 60, seed=5)
    result = explainer.explain(queries, k=k, immutable=["age"], progress=False)
    assert len(result) == 60
    assert result.flip_ratio > 0.9
    assert result.answers > 1.2 * len(result.found)
    points = Encoding(schema).encode(result.rows)
    labels = model(torch.tensor(points).float()).argmax(dim=1).numpy()
    assert (labels[result.valid] == result.target[result.valid]).all()
    for query in result.found:
        mine = points[query * k : (query + 1) * k][result.valid[query * k : (query + 1) * k]]
        assert len(np.unique(mine.round(6), axis=0)) == len(mine)
    assert (result.rows["age"] == result.queries["age"]).all()
    again = explainer.explain(queries, k=k, immutable=["age"], progress=False)
    pd.testing.assert_frame_equal(result.rows, again.rows)
