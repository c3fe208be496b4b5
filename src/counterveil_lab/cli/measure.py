"""Experiments, and the report of what they stored."""

import os
import sys
from pathlib import Path

import typer
from rich.console import Console

from counterveil.cli.options import option
from counterveil_lab.cli.shared import (
    OUT,
    OVERWRITE,
    PAGE,
    QUICK,
    app,
    folder_of,
    listed,
    notes,
    one_line_errors,
    refuse,
    say,
)

NAMES = option(None, "Only these, separated by commas.")
PAPER_EPOCHS = (
    "Train mechanism paper for so many epochs. The published ones are 300 on tables, 30 on images "
    "and 500 on sets of bits: without a GPU very long for the last."
)
DOCS = (
    "The documentation: also write results.md in this folder, and make the tables anew that "
    "README.md beside it and its pages quote."
)


@app.command("list")
def list_experiments() -> None:
    """The experiments there are: what each reproduces, and about how long it takes on two cores."""
    from counterveil_lab.experiments.table import EXPERIMENTS
    from counterveil_lab.report.frames import SECTIONS

    known = {each["name"]: each for chapter in SECTIONS["chapter"] for each in chapter["section"]}
    for name, experiment in EXPERIMENTS.items():
        place, takes = (known.get(name, {}).get(key, "") for key in ("place", "takes"))
        sys.stdout.write(f"{name:20} {place:18} {takes:13} {experiment.about}\n")
    sys.stdout.write(f"{'all':20} {'':18} {'a day':13} every one of them, one after the other\n")


@app.command()
def holes() -> None:
    """Run the counter-examples to the published proof (docs/soundness.md) and print them."""
    from rich.table import Table

    from counterveil_lab.holes import findings

    table = Table("hole", "claim", "measured", "claim stands")
    for found in findings():
        table.add_row(found.hole, found.claim, found.measured, "yes" if found.holds else "no")
    Console().print(table)


@app.command()
def run(
    name: str = typer.Argument(help="An experiment of `counterveil-lab list`, or all."),
    seeds: int = option(3, "How many repetitions.", min=1),
    quick: bool = QUICK,
    workers: int = option(2, "Processes at a time.", min=1),
    folder: Path = OUT,
    data: Path | None = option(None, "The folder of datasets, instead of COUNTERVEIL_DATA."),
    datasets: str | None = NAMES,
    mechanisms: str | None = NAMES,
    overwrite: bool = OVERWRITE,
    cache: Path | None = option(
        None, "Keep models and veils here for later; empty it when the code changes."
    ),
    paper_epochs: int | None = option(None, PAPER_EPOCHS, min=1),
) -> None:
    """Run an experiment; what the present code has measured is not measured again.

    With --datasets and --mechanisms (in tables also cadex, vae, dice) parts add up in one file.
    """
    from counterveil_lab.experiments.runner import CasesFailed, Options
    from counterveil_lab.experiments.table import run_named

    folder, chosen = folder_of(folder, quick=quick), (listed(datasets), listed(mechanisms))
    again = overwrite or quick
    options = Options(folder, seeds, quick, workers, *chosen, again, data, cache, paper_epochs, say)
    with one_line_errors():
        try:
            failures = run_named(name, options)
        except CasesFailed as error:
            failures = {name: str(error)}
    for failed, reason in failures.items():
        notes.print(f"[red]failed:[/red] {failed}: {reason}", highlight=False)
    if failures:
        raise typer.Exit(1)
    notes.print(f"stored in {folder}")


@app.command("train-paper")
def train_paper(
    datasets: str = option(..., "These datasets, separated by commas."),
    cache: Path = option(..., "Leave veils here; give the same folder to `run`."),
    seeds: int = option(3, "How many repetitions.", min=1),
    epsilons: str = option("0.025,0.75", "These ε, separated by commas; none: without noise."),
    device: str = option("auto", "cpu, cuda, mps, or auto for the best there is."),
) -> None:
    """Train mechanism paper for many seeds and ε as one batched model, best on a GPU."""
    from counterveil.networks import pick_device
    from counterveil_lab.datasets import LOADERS
    from counterveil_lab.experiments import batched_paper, releases

    names = listed(datasets) or ()
    for name in names:
        if name not in LOADERS:
            refuse(f"no dataset {name!r}; there are: {', '.join(LOADERS)}")
    try:
        none = releases.NO_NOISE
        chosen = [none if word == none else float(word) for word in listed(epsilons) or ()]
    except ValueError:
        refuse(f"--epsilons {epsilons}: numbers separated by commas, or none for no noise")
    os.environ[releases.CACHE] = str(cache)
    with one_line_errors():
        for name in names:
            made = batched_paper.leave_veils(name, seeds, chosen, pick_device(device), say)
            say(f"{name}: {made} veils trained")


@app.command()
def report(
    folder: Path = option(Path("results"), "Stored results.", "--results"),
    page: Path = option(Path("results/report.html"), PAGE, "--out"),
    docs: Path | None = option(None, DOCS),
) -> None:
    """All stored results on one page, beside what the paper prints; nothing is measured."""
    from counterveil_lab.report.page import write

    if not folder.is_dir():
        refuse(f"no folder {folder}; say --results FOLDER")
    with one_line_errors():
        for line in write(folder, page, docs):
            say(line)


@app.command()
def show(
    name: str = typer.Argument(help="An experiment with stored rows."),
    folder: Path = option(Path("results"), "Stored results.", "--results"),
) -> None:
    """Print all tables of an experiment as Markdown."""
    from counterveil_lab.report.page import show as tables_as_text

    with one_line_errors():
        sys.stdout.write(tables_as_text(folder, name) + "\n")


@app.command()
def export(
    name: str = typer.Argument(help="An experiment with stored rows."),
    out: Path = option(..., "The table to write, .csv."),
    folder: Path = option(Path("results"), "Stored results.", "--results"),
) -> None:
    """Write the rows of an experiment as CSV."""
    import pandas as pd

    from counterveil_lab.results import PICTURES, stored_rows

    with one_line_errors():
        rows = stored_rows(folder, name)
    if not rows:
        there = ", ".join(sorted(path.stem for path in folder.glob("*.parquet")))
        refuse(f"no rows of {name!r} in {folder}; there are: {there or 'none'}")
    table = pd.DataFrame(rows).drop(columns=PICTURES, errors="ignore")
    table.to_csv(out, index=False)
    notes.print(f"{len(table)} rows written to {out}")


@app.command("import")
def import_rows(
    files: list[Path] = typer.Argument(help="JSON files, as `counterveil audit --out` writes."),
    overwrite: bool = OVERWRITE,
    folder: Path = OUT,
) -> None:
    """Store rows that another command wrote as JSON."""
    from counterveil_lab.results import begin_anew, rows_of_json, write

    with one_line_errors():
        for path in files:
            name, rows = rows_of_json(path)
            begin_anew(folder, name, overwrite=overwrite)
            write(folder / f"{name}.parquet", rows)
            say(f"{len(rows)} rows stored in {folder}/{name}.parquet")
