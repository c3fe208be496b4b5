"""Planted faults in the product."""

import shlex
from pathlib import Path

import typer

from counterveil.cli.options import option
from counterveil_lab.cli.shared import OUT, OVERWRITE, app, notes, one_line_errors, refuse, say


@app.command()
def faults(
    names: list[str] | None = typer.Argument(None, help="Faults with these words; none: all."),
    workers: int = option(2, "Processes at a time.", min=1, max=2),
    overwrite: bool = OVERWRITE,
    folder: Path = OUT,
) -> None:
    """Plant known faults in copies of the product: does the audit catch each of them?

    The sound code plays the same games. Exit code 1: a fault was not caught, or the sound code was.
    """
    from counterveil.curator import dpsgd
    from counterveil_lab import faults as planted
    from counterveil_lab.results import Results, begin_anew

    with one_line_errors():
        dpsgd.check_installed()
        words = [name.lower() for name in names or ()]
        chosen = [
            fault
            for fault in planted.FAULTS
            if not words or any(word in fault.name.lower() for word in words)
        ]
        if not chosen:
            refuse(f"no fault is called {' or '.join(words)}; leave the name out for all")
        asked = " ".join(["counterveil-lab faults", *map(shlex.quote, names or ())])
        begin_anew(folder, "audit_faults", overwrite=overwrite)
        stored = Results(folder, "audit_faults", asked)
        stored.add(*planted.run_all(chosen, workers=workers, say=say))
    failed = planted.failures(stored.rows)
    for failure in failed:
        notes.print(f"[red]failed:[/red] {failure}", highlight=False)
    notes.print(f"stored in {folder}/audit_faults.parquet")
    if failed:
        raise typer.Exit(1)
