"""The `counterveil-lab` command: run experiments, store results."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from counterveil_lab.attacks.command import attack

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Measure counterveil: every experiment by name, results stored with command and commit.",
)
notes = Console(stderr=True)

app.command()(attack)


@app.command("list")
def list_experiments() -> None:
    """The experiments there are."""
    from counterveil_lab.experiments import EXPERIMENTS, headline

    for name in EXPERIMENTS:
        sys.stdout.write(f"{name:20} {headline(name)}\n")
    sys.stdout.write(f"{'all':20} every one of them, one after the other\n")


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="An experiment of `counterveil-lab list`, or all.")],
    seeds: Annotated[int, typer.Option(min=1, help="How many repetitions.")] = 3,
    quick: Annotated[
        bool, typer.Option("--quick", help="Toy size, to see it work; one repetition.")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = 2,
    folder: Annotated[Path, typer.Option("--out", help="Where results go.")] = Path("results"),
    data: Annotated[
        Path | None, typer.Option(help="The folder of datasets, instead of COUNTERVEIL_DATA.")
    ] = None,
    datasets: Annotated[
        str | None, typer.Option(help="Only these, separated by commas; parts add up in one file.")
    ] = None,
    mechanisms: Annotated[
        str | None,
        typer.Option(help="Only these, separated by commas; in tables also cadex, vae, dice."),
    ] = None,
    add: Annotated[
        bool, typer.Option("--add", help="Keep stored rows of other commits and commands too.")
    ] = False,
    cache: Annotated[
        Path | None,
        typer.Option(help="Keep target models and veils here for the next command; empty it "
                     "when the code changes."),
    ] = None,
) -> None:  # fmt: skip
    """Run an experiment; a run that was cut short goes on where it stopped."""
    from counterveil.errors import InputError
    from counterveil_lab.experiments.command import Options, listed, run_named
    from counterveil_lab.experiments.runner import CasesFailed

    options = Options(
        folder, seeds, quick, workers, listed(datasets), listed(mechanisms), add, data, cache
    )
    try:
        failures = run_named(name, options, _say)
    except InputError as error:
        notes.print(f"[red]error:[/red] {error}", highlight=False)
        raise typer.Exit(2) from None
    except CasesFailed as error:
        failures = {name: str(error)}
    for failed, reason in failures.items():
        notes.print(f"[red]failed:[/red] {failed}: {reason}", highlight=False)
    if failures:
        raise typer.Exit(1)
    notes.print(f"stored in {folder}")


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
    datasets: Annotated[
        str | None,
        typer.Option(help="search: only these in objective, separated by commas."),
    ] = None,
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
    if name != "search" and (only is not None or seeds > 1 or datasets is not None):
        notes.print("[red]error:[/red] --only, --seeds and --datasets are for the benchmark search")
        raise typer.Exit(2)
    if name != "gpu" and inputs is not None:
        notes.print("[red]error:[/red] --inputs is for the benchmark gpu")
        raise typer.Exit(2)
    stem = f"bench-{name}" + (f"-{only}" if only else "")
    chosen = tuple(datasets.split(",")) if datasets else None
    options: dict[str, Any] = {
        "search": {"only": only, "seeds": seeds, "datasets": chosen},
        "gpu": {"inputs": inputs},
    }
    command = f"counterveil-lab bench {shlex.quote(name)}{' --quick' if quick else ''}"
    command += f" --only {shlex.quote(only)}" if only else ""
    command += f" --seeds {seeds}" if seeds > 1 else ""
    command += f" --datasets {shlex.quote(datasets)}" if datasets else ""
    try:
        BENCHMARKS[name](folder, command, quick=quick, say=_say, **options.get(name, {}))
    except InputError as error:
        notes.print(f"[red]error:[/red] {error}", highlight=False)
        raise typer.Exit(2) from None
    notes.print(f"stored in {folder}/{stem}.json and .csv")


@app.command()
def report(
    folder: Annotated[Path, typer.Option("--results", help="Stored results.")] = Path("results"),
    page: Annotated[Path, typer.Option("--out", help="The page: one HTML file.")] = Path(
        "results/report.html"
    ),
    docs: Annotated[
        Path | None,
        typer.Option(
            help="The documentation: also write results.md in this folder, and make the tables "
            "anew that README.md beside it and its pages quote."
        ),
    ] = None,
) -> None:
    """All stored results on one page, beside what the paper prints; nothing is measured."""
    from counterveil.errors import InputError
    from counterveil_lab.report.page import write

    if not folder.is_dir():
        notes.print(f"[red]error:[/red] no folder {folder}; say --results FOLDER", highlight=False)
        raise typer.Exit(2)
    try:
        written = write(folder, page, docs)
    except InputError as error:
        notes.print(f"[red]error:[/red] {error}", highlight=False)
        raise typer.Exit(2) from None
    for line in written:
        _say(line)


def _say(words: str) -> None:
    notes.print(f"[dim]·[/dim] {words}", highlight=False)


def main() -> None:
    """Run the command."""
    app()
