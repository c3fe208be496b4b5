"""`counterveil explain` as a person meets it."""

import json

import pandas as pd
import pytest
from commands import EXPLAIN, assert_refused
from sklearn.linear_model import LogisticRegression
from skops import io as skops_io

from counterveil.encoding import Encoding
from counterveil.models import save_exported


def test_surrogate_guidance_loads_no_model(run, world):
    (world / "model.pt2").unlink()
    command = ("explain", "--veil", "loans.veil", "--queries", "queries.csv")
    code, out, _ = run(*command, "--guidance", "surrogate", "--target", "granted", "--json")
    assert code == 0
    assert json.loads(out)["statement"]["level"] == "end-to-end"
    assert json.loads(out)["decided_by"] == "stand-in"
    surely = ("--guidance", "surrogate", "--model-epsilon", 1)
    assert_refused(run(*command, *surely), "leave --model-epsilon out")


def test_without_a_model_the_private_one_is_explained(run, world, veil):
    command = ("explain", "--veil", "loans.veil", "--queries", "queries.csv", "--warm-steps", 100)
    code, out, _ = run(*command, "--target", "granted", "--out", "cf.csv", "--report", "cf.html")
    assert code == 0
    assert "guarantee end-to-end" in out
    assert "private model is the one that decides: it was asked about every answer" in out
    assert "private model is the one that decides" in (world / "cf.html").read_text()
    found = pd.read_csv(world / "cf.csv").query("status == 'found'")
    assert len(found)
    assert set(veil.model().predict(found)) == {"granted"}
    assert_refused(run(*command, "--model-epsilon", 1), "leave --model-epsilon out")


def test_rules_of_a_file_are_kept(run, world):
    rules = {
        "may_change": ["income", "age", "housing", "children"],
        "steps": {"income": 2.5},
        "relations": [["children", "<=", "income"]],
        "together": [["income", "age"]],
    }
    (world / "rules.json").write_text(json.dumps(rules))
    code, _, _ = run(*EXPLAIN, "--rules", "rules.json", "--target", "granted", "--out", "cf.csv")
    assert code == 0
    queries, answers = (pd.read_csv(world / name) for name in ("queries.csv", "cf.csv"))
    found = (answers["status"] == "found").to_numpy()
    assert found.any()
    before, after = queries[found].reset_index(), answers[found].reset_index()
    for name in ("debt", "degree", "region", "member"):
        assert ((before[name] == after[name]) | after[name].isna()).all()
    richer, older = after["income"] - before["income"], after["age"] - before["age"]
    assert ((richer == 0) | (after["income"] % 2.5 == 0)).all()
    assert not (after["children"] > after["income"]).any()
    assert ((richer == 0) == (older == 0)).all()
    assert (richer * older >= 0).all()


def test_the_declared_budget_of_the_model_is_added(run, world):
    budget = ("--model-epsilon", 3, "--model-delta", 1e-5)
    kind = ("--model-unit", "record", "--model-relation", "replace-one")
    code, out, _ = run(*EXPLAIN, *budget, *kind, "--json")
    statement = json.loads(out)["statement"]
    assert code == 0
    assert (statement["level"], statement["epsilon"]) == ("composed", 103)
    code, out, _ = run(*EXPLAIN, *budget, *kind[:3], "add-remove", "--json")
    statement = json.loads(out)["statement"]
    assert (statement["epsilon"], code) == (106, 0)
    assert "replace-one is two of its steps" in statement["accesses"][-1]["sensitivity"]
    assert_refused(run(*EXPLAIN, "--model-delta", 1e-5), "needs --model-epsilon")
    assert_refused(run(*EXPLAIN, *kind), "needs --model-epsilon")


def test_the_declared_budget_of_the_model_must_say_what_it_protects(run, world):
    unit, relation = ("--model-unit", "record"), ("--model-relation", "replace-one")
    for missing in ((), unit, relation):
        refused = run(*EXPLAIN, "--model-epsilon", 3, *missing)
        assert_refused(refused, "--model-epsilon needs --model-unit")
    wrong = run(*EXPLAIN, "--model-epsilon", 3, "--model-unit", "row", *relation)
    assert_refused(wrong, "--model-unit must be one of: record, person")
    wrong = run(*EXPLAIN, "--model-epsilon", 3, *unit, "--model-relation", "x")
    assert_refused(wrong, "--model-relation must be one of: replace-one, add-remove")


def test_options_that_say_what_the_model_is(run, world, schema, rows):
    numbers = (rows.loan == "granted").astype(int)
    fitted = LogisticRegression().fit(Encoding(schema).encode(rows), numbers)
    skops_io.dump(fitted, world / "m.skops")
    command = (*EXPLAIN, "--model", "m.skops", "--iterations", "5", "--json")
    assert_refused(run(*command), "--model-classes")
    says = {}
    for classes in ("refused,granted", "granted,refused"):
        code, out, _ = run(*command, "--model-classes", classes, "--model-input", "encoding")
        assert code == 0
        says[classes] = [answer["predicted"] for answer in json.loads(out)["explanations"]]
    assert all(a != b for a, b in zip(*says.values(), strict=True))
    failed = run(*command, "--model-classes", "refused,granted", "--model-input", "rows")
    assert_refused(failed, "the model failed on rows in original units with ")
    assert_refused(run(*EXPLAIN, "--model-input", "x"), "--model-input must be one of")
    assert_refused(run(*EXPLAIN, "--model-outputs", "x"), "--model-outputs must be one of")


@pytest.mark.parametrize(
    "options", [("--seed", "-1"), ("--seed", str(2**31)), ("--show", "-1"), ("--iterations", "-1")]
)
def test_numbers_out_of_range(run, world, options):
    assert run(*EXPLAIN, *options)[0] == 2


def query_without(column):
    return lambda f: (
        pd.read_csv(f / "queries.csv").drop(columns=column).to_csv(f / "queries.csv", index=False)
    )


def three_outputs(folder):
    from torch import nn

    from counterveil.schema import Schema

    schema = Schema.load(folder / "schema.json")
    save_exported(nn.Linear(schema.width, 3), schema, folder / "model.pt2")


EXPLAINS = {
    "missing column": (query_without("income"), (), "column 'income' is missing"),
    "wrong output width": (three_outputs, (), "answers 3 classes, the schema's label has 2"),
    "damaged veil": (lambda f: (f / "loans.veil").write_bytes(b"PK"), (), "not a veil file"),
    "damaged model": (lambda f: (f / "model.pt2").write_bytes(b"?"), (), "cannot be read"),
    "pickle": (lambda f: (f / "m.pkl").write_bytes(b"?"), ("--model", "m.pkl"), "--trust-pickle"),
    "unknown class": (lambda f: None, ("--target", "maybe"), "no class 'maybe'"),
    "unknown feature": (lambda f: None, ("--immutable", "sex"), "no feature 'sex'"),
    "odd output": (lambda f: None, ("--out", "cf.doc"), "name the file .csv"),
    "empty queries": (lambda f: (f / "queries.csv").write_text(""), (), "empty"),
}


@pytest.mark.parametrize("case", EXPLAINS)
def test_bad_input_to_explain(run, world, case):
    spoil, options, words = EXPLAINS[case]
    spoil(world)
    out = () if "--out" in options else ("--out", "cf.csv")
    assert_refused(run(*EXPLAIN, *out, *options), words)
    assert not list(world.glob("cf.*"))
