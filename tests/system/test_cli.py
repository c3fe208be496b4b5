"""The command line as a person meets it: output, exit codes, nothing half-written."""

import json

import pandas as pd
import pytest

from counterveil.cli import main
from counterveil.models import save_exported


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        try:
            main([str(argument) for argument in arguments])
            code = 0
        except SystemExit as done:
            code = int(done.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def world(schema, rows, veil, model, tmp_path):
    """The files of a small project in the working folder."""
    schema.save(tmp_path / "schema.json")
    rows.to_csv(tmp_path / "rows.csv", index=False)
    rows.head(8).to_csv(tmp_path / "queries.csv", index=False)
    veil.save(tmp_path / "loans.veil")
    save_exported(model, schema, tmp_path / "model.pt2")
    return tmp_path


RELEASE = ("release", "--data", "rows.csv", "--schema", "schema.json", "--out", "new.veil",
           "--epochs", "1", "--epsilon")  # fmt: skip
EXPLAIN = ("explain", "--veil", "loans.veil", "--model", "model.pt2", "--queries", "queries.csv")


def test_version_and_help(run):
    assert run("--version")[1].startswith("counterveil ")
    for command in ((), ("release",), ("explain",), ("inspect",), ("demo",), ("schema", "draft")):
        code, out, _ = run(*command, "--help")
        assert code == 0
        assert "Usage" in out


def test_draft_release_inspect_explain(run, world):
    code, out, err = run("schema", "draft", "rows.csv", "--label", "loan", "--out", "draft.json")
    assert code == 0
    assert "LOOKED AT THE DATA" in err
    assert json.loads((world / "draft.json").read_text())["drafted"]

    code, out, _ = run(*RELEASE, 0.5)
    assert code == 0
    assert "nominal" in out

    code, out, _ = run("inspect", "new.veil")
    assert code == 0
    assert "guarantee: none" in out
    assert "nominal" in out
    assert "basis functions" in out
    code, out, _ = run("inspect", "new.veil", "--json")
    assert json.loads(out)["statement"]["level"] == "none"

    code, out, _ = run(*EXPLAIN, "--out", "cf.csv", "--report", "cf.html", "--target", "granted")
    assert code == 0
    assert "queries:" in out
    table = pd.read_csv(world / "cf.csv")
    assert len(table) == 8
    assert "guarantee none" in (world / "cf.html").read_text()
    code, out, _ = run(*EXPLAIN, "--json", "--immutable", "age")
    answer = json.loads(out)
    assert len(answer["explanations"]) == 8
    assert answer["statement"]["epsilon"] == 100


def test_release_as_json(run, world):
    code, out, _ = run(*RELEASE, 2, "--json")
    assert code == 0
    assert json.loads(out)["statement"]["epsilon"] == 2


def test_a_drafted_schema_is_warned_about(run, world):
    run("schema", "draft", "rows.csv", "--label", "loan", "--out", "schema.json")
    code, _, err = run(*RELEASE, 1)
    assert code == 0
    assert "draft" in err


def test_draft_to_the_terminal_is_json(run, world):
    _, out, _ = run("schema", "draft", "rows.csv", "--label", "loan", "--exclude", "age")
    assert "age" not in [feature["name"] for feature in json.loads(out)["features"]]


def rewrite(change):
    def apply(folder):
        change(pd.read_csv(folder / "rows.csv")).to_csv(folder / "rows.csv", index=False)

    return apply


def cell(column, value):
    return rewrite(lambda t: t.astype(object).assign(**{column: [value, *t[column][1:]]}))


RELEASES = {
    "empty table": (rewrite(lambda t: t.head(0)), "empty"),
    "no bytes": (lambda f: (f / "rows.csv").write_bytes(b""), "empty"),
    "one class only": (rewrite(lambda t: t[t.loan == "refused"]), "one class only"),
    "constant column": (rewrite(lambda t: t.assign(income=4)), "'income' is constant"),
    "NaN": (cell("income", None), "row 1, column 'income': missing value"),
    "out of bounds": (cell("income", 99), "row 1, column 'income': outside the bounds 0 to 10"),
    "unseen category": (cell("degree", "phd"), "row 1, column 'degree': category not in"),
    "unseen label": (cell("loan", "later"), "row 1, column 'loan': not one of the label"),
    "text for a number": (cell("age", "old"), "row 1, column 'age': not a number"),
    "duplicate columns": (
        lambda f: (f / "rows.csv").write_text("age,age\n20,30\n"),
        "'age' appears twice",
    ),
    "label missing": (rewrite(lambda t: t.drop(columns="loan")), "label column 'loan' is missing"),
    "column missing": (rewrite(lambda t: t.drop(columns="age")), "column 'age' is missing"),
    "no such table": (lambda f: (f / "rows.csv").unlink(), "no table at"),
    "no such schema": (lambda f: (f / "schema.json").unlink(), "no schema at"),
    "schema not JSON": (lambda f: (f / "schema.json").write_text("{"), "not JSON"),
    "out is a folder": (lambda f: (f / "new.veil").mkdir(), "is a directory"),
}


@pytest.mark.parametrize("case", RELEASES)
def test_bad_input_to_release(run, world, case):
    spoil, words = RELEASES[case]
    spoil(world)
    assert_refused(run(*RELEASE, 1), words)
    assert not (world / "new.veil").is_file()
    assert not list(world.glob(".*.veil*"))


@pytest.mark.parametrize("epsilon", ["0", "-1", "nan", "-inf"])
def test_meaningless_epsilon(run, world, epsilon):
    assert_refused(run(*RELEASE, epsilon), "epsilon must be a number above 0")


@pytest.mark.parametrize("option", [("--mechanism", "magic"), ("--device", "warp")])
def test_unknown_choices(run, world, option):
    assert_refused(run(*RELEASE, 1, *option), "unknown")


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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--label", "lone"), "no column 'lone'"),
        (("--label", "loan", "--exclude", "x"), "no column 'x'"),
    ],
)
def test_bad_input_to_draft(run, world, arguments, words):
    assert_refused(run("schema", "draft", "rows.csv", *arguments, "--out", "d.json"), words)
    assert not (world / "d.json").exists()


def test_usage_errors(run):
    assert run("release")[0] == 2
    assert run("explode")[0] == 2


def assert_refused(answer, words):
    code, _, err = answer
    errors = [line for line in err.splitlines() if not line.startswith("warning:")]
    assert code == 2, err
    assert len(errors) == 1, err
    assert errors[0].startswith("error: ")
    assert words in errors[0]
    assert "Traceback" not in err
