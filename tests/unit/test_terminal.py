"""Progress for people and for programs."""

import json

import pytest

from counterveil.terminal import PROGRESS, PROGRESS_LINE, progress_bar


def test_progress_as_lines(monkeypatch, capsys):
    monkeypatch.setenv(PROGRESS, "lines")
    with progress_bar("training", 3) as tick:
        tick(1)
        tick(2, "epochs")
    lines = capsys.readouterr().err.splitlines()
    steps = [json.loads(line.removeprefix(PROGRESS_LINE)) for line in lines]
    assert steps == [
        {"title": "training", "done": 1, "total": 3, "words": ""},
        {"title": "training", "done": 2, "total": 3, "words": "epochs"},
    ]


@pytest.mark.parametrize(("value", "show"), [("lines", False), ("", True)])
def test_no_lines_where_nobody_asked(monkeypatch, capsys, value, show):
    monkeypatch.setenv(PROGRESS, value)
    with progress_bar("training", 3, show=show) as tick:
        tick(1)
    assert capsys.readouterr().err == ""


def test_a_notebook_without_widgets_has_no_bar(monkeypatch, capsys):
    """Rich would warn in every cell that ipywidgets is missing."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("counterveil.terminal.find_spec", lambda name: None)
    with progress_bar("training", 3) as tick:
        tick(1)
    assert capsys.readouterr() == ("", "")
