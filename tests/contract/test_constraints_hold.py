"""Ten thousand random (query, rules) cases: no rule is ever broken, no row is ever illegal.

What is checked is the table as it is given out, in original units, by means that share nothing with
the search: a second reading of the rules, in plain Python.
"""

from random import Random

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
