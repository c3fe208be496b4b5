"""Tables and panels for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from counterveil.privacy import Level, Statement
from counterveil.report.html import VeilScore
from counterveil.search.explanations import Explanations
from counterveil.search.wording import pixel_columns, show_both
from counterveil.terminal import cell, visible

MOST_LINES = 20


def statement_panel(statement: Statement) -> Panel:
    """The privacy statement in a frame; red where nothing is guaranteed."""
    colour = "red" if statement.level is Level.NONE else "green"
    return Panel(
        Text("\n".join(visible(line) for line in statement.text().splitlines())),
        title=f"[bold]privacy statement · guarantee: {statement.level.value}",
        border_style=colour,
    )


def score_table(scores: Sequence[VeilScore], title: str) -> Table:
    """How well the demo's rows were explained with each veil."""
    table = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False
    )
    for heading in ("mechanism", "noise", "promise"):
        table.add_column(heading, no_wrap=True)
    for heading in ("flip ratio", "distance", "legal", "ms/query"):
        table.add_column(heading, justify="right", no_wrap=True)
    for score in scores:
        numbers = f"{score.flip_ratio:.3f}", f"{score.distance:.2f}", f"{score.legal:.3f}"
        milliseconds = f"{1000 * score.seconds_per_query:.2f}"
        table.add_row(score.mechanism, score.noise, score.promise, *numbers, milliseconds)
    return table


def explanation_table(result: Explanations, query: int) -> RenderableType:
    """What would have to change for one query, answer by answer: column, from, to."""
    ranks = [rank for rank in range(result.k) if result.valid[result.at(query, rank)]]
    if not ranks:
        return cell(f"query {query}: {result.text(query)}")
    return Group(*(part for rank in ranks for part in _answer(result, query, rank)))


def _answer(result: Explanations, query: int, answer: int) -> tuple[RenderableType, ...]:
    at = result.at(query, answer)
    now, goal = result.classes_of(query, answer)
    title = (
        f"query {query}{f', answer {answer}' if result.k > 1 else ''}: {now} → {goal} "
        f"(probability {result.probability[at]:.2f}, distance {result.distance[at]:.2f})"
    )
    if pixel_columns(result.schema):
        return cell(title), cell(result.text(query, answer))
    table = Table("change", "from", "to")
    changes = result.changes_of(query, answer)
    for column, *values in changes[:MOST_LINES]:
        before, after = show_both(*values)
        table.add_row(cell(column), cell(before), cell(after, "bold"))
    if len(changes) > MOST_LINES:
        table.add_row(f"… and {len(changes) - MOST_LINES} more", "", "")
    return cell(title, "bold"), table
