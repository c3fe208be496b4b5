"""Progress of long work, shown on the terminal and silent everywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


class Tick(Protocol):
    """Called by long work after each step: how many steps are done, and a word for them."""

    def __call__(self, done: int, words: str = "") -> None: ...


def silent(done: int, words: str = "") -> None:
    """A tick that nobody sees."""


@contextmanager
def progress_bar(title: str, total: int, *, show: bool = True) -> Iterator[Tick]:
    """A bar on standard error, or in a notebook; nothing where there is neither."""
    console = Console(stderr=True) if show else None
    if console is None or not (console.is_terminal or console.is_jupyter):
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
