"""What is shown on the terminal: lines, warnings, JSON, and bars for long work.

Names and paths are printed as they are: a name such as "[red]" is never read as markup, and
characters that could steer the terminal are replaced.
"""

import io
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from counterveil.errors import shortened

out = Console()
notes = Console(stderr=True)
PROGRESS = "COUNTERVEIL_PROGRESS"  # "lines" writes progress for a program that started this one
SECONDS_BETWEEN = 0.1  # two states of a bar in a notebook
PROGRESS_LINE = "progress: "  # how such a line begins; JSON follows


def visible(words: str) -> str:
    """`words` with line breaks and other unprintable characters replaced."""
    return "".join(letter if letter.isprintable() else "�" for letter in words)


def cell(words: object, style: str = "") -> Text:
    """A name or value as it can stand in a table or line."""
    return Text(visible(str(words)), style=style)


def say(words: object, style: str = "") -> None:
    """Print a line on standard output."""
    out.print(cell(words, style), soft_wrap=True)


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values in two columns."""
    grid = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        grid.add_row(name, cell(value))
    out.print(grid)


def print_table(headings: Sequence[str], rows: Iterable[Iterable[object]], title: str = "") -> None:
    """Print a table of names and values."""
    table = Table(*headings, title=cell(title, "bold") if title else None, title_justify="left")
    for row in rows:
        table.add_row(*map(cell, row))
    out.print(table)


def wrote(path: Path, more: str = "") -> None:
    """Print that a file was written."""
    out.print(Text.assemble("wrote ", cell(path, "bold"), more), soft_wrap=True)


def working(words: str) -> None:
    """Tell a person at a terminal what takes seconds now."""
    if notes.is_terminal:
        notes.print(cell(f"{words} …", "dim"))


def warn(words: object) -> None:
    """Print a warning on standard error."""
    complain("warning: ", words, "yellow")


def complain(title: str, words: object, style: str) -> None:
    """Print one line on standard error: `title` in the colour `style`, then `words`, shortened."""
    line = visible(shortened(str(words)))
    notes.print(Text.assemble((title, style), line), soft_wrap=True)


def print_json(content: object) -> None:
    """Print indented JSON on standard output; letters that it cannot show are escaped."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(content, ensure_ascii=not unicode, indent=2)
    sys.stdout.write(text.encode("utf-8", "replace").decode() + "\n")


def open_output() -> None:
    """Make standard output one that every character can be written to.

    What its encoding does not have becomes a question mark. Where it was closed by the caller,
    nothing is shown.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper) and name == "stdout":
            stream.reconfigure(errors="replace")


def close_output() -> None:
    """Write what is left; an OSError where standard output does not take it."""
    try:
        sys.stdout.flush()
    except OSError:
        drop_output()
        raise


def drop_output() -> None:
    """Forget what could not be written, so that Python does not complain of it at its end."""
    with suppress(OSError, ValueError):  # a stream of a notebook or a test has no number
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Tick(Protocol):
    """Called by long work after each step: how many steps are done, and a word for them."""

    def __call__(self, done: int, words: str = "") -> None: ...


def silent(done: int, words: str = "") -> None:
    """A tick that shows nothing."""


@contextmanager
def progress_bar(title: str, total: int, *, show: bool = True) -> Iterator[Tick]:
    """A bar of `total` steps on standard error or in a notebook, and the tick that moves it.

    Nothing is shown when standard error is neither, or when `show` is false. Where the environment
    says so (`PROGRESS`), every step is a line of JSON on standard error instead.
    """
    console = Console(stderr=True)
    if show and os.environ.get(PROGRESS) == "lines":
        yield lambda done, words="": progress_line(title, done, total, words)
    elif show and console.is_jupyter:
        with _notebook_bar(title, total) as tick:
            yield tick
    elif show and console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=32),
            TextColumn("{task.completed}/{task.total} {task.fields[words]}"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(title, total=total, words="")
            yield lambda done, words="": bar.update(task, completed=done, words=words)
    else:
        yield silent


@contextmanager
def _notebook_bar(title: str, total: int) -> Iterator[Tick]:
    """A bar in a notebook: HTML that replaces itself and is empty at the end.

    The bar of rich would need ipywidgets there, and leaves blank lines behind.
    """
    from IPython.display import display

    def bar(done: int, words: str) -> dict[str, str]:
        told = escape(f"{title} {done}/{total} {words}")
        html = f'<progress value="{done}" max="{total}"></progress> {told}'
        return {"text/html": html, "text/plain": ""}

    shown = display(bar(0, ""), raw=True, display_id=True)
    last = 0.0

    def tick(done: int, words: str = "") -> None:
        nonlocal last
        if time.monotonic() - last >= SECONDS_BETWEEN:
            last = time.monotonic()
            shown.update(bar(done, words), raw=True)

    try:
        yield tick
    finally:
        shown.update({"text/html": "", "text/plain": ""}, raw=True)


def progress_line(title: str, done: int, total: int, words: str) -> None:
    """Tell the program that started this one how far it is, where the environment says so."""
    if os.environ.get(PROGRESS) != "lines":
        return
    step = {"title": title, "done": done, "total": total, "words": words}
    sys.stderr.write(f"{PROGRESS_LINE}{json.dumps(step)}\n")
    sys.stderr.flush()
