"""Inference attacks: each finds what was planted for it, and nothing where nothing is."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from asking import ask_frame

from counterveil.schema import Binary, Label, Schema
from counterveil_lab.attacks import inference, membership
from counterveil_lab.attacks.attribute import HiddenValues, infer, sensitive
from counterveil_lab.attacks.counterfactuals import distances, linkage, twins
from counterveil_lab.attacks.defences import Released
from counterveil_lab.attacks.headlines import attribute_table, both_ways, linked, strongest
from counterveil_lab.attacks.protocol import QUICK, Arena
from counterveil_lab.attacks.shadows import (
    BY_HEART,
    Candidates,
    Pool,
    memoriser,
    overfitted,
)
from counterveil_lab.experiments import red_team
from counterveil_lab.targets import encoded

TINY = replace(
    QUICK, rows=600, test=100, queries=(80,), epochs=1, steps=60, uniform=50,
    shadows=2, candidates=120,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _short_lessons_of_attackers(monkeypatch):
    monkeypatch.setattr(membership, "EPOCHS", 2)


@pytest.fixture(scope="module")
def arena():
    return Arena.of("adult", 0, TINY)


def test_no_row_that_is_scored_or_asked_about_is_in_the_pool(arena):
    pool = Pool.of(arena, 80)
    rows = {tuple(row) for row in pool.frame.astype(str).to_numpy()}
    own = {tuple(row) for frame in (arena.d3, arena.d2.iloc[80:])
           for row in frame.astype(str).to_numpy()}  # fmt: skip
    assert rows <= own
    people = Candidates.of(arena, 50)
    assert people.is_member.sum() == 50
    both = Pool.of(arena, 80, people.frame)
    assert both.frame.head(100).equals(people.frame)


def test_linkage_finds_rows_that_are_given_out_and_no_others(arena):
    inside, outside = (encoded(rows.head(100), arena.schema)[0] for rows in (arena.d1, arena.d4))
    found = linkage(arena, inside)
    assert found["exact_members"] == found["exact_training"] == 1.0
    part = replace(arena, d1=arena.d1.tail(300), whole=arena.d1)
    assert linkage(part, inside)["exact_training"] == 1.0  # whoever is looked at besides
    assert linkage(part, inside)["training"] == len(arena.d1)
    assert found["exact_excess_low"] > 0.8
    assert linkage(arena, outside)["exact_excess_high"] < -0.8
    fresh = linkage(arena, encoded(arena.d2, arena.schema)[0])
    assert fresh["exact_excess_low"] <= 0 <= fresh["exact_excess_high"]
    assert linkage(arena, inside[:0]) == {"counterfactuals": 0}


def of_all(rows, **more):
    """The rows about all values of members."""
    wanted = {"value": "all", "who": "members", **more}
    return [row for row in rows if row.items() >= wanted.items()]


def test_an_attribute_is_inferred_from_a_model_that_remembers_and_from_no_other(arena):
    seen = pd.concat([arena.d1, arena.d3], ignore_index=True)
    remembers = memoriser(*encoded(seen, arena.schema), 2)

    def shrugs(points):
        return torch.full((len(points), 2), 0.5).log()

    models = [({"f": remembers}, [remembers]), ({"f'": shrugs, "f' relabel": shrugs}, [shrugs])]
    rows = infer(arena, models, [arena.d3], 300)
    overall = {(row["target"], row["who"]): row for row in rows if row["value"] == "all"}
    assert overall["f", "members"]["advantage_low"] > 0.2
    assert overall["f", "outsiders"]["advantage_high"] < 0.3
    assert abs(overall["f'", "members"]["advantage"]) < 0.01
    assert overall["f' relabel", "members"]["advantage"] == overall["f'", "members"]["advantage"]
    assert {row["value"] for row in rows} > {"White", "Black"}
    by_value = {
        row["value"]: row for row in rows if (row["target"], row["who"]) == ("f", "members")
    }
    assert [row["group"] for row in by_value.values() if row["value"] == "White"] == ["majority"]
    assert by_value["Black"]["group"] == "minority"
    assert by_value["Black"]["advantage_low"] > 0.1
    assert by_value["Black"]["advantage_low"] < by_value["Black"]["advantage"]
    (own,) = of_all(inference.on_memoriser(arena, TINY))
    assert own["advantage_low"] > 0


def test_the_papers_network_finds_what_the_answers_give_away(arena, monkeypatch):
    monkeypatch.setattr(membership, "EPOCHS", 12)
    both = encoded(pd.concat([arena.d1, arena.d3]), arena.schema)[0]
    known = {row.numpy().tobytes() for row in both}

    def tells(points):
        sure = torch.tensor([row.numpy().tobytes() in known for row in points])
        first = torch.where(sure, 0.99, 0.5)
        return torch.stack([first, 1 - first], dim=1).log()

    told = {"f'": tells}, [tells]
    rows = infer(arena, [told], [arena.d3], 300, as_paper=told)
    own, ours = (of_all(rows, attack=name)[0] for name in ("attribute-paper", "attribute"))
    assert own["balanced_accuracy"] > 0.8
    assert own["imputation"] == ours["imputation"]
    head = {"dataset": "adult", "control": "none", "defence": "none", "epsilon": None}
    assert len(attribute_table([{**row, **head} for row in rows])) == 2


def test_an_attribute_of_bits_is_one_attribute(arena):
    names = ("race=A", "race=B", "race=C", "sex=F", "race")
    schema = Schema(
        name="bits",
        note="",
        label=Label(name="class", classes=(0, 1)),
        features=tuple(Binary(name=name) for name in names),
    )
    feature = sensitive(schema)
    assert feature is not None
    assert feature.values == ("A", "B", "C")
    bits = [(0, 1, 0, 1, 1), (0, 0, 0, 1, 0), (1, 0, 0, 0, 0)]
    frame = pd.DataFrame(bits, columns=list(names)).assign(**{"class": 0})
    assert feature.of(frame).fillna("-").tolist() == ["B", "-", "A"]
    people = HiddenValues.of(frame, schema, feature)
    assert people.truth.tolist() == [1, 0]
    assert people.known.shape == (2, 2 + 2)
    assert people.versions[0].tolist() == [[1, 0, 0, 1, 1], [0, 1, 0, 1, 1], [0, 0, 1, 1, 1]]
    assert sensitive(schema, "sex") is None  # a single yes-or-no column is no choice of values


def on_f(rows):
    return {row["attack"]: row for row in rows if row["target"] == "f"}


@pytest.mark.slow
def test_attacks_succeed_on_an_overfitted_model_and_fail_in_the_disjoint_control():
    size = replace(TINY, shadows=4, candidates=300)
    control = Arena.of("adult", 0, size, disjoint=True)
    rows = on_f(inference.on_model(control, size, print))
    assert rows["lira-online"]["auc_low"] < 0.5 < rows["lira-online"]["auc_high"]
    heart = overfitted(Arena.of("adult", 0, size))
    rows = on_f(inference.on_model(heart, size, print, BY_HEART))
    assert rows["lira-online"]["auc_low"] > 0.55
    assert rows["rmia-online"]["auc_low"] > 0.55
    assert rows["threshold"]["auc_low"] > 0.5


class Copies:
    """An explainer that gives out private rows, and to members their own, from far away."""

    name = "dice-kdtree"  # of those that are not imitated
    varies = False

    def __init__(self, arena):
        self.arena = arena

    def explain(self, queries, targets=None, *, seed=0):
        rows = self.arena.d1[list(self.arena.schema.columns)].head(len(queries))
        return Released(rows, np.ones(len(rows), dtype=bool), np.zeros(len(rows), dtype=np.int64))


def test_attacks_on_counterfactuals_find_an_explainer_that_copies(arena):
    size = replace(TINY, candidates=80, kdtree_queries=80)
    rows = {row["attack"]: row for row in inference.on_defence(arena, Copies(arena), size, print)
            if row["target"] == "cf"}  # fmt: skip
    assert rows["linkage"]["exact_excess"] > 0.8
    assert rows["cf-only"]["auc_low"] > 0.8


class NearestRow(Copies):
    """The nearest private row of the class that is asked for: what a k-d tree gives."""

    def explain(self, queries, targets=None, *, seed=0):
        assert targets is not None
        schema = self.arena.schema
        private, asked = (encoded(each.assign(income="<=50K"), schema)[0]
                          for each in (self.arena.d1, queries))  # fmt: skip
        far = torch.cdist(asked, private)
        decided = ask_frame(self.arena.judge, self.arena.d1).argmax(dim=1)
        far[targets[:, None] != decided[None]] = torch.inf
        rows = self.arena.d1[list(schema.columns)].iloc[far.argmin(dim=1).numpy()]
        return Released(rows, np.ones(len(rows), dtype=bool), targets.numpy())


def test_probing_an_explainer_that_hands_out_training_rows_finds_members(arena):
    people = Candidates.of(arena, 100)
    twin, decided = twins(arena, people.frame, arena.d3)
    judged = ask_frame(arena.judge, twin).argmax(dim=1)
    assert bool((judged != decided).all())  # every twin is across the boundary
    near = distances(NearestRow(arena), people.frame, queries=twin, targets=decided)
    assert (near[people.is_member] < 1e-6).mean() > 0.2
    assert (near[~people.is_member] < 1e-6).mean() < 0.05


def test_the_strongest_attacker_is_picked_on_other_people_than_he_is_scored_on():
    head = {"dataset": "adult", "control": "none", "defence": "none", "epsilon": None,
            "target": "f", "tpr_at_1": None, "auc": 0.5}  # fmt: skip
    rows = [
        {**head, "attack": attack, "seed": seed, "auc_first": first, "auc_second": second}
        for attack, first, second in (("lucky", 0.6, 0.4), ("true", 0.55, 0.7))
        for seed in range(3)
    ]
    (line,) = strongest(rows)
    assert line["attack"] == "lucky"
    assert line["auc"] == pytest.approx(0.4)
    assert line["attackers"] == 2
    rows += [{**row, "attack": "low", "auc_first": 0.3, "auc_second": 0.35} for row in rows[:3]]
    high, low = both_ways(rows)
    assert (high["attack"], high["end"], high["direction"]) == ("lucky", "highest", 1)
    assert (low["attack"], low["end"], low["direction"]) == ("low", "lowest", -1)
    assert low["picked_by"] == pytest.approx(0.2)


@pytest.mark.long
def test_experiments_give_rows_that_can_be_drawn(tmp_path, monkeypatch):
    def tiny(dataset, quick):
        return replace(TINY, rows=300, candidates=60)

    monkeypatch.setattr(red_team, "inference_size", tiny)
    case = {"dataset": "adult", "control": "none", "part": "none", "seed": 0}
    rows = [{**case, **row} for row in red_team.measure_membership(**case, quick=True)]
    paper = {**case, "part": "paper-0.025"}
    rows += [{**case, **row} for row in red_team.measure_membership(**paper, quick=True)]
    assert {row["defence"] for row in rows} == {"none", "paper"}
    played = {(row["attack"], row["target"]) for row in rows}
    assert {("threshold", "f"), ("learning", "f"), ("lira", "f"), ("rmia", "f")} <= played
    assert {"cf-only", "cf-distance", "linkage"} <= {attack for attack, _ in played}
    assert linked(rows)[0]["exact_excess_low"] <= linked(rows)[0]["exact_excess_high"]
    red_team.FIG_MEMBERSHIP.paint(rows, tmp_path)
    rows = [{**case, **row} for row in red_team.measure_attribute(**case, quick=True)]
    assert len(attribute_table(rows)) == 4
    assert len(attribute_table(rows, "attribute-paper")) == 2  # f' alone, as in the paper
    red_team.FIG_ATTRIBUTE.paint(rows, tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".svg"}
