"""The `counterveil demo` command: the whole way on embedded data."""

import shlex
from pathlib import Path

from counterveil.cli.options import option, seed_option
from counterveil.terminal import cell, notes, out, say

LEGEND = (
    "query: a row whose decision is explained; the model was not trained on it",
    "promise: whether it is proved that ε limits what the veil reveals about any one training row",
    "flip ratio: share of the queries for which a row was found that the model decides otherwise",
    "distance: mean L2 distance from query to found row, every encoded number between 0 and 1",
    "legal: share of the found rows that could stand in the table",
)


def demo(
    folder: Path = option(Path("demo"), "Where the results go.", "--out"),
    queries: int = option(500, "How many rows to explain.", min=3),
    epochs: int = option(60, "Epochs a veil of mechanism paper; the paper has 300.", min=1),
    warm_steps: int | None = option(None, "", min=1, hidden=True),  # a short demo for tests
    seed: int = seed_option("For split, weights and search."),
    workers: int = option(2, "Processes at a time.", min=1),
) -> None:
    """See it work: embedded census data, a model, veils over ε, explanations, report.html."""
    from counterveil.demo.run import run_demo
    from counterveil.files import check_output
    from counterveil.report import explanation_table, score_table

    check_output(folder / "report.html")
    scores, shown = run_demo(
        folder,
        queries=queries,
        epochs=epochs,
        warm_steps=warm_steps,
        seed=seed,
        workers=workers,
        say=lambda words: notes.print(cell(f"· {words}", "dim"), soft_wrap=True),
    )
    statement = shown.statement
    out.print(score_table(scores, f"{queries} queries, explained with five veils"))
    for words in LEGEND:
        say(words, "dim")
    say("")
    say(f"three of the answers (mechanism {statement.mechanism}, {statement.amount}):")
    for query in range(len(shown)):
        out.print(explanation_table(shown, query))
    say("probability: how likely the model finds the class after the arrow, once changed", "dim")
    say("")
    say(f"privacy of these answers: {statement.headline}; {statement.level.meaning}")
    say(f"report: {folder / 'report.html'}")
    files = (folder / name for name in ("adult-0.75.veil", "model.pt2", "queries.csv"))
    veil, model, asked = (shlex.quote(str(file)) for file in files)
    explain = f"counterveil explain --veil {veil} --model {model} --queries {asked}"
    say(f"next:   counterveil inspect {veil}")
    say(f"        {explain} --target '>50K'")
