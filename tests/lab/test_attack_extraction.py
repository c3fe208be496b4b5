"""The protocol, the defences, and extraction: its controls have to come out as they must."""

import importlib.util
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from asking import ask_frame, ask_points
from torch import nn

from counterveil.encoding import Encoding
from counterveil.errors import DataError, RequestError
from counterveil.models import CallableModel
from counterveil_lab.attacks import extraction, verdicts
from counterveil_lab.attacks.batched_training import one_sided_losses, train_copies
from counterveil_lab.attacks.defences import DP_BUDGET, ByBaseline, ByVeil, build
from counterveil_lab.attacks.extraction import (
    ATTACKERS,
    FidelityTest,
    extract,
    gather,
    query_counts,
)
from counterveil_lab.attacks.protocol import Arena, Size, architecture, meets
from counterveil_lab.datasets import Dataset, load
from counterveil_lab.experiments import red_team, runner
from counterveil_lab.metrics import legal_share
from counterveil_lab.product import runner_up
from counterveil_lab.targets import encoded

TINY = Size(
    rows=700, test=500, queries=(100, 200), epochs=3, steps=250, uniform=200,
    dice_seconds=2, kdtree_queries=4, shadows=2, candidates=50,
)  # fmt: skip
PROBABILITIES = (("known", "probabilities"),)


@pytest.fixture(scope="module")
def arena():
    return Arena.of("adult", 0, TINY)


@pytest.fixture(scope="module")
def release(arena, release_once):
    return release_once(arena.schema, arena.d1, 3.0, epochs=3)


@pytest.fixture(scope="module")
def by_model(arena, release):
    defence = build("functional-model", arena, epsilon=3.0, size=TINY, veil=release)
    assert isinstance(defence, ByVeil)
    return defence


@pytest.fixture(scope="module")
def loot(by_model):
    return gather(by_model, TINY)


def keys(frame):
    return [tuple(row) for row in frame.astype(str).itertuples(index=False)]


def test_sets_are_dealt_out_once(arena):
    sets = (arena.d1, arena.d2, arena.d3, arena.d4, arena.test)
    assert [len(part) for part in (*sets[:3], arena.test)] == [700, 700, 700, 500]
    assert 600 < len(arena.d4) <= 700
    assert not meets(arena.d4, arena.d1, arena.schema).any()
    assert len(arena.d4) == pytest.approx(700 * (1 - arena.dropped))
    again = Arena.of("adult", 0, TINY)
    assert all(a.equals(b) for a, b in zip(sets, (again.d1, again.d2, again.d3, again.d4,
                                                  again.test), strict=True))  # fmt: skip
    assert not Arena.of("adult", 1, TINY).d1.equals(arena.d1)
    assert arena.members(5).equals(arena.d1.head(5))
    assert arena.outsiders(5).equals(arena.d4.head(5))


def test_rows_numbered_before_the_deal_meet_nobody_twice(monkeypatch):
    seen = []

    def numbered(schema, frame, seed):
        seen.append(encoded(frame, schema)[0])
        return architecture(schema)()

    monkeypatch.setattr("counterveil_lab.attacks.protocol.train_like_f", numbered)
    arena = Arena.of("digits", 0, TINY, disjoint=True)
    sets = (arena.d1, arena.d2, arena.d3, arena.d4, arena.members(10**6), arena.test)
    parts = [encoded(part, arena.schema)[0] for part in sets]
    together = torch.cat(parts)
    assert len(torch.unique(together, dim=0)) == len(together)  # no two digits are alike
    assert torch.equal(seen[0], parts[0])  # f learns from D1, not from who is called a member


def test_wider_networks_have_one_layer_more(arena):
    def dense(wider):
        layers = architecture(arena.schema, wider=wider)().modules()
        return sum(isinstance(layer, nn.Linear) for layer in layers)

    assert dense(True) == dense(False) + 1


def test_your_own_model(arena):
    others = pd.concat([arena.d2, arena.d3, arena.d4])

    def ask(rows):
        sure = np.where(rows["age"] > 40, 0.9, 0.2)
        return np.stack([1 - sure, sure], axis=1)

    judge = CallableModel(ask, arena.schema)
    own = Arena.own(arena.schema, arena.d1, others, judge, 0, TINY)
    kept = (~meets(others, arena.d1, arena.schema)).sum()
    assert len(own.d2) == len(own.d4) == kept // 4
    assert own.dropped == pytest.approx(1 - kept / len(others))
    assert (len(own.whole), len(own.test)) == (700, min(TINY.test, kept // 4))
    points, _ = encoded(own.d2.head(4), arena.schema)
    assert torch.allclose(own.model(points).softmax(dim=1), ask_points(judge, points).exp())
    odd, unlabelled = others.assign(age="old"), others.drop(columns=arena.schema.label.name)
    for members, strangers, error, words in (
        (arena.d1, pd.concat([arena.d1, arena.d2.head(250)]), RequestError, "are rows of members"),
        (arena.d1, odd, DataError, "others: "),
        (odd, others, DataError, "members: "),
        (arena.d1.head(9), others, RequestError, "at least 50 members"),
        (arena.d1, unlabelled, DataError, "others: no column"),
    ):
        with pytest.raises(error, match=words):
            Arena.own(arena.schema, members, strangers, judge, 0, TINY)


def test_every_answer_is_legal_and_claims_the_runner_up(by_model):
    queries = by_model.arena.d2.head(40)
    released = by_model.explain(queries)
    assert released.claimed.tolist() == runner_up(by_model.arena.judge, queries).tolist()
    assert legal_share(released.rows, by_model.arena.schema) == 1
    said = ask_frame(by_model.arena.judge, released.rows).argmax(dim=1).numpy()
    assert (said == released.claimed)[released.found].all()
    assert not (said == released.claimed)[~released.found].any()


def test_of_people_with_several_rows_one_is_drawn(monkeypatch):
    data = load("adult", seed=0)
    rows = pd.concat([data.train, data.test], ignore_index=True).head(3000)
    rows["age"] = np.arange(3000) // 3 % 50 + 20
    rows["capital_gain"] = np.arange(3000) // 3
    owned = Dataset("adult", data.schema, rows, rows.head(0), None, "", np.arange(3000) // 3)
    monkeypatch.setattr("counterveil_lab.attacks.protocol.load", lambda *_, **__: owned)
    arena = Arena.of("adult", 0, replace(TINY, rows=400, test=400))
    sets = [arena.d1, arena.d2, arena.d3, arena.d4, arena.test]
    seen = pd.concat([each.capital_gain for each in sets])
    assert len(seen) >= 5 * (1000 // 6)
    assert seen.is_unique


def test_dp_model_is_another_game(arena):
    pytest.importorskip("opacus")
    defence = build("dp-model", arena, epsilon=1.0, size=TINY)
    assert defence.arena.model is not arena.model
    assert defence.arena.d1 is arena.d1
    assert extraction.budget_of("dp-model", 1.0)["epsilon"] == DP_BUDGET.epsilon
    assert extraction.budget_of("dpsgd-model", 1.0, 1e-5) == {"epsilon": 1.0, "delta": 1e-5}
    assert extraction.budget_of("no-noise-published", 1.0)["epsilon"] is None
    released = defence.explain(arena.d2.head(20))
    said = ask_frame(defence.arena.judge, released.rows).argmax(dim=1).numpy()
    assert (said == released.claimed)[released.found].all()


@pytest.mark.skipif(importlib.util.find_spec("dice_ml") is None, reason="needs dice-ml")
def test_the_tree_gives_training_rows_away(arena):
    defence = build("dice-kdtree", arena, epsilon=1.0, size=TINY)
    assert query_counts(defence, TINY) == (4,)
    released = defence.explain(arena.d2.head(3))
    private = set(keys(Encoding(arena.schema).pick(arena.d1)))
    given = keys(released.rows)
    assert [row in private for row in given] == released.found.tolist()
    assert released.found.any()


def test_transfer_sets(loot, by_model):
    count = 100
    first = loot.first.head(count)
    found = len(first.points)
    assert found > 50
    assert loot.again is not None
    lengths = {name: len(loot.transfer(name, count)) for name in ("base-n", "base-2n", *ATTACKERS)}
    assert lengths["base-n"] == count
    assert lengths["base-2n"] == 2 * count
    assert lengths["naive"] == lengths["cca"] == lengths["relabel"] == count + found
    assert lengths["relabel-cca"] == count + found + len(loot.again.head(count).points)
    relabel = loot.transfer("relabel", count)
    asked = ask_points(by_model.arena.judge, relabel.points).exp()
    assert torch.allclose(relabel.goals, asked, atol=1e-5)
    sided = loot.transfer("relabel-cca", count)  # f told its class of every counterfactual sent
    assert torch.equal(sided.goals[: len(relabel)], relabel.goals)
    assert sided.beyond.tolist() == [False] * len(relabel) + [True] * (len(sided) - len(relabel))
    cca = loot.transfer("cca", count)
    assert cca.beyond.tolist() == [False] * count + [True] * found
    assert (cca.goals.argmax(dim=1) != cca.left)[count:].all()
    labels = loot.labels_only().transfer("relabel", count)
    assert set(labels.goals.unique().tolist()) == {0.0, 1.0}


def test_one_sided_loss():
    logits = torch.tensor([[[0.0, 2.0], [2.0, 0.0], [0.0, 0.0], [1.0, 0.0]]])
    goals = torch.tensor([[[0.0, 1.0]] * 4])
    left = torch.zeros(1, 4, dtype=torch.long)
    sided = one_sided_losses(logits, goals, torch.tensor([[True, True, True, False]]), left)[0]
    p = float(torch.sigmoid(torch.tensor(-2.0)))
    assert sided[0] == 0  # beyond the boundary, however far
    assert sided[1] == pytest.approx(0.5 * np.log(0.5 / p) + 0.5 * np.log(0.5 / (1 - p)), rel=1e-4)
    assert sided[2] == pytest.approx(0, abs=1e-6)
    assert sided[3] == pytest.approx(float(np.log1p(np.e)), rel=1e-5)


def test_a_network_learns_the_same_alone_as_in_a_stack(loot, arena, monkeypatch):
    transfers = [loot.transfer(name, 50) for name in ("base-n", "naive", "cca", "base-n")]
    build_f = architecture(arena.schema)
    (together,) = train_copies(build_f, transfers, steps=20, batch=16, seed=3)
    logits = together.logits(loot.points[:30])
    assert torch.equal(logits[0], logits[3])
    assert not torch.allclose(logits[0], logits[1], atol=1e-3)
    monkeypatch.setattr("counterveil_lab.attacks.batched_training.ROOM", 1)
    alone = train_copies(build_f, transfers, steps=20, batch=16, seed=3)
    assert len(alone) == 4
    apart = torch.cat([stack.logits(loot.points[:30]) for stack in alone])
    assert torch.allclose(apart, logits, atol=1e-4)


def test_uniform_rows_are_legal(arena):
    test = FidelityTest.of(arena, TINY)
    rows = Encoding(arena.schema).decode(test.uniform.double().numpy())
    assert (len(rows), legal_share(rows, arena.schema)) == (TINY.uniform, 1)
    assert rows["sex"].value_counts(normalize=True).max() < 0.65


def fidelity(rows):
    return {row["attacker"]: row["fidelity"] for row in rows if row["queries"] == 200}


@pytest.mark.long
def test_controls_come_out_as_they_must(by_model, release):
    rows = extract(by_model, TINY, epsilon=3.0, settings=PROBABILITIES)
    found = fidelity(rows)
    assert {row["attacker"] for row in rows} == {"base-n", "base-2n", "drop", *ATTACKERS}
    assert found["relabel"] >= found["base-n"] - 0.02  # true labels never harm
    assert found["drop"] == found["base-n"]
    random = build("random-labels", by_model.arena, epsilon=3.0, size=TINY, veil=release)
    scrambled = fidelity(extract(random, TINY, settings=PROBABILITIES))  # the same rows
    assert scrambled["base-n"] == found["base-n"]
    assert scrambled["naive"] < found["base-n"] - 0.01  # poison, not privacy ...
    assert scrambled["relabel"] == pytest.approx(found["relabel"], abs=1e-6)  # ... and its cure
    twice = {row["attacker"] for row in rows if row["extra_queries"]}
    assert twice == {"base-2n", "relabel", "relabel-cca"}


def made_up(attacker, seed, fidelity, extra=0):
    return {
        "dataset": "adult", "defence": "functional-model", "epsilon": 0.75, "seed": seed,
        "predictions": "labels", "architecture": "known", "queries": 250, "attacker": attacker,
        "extra_queries": extra, "fidelity": fidelity, "flip_ratio": 1.0,
    }  # fmt: skip


def test_headline_takes_the_strongest_against_the_base_of_its_questions():
    rows = []
    for seed, shift in enumerate((0.0, 0.01, 0.02)):
        rows += [
            made_up("base-n", seed, 0.90 + shift), made_up("base-2n", seed, 0.95 + shift, 250),
            made_up("drop", seed, 0.90 + shift), made_up("naive", seed, 0.70),
            made_up("cca", seed, 0.92 + 2 * shift), made_up("relabel", seed, 0.96 + shift, 250),
        ]  # fmt: skip
    (line,) = verdicts.headline(rows)
    assert line["attacker"] == "cca"  # relabel is higher, but asked twice as much
    assert line["gain"] == pytest.approx(0.03)
    assert line["half_width"] == pytest.approx(4.303 * 0.01 / 3**0.5, rel=1e-3)
    assert line["naive_lowest"] == pytest.approx(-0.21)
    assert line["attackers"] == 3
    for words in ("added 0.030 ± 0.025 fidelity", "of 3 attackers (cca, 250 queries"):
        assert words in verdicts.sentence(line)


def test_picking_the_luckiest_is_no_gain():
    rows = []
    for seed in range(5):
        rows += [made_up("base-n", seed, 0.9), made_up("base-2n", seed, 0.9, 250),
                 made_up("drop", seed, 0.9)]  # fmt: skip
        for number, name in enumerate(("naive", "relabel-cca", "cca")):  # each lucky on other seeds
            rows.append(made_up(name, seed, 0.9 + (0.05 if seed % 3 == number else -0.02)))
    (line,) = verdicts.headline(rows)
    assert line["gain"] > 0
    assert line["unseen"] < line["gain"]
    assert verdicts.gained(line) is False
    sure = [{**row, "fidelity": 0.95} if row["attacker"] == "cca" else row for row in rows]
    (line,) = verdicts.headline(sure)
    assert (line["attacker"], verdicts.gained(line)) == ("cca", True)


@pytest.mark.slow
def test_figures_and_cases(arena, by_model, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    small = replace(TINY, steps=10, queries=(20, 40))
    monkeypatch.setattr(red_team, "QUICK", small)
    rows = red_team.measure_extraction("adult", "no-noise", 0, quick=True)
    assert {row["defence"] for row in rows} == {"no-noise", "no-noise-published"}
    rows += extract(by_model, small, epsilon=3.0)
    red_team.TABLE_EXTRACTION.paint(rows, tmp_path)
    few = replace(small, queries=(20,))
    margins = [
        {"guidance": "model", "margin": margin, **row}
        for margin in (0.0, 0.9)
        for row in extract(
            replace(by_model, options={"margin": margin}), few, settings=red_team.TRADEOFF_SETTINGS
        )
    ]
    red_team.FIG_TRADEOFF.paint(margins, tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["fig-tradeoff.svg", "table-extraction.svg"]


def test_a_missing_package_is_said_and_left_out(tmp_path, monkeypatch):
    played = []

    def collect(results, cases, *rest, **more):
        played.extend(case["part"] for case in cases)

    said = []
    monkeypatch.setattr(red_team, "find_spec", lambda name: None)
    monkeypatch.setattr(runner, "run_cases", collect)
    options = runner.Options(tmp_path, 1, False, 1, datasets=("adult",), say=said.append)
    runner.run("table-extraction", red_team.TABLE_EXTRACTION, options)
    missing = {"dice-gradient", "dice-random", "dice-kdtree", "dp-model"}
    assert played == [part for part in red_team.EXTRACTION_PARTS if part not in missing]
    assert sum(words.startswith("without ") for words in said) == 4
    played.clear()
    runner.run("table-extraction", red_team.TABLE_EXTRACTION, replace(options, quick=True))
    assert played == ["functional-0.75", "no-noise"]


def test_every_dataset_of_the_paper_is_asked_as_often_as_there(tmp_path):
    for size in (red_team.extraction_size(name, quick=False) for name in red_team.DATASETS):
        assert size.queries == (250, 500, 1000, 2000)
        assert size.rows >= 2 * 2000  # what base-2n asks about
    said = []
    options = runner.Options(tmp_path, 1, False, 1, say=said.append)
    cases = list(red_team.TABLE_EXTRACTION.chosen(options))
    assert {case["dataset"] for case in cases} == set(red_team.DATASETS)
    assert [words for words in said if "missing values" in words] == [
        f"without dice-ml on {name}: it knows no missing values, and this table has some"
        for name in ("hospital", "homecredit")
    ]
    played = red_team.FIG_MEMBERSHIP.chosen(replace(options, datasets=("texas-substitute",)))
    assert {case["control"] for case in played} == {"none", "disjoint"}


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("dice_ml") is None, reason="needs dice-ml")
def test_dice_is_asked_until_the_time_is_over(arena, monkeypatch):
    questions = 0

    def clock():
        """A question to f takes a second."""
        nonlocal questions
        questions += 1
        return float(questions)

    defence = build("dice-random", arena, epsilon=1.0, size=TINY)
    assert isinstance(defence, ByBaseline)
    monkeypatch.setattr("counterveil_lab.baselines.dice.monotonic", clock)
    assert defence.explain_within(1e9, arena.d2.head(4))[1] == 4
    short = replace(TINY, queries=(2, 8, 12), dice_seconds=questions, steps=5)
    rows = extract(defence, short, settings=PROBABILITIES)
    asked = {row["queries"]: (row["counterfactual_queries"], row["limited_by"]) for row in rows}
    assert asked[2] == (2, None)
    assert asked[8] in {(4, "time"), (5, "time")}
    assert set(asked) == {2, 8}  # those that were answered or begun
    assert rows[0]["flip_ratio"] > 0.5  # of the queries that were asked
    none = replace(short, dice_seconds=0)
    loot = gather(defence, none)
    assert (loot.answered, len(loot.first.points)) == (0, 0)
    assert {row["queries"] for row in extract(defence, none, settings=PROBABILITIES)} == {2}
    assert defence.explain(arena.d2.head(2)).found.any()  # without a limit as before
