"""`counterveil-lab attack`: files in, a page with verdicts out; wrong input is one line."""

import json
from dataclasses import replace

import pandas as pd
import pytest
from rows import random_rows
from typer.testing import CliRunner

from counterveil.models import save_exported
from counterveil_lab.attacks import suite, verdicts
from counterveil_lab.attacks.protocol import Size
from counterveil_lab.cli import app

TINY = Size(
    rows=200, test=200, queries=(30, 60), epochs=2, steps=60, uniform=100,
    dice_seconds=2, kdtree_queries=4, shadows=2, candidates=60,
)  # fmt: skip


@pytest.fixture(scope="module")
def made(release_once, schema, rows):
    return release_once(schema, rows, 3.0, epochs=3)


@pytest.fixture(scope="module")
def files(tmp_path_factory, schema, rows, made, model):
    folder = tmp_path_factory.mktemp("attack")
    replace(made, surrogate=None).save(folder / "loans.veil")
    save_exported(model, schema, folder / "model.pt2")
    rows.to_csv(folder / "members.csv", index=False)
    random_rows(schema, 800, seed=5).to_csv(folder / "others.csv", index=False)
    return folder


def command(folder, **changed):
    given = {
        "veil": "loans.veil", "model": "model.pt2", "data": "members.csv", "others": "others.csv",
        "out": "attack.html",
    } | changed  # fmt: skip
    words = [word for name, file in given.items() for word in (f"--{name}", str(folder / file))]
    return ["attack", *words, "--quick"]


@pytest.mark.slow
def test_the_command_ends_in_verdicts(files, monkeypatch):
    monkeypatch.setattr(suite, "QUICK", TINY)
    result = CliRunner().invoke(app, command(files))
    assert result.exit_code == 0, result.output
    assert "extraction 3/3: functional-model" in result.output
    content = json.loads((files / "attack.json").read_text())
    page = (files / "attack.html").read_text()
    said = content["verdicts"]
    assert any("fidelity on test rows" in words for words in said)
    assert any(words.startswith("Control: without any model") for words in said)
    assert said[-1].startswith("Attribute race: no column")  # a sentence and no traceback
    assert "0.0% equal a member" in content["facts"]["others"]
    assert any(words.startswith("Membership by asking the model") for words in said)
    assert any(words.startswith("Linkage, functional-model") for words in said)
    last = page[page.index("<h2>Verdicts</h2>") :]
    assert last.count("<li>") == len(said)
    assert "http" not in page  # nothing is loaded from anywhere
    assert "<script" not in page
    assert {row["defence"] for row in content["extraction"]} == {"functional-model"}
    assert len({row["seed"] for row in content["extraction"]}) == 3
    assert content["statement"]["mechanism"] == "functional"


def test_wrong_input_is_one_line(files):
    others = pd.read_csv(files / "others.csv")
    others.head(20).to_csv(files / "few.csv", index=False)
    others.drop(columns="loan").to_csv(files / "unlabelled.csv", index=False)
    for option, file, words in (
        ("veil", "nothing.veil", "nothing.veil"),
        ("model", "nothing.pt2", "no model at"),
        ("data", "nothing.csv", "no table at"),
        ("out", "attack.pdf", "name the page .html"),
        ("others", "few.csv", "at least 50 members and 200 others"),
        ("data", "unlabelled.csv", "members: no column 'loan'"),
    ):
        result = CliRunner().invoke(app, command(files, **{option: file}))
        assert (result.exit_code, result.output.count("error:")) == (2, 1)
        assert words in result.output.replace("\n", " ")


def test_veils_say_what_can_be_attacked(made):
    assert suite.names_of(made) == ("functional-model", "functional-surrogate")
    assert suite.names_of(replace(made, surrogate=None)) == ("functional-model",)
    paper = made.statement.model_copy(update={"mechanism": "paper"})
    assert suite.names_of(replace(made, statement=paper)) == (
        "paper", "paper-model", "paper-surrogate",
    )  # fmt: skip
    dpsgd = made.statement.model_copy(update={"mechanism": "dpsgd"})
    assert suite.names_of(replace(made, statement=dpsgd, surrogate=None)) == ("dpsgd-model",)


def test_membership_is_picked_on_one_half_and_reported_on_the_other():
    def row(attack, first, second):
        middle = (first + second) / 2
        return {"defence": "none", "target": "f", "attack": attack, "auc": middle,
                "auc_first": first, "auc_second": second, "auc_second_low": second - 0.02,
                "auc_second_high": second + 0.02}  # fmt: skip

    (words,) = verdicts.verdicts([], [row("lucky", 0.58, 0.51), row("steady", 0.55, 0.55)])
    assert "the best of 2 attacks (lucky) reaches an AUC of 0.510 [0.490, 0.530]" in words
    assert words.endswith("not told apart from guessing.")
    (words,) = verdicts.verdicts([], [row("strong", 0.7, 0.7)])
    assert words.endswith("(.5 is guessing); told apart from guessing: members score higher than "
                          "others.")  # fmt: skip
    told = verdicts.verdicts([], [row("strong", 0.6, 0.6), row("low", 0.3, 0.3)])
    assert "the best of 2 attacks (strong) reaches an AUC of 0.600" in told[0]
    assert "the best of 2 attacks, turned round, (low) reaches an AUC of 0.300" in told[1]
    assert told[1].endswith("told apart from guessing: members score lower than others.")
    assert len(verdicts.verdicts([], [row("strong", 0.6, 0.6), row("weak", 0.49, 0.49)])) == 1


def test_linkage_and_attribute_in_words():
    linked = {
        "attack": "linkage", "defence": "dice-kdtree", "counterfactuals": 10, "exact_members": 1.0,
        "exact_training": 1.0, "training": 900, "rows": 300, "distinct": 10,
        "exact_outsiders": 0.1, "exact_excess_low": 0.8, "near_members": 1.0,
        "near_outsiders": 0.2, "near_excess_low": 0.7,
    }  # fmt: skip
    told = {"attack": "attribute", "value": "all", "who": "members", "attribute": "race",
            "advantage": 0.01, "advantage_low": -0.01, "advantage_high": 0.03}  # fmt: skip
    members = {**told, "defence": "none", "target": "f"}
    words = verdicts.verdicts([], [
        linked, members, {**told, "defence": "paper", "target": "f"},
        {**told, "defence": "paper", "target": "f'"},
    ])  # fmt: skip
    assert words[0].endswith("training rows are given away.")
    assert len(words) == 3
    assert "a copy of it from predictions and paper" in words[2]
    assert words[2].endswith("not told apart from none.")
    none = {"attack": "linkage", "defence": "a", "counterfactuals": 0}
    words = verdicts.verdicts([], [{**linked, "distinct": 9}, none])
    assert words[0].endswith("too few for a verdict.")
    assert words[1].endswith("nothing to link.")
    sure = {**members, "advantage": 0.1, "advantage_low": 0.08, "advantage_high": 0.12}
    for others, end in ((sure, "not told apart from none"), (members, "+0.090 ± 0.028")):
        (words,) = verdicts.verdicts([], [sure, {**others, "who": "outsiders"}])
        assert end in words
