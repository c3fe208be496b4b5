"""The help of every command, and the completion of shells."""

import os
import re
import subprocess
import sys

import pytest
import typer

from counterveil.cli import app

AS_COMMAND = "import sys; sys.argv[0] = 'counterveil'; from counterveil.cli import main; main()"


def commands(group, names=()):
    """The words of every command, groups left out."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*names, name))
        else:
            yield (*names, name)


EVERY = [*commands(typer.main.get_command(app))]


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_help_reads_like_a_manual_with_options_that_there_are(does, words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    out, _ = does(*words, "--help")
    for part in ("Usage", "Reads", "Examples", f"$ counterveil {' '.join(words)}", "Exit codes 0"):
        assert part in out
    command = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    examples = [line for line in command.epilog.split("\n\n") if line.startswith("$")]
    assert examples
    for example in examples:
        assert set(re.findall(r"--[a-z-]+", example)) <= known


def told(shell, words):
    """What the shell would show for the last of `words`, or its script where there are none."""
    given = {
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": " ".join(words),
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_COUNTERVEIL_COMPLETE": f"{'complete' if words else 'source'}_{shell}",
    }
    command, env = [sys.executable, "-c", AS_COMMAND], {**os.environ, **given}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("shell", "words", "found"),
    [
        ("bash", ["ex"], "explain"),
        ("zsh", ["explain", "--wh"], "--where"),
        ("fish", ["explain", "--prefer", "b"], "believable"),
    ],
)
def test_shells_complete_commands_options_and_values(shell, words, found):
    assert f"_COUNTERVEIL_COMPLETE=complete_{shell}" in told(shell, [])
    assert found in told(shell, ["counterveil", *words])
