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


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["explain", "--help"],
        ["ledger", "open", "ledger.db", "--dataset", "loans", "--epsilon", "2"],
        ["ledger", "show", "ledger.db"],
    ],
)
def test_commands_that_compute_nothing_load_nothing_heavy(command, tmp_path):
    words = [str(tmp_path / "ledger.db") if each == "ledger.db" else each for each in command]
    if command[:2] == ["ledger", "show"]:
        Ledger(words[-1]).open_account("loans", Budget(2.0))
    loaded = modules_after(
        f"from counterveil.cli import main\ntry:\n    main({words!r})\n"
        "except SystemExit as done:\n    assert not done.code, done.code"
    )
    assert "counterveil.cli" in loaded
    assert not loaded & {"torch", "pandas", "numpy", "scipy", "sklearn", "pyarrow"}


def test_inspect_loads_neither_torch_nor_pandas(veil, tmp_path):
    veil.save(tmp_path / "v.veil")
    command = ["inspect", str(tmp_path / "v.veil")]
    loaded = modules_after(
        f"from counterveil.cli import main\ntry:\n    main({command!r})\n"
        "except SystemExit as done:\n    assert not done.code, done.code"
    )
    assert "counterveil.veil_file" in loaded
    assert not loaded & {"torch", "pandas", "scipy", "counterveil.search"}


@pytest.mark.long
def test_inspect_and_explain_do_not_load_the_curator(veil, model, rows, schema, tmp_path):
    from counterveil.models import save_exported

    veil.save(tmp_path / "v.veil")
    save_exported(model, schema, tmp_path / "m.pt2")
    rows.head(3).to_csv(tmp_path / "q.csv", index=False)
    explain = ["explain", "--veil", str(tmp_path / "v.veil"), "--model", str(tmp_path / "m.pt2"),
               "--queries", str(tmp_path / "q.csv")]  # fmt: skip
    predict = ["model", "predict", "--veil", str(tmp_path / "v.veil"),
               "--rows", str(tmp_path / "q.csv"), "--out", str(tmp_path / "d.csv")]  # fmt: skip
    for command in (["inspect", str(tmp_path / "v.veil")], explain, predict):
        loaded = modules_after(
            f"from counterveil.cli import main\ntry:\n    main({command!r})\n"
            "except SystemExit as done:\n    assert not done.code, done.code"
        )
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
