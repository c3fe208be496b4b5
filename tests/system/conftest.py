"""The command line in a folder with the files of a small project."""

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


@pytest.fixture
def does(run):
    """What a command prints, and says beside; it must succeed."""

    def call(*arguments):
        code, out, err = run(*arguments)
        assert code == 0, err
        return out, err

    return call
