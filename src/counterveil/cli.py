"""The `counterveil` command.

Exit codes: 0 done; 1 an audit refuted a promise; 2 something given is wrong (one line on standard
error says what and how to mend it); 3 a fault of counterveil itself; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from counterveil.cli_audit import audit
from counterveil.cli_demo import demo
from counterveil.cli_ledger import ledger_app
from counterveil.cli_private import release, schema_app
from counterveil.cli_public import explain, inspect
from counterveil.console import complain
from counterveil.errors import InputError, InternalError

# Torch takes seconds to load: each command imports what it needs, so that --help answers at once.

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Explain model decisions by counterfactuals without leaking the training rows.\n\n"
    "The private side reads the rows and turns them into a veil, once ([b]schema draft[/b], "
    "[b]release[/b], with [b]ledger[/b] to account for it). The public side needs the veil and the "
    "model only ([b]inspect[/b], [b]explain[/b]).\n\n"
    "New here? Run [b]counterveil demo[/b].",
)
app.add_typer(schema_app, name="schema")
app.command()(release)
app.command()(inspect)
app.command()(explain)
app.add_typer(ledger_app, name="ledger")
app.command()(audit)
app.command()(demo)


def _show_version(wanted: bool) -> None:
    if wanted:
        from counterveil import __version__

        sys.stdout.write(f"counterveil {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="And exit.")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit; every expected error is one line and exit code 2."""
    try:
        app(args=arguments)
    except InputError as error:
        complain("error: ", error, "red")
        sys.exit(2)
    except InternalError as error:
        complain("fault of counterveil: ", error, "red")
        sys.exit(3)
    except KeyboardInterrupt:
        complain("interrupted", "", "yellow")
        sys.exit(130)
    except Exception as error:
        if os.environ.get("COUNTERVEIL_DEBUG"):
            traceback.print_exc()
        complain("fault of counterveil: ", _where(error), "red")
        sys.exit(3)
    except SystemExit as done:
        if done.code == 130:
            complain("interrupted", "", "yellow")
        raise


def _where(error: Exception) -> str:
    """Type and place of an unexpected error; its text may hold values of rows."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(last.filename).name}:{last.lineno}"
    return (
        f"{type(error).__name__} at {place}; please report it, with what "
        "COUNTERVEIL_DEBUG=1 shows if that holds nothing private"
    )


if __name__ == "__main__":
    main()
