"""The command line as a person meets it: output, exit codes, nothing half-written."""

import json
import os

import numpy as np
import pandas as pd
import pytest
from commands import EXPLAIN, RELEASE, assert_refused


def test_the_version_and_words_that_are_none(run):
    assert run("--version")[1].startswith("counterveil ")
    assert run("release")[0] == run("explode")[0] == 2


def test_draft_release_inspect_explain(run, does, world):
    out, err = does("schema", "draft", "rows.csv", "--label", "loan", "--out", "draft.json")
    assert "LOOKED AT THE DATA" in err
    assert "decide: bounds of age, income, debt, children: " in err
    assert json.loads((world / "draft.json").read_text())["drafted"]

    out, err = does(*RELEASE, 0.5)
    assert "guarantee explainer, ε = 0.5" in out
    assert "wrote new.veil" in out
    assert "warning: 300 rows a class, and noise" in err

    _, out, _ = run("inspect", "new.veil")
    assert "guarantee: explainer" in out
    assert "replace-one" in out
    assert json.loads(run("inspect", "new.veil", "--json")[1])["statement"]["level"] == "explainer"

    out, _ = does(*EXPLAIN, "--out", "cf.csv", "--report", "cf.html", "--target", "granted")
    assert "queries:" in out
    assert len(pd.read_csv(world / "cf.csv")) == 8
    assert "guarantee explainer" in (world / "cf.html").read_text()
    answer = json.loads(run(*EXPLAIN, "--json", "--immutable", "age")[1])
    assert len(answer["explanations"]) == 8
    assert answer["statement"]["epsilon"] == 100


def test_release_as_published(run, does, world):
    out, _ = does(*RELEASE, 0.5, "--mechanism", "paper")
    assert "nominal" in out
    assert "basis functions" in run("inspect", "new.veil")[1]
    out, err = does(*RELEASE, "inf", "--mechanism", "paper", "--overwrite")
    assert "nothing is protected" in out
    assert "warning: --epsilon inf adds no noise" in err
    assert_refused(run(*RELEASE, "inf", "--overwrite"), "epsilon must be between")


def test_a_dry_run_tells_what_a_delta_would_buy_and_leaves_nothing(run, does, world):
    run("ledger", "open", "ledger.db", "--dataset", "loans", "--epsilon", 1)
    asked = (*RELEASE, 0.1, "--dry-run")
    out, _ = does(*asked, "--ledger", "ledger.db")
    for words in ("measure features", "nothing was released or charged", "run counterveil check",
                  "a count is off by", "1e-09", "1e-06", "keep it far below 1/600"):  # fmt: skip
        assert words in out
    assert json.loads(run("ledger", "show", "ledger.db", "--json")[1])["entries"] == []
    refused = run(*asked, "--mechanism", "magic")
    assert_refused(refused, "unknown mechanism 'magic'; use one of: functional, dpsgd, paper")
    found = json.loads(run(*asked, "--json")[1])
    assert (found["released"], found["plan"]["units"]) == (False, 600)
    assert [each["delta"] for each in found["deltas"]] == [0, 1e-9, 1e-6]
    assert found["deltas"][0]["noise"] == found["plan"]["noise"] > found["deltas"][2]["noise"]
    assert "plus δ" in found["delta_means"]
    given = json.loads(run(*asked, "--delta", 1e-4, "--json")[1])
    assert [each["delta"] for each in given["deltas"]] == [0, 1e-9, 1e-6, 1e-4]
    assert given["deltas"][:3] == found["deltas"]
    assert given["deltas"][3]["noise"] == given["plan"]["noise"]
    assert not (world / "new.veil").exists()
    paper = json.loads(run(*asked, "--mechanism", "paper", "--json")[1])
    assert (paper["plan"], paper["deltas"]) == (None, [])


def test_the_ledger_is_charged_until_it_is_empty(run, does, world):
    run("ledger", "open", "ledger.db", "--dataset", "mine", "--epsilon", 1, "--delta", 1e-6)
    charged = (*RELEASE, 0.75, "--ledger", "ledger.db", "--dataset", "mine")
    does(*charged)
    shown = json.loads(run("ledger", "show", "ledger.db", "--json")[1])
    assert shown["accounts"][0]["spent"]["epsilon"] == 0.75
    assert shown["entries"][0]["state"] == "released"
    (world / "new.veil").unlink()
    assert_refused(run(*charged), "remain")
    assert not (world / "new.veil").exists()


def test_people_with_several_records(does, world):
    frame = pd.read_csv(world / "rows.csv")
    frame.assign(person=np.arange(len(frame)) // 3).to_csv(world / "rows.csv", index=False)
    people = ("--unit-column", "person", "--max-records", 2)
    out, _ = does(*RELEASE, 2, "--delta", 1e-6, *people, "--json")
    told = {"unit": "person", "max_records": 2, "epsilon": 2, "delta": 1e-6}
    assert json.loads(out)["statement"].items() >= told.items()


def test_a_draft_does_not_replace_an_edited_schema(run, does, world):
    edited = (world / "schema.json").read_text()
    draft = ("schema", "draft", "rows.csv", "--label", "loan", "--out", "schema.json")
    assert_refused(
        run(*draft), "schema.json is there already; choose another name, or give --overwrite"
    )
    assert (world / "schema.json").read_text() == edited
    does(*draft, "--overwrite")
    out, err = does(*RELEASE, 1)  # a drafted schema is warned about
    assert ("draft" in err, "guarantee none" in out) == (True, True)
    draft = (*draft[:-1], "schema.parquet")
    assert_refused(run(*draft), "--out schema.parquet: name the file .json")


def test_a_charge_for_rows_that_cannot_be_read_is_told(run, world):
    run("ledger", "open", "ledger.db", "--dataset", "mine", "--epsilon", 1)
    head, rows = (world / "rows.csv").read_text().split("\n", 1)
    last = rows.splitlines()[-1] + ",one cell more\n"
    (world / "old.csv").write_text(f"{head}\n{10 * rows}{last}")
    charged = (*RELEASE, 0.75, "--data", "old.csv", "--ledger", "ledger.db", "--dataset", "mine")
    code, _, err = run(*charged)
    assert code == 2
    assert "a row has more fields than the header" in err
    assert "the ledger was charged before the rows were read" in err
    code, _, err = run(*charged)  # nothing is left: refused, and not charged again
    assert code == 2
    assert "the ledger was charged" not in err


def test_draft_to_the_terminal_is_json(does, world):
    rows = pd.read_csv(world / "rows.csv")
    constant = pd.DataFrame(1, rows.index, [f"c{number}" for number in range(300)])
    pd.concat([rows, constant], axis=1).to_csv(world / "wide.csv", index=False)
    draft = ("schema", "draft", "wide.csv", "--label", "loan", "--exclude", "age")
    out, err = does(*draft)
    assert "age" not in [feature["name"] for feature in json.loads(out)["features"]]
    assert "left out: c0, c1, c2, " in err  # in short
    assert "… (288 more): each is constant" in err.replace("\n", " ")
    assert err.count("left out: ") < 5


def rewrite(change):
    def apply(folder):
        change(pd.read_csv(folder / "rows.csv")).to_csv(folder / "rows.csv", index=False)

    return apply


def cell(column, value):
    return rewrite(lambda t: t.astype(object).assign(**{column: [value, *t[column][1:]]}))


CHECK = ("check", "--data", "rows.csv", "--schema", "schema.json")
CHECKS = {
    "NaN": (cell("income", None), "row 1, column 'income': missing value"),
    "out of bounds": (cell("income", 99), "row 1, column 'income': outside the bounds 0 to 10"),
    "unseen category": (cell("degree", "phd"), "row 1, column 'degree': category not in"),
    "unseen label": (cell("loan", "later"), "row 1, column 'loan': not one of the label"),
    "text for a number": (cell("age", "old"), "row 1, column 'age': not a number"),
    "one class": (rewrite(lambda t: t[t.loan == "refused"]), "one class only"),
    "constant": (rewrite(lambda t: t.assign(income=4)), "'income' is constant"),
}
RELEASES = {
    "empty table": (rewrite(lambda t: t.head(0)), "empty"),
    "no bytes": (lambda f: (f / "rows.csv").write_bytes(b""), "empty"),
    "ragged rows": (
        lambda f: (f / "rows.csv").write_text((f / "rows.csv").read_text() + "1," * 20 + "1\n"),
        "line 602: a row has more fields than the header",
    ),
    "duplicate columns": (
        lambda f: (f / "rows.csv").write_text("age,age\n20,30\n"),
        "columns 1 and 2 of the table have the same name",
    ),
    "label missing": (rewrite(lambda t: t.drop(columns="loan")), "label column 'loan' is missing"),
    "column missing": (rewrite(lambda t: t.drop(columns="age")), "column 'age' is missing"),
    "no such table": (lambda f: (f / "rows.csv").unlink(), "no table at"),
    "no such schema": (lambda f: (f / "schema.json").unlink(), "no schema at"),
    "schema not JSON": (lambda f: (f / "schema.json").write_text("{"), "not JSON"),
    "out is a folder": (lambda f: (f / "new.veil").mkdir(), "is a directory"),
}


@pytest.mark.parametrize("case", CHECKS)
def test_rows_that_do_not_fit_are_found_by_the_check_alone(run, world, case):
    change, words = CHECKS[case]
    change(world)
    assert_refused(run(*CHECK), words)
    if case in ("one class", "constant"):  # which a release by `paper` says too
        assert_refused(run(*RELEASE, 1, "--mechanism", "paper"), words)


@pytest.mark.parametrize("case", RELEASES)
def test_bad_input_to_release(run, world, case):
    spoil, words = RELEASES[case]
    spoil(world)
    assert_refused(run(*RELEASE, 1), words)
    assert not (world / "new.veil").is_file()
    assert not list(world.glob(".*.veil*"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *(
            (("--epsilon", e), "epsilon must be a number above 0")
            for e in ("0", "-1", "nan", "-inf")
        ),
        *((("--epsilon", epsilon), "epsilon") for epsilon in ("1e308", "5e-324")),
        (("--mechanism", "magic"), "unknown"),
        (("--device", "warp"), "unknown"),
        (("--unit-column", "region", "--max-records", 10**30), "records"),
    ],
)
def test_meaningless_options(run, world, options, words):
    assert_refused(run(*RELEASE, 1, *options), words)


def test_an_output_is_never_an_input(run, world):
    before = (world / "rows.csv").read_bytes()
    for out in ("rows.csv", "schema.json"):
        assert_refused(run(*RELEASE, 1, "--out", out), "is an input of this command")
    draft = ("schema", "draft", "rows.csv", "--label", "loan", "--out", "./rows.csv")
    assert_refused(run(*draft), "is an input of this command")
    (world / "rules.json").write_text("{}")
    rules = ("--rules", "rules.json", "--out", "rules.json")
    for option in (rules, ("--out", "queries.csv"), ("--report", "loans.veil")):
        assert_refused(run(*EXPLAIN, *option), "is an input of this command")
    assert (world / "rows.csv").read_bytes() == before
    assert_refused(run(*RELEASE, 1, "--out", "/dev/null"), "is a device")
    assert_refused(run(*RELEASE[:5], "--epsilon", 1), "give --out")


def test_markup_in_names_and_paths_is_shown_as_it_is(run, does, world):
    out, _ = does(*RELEASE, 1, "--out", "x[b]y.veil")
    assert "wrote x[b]y.veil" in out
    assert_refused(run("inspect", "[/b].veil"), "[/b].veil")
    frame = pd.read_csv(world / "rows.csv").rename(columns={"age": "[/b]", "loan": "[red]"})
    frame.to_csv(world / "rows.csv", index=False)
    drafted = ["schema", "draft", "rows.csv", "--label", "[red]", "--out", "schema.json"]
    drafted.append("--overwrite")
    does(*drafted)
    does(*RELEASE, 1)
    assert "[red]: granted, refused" in run("inspect", "new.veil")[1]
    frame.assign(**{"[/b]": 1}).to_csv(world / "rows.csv", index=False)
    _, err = does(*drafted)
    assert "left out: [/b] is constant" in err


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        (ZeroDivisionError("income 1234"), 3, "fault of counterveil: ZeroDivisionError at "),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_faults_and_interrupts_are_one_line(run, world, monkeypatch, fault, code, words):
    from counterveil.veil_file import VeilFile

    def fail(path):
        raise fault

    monkeypatch.setattr(VeilFile, "load", fail)
    monkeypatch.delenv("COUNTERVEIL_DEBUG", raising=False)
    found, _, err = run("inspect", "loans.veil")
    assert found == code
    assert err.startswith(words)
    assert err.count("\n") == 1
    assert "1234" not in err
    monkeypatch.setitem(os.environ, "COUNTERVEIL_DEBUG", "1")
    assert ("Traceback" in run("inspect", "loans.veil")[2]) == (code == 3)
