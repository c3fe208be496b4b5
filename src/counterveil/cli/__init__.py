"""The `counterveil` command.

Exit codes: 0 done; 1 an audit refuted a promise, a veil is not what its record gives, a certificate
was refused, or rows were left out; 2 something given is wrong (one line on standard error says what
and how to mend it); 3 a fault of counterveil itself; 130 interrupted; 141 whoever reads the output
has stopped reading.
"""

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import typer

from counterveil.cli.audit import audit
from counterveil.cli.explain import explain
from counterveil.cli.fairness import fairness
from counterveil.cli.inspect import inspect
from counterveil.cli.keys import keys_app
from counterveil.cli.ledger import ledger_app
from counterveil.cli.model import model_app
from counterveil.cli.options import command, manual, option, seed_option, with_groups
from counterveil.cli.private import check, release, schema_app
from counterveil.cli.serve import serve, studio
from counterveil.cli.summary import summary
from counterveil.cli.verify import verify
from counterveil.errors import (
    CounterveilWarning,
    InputError,
    InternalError,
    fault_of,
    shortened,
)
from counterveil.terminal import close_output, complain, drop_output, open_output, warn

__all__ = ["app", "main"]

# What the system says of files that the user named, not of a fault here.
OF_THE_SYSTEM = {
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM),
}
_PLAIN = warnings.showwarning
CLOSED_PIPE = 141  # as the shell reports a program that was ended by it
UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # of the click that typer has inside

# Torch takes seconds to load: each command imports what it needs, so that --help answers at once.

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Explain model decisions by counterfactuals without leaking the training rows.\n\n"
    "The private side reads the rows and turns them into a veil, once ([b]schema draft[/b], "
    "[b]check[/b], [b]release[/b], with [b]ledger[/b] to account for it; all of it on a page: "
    "[b]studio[/b]). The public side needs "
    "the veil and the model only ([b]inspect[/b], [b]explain[/b], [b]fairness[/b], [b]summary[/b], "
    "[b]verify[/b], [b]serve[/b]); a veil also "
    "holds a private model of its own ([b]model[/b]). Veils are signed with [b]keys[/b].\n\n"
    "New here? Run [b]counterveil demo[/b].",
    epilog="[b]Exit codes[/b] 0 done; 1 an audit refuted a promise, a veil is not what its "
    "record gives, a certificate was refused, or rows were left out; 2 something given is wrong, "
    "one line says what; 3 a fault of counterveil; 130 interrupted.",
)
app.add_typer(schema_app, name="schema")
app.add_typer(model_app, name="model")
app.add_typer(ledger_app, name="ledger")
app.add_typer(keys_app, name="keys")
MANUALS: dict[Callable[..., None], str] = {
    check: manual(
        "the private rows, exactly. Writes nothing but a line in the ledger.",
        "check --data loans.csv --schema loans.schema.json",
    ),
    release: manual(
        "the private rows. Writes the veil, and the charge in the ledger.",
        "release --data loans.csv --schema loans.schema.json --epsilon 0.75 --dry-run",
        "release --data loans.csv --schema loans.schema.json --epsilon 0.75 --ledger ledger.db "
        "--dataset loans --out loans.veil",
    ),
    inspect: manual(
        "the veil alone, no private rows.",
        "inspect loans.veil",
        "inspect loans.veil --trust office.pub --json",
        "inspect loans.veil --recompute",
        codes="0 done; 1 what was computed anew is not equal",
    ),
    explain: manual(
        "the veil, the model and the rows that you ask about; no private rows.",
        "explain --veil loans.veil --model model.pt2 --queries people.csv --target granted "
        "--immutable sex --out answers.csv --report answers.html",
        "explain --veil loans.veil --queries people.xlsx --where id=17 --k 3",
        "explain --veil loans.veil --where age=39 --where income=2500 --where housing=rent",
        codes="0 done; 1 some rows were left out, a line for each says why",
    ),
    summary: manual(
        "the veil and the model; no private rows, unless --queries has some.",
        "summary --veil loans.veil --model model.pt2 --target granted --groups sex",
        "summary --veil loans.veil --queries refused.csv --out actions.html",
    ),
    verify: manual(
        "the certificates, the veil, the model and the rows that they are about; no private rows.",
        "verify query-1.json --veil loans.veil --model model.pt2 --query people.csv --trust "
        "office.pub",
        codes="0 every certificate holds; 1 one was refused",
    ),
    fairness: manual(
        "the veil and the model; with --data a table of people, exactly.",
        "fairness --veil loans.veil --model model.pt2 --groups sex,race --target granted "
        "--out fairness.html",
        "fairness --veil loans.veil --groups sex --target granted --data people.csv",
    ),
    serve: manual(
        "the veil, the model and the rows that it is asked about; no private rows.",
        "serve --veil loans.veil --model model.pt2",
        "serve --veil loans.veil --keys keys.db --host 0.0.0.0 --name example.org",
    ),
    studio: manual(
        "the private rows of the tables in the folder. Writes schemas, veils and reports there.",
        "studio --folder tables",
    ),
    audit: manual(
        "no rows of yours: it makes its own.",
        "audit --quick",
        "audit --mechanism functional --epsilon 1 --out audit.json",
        codes="0 no promise was refuted; 1 one was, or a known fault was not caught",
    ),
}
for function, words in MANUALS.items():
    app.command(epilog=words)(with_groups(function))


def _show_version(wanted: bool) -> None:
    if wanted:
        from counterveil import __version__

        sys.stdout.write(f"counterveil {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = option(False, "And exit.", "--version", is_eager=True, callback=_show_version),
) -> None:
    pass


@command(app, "demo", "embedded public data alone.", "demo", "demo --out demo --queries 50")
def demo(
    folder: Path = option(Path("demo"), "Where the results go.", "--out"),
    quick: bool = option(False, "Fewer rows and epochs, to see that it works.", "--quick"),
    queries: int | None = option(None, "How many rows to explain. [500; quick: 100]", min=3),
    epochs: int | None = option(
        None, "Epochs a veil of mechanism paper; the paper has 300. [40; quick: 5]", min=1
    ),
    seed: int = seed_option("For split, weights and search."),
    workers: int = option(2, "Processes at a time.", min=1),
) -> None:
    """See it work: embedded census data, a model, veils over ε, explanations, report.html."""
    from counterveil.demo.run import run_demo
    from counterveil.files import check_output

    check_output(folder / "report.html")
    # Of mechanism paper, 30 epochs flip fewer rows, and 60 a few more.
    usual = (100, 5) if quick else (500, 40)
    size = {"queries": queries or usual[0], "epochs": epochs or usual[1]}
    run_demo(folder, **size, seed=seed, workers=workers)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit; every expected error is one line and exit code 2."""
    open_output()
    warnings.showwarning = _show_warning
    try:
        code = _run(arguments)
        close_output()
    except SystemExit as done:
        if _is_closed_pipe(done):
            drop_output()
            sys.exit(CLOSED_PIPE)
        raise
    except OSError as error:
        if _is_closed_pipe(error):
            sys.exit(CLOSED_PIPE)
        _end(2, "error: ", f"cannot write to standard output: {error.strerror}")
    sys.exit(code)


def _show_warning(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
    """Warnings of counterveil are lines for people; those of others are as Python shows them."""
    if issubclass(category, CounterveilWarning):
        warn(message)
    else:
        _PLAIN(message, category, *where, **more)


def _run(arguments: Sequence[str] | None) -> int:
    """The exit code of the command; whatever went wrong has been said."""
    try:
        code = int(app(args=arguments, standalone_mode=False) or 0)
        if code == 130:  # an interrupt that typer has caught
            _end(130, "interrupted")
        return code
    except UsageError as error:
        _refuse_usage(error)
    except InputError as error:
        _end(2, "error: ", error)
    except InternalError as error:
        _end(3, "fault of counterveil: ", error)
    except (KeyboardInterrupt, typer.Abort):
        _end(130, "interrupted")
    except Exception as error:
        if isinstance(error, OSError) and error.errno in OF_THE_SYSTEM:
            name = error.filename if isinstance(error.filename, str) else "a file"
            _end(2, "error: ", f"the system refused {name}: {error.strerror}")
        if os.environ.get("COUNTERVEIL_DEBUG"):
            traceback.print_exc()
        remedy = "with what COUNTERVEIL_DEBUG=1 shows if that holds nothing private"
        _end(3, "fault of counterveil: ", f"{fault_of(error)}; please report it, {remedy}")


def _refuse_usage(error: Any) -> NoReturn:
    """Say in one line what is wrong with the words of the command, and end with 2."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        sys.exit(2)
    context = error.ctx
    remedy = "" if context is None else f"; see {context.command_path} --help"
    words = error.format_message().strip().rstrip(".")
    _end(2, "error: ", shortened(f"{words[:1].lower()}{words[1:]}") + remedy)


def _is_closed_pipe(error: BaseException) -> bool:
    """Whether a closed pipe is behind `error`: typer and rich turn one into exit code 1."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, BrokenPipeError):
        cause = cause.__context__
    return cause is not None


def _end(code: int, title: str, words: object = "") -> NoReturn:
    complain(title, words, "yellow" if code == 130 else "red")
    sys.exit(code)
