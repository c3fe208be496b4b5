"""The runner of experiments and its command: what is resumed, what is missing, what fails."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from counterveil.errors import InputError
from counterveil_lab.cli import app
from counterveil_lab.datasets import VARIABLE, DatasetMissing
from counterveil_lab.experiments import releases, runner, table
from counterveil_lab.experiments.runner import Experiment
from counterveil_lab.results import Results, pictures_of, read, stored_rows

cli = CliRunner()


def give(value, dataset="here", fail=False):
    """What the runner measures in these tests."""
    if dataset == "absent":
        raise DatasetMissing("put it there")
    if fail:
        raise ZeroDivisionError("by zero")
    return [{"square": value * value, "nothing": float("nan")}]


def which_process(value):
    return [{"process": os.getpid()}]


@pytest.mark.long
def test_one_process_and_several_give_the_same(tmp_path):
    """Several experiments share their processes."""
    cases = [{"dataset": "here", "value": value} for value in range(3)]
    say, rows = [].append, []
    with runner.processes(2) as pool:
        for workers, given in ((1, None), (2, pool)):
            results = Results(tmp_path / str(workers), "squares", "command")
            runner.run_cases(results, cases, give, workers=workers, say=say, pool=given)
            rows.append(sorted(results.rows, key=lambda row: row["value"]))
        results = Results(tmp_path, "processes", "command")
        cases = [{"value": value} for value in range(4)]
        runner.run_cases(results, cases, which_process, workers=2, say=say, pool=pool)
    assert rows[0] == rows[1]
    assert rows[0][2].items() >= {"dataset": "here", "value": 2, "nothing": None}.items()
    used = {row["process"] for row in results.rows}
    assert len(used) <= 2
    assert os.getpid() not in used


def test_a_missing_dataset_is_said_once_and_left_out(tmp_path):
    said = []
    results = Results(tmp_path, "squares", "command")
    cases = [{"dataset": name, "value": value} for name in ("absent", "here") for value in (1, 2)]
    runner.run_cases(results, cases, give, workers=1, say=said.append)
    assert len(results.rows) == 2
    assert [words for words in said if "put it there" in words] == ["without absent: put it there"]

    results = Results(tmp_path, "others", "command")  # nor does a case that fails stop the others
    cases = [{"value": 1, "fail": True}, {"value": 2, "fail": False}]
    with pytest.raises(runner.CasesFailed, match="1 of 2 cases failed"):
        runner.run_cases(results, cases, give, workers=1, say=lambda words: None)
    assert [row["value"] for row in results.rows] == [2]


def test_rows_of_another_commit_and_command_stay_and_pictures_come_back(tmp_path, monkeypatch):
    monkeypatch.setenv("COUNTERVEIL_COMMIT", "old")
    Results(tmp_path, "squares", "command").add({"value": 1})
    monkeypatch.setenv("COUNTERVEIL_COMMIT", "new")
    Results(tmp_path, "squares", "other").add({"value": 2}, {"value": "none"})
    again = Results(tmp_path, "squares", "command")
    told = [(row["value"], row["commit"], row["command"]) for row in again.rows]
    assert told == [(1, "old", "command"), (2, "new", "other"), ("none", "new", "other")]
    assert again.has(value=2)

    picture = np.arange(4, dtype=np.uint8).reshape(1, 2, 2)
    Results(tmp_path, "seen", "command").add({"pictures": {"a": picture}}, {"pictures": {}})
    (found,) = pictures_of(stored_rows(tmp_path, "seen")).values()
    assert found.dtype == np.uint8
    assert (found == picture).all()


def test_nothing_stored_is_lost_unasked(tmp_path, monkeypatch):
    monkeypatch.setattr("counterveil_lab.results.fingerprint", lambda name: "old")
    Results(tmp_path, "targets", "command").add({"dataset": "adult", "seed": 0})
    monkeypatch.setattr("counterveil_lab.results.fingerprint", lambda name: "new")
    results = Results(tmp_path, "targets", "command")
    case = {"dataset": "adult", "seed": 1}
    results.check_nothing_is_lost([{"dataset": "digits", "seed": 0}])
    with pytest.raises(InputError, match="--overwrite"):
        results.check_nothing_is_lost([case])
    with pytest.raises(InputError, match="--overwrite"):
        results.add(case, case=case)
    assert len(stored_rows(tmp_path, "targets")) == 1
    Results(tmp_path, "targets", "command", overwrite=True).add(case, case=case)
    (row,) = stored_rows(tmp_path, "targets")
    assert (row["seed"], row["fingerprint"]) == (1, "new")
    (backup,) = (tmp_path / "backup").iterdir()
    assert read(backup)[0]["seed"] == 0


def test_rows_of_earlier_code_are_replaced_case_by_case(tmp_path, monkeypatch):
    def measure(dataset, seed):
        return [{"accuracy": 0.5 + seed / 10}]

    def run(code, *cases):
        monkeypatch.setattr("counterveil_lab.results.fingerprint", lambda name: code)
        monkeypatch.setenv("COUNTERVEIL_COMMIT", code)
        results = Results(tmp_path, "targets", "command", overwrite=True)
        asked = [{"dataset": name, "seed": seed} for name, seed in cases]
        runner.run_cases(results, asked, measure, workers=1, say=said.append)
        return [(row["dataset"], row["seed"], row["fingerprint"]) for row in results.rows]

    said = []
    run("old", ("adult", 0), ("adult", 1), ("digits", 0))
    # A mean over seeds mixes no two versions of the code: the other seed of Adult is dropped too.
    assert run("new", ("adult", 1)) == [("digits", 0, "old"), ("adult", 1, "new")]
    both = [("digits", 0, "old"), ("adult", 1, "new"), ("adult", 0, "new")]
    assert run("new", ("adult", 0), ("adult", 1)) == both
    assert len(said) == 5  # what the present code has measured is not measured again


def test_run_all_goes_on_after_a_failure(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise ZeroDivisionError("by zero")

    def cases(options):
        return [{"value": 1}]

    works = Experiment("one row", cases, lambda value, quick: [{}])
    both = {"first": Experiment("fails", fails, fails), "second": works}
    monkeypatch.setattr(table, "EXPERIMENTS", both)
    outcome = cli.invoke(app, ["run", "all", "--out", str(tmp_path)])
    assert outcome.exit_code == 1
    assert "first: ZeroDivisionError: by zero" in outcome.stderr
    assert [row["value"] for row in stored_rows(tmp_path, "second")] == [1]


def test_wrong_requests_are_one_line_and_a_list_names_what_there_is(tmp_path):
    for arguments, words in (
        (["nothing"], "no experiment"),
        (["fig-mse", "--datasets", "nothing"], "no dataset"),
        (["targets", "--mechanisms", "paper"], "no option --mechanisms"),
    ):
        outcome = cli.invoke(app, ["run", *arguments, "--out", str(tmp_path)])
        assert outcome.exit_code == 2
        assert words in " ".join(outcome.stderr.split())
    lines = cli.invoke(app, ["list"]).stdout.splitlines()
    assert {line.split()[0] for line in lines} == {*table.EXPERIMENTS, "all"}


def test_the_command_names_data_and_chooses(tmp_path, monkeypatch):
    seen = {}

    def watch(options):
        seen.update(vars(options), data=os.environ[VARIABLE], cache=os.environ[releases.CACHE])
        return [{"mechanism": "paper"}, {"mechanism": "functional"}]

    monkeypatch.delenv(VARIABLE, raising=False)
    one = Experiment("one", watch, lambda mechanism, quick: [{"quick": quick}])
    monkeypatch.setattr(table, "EXPERIMENTS", {"one": one})
    outcome = cli.invoke(
        app,
        ["run", "one", "--datasets", "adult, digits", "--mechanisms", "paper", "--data",
         str(tmp_path), "--quick", "--out", str(tmp_path)],
    )  # fmt: skip
    assert outcome.exit_code == 0
    (row,) = stored_rows(tmp_path / "quick", "one")  # apart from what is stored
    assert row["command"] == "counterveil-lab run one --seeds 3 --quick"
    assert (row["mechanism"], row["quick"]) == ("paper", True)
    assert (seen["datasets"], seen["mechanisms"]) == (("adult", "digits"), ("paper",))
    assert seen["data"] == str(tmp_path)
    assert not Path(seen["cache"]).exists()


def test_rows_of_another_command_are_stored_and_exported(tmp_path):
    rows = [{"bound": 0.5, "view": "x"}, {"bound": None, "view": 3}]
    content = {"experiment": "audit", "command": "counterveil audit", "commit": "abc", "rows": rows}
    (tmp_path / "audit.json").write_text(json.dumps(content))
    given = ["import", str(tmp_path / "audit.json"), "--out", str(tmp_path)]
    assert cli.invoke(app, given).exit_code == 0
    assert "--overwrite" in " ".join(cli.invoke(app, given).stderr.split())  # it is there already
    found = [(row["bound"], row["view"], row["commit"]) for row in stored_rows(tmp_path, "audit")]
    assert found == [(0.5, "x", "abc"), (None, 3, "abc")]
    out = tmp_path / "audit.csv"
    asked = ["export", "audit", "--results", str(tmp_path), "--out", str(out)]
    assert cli.invoke(app, asked).exit_code == 0
    assert out.read_text().startswith("bound,view,")
    missing = cli.invoke(app, ["export", "none", "--results", str(tmp_path), "--out", str(out)])
    assert "there are: audit" in " ".join(missing.stderr.split())
