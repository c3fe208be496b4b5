"""The `counterveil-lab` command: run experiments, store results."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Measure counterveil: every experiment by name, results stored with command and commit.",
)
notes = Console(stderr=True)


@app.command("list")
def list_experiments() -> None:
    """The experiments there are."""
    from counterveil_lab.experiments import EXPERIMENTS

    for name, run in EXPERIMENTS.items():
        words = (sys.modules[run.__module__].__doc__ or "").splitlines()[0]
        sys.stdout.write(f"{name:16} {words}\n")


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="An experiment; see `counterveil-lab list`.")],
    seeds: Annotated[int, typer.Option(min=1, help="How many repetitions.")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="Toy size, to see it work.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = 2,
    folder: Annotated[Path, typer.Option("--out", help="Where results go.")] = Path("results"),
) -> None:
    """Run an experiment; a run that was cut short goes on where it stopped."""
    from counterveil_lab.experiments import EXPERIMENTS

    if name not in EXPERIMENTS:
        notes.print(
            f"[red]error:[/red] no experiment {name!r}; there are: {', '.join(EXPERIMENTS)}"
        )
        raise typer.Exit(2)
    size = " --quick" if quick else ""
    command = f"counterveil-lab run {shlex.quote(name)} --seeds {seeds}{size}"
    EXPERIMENTS[name](folder, command, seeds=seeds, quick=quick, workers=workers, say=_say)
    notes.print(f"stored in {folder}/{name}.json and .csv")


@app.command()
def bench(
    name: Annotated[
        str,
        typer.Argument(
            help="release: reading and counting over rows. search: time and quality of answers "
            "beside other methods, on one core. gpu: answers a second of a CUDA device."
        ),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Toy size, to see it work.")] = False,
    only: Annotated[
        str | None,
        typer.Option(
            help="search: one part of it, into files of its own: "
            "peers, batch, features, floor, boosted or objective."
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="search: repetitions of what peers says of quality.")
    ] = 1,
    inputs: Annotated[
        Path | None,
        typer.Option(
            help="gpu: a folder with veil, model and queries; left there if there are none yet, "
            "for a machine that can release nothing."
        ),
    ] = None,
    folder: Annotated[Path, typer.Option("--out", help="Where results go.")] = Path("results"),
) -> None:
    """Run a benchmark."""
    from counterveil.errors import InputError
    from counterveil_lab.bench import BENCHMARKS

    if name not in BENCHMARKS:
        notes.print(f"[red]error:[/red] no benchmark {name!r}; there are: {', '.join(BENCHMARKS)}")
        raise typer.Exit(2)
    if name != "search" and (only is not None or seeds > 1):
        notes.print("[red]error:[/red] --only and --seeds are for the benchmark search")
        raise typer.Exit(2)
    if name != "gpu" and inputs is not None:
        notes.print("[red]error:[/red] --inputs is for the benchmark gpu")
        raise typer.Exit(2)
    stem = f"bench-{name}" + (f"-{only}" if only else "")
    options: dict[str, Any] = {"search": {"only": only, "seeds": seeds}, "gpu": {"inputs": inputs}}
    command = f"counterveil-lab bench {shlex.quote(name)}{' --quick' if quick else ''}"
    command += f" --only {shlex.quote(only)}" if only else ""
    command += f" --seeds {seeds}" if seeds > 1 else ""
    try:
        BENCHMARKS[name](folder, command, quick=quick, say=_say, **options.get(name, {}))
    except InputError as error:
        notes.print(f"[red]error:[/red] {error}", highlight=False)
        raise typer.Exit(2) from None
    notes.print(f"stored in {folder}/{stem}.json and .csv")


def _say(words: str) -> None:
    notes.print(f"[dim]·[/dim] {words}", highlight=False)


def main() -> None:
    """Run the command."""
    app()
