"""What is shown on the terminal: lines, warnings, JSON, and bars for long work.

Names and paths are printed as they are: a name such as "[red]" is never read as markup, and
characters that could steer the terminal are replaced.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

out = Console()
notes = Console(stderr=True)


def visible(words: str) -> str:
    """`words` with line breaks and other unprintable characters replaced."""
    return "".join(letter if letter.isprintable() else "�" for letter in words)


def cell(words: object, style: str = "") -> Text:
    """A name or value as it can stand in a table or line."""
    return Text(visible(str(words)), style=style)


def say(words: object, style: str = "") -> None:
    """Print a line on standard output."""
    out.print(cell(words, style), soft_wrap=True)


def wrote(path: Path, more: str = "") -> None:
    """Print that a file was written."""
    out.print(Text.assemble("wrote ", cell(path, "bold"), more), soft_wrap=True)


def warn(words: object) -> None:
    """Print a warning on standard error."""
    complain("warning: ", words, "yellow")


def complain(title: str, words: object, style: str) -> None:
    """Print one line on standard error: `title` in the colour `style`, then `words`."""
    notes.print(Text.assemble((title, style), visible(str(words))), soft_wrap=True)


def print_json(content: object) -> None:
    """Print indented JSON on standard output."""
    sys.stdout.write(json.dumps(content, ensure_ascii=False, indent=2) + "\n")


def class_named(text: str, classes: Sequence[Any]) -> Any:
    """The class whose name reads `text`; an unknown name is returned as it is."""
    return next((name for name in classes if str(name) == text), text)


class Tick(Protocol):
    """Called by long work after each step: how many steps are done, and a word for them."""

    def __call__(self, done: int, words: str = "") -> None: ...


def silent(done: int, words: str = "") -> None:
    """A tick that shows nothing."""


@contextmanager
def progress_bar(title: str, total: int, *, show: bool = True) -> Iterator[Tick]:
    """A bar of `total` steps on standard error or in a notebook, and the tick that moves it.

    Nothing is shown when standard error is neither, or when `show` is false.
    """
    console = Console(stderr=True)
    if not show or not (console.is_terminal or console.is_jupyter):
        yield silent
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=32),
        TextColumn("{task.completed}/{task.total} {task.fields[words]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=total, words="")
        yield lambda done, words="": bar.update(task, completed=done, words=words)
