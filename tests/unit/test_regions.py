"""Regions: what is claimed to work does, within the rules, and little else would."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from campaigns.rule_judge import NO_RULES, violations
from hypothesis import given
from hypothesis import strategies as st
from rows import random_rows

from counterveil import Explainer, Rules
from counterveil.models import CallableModel
from counterveil.schema import Numeric
from counterveil.search.results.interval import Line
from counterveil.search.results.regions import EXACT, Region, in_words
from counterveil.tables import plain_rows

MOST_ROWS = 512  # that a model is asked about for one changed number
RULES = {
    **NO_RULES,
    "steps": {"income": 0.25},
    "relations": [["debt", "<=", "income", -1]],
    "allowed": {"income": [1, 9.5]},
    "transitions": {"housing": [["rent", "own"], ["free", "own"], ["own", "free"]]},
}


def searched(line, works, looked_at=()):
    """What the search along a line returns, and how many values it tried."""
    search, asked = line.search(np.array(looked_at, dtype=float)), 0
    try:
        tries = next(search)
        while True:
            asked += len(tries)
            tries = search.send(np.array([works(value) for value in tries], dtype=bool))
    except StopIteration as ended:
        return ended.value, asked


@given(st.data())
def test_the_interval_of_whole_numbers_is_the_one_around_the_answer(data):
    low = data.draw(st.integers(-200, 0))
    high = data.draw(st.integers(low + 1, low + 120))
    refused = data.draw(st.sets(st.integers(low, high)))
    own = data.draw(st.integers(low, high))
    refused.discard(own)
    line = Line(Numeric(name="n", lower=low, upper=high, integer=True), own, low, high)
    (first, last, told, _), _ = searched(line, lambda value: value not in refused)
    below = max((each for each in refused if each < own), default=low - 1)
    above = min((each for each in refused if each > own), default=high + 1)
    assert (first, last) == (below + 1, above - 1)
    assert first <= told[0] <= own <= told[1] <= last


@given(
    st.floats(0, 1e6, width=32),
    st.floats(0, 1e6, width=32),
    st.floats(0, 1e6, width=32),
    st.sampled_from([None, 0.25, 10.0]),
)
def test_the_ends_of_an_interval_are_found_to_the_last_value(one, two, three, step):
    first, own, last = sorted((one, two, three))
    feature = Numeric(name="n", lower=0, upper=1e6, step=step)
    grain = step or 0.1
    own = round(own / grain) * grain
    line = Line(feature, own, 0.0, 1e6)
    (low, high, told, _), asked = searched(
        line, lambda value: first <= value <= last or value == own
    )
    assert asked <= MOST_ROWS
    assert low <= told[0] <= own <= told[1] <= high
    if first <= own <= last:
        assert low - first < 1.001 * grain
        assert last - high < 1.001 * grain
        assert told[0] - low + high - told[1] <= 0.03 * (high - low) + 1e-9


@pytest.mark.parametrize(
    ("rules", "private"), [(NO_RULES, False), (RULES, False), (NO_RULES, True)]
)
def test_every_value_of_a_region_is_accepted_and_within_the_rules(
    explainer, veil, schema, rules, private
):
    explainer = Explainer(veil) if private else explainer
    queries = random_rows(schema, 120, seed=3)[[*schema.columns]]
    result = explainer.explain(queries, "granted", rules=Rules.of_mapping(rules), progress=False)
    dice = np.random.default_rng(0)
    asked, answers = plain_rows(result.queries), plain_rows(result.rows)
    tried, outside = [], []
    for query in result.found.tolist():
        for region in result.regions[query]:
            on_grid = region.checked.startswith("on a grid of") and not private
            assert region.checked == EXACT or on_grid
            own = answers[query][region.column]
            assert region.holds(own)
            feature = schema.feature(region.column)
            values = region.values
            if region.stays:
                values = [*values, asked[query][region.column]]
            if not values:
                step = rules["steps"].get(region.column)
                drawn = dice.uniform(region.low, region.high, 3)
                drawn = np.rint(drawn / step) * step if step else drawn
                drawn = np.rint(drawn) if feature.is_whole else drawn
                values = [region.low, region.high, *drawn.tolist(), *region.told]
                values = [int(each) if feature.is_whole else each for each in values]
                beyond = [region.low - (step or 1e-5), region.high + (step or 1e-5)]
                outside += [(query, region.column, each) for each in beyond]
            for value in values:
                row = {**answers[query], region.column: value}
                assert not violations(schema, rules, asked[query], row)
                tried.append(row)
    assert len(tried) > 100
    assert (explainer.decide(pd.DataFrame(tried)).argmax(axis=1) == 1).all()
    for query, column, value in outside:
        row = {**answers[query], column: value}
        if not violations(schema, rules, asked[query], row):
            assert explainer.decide([row]).argmax() == 0


def test_a_model_is_asked_about_few_rows_and_not_at_all_where_calls_are_counted(veil, schema):
    asked = []

    def granted(rows):
        asked.append(len(rows))
        share = 1 / (1 + np.exp(5 - rows["income"].to_numpy(float)))
        return np.stack([1 - share, share], axis=1)

    query = random_rows(schema, 40, seed=5).query("income < 4").head(1)
    result = Explainer(veil, CallableModel(granted, schema)).explain(query, "granted")
    before = sum(asked)
    (region,) = [each for each in result.regions[0] if each.column == "income"]
    assert sum(asked) - before <= MOST_ROWS * len(result.changes_of(0))
    assert region.low == pytest.approx(5, abs=1e-5)
    assert region.checked.startswith("on a grid of")
    assert result.region_of(0) == [each.record for each in result.regions[0]]
    counted = Explainer(veil, CallableModel(granted, schema, max_calls=60))
    result = counted.explain(query, "granted", progress=False)
    calls = counted.model.calls
    assert all(each.low == each.high for each in result.regions[0] if each.low is not None)
    assert result.reasons_of(0) == []
    assert counted.model.calls == calls


@pytest.mark.parametrize(
    ("region", "change", "said", "gesagt"),
    [
        (Region("income", 2.5, 10, told=(2.5, 10)), (1.0, 3.0), "at least 2.5", "mindestens 2,5"),
        (Region("age", 18, 30, told=(18, 30)), (40, 25), "at most 30", "höchstens 30"),
        (Region("income", 1, 2, told=(1, 2)), (0.5, 1.5), "between 1 and 2", "zwischen 1 und 2"),
        (Region("income", 1, 2, told=(1, 2)), (1.2, 1.5), "as it is now", "wie bisher"),
        (Region("income", 2, 2, told=(2, 2)), (1.2, 2), "", ""),
        (Region("housing", values=("own",)), ("rent", "own"), "", ""),
        (
            Region("housing", values=("own", "free")), ("rent", "free"), "free or own",
            "free oder own",
        ),
        (
            Region("housing", values=("own",), stays=True), ("rent", "own"), "as it is now",
            "wie bisher",
        ),
    ],
)  # fmt: skip
def test_regions_in_words(schema, region, change, said, gesagt):
    assert in_words(schema, region, (region.column, *change)) == said
    assert in_words(schema, region, (region.column, *change), "de") == gesagt


def test_changes_that_could_be_left_out_are_said_apart(veil, rows):
    answer = Explainer(veil).explain(rows.drop(columns="loan").head(40)).answer_of(0)
    housing = Region("housing", values=("own",), stays=True)
    age, income = Region("age", 18, 90, told=(18, 90)), Region("income", 2.5, 10, told=(2.5, 10))
    changes = [("housing", "rent", "own"), ("income", 1.0, 3.0), ("age", 40, 25)]
    some = replace(answer, changes=changes[:2], find_regions=lambda: [housing, income])
    assert some.regions_in_words == [
        "What works, one at a time: income at least 2.5.",
        "The private model would decide the same if housing stayed as it is.",
    ]
    several = replace(answer, changes=changes, find_regions=lambda: [housing, income, age])
    assert several.regions_in_words[1:] == [
        "The private model would decide the same if one of these stayed as it is: housing or age."
    ]
