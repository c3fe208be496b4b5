"""The tutorials of docs/tutorials: every command and every line of code is run, in order.

What a tutorial shows as printed must be printed, but for what `…` stands for. The quick test does
the work of two of them on fewer rows; the slow one does what is written, of all. Servers run beside
the test.
"""

import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from counterveil import terminal
from counterveil.cli import main
from counterveil_lab.cli import app as lab

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
EVERY = sorted({path.stem for path in TUTORIALS.glob("*.md")} - {"index"})
NOT_RUN = ("pip", "podman", "systemctl", "make")  # they change the machine; other tests have them
LAB = "counterveil-lab"

# What takes long, and what takes its place in the quick test.
FEW_ROWS = ("people.train, people.test", "people.train.head(3000), people.test.head(2000)")
QUICK = {
    "data-scientist": [
        FEW_ROWS,
        ('save_to="adult.veil"', 'save_to="adult.veil", epochs=2'),
        ("max_iter=60", "max_iter=10"),
    ],
    "engineer": [
        FEW_ROWS,
        ('save_to="adult.veil"', 'save_to="adult.veil", epochs=2'),
        ("--out large.veil", "--out large.veil --epochs 2"),
        ('{"status": "found", …', '{"status": …'),  # of so few rows the noise may leave none
    ],
}


class Block(NamedTuple):
    """A box of a tutorial: code, commands or what was printed."""

    kind: str
    text: str


def blocks_of(name, replaced=()):
    """The boxes of a tutorial; texts that are replaced must be there."""
    text = (TUTORIALS / f"{name}.md").read_text(encoding="utf-8")
    for old, new in replaced:
        assert old in text, f"{name}.md no longer says {old!r}"
        text = text.replace(old, new)
    return [Block(*each) for each in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)]


def was_printed(shown, told):
    """Whether the lines of a box are in what was printed; `…` stands for anything."""
    parts = [re.escape(" ".join(part.split())) for part in shown.split("…")]
    return re.search(".*?".join(parts), " ".join(told.split())) is not None


def command_of(text):
    """A command, which goes on while a quote is open, and the lines after it."""
    line, *rest = text.splitlines()
    while True:
        try:
            shlex.split(line, comments=True)
        except ValueError:
            line += "\n" + rest.pop(0)
        else:
            return line, "\n".join(rest)


class Reader:
    """Follows a tutorial in the working folder."""

    def __init__(self, capsys):
        self.capsys, self.told, self.server = capsys, "", None
        self.names = {"__name__": "__main__"}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])

    def follow(self, blocks):
        try:
            for block in blocks:
                if block.kind == "python":
                    exec(compile(block.text, "tutorial", "exec"), self.names)
                    self.told = self.capsys.readouterr().out
                elif block.kind == "console":
                    self.type(block.text)
                elif block.kind == "text":
                    assert was_printed(block.text, self.told), (block.text, self.told)
                else:
                    assert block.kind == "json"
        finally:
            self.stop()

    def type(self, text):
        """Type the lines that begin with `$`; the others must be printed by the one before."""
        lines = re.split(r"^\$ ", text.replace("\\\n", " ").replace("8080", self.port), flags=re.M)
        assert not lines[0]
        for each in lines[1:]:
            line, shown = command_of(each)
            self.command(line)
            assert not self.code or "error: " in shown or line.startswith("counterveil audit")
            assert was_printed(shown, self.told), (line, shown, self.told)

    def command(self, line):
        words, self.code = shlex.split(line, comments=True), 0
        if words[:2] == ["counterveil", "serve"]:
            self.serve(words)
        elif words[0] == "counterveil" and ">" not in words:
            self.told = self.inside(main, words[1:])
        elif words[0] == LAB:
            self.told = self.inside(lab, words[1:])
        elif words[0] not in NOT_RUN:
            done = subprocess.run(line, shell=True, capture_output=True, text=True, check=True)
            self.told = done.stdout + done.stderr
        else:
            self.told = "…"

    def inside(self, program, words):
        """What a program of this environment prints; its exit code is kept."""
        try:
            program(words)
        except SystemExit as done:
            self.code = done.code
        out, err = self.capsys.readouterr()
        return err + out + err  # a warning is shown before or after what it belongs to

    def serve(self, words):
        self.stop()
        line = [sys.executable, "-m", "counterveil.cli", *words[1:], "--port", self.port]
        self.server = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
        self.told = self.server.stdout.readline() + self.server.stdout.readline()

    def stop(self):
        if self.server is not None:
            self.server.terminate()
            self.server.communicate(timeout=60)
            self.server = None


@pytest.fixture
def reader(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    for console in (terminal.out, terminal.notes):  # made when they were first imported
        monkeypatch.setattr(console, "width", 200)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    here = Path(sys.executable).parent  # with the commands of this environment
    monkeypatch.setenv("PATH", f"{here}{os.pathsep}{os.environ['PATH']}")
    return Reader(capsys)


@pytest.mark.long
@pytest.mark.parametrize("name", QUICK)
def test_a_tutorial_on_fewer_rows(name, reader):
    reader.follow(blocks_of(name, QUICK[name]))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", EVERY)
def test_a_tutorial_as_it_is_written(name, reader):
    reader.follow(blocks_of(name))


def test_what_is_shown_is_compared_with_what_is_printed():
    assert was_printed("ε = … left", "spent\nε = 1.25\n  left")
    assert was_printed("", "anything")
    assert not was_printed("a … b", "b a")
    assert not was_printed("found (2)", "found 2")
