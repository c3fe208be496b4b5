"""Tables and panels for the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from counterveil.privacy import Level, Statement
from counterveil.schema import Pixels
from counterveil.search.result import Explanations, Status, show

MOST_LINES = 20


def statement_panel(statement: Statement) -> Panel:
    """The privacy statement in a frame; red where nothing is guaranteed."""
    colour = "red" if statement.level is Level.NONE else "green"
    return Panel(
        Text(statement.text()),
        title=f"[bold]privacy statement · guarantee: {statement.level.value}",
        border_style=colour,
    )


def explanation_table(result: Explanations, query: int) -> RenderableType:
    """What would have to change for one query: column, from, to."""
    status = result.status[query]
    if status != Status.FOUND.value:
        return Text(f"query {query}: {result.text(query)}")
    now = result.schema.label.classes[result.predicted[query]]
    goal = result.schema.label.classes[result.target[query]]
    title = (
        f"query {query}: {now} → {goal} "
        f"(probability {result.probability[query]:.2f}, distance {result.distance[query]:.2f})"
    )
    if any(isinstance(feature, Pixels) for feature in result.schema.features):
        return Text(f"{title}\n{result.text(query)}")
    table = Table("change", "from", "to")
    changes = result.changes_of(query)
    for column, before, after in changes[:MOST_LINES]:
        table.add_row(column, show(before), Text(show(after), style="bold"))
    if len(changes) > MOST_LINES:
        table.add_row(f"… and {len(changes) - MOST_LINES} more", "", "")
    return Group(Text(title, style="bold"), table)
