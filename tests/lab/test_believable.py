"""The experiment `believable`: its cases, and all of its methods at toy size."""

from collections import Counter

import pytest

from counterveil_lab import targets
from counterveil_lab.believability import KINDS, WISHES, Judges
from counterveil_lab.experiments import believable, releases, table
from counterveil_lab.experiments.runner import Options
from counterveil_lab.results import stored_rows


def options(folder, **more):
    return Options(folder, **{"seeds": 3, "quick": False, "workers": 1, **more})


def test_the_split_on_which_settings_were_chosen_and_other_datasets_are_not_measured(tmp_path):
    cases = list(believable.cases(options(tmp_path)))
    assert {case["seed"] for case in cases} == {1, 2, 3}
    assert {case["dataset"] for case in cases} == set(WISHES)
    per_kind = Counter(case["kind"] for case in cases)
    assert per_kind == {**dict.fromkeys(KINDS, 12 * 18), believable.PRIVATE: 12 * 8}

    said = []
    chosen = options(tmp_path, datasets=("digits",), say=said.append)
    assert not list(believable.BELIEVABLE.chosen(chosen))
    assert said == ["without digits: no class is known there that a person wants"]


def test_personal_features_are_fixed_for_all_methods():
    schema = believable.with_fixed(releases.data_for("adult", 0, quick=True).schema, ("age", "sex"))
    assert [feature.name for feature in schema.features if feature.immutable] == ["age", "sex"]


@pytest.mark.slow
def test_every_method_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(releases, "QUICK_ROWS", 600)
    monkeypatch.setattr(believable, "PEERS", ("nice", "cadex", "vae"))  # dice-ml takes seconds
    monkeypatch.setitem(targets.RECIPES, "adult", targets.Recipe(epochs=2, batch=64))
    monkeypatch.setenv("COUNTERVEIL_COMMIT", "test")
    asked = ("functional", "nearest", "surrogate", "nice", "cadex", "vae")
    table.run_named("believable", options(tmp_path, mechanisms=asked, seeds=1, quick=True))
    rows = stored_rows(tmp_path, "believable")
    found = {(row["kind"], row["method"], row.get("prefer"), row.get("guidance")) for row in rows}
    ours = [("believable", "model"), ("nearest", "model"), ("believable", "surrogate")]
    for kind in KINDS:
        assert {(kind, "counterveil", *each) for each in ours} <= found
        assert {(kind, f"nice-{name}", None, None) for name in ("none", "plausibility")} <= found
        assert ((kind, "revise", None, None) in found) is (kind != "boosted")
    assert ("private model", "counterveil", "believable", "private model") in found
    for row in rows:
        assert 0 <= row["flip_ratio"] <= 1
        assert row["warm_up_seconds"] >= 0
        assert row["seconds_per_query"] > 0


@pytest.mark.slow
def test_the_private_model_is_asked_about_people_whom_it_refuses():
    judges = Judges.of("adult", 1, "network", quick=True)
    veil = releases.release(judges.data, "functional", 3.0, 1, quick=True).veil
    other = judges.of_model(veil.model(classes="even"))
    said = other.f.encoding  # the same schema
    assert said.schema == judges.data.schema
    row = other.score(other.queries, [True] * len(other.queries))
    assert row["flip_ratio"] == 0
