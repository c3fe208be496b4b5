"""Fingerprints: how code is written changes nothing, what it does changes those that depend on it.

Every stored row of new runs has one.
"""

import json
import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from counterveil import networks
from counterveil.curator import mixed
from counterveil.schema import Numeric
from counterveil_lab import fingerprints
from counterveil_lab.behaviour import lab, product
from counterveil_lab.behaviour.__main__ import (
    KNOWN_VALUES,
    alike,
    behaviour,
    known_behaviours,
    values_of,
)
from counterveil_lab.experiments.table import EXPERIMENTS
from counterveil_lab.fingerprints import behaviours, declared, fingerprint, told
from counterveil_lab.results import Results, earlier, stored_rows

GROUPS = tuple(dict.fromkeys(each for of, _ in fingerprints.EXPERIMENTS.values() for each in of))
QUICK = (
    "encoding", "training", "population", "models", "mechanism", "audit", "others", "distances",
)  # fmt: skip
Patch = Callable[[pytest.MonkeyPatch], None]


def test_every_experiment_is_listed_with_cases_and_constants_that_are_there():
    assert set(EXPERIMENTS) <= set(fingerprints.EXPERIMENTS)
    for group in GROUPS:
        module = product if hasattr(product, group) else lab
        case = getattr(module, group)
        assert case.__module__ == module.__name__, group  # and no name that it imports
        assert case.__doc__, group
    for experiment, (_, constants) in fingerprints.EXPERIMENTS.items():
        assert all(json.loads(declared(each)) for each in constants), experiment


@pytest.mark.full_lessons
@pytest.mark.parametrize("groups", [QUICK, pytest.param(GROUPS, marks=pytest.mark.long)])
def test_known_values_are_those_of_the_present_code(groups):
    assert set(KNOWN_VALUES) == set(GROUPS)
    for group in groups:
        assert alike(values_of(group), KNOWN_VALUES[group], group), group


@pytest.mark.full_lessons
@pytest.mark.slow
def test_a_fresh_process_finds_the_same_behaviour():
    torch.manual_seed(5)
    np.random.seed(5)
    assert behaviours(GROUPS) == {group: behaviour(group) for group in GROUPS}


def test_values_are_alike_that_differ_as_processors_do():
    """In the last digits; a search may turn one answer of many."""
    for group, known, same in (
        ("models", [1.001, "a", 2], True),
        ("models", [1.01, "a", 2], False),
        ("models", [1.0, "b", 2], False),
        ("models", [1.0, "a", 2, 3], False),
        ("models", None, False),
        ("nearest", [1.01, "a", 2], True),
        ("nearest", [1.1, "a", 2], False),
    ):
        assert alike([1.0, "a", 2], known, group) == same
    given = [float(at) for at in range(1, 101)]
    assert alike(given, [50.0, *given[1:]], "nearest")
    assert not alike(given, [50.0] * 10 + given[10:], "nearest")


def learn_twice_as_fast(patch):
    for home, name in ((torch.optim, "Adam"), (networks, "FusedAdam")):
        usual = getattr(home, name)
        twice = partial(lambda usual, params, lr, **more: usual(params, 2 * lr, **more), usual)
        patch.setattr(home, name, twice)


def decode_whole_numbers(patch):
    usual = Numeric.decode
    patch.setattr(Numeric, "decode", lambda *given: [np.round(each) for each in usual(*given)])


def count_with_wider_bins(patch):
    patch.setattr(mixed, "MOST_BINS", 20)


def say_it_otherwise(patch):
    usual = mixed._order
    patch.setattr(mixed, "_order", lambda *given: (*usual(*given)[:2], "in other words"))
    patch.setattr(Numeric.decode, "__doc__", "In other words.")


@pytest.mark.full_lessons
@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (learn_twice_as_fast, {"training", "models", "mechanism", "others"}),
        (decode_whole_numbers, {"encoding", "others"}),
        (count_with_wider_bins, {"mechanism"}),
        (say_it_otherwise, set()),
    ],
)
def test_what_the_code_does_changes_those_that_depend_on_it_and_no_others(
    change, changed, monkeypatch
):
    before = known_behaviours(QUICK)
    change(monkeypatch)
    assert {group for group in QUICK if behaviour(group) != before[group]} == changed


def test_a_changed_group_changes_its_experiments_alone(monkeypatch):
    names = fingerprints.EXPERIMENTS
    before = {name: fingerprint(name) for name in names}
    assert all(len(str(each)) == fingerprints.LENGTH for each in before.values())
    other = {group: group + "!" * (group == "attack") for group in GROUPS}
    monkeypatch.setattr(fingerprints, "behaviours", lambda of: {each: other[each] for each in of})
    changed = {name for name in names if fingerprint(name) != before[name]}
    assert changed == {"table-extraction", "fig-membership", "fig-attribute", "fig-tradeoff"}


def test_without_a_package_that_a_case_needs_there_is_no_fingerprint(monkeypatch):
    monkeypatch.setattr(product, "audit", lambda: __import__("counterveil.no_such_module"))
    assert behaviour("audit") is None
    monkeypatch.setattr(fingerprints, "behaviours", dict.fromkeys)
    assert fingerprint("bench-serve") is None


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ((0.123449, -1e-9, -0.0, math.nan, -math.inf), [0.1234, 0.0, 0.0, "nan", "-inf"]),
        ({"b": {3, 1, 2}, "a": True}, [["a", True], ["b", [1, 2, 3]]]),
        (torch.tensor([[1, 2]]), [[1, 2]]),
        (np.float32(0.1), 0.1),
        (pd.DataFrame({"x": [1, 2], "y": ["a", None]}), [[1, "a"], [2, None]]),
    ],
)
def test_values_are_told_as_json(value, plain):
    assert json.dumps(told(value, 4)) == json.dumps(plain)


def test_stored_rows_carry_the_fingerprint(tmp_path):
    Results(tmp_path, "targets", "command").add({"accuracy": 0.8})
    (row,) = stored_rows(tmp_path, "targets")
    assert (row["accuracy"], row["fingerprint"]) == (0.8, fingerprint("targets"))
    assert earlier([row], "targets") == ""
    assert "measured by an earlier" in earlier([{"commit": "abc"}], "targets")
    assert earlier([row, {"commit": "def"}], "targets").endswith("(commit `def`).")
    assert "commit `abc`, which may be" in earlier([{"commit": "abc"}], "audit")
    new = {**row, "dataset": "adult", "part": "none"}
    old = [{"dataset": "adult", "part": "paper"}, {"dataset": "mnist", "part": "none"}]
    old = [{**row, "commit": "abc"} for row in old]
    assert earlier([new, *old], "targets").endswith("(commit `abc`): adult `paper`, mnist.")
    Results(tmp_path, "squares", "command").add({"value": 1})  # no experiment of ours
    assert stored_rows(tmp_path, "squares")[0]["fingerprint"] is None
    assert fingerprint("bench-search-peers") == fingerprint("bench-search")
