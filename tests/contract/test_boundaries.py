"""The public side never loads the private one, and the public surface is what it says."""

import subprocess
import sys

import pytest

import counterveil
from counterveil.privacy import Budget
from counterveil.privacy.ledger import Ledger

PUBLIC = ("build", "cli", "encoding", "models", "networks", "population", "privacy",
          "privacy.record", "private_model", "report", "schema", "search", "signature", "tables",
          "text_rules", "veil")  # fmt: skip


def modules_after(code):
    probe = f"{code}\nimport sys\nprint('', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_public_modules_do_not_load_the_curator():
    imports = "\n".join(f"import counterveil.{name}" for name in PUBLIC)
    use = "from counterveil import Explainer, Explanations, Schema, Veil"
    loaded = modules_after(f"{imports}\n{use}")
    assert not [name for name in loaded if name.startswith("counterveil.curator")]
    assert not [name for name in loaded if name.startswith("counterveil_lab")]
    assert not [name for name in loaded if name.startswith("opendp")]
    private = modules_after("import counterveil.curator")
    assert not [name for name in private if name.startswith("counterveil.search")]


def modules_of(*command):
    """What is loaded after a command."""
    return modules_after(
        f"from counterveil.cli import main\ntry:\n    main({[*map(str, command)]!r})\n"
        "except SystemExit as done:\n    assert not done.code, done.code"
    )


def test_commands_that_compute_nothing_load_nothing_heavy(veil, tmp_path):
    veil.save(tmp_path / "v.veil")
    Ledger(tmp_path / "l.db").open_account("loans", Budget(2.0))
    opened = "ledger", "open", tmp_path / "l.db", "--dataset", "more", "--epsilon", 2
    shown = "ledger", "show", tmp_path / "l.db"
    for command in (["--help"], ["explain", "--help"], opened, shown):
        loaded = modules_of(*command)
        assert "counterveil.cli" in loaded
        assert not loaded & {"torch", "pandas", "numpy", "scipy", "sklearn", "pyarrow"}
    loaded = modules_of("inspect", tmp_path / "v.veil")
    assert "counterveil.veil_file" in loaded
    assert not loaded & {"torch", "pandas", "scipy", "counterveil.search"}


def test_cheap_refusals_come_before_anything_heavy(veil, schema, rows, tmp_path):
    veil.save(tmp_path / "v.veil")
    schema.save(tmp_path / "s.json")
    rows.to_csv(tmp_path / "r.csv", index=False)
    release = "release", "--schema", "s.json", "--out", "o.veil", "--data"
    explain = "explain", "--veil", "v.veil", "--queries"
    for words, *command in (
        ("no table", "schema", "draft", "none.csv"),
        ("is there already", "schema", "draft", "r.csv", "--out", "s.json"),
        ("no table", *release, "none.csv", "--epsilon", "1"),
        ("epsilon must be", *release, "r.csv", "--epsilon", "nan"),
        ("no ledger", *release, "r.csv", "--epsilon", "1", "--ledger", "none.db"),
        ("no table", *explain, "none.csv"),
        ("no model", *explain, "r.csv", "--model", "none.pt2"),
        ("none", *explain, "r.csv", "--target", "none"),
        ("none", *explain, "r.csv", "--immutable", "none"),
    ):
        probe = (
            f"import os, sys\nfrom counterveil.cli import main\nos.chdir({str(tmp_path)!r})\n"
            f"try:\n    main({command!r})\nexcept SystemExit as done:\n    assert done.code == 2\n"
            "print('', *sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", probe], capture_output=True, text=True, check=False
        )
        assert (done.returncode, words in done.stderr) == (0, True), (command, done.stderr)
        heavy = {*done.stdout.split()} & {"torch", "pandas", "scipy", "sklearn", "opendp"}
        assert not heavy, command


@pytest.mark.long
def test_inspect_and_explain_do_not_load_the_curator(veil, model, rows, schema, tmp_path):
    from counterveil.models import save_exported

    veil.save(tmp_path / "v.veil")
    save_exported(model, schema, tmp_path / "m.pt2")
    rows.head(3).to_csv(tmp_path / "q.csv", index=False)
    of_veil, queries = ("--veil", tmp_path / "v.veil"), tmp_path / "q.csv"
    explain = "explain", *of_veil, "--model", tmp_path / "m.pt2", "--queries", queries
    predict = "model", "predict", *of_veil, "--rows", queries, "--out", tmp_path / "d.csv"
    for command in (explain, predict):
        loaded = modules_of(*command)
        assert "counterveil.veil_file" in loaded
        assert not [name for name in loaded if name.startswith("counterveil.curator")]


def test_public_surface():
    assert counterveil.__all__ == [
        "CounterveilError", "Explainer", "Explanations", "Rules", "Schema", "Veil",
    ]  # fmt: skip
    for name in counterveil.__all__:
        assert getattr(counterveil, name).__name__ == name
    with pytest.raises(AttributeError):
        counterveil.Curator  # noqa: B018
