"""Tables and panels for the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from counterveil.console import cell, visible
from counterveil.privacy import Level, Statement
from counterveil.schema import Pixels
from counterveil.search.result import Explanations, Status, show_both

MOST_LINES = 20


def statement_panel(statement: Statement) -> Panel:
    """The privacy statement in a frame; red where nothing is guaranteed."""
    colour = "red" if statement.level is Level.NONE else "green"
    return Panel(
        Text("\n".join(visible(line) for line in statement.text().splitlines())),
        title=f"[bold]privacy statement · guarantee: {statement.level.value}",
        border_style=colour,
    )


def explanation_table(result: Explanations, query: int) -> RenderableType:
    """What would have to change for one query: column, from, to."""
    status = result.status[query]
    if status != Status.FOUND.value:
        return cell(f"query {query}: {result.text(query)}")
    now = result.schema.label.classes[result.predicted[query]]
    goal = result.schema.label.classes[result.target[query]]
    title = (
        f"query {query}: {now} → {goal} "
        f"(probability {result.probability[query]:.2f}, distance {result.distance[query]:.2f})"
    )
    if any(isinstance(feature, Pixels) for feature in result.schema.features):
        return Group(cell(title), cell(result.text(query)))
    table = Table("change", "from", "to")
    changes = result.changes_of(query)
    for column, *values in changes[:MOST_LINES]:
        before, after = show_both(*values)
        table.add_row(cell(column), cell(before), cell(after, "bold"))
    if len(changes) > MOST_LINES:
        table.add_row(f"… and {len(changes) - MOST_LINES} more", "", "")
    return Group(cell(title, "bold"), table)
