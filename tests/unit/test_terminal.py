"""Progress for people and for programs."""

import json
import sys
from types import ModuleType

import pytest
from rich import console

from counterveil import terminal
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


class Notebook(ModuleType):
    """What a notebook shows, state by state, without the packages of one."""

    def __init__(self):
        super().__init__("IPython.display")
        self.states = []

    def display(self, state, raw, display_id):
        self.update(state, raw)
        return self

    def update(self, state, raw):
        assert raw
        assert state["text/plain"] == ""
        self.states.append(state["text/html"])


def test_a_bar_in_a_notebook_ends_in_nothing(monkeypatch, capsys):
    notebook = Notebook()
    monkeypatch.setattr(console, "_is_jupyter", lambda: True)
    monkeypatch.setattr(terminal, "SECONDS_BETWEEN", 0)
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    with progress_bar("<training>", 3) as tick:
        tick(2, "epochs")
    assert notebook.states == [
        '<progress value="0" max="3"></progress> &lt;training&gt; 0/3 ',
        '<progress value="2" max="3"></progress> &lt;training&gt; 2/3 epochs',
        "",
    ]
    assert capsys.readouterr() == ("", "")
