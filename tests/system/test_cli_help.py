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
def test_help_reads_like_a_manual(run, words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = run(*words, "--help")
    assert code == 0
    for part in ("Usage", "Reads", "Examples", f"$ counterveil {' '.join(words)}", "Exit codes 0"):
        assert part in out


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_examples_name_options_that_there_are(words):
    command = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    examples = [line for line in command.epilog.split("\n\n") if line.startswith("$")]
    assert examples
    for example in examples:
        assert set(re.findall(r"--[a-z-]+", example)) <= known


def completed(shell, words):
    """What the shell would show for the last of `words`."""
    given = {
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": " ".join(words),
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_COUNTERVEIL_COMPLETE": f"complete_{shell}",
    }
    command = [sys.executable, "-c", AS_COMMAND]
    done = subprocess.run(
        command, env={**os.environ, **given}, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_options_and_values(shell):
    assert "explain" in completed(shell, ["counterveil", "ex"])
    assert "--where" in completed(shell, ["counterveil", "explain", "--wh"])
    assert "believable" in completed(shell, ["counterveil", "explain", "--prefer", "b"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_shown(shell):
    source = {**os.environ, "_COUNTERVEIL_COMPLETE": f"source_{shell}"}
    command = [sys.executable, "-c", AS_COMMAND]
    shown = subprocess.run(command, env=source, capture_output=True, text=True, check=True).stdout
    assert f"_COUNTERVEIL_COMPLETE=complete_{shell}" in shown
