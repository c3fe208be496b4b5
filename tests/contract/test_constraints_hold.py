"""Ten thousand random (query, rules) cases: no rule is ever broken, no row is ever illegal.

What is checked is the table as it is given out, in original units, by means that share nothing with
the search: a second reading of the rules, in plain Python.
"""

from random import Random

import numpy as np
import pandas as pd
import pytest
import torch
from campaigns.rule_judge import violations
from rows import random_rows
from worlds import OF_FEATURES, rules_that_fit

from counterveil.encoding import Encoding
from counterveil.search.constraints.rules import Rules
from counterveil.tables import plain_rows

CASES, SETS = 10_000, 250
KINDS = (*OF_FEATURES, "costs", "max_changes", "transitions", "may_change")


@pytest.mark.long
def test_no_rule_is_broken_and_no_row_is_illegal(explainer, model, schema):
    dice = Random(0)
    kinds = [rules_that_fit(schema, dice, KINDS) for _ in range(SETS)]
    queries = random_rows(schema, CASES, seed=77)
    rules = [Rules.of_mapping(each) for each in kinds] * (CASES // SETS)
    result = explainer.explain(queries, rules=rules, progress=False)
    assert result.valid.mean() > 0.3
    before = plain_rows(Encoding(schema).pick(queries))
    for number, (query, row) in enumerate(zip(before, plain_rows(result.rows), strict=True)):
        broken = violations(schema, kinds[number % SETS], query, row)
        assert not broken if result.valid[number] else query == row, (broken, query, row)
    points = torch.tensor(Encoding(schema).encode(result.rows)).float()
    found = result.valid
    assert (model(points).argmax(dim=1).numpy()[found] == result.target[found]).all()
    assert all(result.reason[(result.status == "not_found")])


@pytest.mark.parametrize("k", [2, 4])
def test_several_answers_differ_and_all_convince(explainer, model, schema, k):
    queries = random_rows(schema, 60, seed=5)
    result = explainer.explain(queries, k=k, immutable=["age"], progress=False)
    assert len(result) == 60
    assert result.flip_ratio > 0.9
    assert result.answers > 1.1 * len(result.found)
    points = Encoding(schema).encode(result.rows)
    labels = model(torch.tensor(points).float()).argmax(dim=1).numpy()
    assert (labels[result.valid] == result.target[result.valid]).all()
    for query in result.found:
        mine = points[query * k : (query + 1) * k][result.valid[query * k : (query + 1) * k]]
        assert len(np.unique(mine.round(6), axis=0)) == len(mine)
    assert (result.rows["age"] == result.queries["age"]).all()
    again = explainer.explain(queries, k=k, immutable=["age"], progress=False)
    pd.testing.assert_frame_equal(result.rows, again.rows)
