"""The terminal: what commands print. Names and paths are shown as they are, never as markup."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

out = Console()
notes = Console(stderr=True)

MOST_SEED = 2**31 - 1

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, mps, or auto for the best there is.")]


def visible(words: str) -> str:
    """Without line breaks and other characters that could steer the terminal."""
    return "".join(letter if letter.isprintable() else "�" for letter in words)


def cell(words: object, style: str = "") -> Text:
    """A name or value for a table."""
    return Text(visible(str(words)), style=style)


def say(words: object, style: str = "") -> None:
    """A line on standard output."""
    out.print(cell(words, style), soft_wrap=True)


def wrote(path: Path, more: str = "") -> None:
    """That a file was written."""
    out.print(Text.assemble("wrote ", cell(path, "bold"), more), soft_wrap=True)


def warn(words: object) -> None:
    """A warning on standard error."""
    complain("warning: ", words, "yellow")


def complain(title: str, words: object, style: str) -> None:
    """One line on standard error."""
    notes.print(Text.assemble((title, style), visible(str(words))), soft_wrap=True)


def print_json(content: object) -> None:
    """Indented JSON on standard output."""
    sys.stdout.write(json.dumps(content, ensure_ascii=False, indent=2) + "\n")


def class_named(text: str, classes: Sequence[Any]) -> Any:
    """The class whose name reads `text`; an unknown one is left for others to refuse."""
    return next((name for name in classes if str(name) == text), text)
