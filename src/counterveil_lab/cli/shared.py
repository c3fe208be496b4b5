"""What the commands of `counterveil-lab` share: the app, options, messages and refusals."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from counterveil.cli.options import option

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Measure counterveil: every experiment by name, results stored with command and commit.",
)
notes = Console(stderr=True)
OUT = option(Path("results"), "Where results go.", "--out")
QUICK = option(False, "Toy size, to see it work; stored in the folder `quick`, apart.", "--quick")
OVERWRITE = option(False, "Replace rows of earlier code; a backup is kept.", "--overwrite")
PAGE = "The page: one HTML file."


def listed(words: str | None) -> tuple[str, ...] | None:
    """`a,b` as names; None as it is."""
    names = [word.strip() for word in (words or "").split(",")]
    return tuple(name for name in names if name) or None


@contextmanager
def one_line_errors() -> Iterator[None]:
    """What the user got wrong is one line and exit status 2."""
    from counterveil.errors import InputError

    try:
        yield
    except InputError as error:
        refuse(str(error))
    except ModuleNotFoundError as error:
        refuse(f"the lab needs {error.name}: pip install 'counterveil[lab]'")


def folder_of(out: Path, *, quick: bool) -> Path:
    """Where rows go: those of a quick look never stand among stored rows."""
    return out / "quick" if quick else out


def refuse(words: str) -> NoReturn:
    notes.print(f"[red]error:[/red] {escape(words)}", highlight=False, soft_wrap=True)
    raise typer.Exit(2) from None


def say(words: str) -> None:
    notes.print(f"[dim]·[/dim] {words}", highlight=False)
