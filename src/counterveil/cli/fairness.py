"""`counterveil fairness`: decisions and answers by groups of people."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from counterveil.cli import options
from counterveil.cli.options import OUTPUT, option
from counterveil.terminal import cell, out, print_json, say, warn, wrote

if TYPE_CHECKING:
    from counterveil.search.results.fairness import Fairness


def fairness(
    *,
    veil: options.OfVeil,
    groups: str = option(..., "The columns that tell groups: sex,race."),
    target: str = option(..., "The class that people want."),
    model: options.OfModel,
    data: Path | None = option(
        None, "A table of people, instead of people drawn from the veil: EXACT AND PRIVATE."
    ),
    changes: options.OfChanges,
    out_file: Path | None = option(
        None, "Write a page .html, everything .json, or the table .csv.", "--out", panel=OUTPUT
    ),
    as_json: bool = options.JSON,
) -> None:
    """Compare groups: who is refused, who gets an answer, and what it asks of them.

    People are drawn from the veil, which costs no ε; every number has an interval of 95 %, which
    holds the noise of the veil and what it cannot know. Where that is too wide, it says "not
    known". With --data the numbers are those of the people in a table: exact, private, and for the
    eyes of whoever may see that table.
    """
    from counterveil.tables import read_table

    options.check_outputs({"--out": out_file}, *veil.files, model.model, data, changes.rules)
    options.check_ending(out_file, ".html", ".json", ".csv")
    opened = veil.open()
    explainer = model.explainer(opened)
    people = None
    if data is not None:
        warn(
            "WHAT THIS COMMAND FINDS IS PRIVATE: exact numbers of the people in the table, which "
            "no ε covers. Keep them to those who may see the table, or leave --data out"
        )
        people = read_table(data, opened.schema)
    columns = [name.strip() for name in groups.split(",")]
    found = explainer.fairness(columns, target, people=people, **changes.said)
    if out_file is not None:
        found.save(out_file)
    if as_json:
        print_json(found.to_dict())
        return
    for of in found.choices:
        _show(found, of)
    for gap in found.gaps:
        if gap.is_sure:
            say(gap.text)
    if out_file is not None:
        wrote(out_file)
    say(found.how, "bold red" if found.exact else "dim")


def _show(found: "Fairness", of: tuple[str, ...]) -> None:
    """Decisions and answers of the groups that some columns make, a narrow table each."""
    from counterveil.search.results.fairness import ANSWERS

    whose = [measure.of for measure in found.measures]
    first = len(found.headings) - whose.count(ANSWERS)
    for columns in (range(first), (0, *range(first, len(found.headings)))):
        table = Table(title=" and ".join(of), box=SIMPLE_HEAD)
        for column in columns:
            table.add_column(found.headings[column], no_wrap=column == 1)
        for row in found.rows(of):
            table.add_row(*(cell(row[column]) for column in columns))
        out.print(table)
