"""Random worlds, queries and rules: every answer is legal and keeps the rules of its query."""

from functools import cache

import pytest
from campaigns.random_rules import frame_of
from campaigns.world import Tally, World, learning_less
from hypothesis import given, settings
from hypothesis import strategies as st

from counterveil import Explainer

WAYS = {
    "believable": {},
    "nearest": {"prefer": "nearest"},
    "three answers": {"k": 3},
    "iterations": {"method": "iterations", "iterations": 20},
}
DECIDES = ("model", "private model", "surrogate")


@cache
def explainer_of(number, decides):
    """A world, and who answers in it."""
    world = World.drawn(number, 7)
    model = {"model": world.model}.get(decides)
    guidance = {"guidance": "surrogate"} if decides == "surrogate" else {}
    return world, Explainer(world.veil, model, **guidance)


def answered(number, decides, way, count):
    """How so many random queries with rules of their own are answered."""
    with learning_less():
        (world, explainer), tally = explainer_of(number, decides), Tally()
        cases = [case for case in (world.draw_case(tally) for _ in range(count)) if case]
        if cases:
            asked = frame_of(world.schema, [case.query for case in cases])
            rules = [case.rules for case in cases]
            result = explainer.explain(asked, rules=rules, progress=False, **WAYS[way])
            world.check_rows(result, cases, tally)
    return tally


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    number=st.integers(0, 5), decides=st.sampled_from(DECIDES), way=st.sampled_from(sorted(WAYS))
)
def test_random_rules_are_kept(number, decides, way):
    assert answered(number, decides, way, 20).failures == []


@pytest.mark.long
def test_rules_that_are_broken_are_seen(monkeypatch):
    """An answer that keeps no rule at all is a failure, and is told with its query."""
    home = "counterveil.search.constraints"
    monkeypatch.setattr(f"{home}.decoding.Given.keep", lambda given, rules: True)
    monkeypatch.setattr(f"{home}.bounds.Box.settle", lambda box, rows, pins: rows)
    monkeypatch.setattr(f"{home}.bounds.Box.ties_held", lambda box, rows: rows[:, 0] > -1)
    tally = answered(0, "model", "believable", 40)
    assert tally.counts["violated"] == len(tally.failures) > 0
