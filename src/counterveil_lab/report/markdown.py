"""The report as Markdown for the documentation: the same tables and verdicts, without figures."""

from __future__ import annotations

from collections.abc import Iterable

from counterveil_lab.report import words
from counterveil_lab.report.blocks import Cell, Section, State, Table, Verdict
from counterveil_lab.report.page import Report


def markdown(report: Report, page: str) -> str:
    """The text of docs/results.md; `page` is where the HTML page with the figures lies."""
    parts = [
        f"# {words.TITLE}",
        "<!-- Written by `counterveil-lab report` from the files in results/; do not edit. -->",
        words.LEAD,
        f"The same with all figures is one HTML page, `{page}`; `counterveil-lab report` writes "
        "both.",
        "[Privacy](privacy.md) has the promises, [soundness](soundness.md) their proof, "
        "[datasets](datasets.md) the data.",
        "## At a glance",
        *glance(report),
        "\n".join(f"- {line}" for line in words.READING),
        *table(report.data),
        "## What is promised",
        *table(report.levels),
        *table(report.mechanisms),
    ]
    for chapter in report.chapters:
        parts += [f"## {chapter.title}", chapter.lead]
        for each in chapter.sections:
            parts += section(each)
    parts += ["## Where the numbers come from", *table(report.sources)]
    return "\n\n".join(parts) + "\n"


def glance(report: Report) -> list[str]:
    """How many claims hold."""
    lines = []
    for whose, name in (("paper", "the paper's claims"), ("ours", "our own claims")):
        states = report.states_of(whose)
        hold, partly, fail, still = (states.get(state, 0) for state in State)
        lines.append(f"- Of {name} {hold} hold, {partly} hold in part, {fail} do not hold; "
                     f"{still} not measured.")  # fmt: skip
    return ["\n".join(lines)]


def section(it: Section) -> list[str]:
    """One experiment."""
    parts = [f"### {it.title}", f"*{it.place[0].upper()}{it.place[1:]}.* {it.sees}"]
    if it.warning:
        parts.append(f"**{it.warning}**")
    if it.missing:
        return [*parts, f"{it.missing[0].upper()}{it.missing[1:]}"]
    if it.content.verdicts:
        parts.append("\n".join(verdict(each) for each in it.content.verdicts))
    for each in it.content.tables:
        parts += table(each)
    return parts


def verdict(it: Verdict) -> str:
    """A line of a list."""
    whose = " (the paper's claim)" if it.whose == "paper" else ""
    return f"- **{it.state.value}**: {it.claim}{whose}. {it.detail}. *Rule: {it.rule}.*"


def table(it: Table) -> list[str]:
    """A pipe table with its title above and its notes below."""
    lines = [_line(it.columns), _line("---" for _ in it.columns)]
    lines += [_line(cell(one) for one in row) for row in it.rows]
    notes = [*it.notes, *([words.OTHER_DATA] if it.quotes_other_data else [])]
    return [f"**{it.title}**", "\n".join(lines), *([" ".join(notes)] if notes else [])]


def cell(it: Cell) -> str:
    """Ours, then the paper's in brackets."""
    value = f"**{it.text}**" if it.best else it.text
    printed = f"(paper{'†' if it.other_data else ''} {it.printed})" if it.printed else ""
    return " ".join(filter(None, (value + it.mark, it.spread, printed)))


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(one.replace("|", "\\|") for one in cells) + " |"
