"""The `counterveil demo` command: the whole way on embedded data."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from counterveil.console import MOST_SEED, cell, notes, out, say


def demo(
    folder: Annotated[Path, typer.Option("--out", help="Where the results go.")] = Path("demo"),
    queries: Annotated[int, typer.Option(min=3, help="How many rows to explain.")] = 500,
    epochs: Annotated[
        int, typer.Option(min=1, help="Epochs a veil of mechanism paper; the paper has 300.")
    ] = 60,
    warm_steps: Annotated[
        int | None, typer.Option(min=1, help="Steps in which the search is learnt, at most.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="For split, weights and search.")
    ] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = 2,
) -> None:
    """See it work: embedded census data, a model, veils over ε, explanations, report.html."""
    from counterveil.demo.run import run_demo
    from counterveil.files import check_output
    from counterveil.report import explanation_table

    check_output(folder / "report.html")
    outcome = run_demo(
        folder,
        queries=queries,
        epochs=epochs,
        warm_steps=warm_steps,
        seed=seed,
        workers=workers,
        say=lambda words: notes.print(cell(f"· {words}", "dim")),
    )
    table = Table(
        title=f"{queries} queries",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1),
        pad_edge=False,
    )
    for heading in ("mechanism", "noise", "promise"):
        table.add_column(heading, no_wrap=True)
    for heading in ("flip ratio", "distance", "legal", "ms/query"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in outcome.measurements:
        table.add_row(line.mechanism, line.name, line.promise, f"{line.flip_ratio:.3f}",
                      f"{line.distance:.2f}", f"{line.legal:.3f}",
                      f"{1000 * line.seconds_per_query:.2f}")  # fmt: skip
    out.print(table)
    for query in range(len(outcome.shown)):
        out.print(explanation_table(outcome.shown, query))
    say(outcome.shown.statement.headline, "dim")
    say(f"report: {outcome.report}")
    veil, model, asked = (
        shlex.quote(str(folder / name)) for name in ("adult-0.75.veil", "model.pt2", "queries.csv")
    )
    say(f"next:   counterveil inspect {veil}")
    say(f"        counterveil explain --veil {veil} --model {model} --queries {asked} "
        "--target '>50K'")  # fmt: skip
