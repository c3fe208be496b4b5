"""What the search has learnt is kept, and never over anything else."""

import os

import pandas as pd
import pytest

from counterveil import Explainer
from counterveil.errors import RequestError
from counterveil.search.paper import amortise


@pytest.fixture
def queries(rows):
    return rows.head(3)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return amortise.cache_folder()


def warm(veil, model, place):
    explainer = Explainer(veil, model, warm_steps=1, warm_file=place)
    explainer.warm_up(prefer="nearest", progress=False)
    return explainer


def test_the_folder_is_the_users_alone(folder, tmp_path, monkeypatch):
    assert folder == tmp_path / "cache" / "counterveil"
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(PermissionError, match="yours alone"):
        amortise.cache_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert amortise.cache_folder() == tmp_path / "home" / ".cache" / "counterveil"


def test_a_folder_keeps_one_file_a_model(veil, model, folder, monkeypatch):
    explainer = warm(veil, model, folder)
    name = amortise.fingerprint(veil, explainer.model, explainer._snap)
    assert [path.name for path in folder.iterdir()] == [f"{name}.warm"]
    monkeypatch.setattr(amortise, "learn_amortiser", None)  # nothing is learnt again
    warm(veil, model, folder)


def test_links_are_not_followed(veil, model, folder, tmp_path, capsys):
    (path,) = _made(veil, model, folder)
    path.unlink()
    precious = tmp_path / "precious"
    path.symlink_to(precious)
    warm(veil, model, folder)
    assert "not kept" in capsys.readouterr().err
    assert not precious.exists()
    assert path.is_symlink()


def _made(veil, model, folder):
    warm(veil, model, folder)
    return list(folder.iterdir())


def test_foreign_files_stay(veil, model, folder, tmp_path, capsys):
    (path,) = _made(veil, model, folder)
    path.write_bytes(b"something else")
    warm(veil, model, folder)
    assert path.read_bytes() == b"something else"
    assert "not kept" in capsys.readouterr().err
    veil.save(tmp_path / "loans.veil")
    before = (tmp_path / "loans.veil").read_bytes()
    with pytest.raises(RequestError, match="not a warm file"):
        Explainer(veil, model, warm_file=tmp_path / "loans.veil")
    assert (tmp_path / "loans.veil").read_bytes() == before
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RequestError, match="not a warm file"):
        Explainer(veil, model, warm_file=tmp_path / "pipe")


def test_the_oldest_go_first(veil, model, folder, monkeypatch):
    (path,) = _made(veil, model, folder)
    others = [folder / f"{number:064x}.warm" for number in range(3)]
    for age, other in enumerate(others):
        other.write_bytes(path.read_bytes())
        os.utime(other, (age, age))
    foreign = folder / "notes.txt"
    foreign.write_bytes(b"x" * 10**6)
    os.utime(foreign, (0, 0))
    path.unlink()
    monkeypatch.setattr(amortise, "MOST_KEPT", 2 * others[0].stat().st_size)
    warm(veil, model, folder)
    assert sorted(folder.iterdir()) == sorted([path, others[2], foreign])


def test_a_folder_that_cannot_be_written_only_costs_a_line(
    veil, model, queries, tmp_path, monkeypatch, capsys
):
    def refuse(path, content):
        raise RequestError(f"cannot write {path}: Read-only file system")

    monkeypatch.setattr(amortise, "write_whole", refuse)
    explainer = Explainer(veil, model, warm_steps=1, warm_file=tmp_path / "x.warm")
    result = explainer.explain(queries, prefer="nearest", progress=False)
    assert len(result) == 3
    words = capsys.readouterr().err
    assert words.startswith("warning: what the search has learnt is not kept: cannot write")
    assert words.count("\n") == 1


def test_the_callers_index_survives(veil, model, queries):
    explainer = Explainer(veil, model, warm_steps=1)
    named = queries.set_axis(pd.Index(["ann", "bob", "eve"], name="who"))
    result = explainer.explain(named, progress=False)
    assert result.index.tolist() == ["ann", "bob", "eve"]
    frame = result.frame()
    assert frame.index.name == "who"
    assert frame.index.tolist() == [named.index[at] for at in result.found]
    several = explainer.explain(named, k=2, progress=False).frame()
    assert several.index.names == ["who", "answer"]
    assert set(several.index.get_level_values("answer")) <= {1, 2}
    last = result.only([2])
    assert last.index.tolist() == ["eve"]
    assert explainer.explain(queries.to_dict("records"), progress=False).index is None


def test_too_many_answers_are_refused_at_once(explainer, queries):
    for k in (0, 10**10):
        with pytest.raises(RequestError, match="k must be a whole number from 1 to 1000"):
            explainer.explain(queries, k=k)
    with pytest.raises(RequestError, match="iterations must be"):
        explainer.explain(queries, iterations=10**10)
