"""What a report is made of, before it becomes HTML or Markdown: cells, tables, verdicts, sections.

Text may carry `code` and *emphasis* in Markdown's way; both renderers know these two and no more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum


@dataclass(frozen=True)
class Cell:
    """One number or word; `printed` is what the paper has in its place."""

    text: str = ""
    spread: str = ""
    printed: str = ""
    other_data: bool = False
    best: bool = False
    mark: str = ""  # a sign whose meaning a note below the table gives

    @property
    def empty(self) -> bool:
        return not (self.text or self.printed)


@dataclass(frozen=True)
class Table:
    """A table; the first `keys` columns name a row, and stay in view when the rest scrolls."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    folded: bool = False
    keys: int = 1

    @property
    def quotes_other_data(self) -> bool:
        return any(cell.other_data and cell.printed for row in self.rows for cell in row)

    @property
    def quotes(self) -> bool:
        return any(cell.printed for row in self.rows for cell in row)

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers, that stand on the right."""
        return [
            place >= self.keys
            and all(row[place].text[:1].strip("-0123456789") == "" for row in self.rows)
            for place in range(len(self.columns))
        ]

    @property
    def breaks(self) -> set[int]:
        """Rows before which a line is drawn: where several rows of one name begin or end."""
        names = [row[0].text for row in self.rows]
        several = [
            names[at] in (names[at - 1 : at] + names[at + 1 : at + 2]) for at in range(len(names))
        ]
        return {
            at
            for at in range(1, len(names))
            if self.keys > 1 and names[at] != names[at - 1] and (several[at] or several[at - 1])
        }

    def without_empty_columns(self) -> Table:
        """Less whatever no row fills, beyond the key columns."""
        kept = [
            place
            for place in range(len(self.columns))
            if place < self.keys or any(not row[place].empty for row in self.rows)
        ]
        return replace(
            self,
            columns=tuple(self.columns[place] for place in kept),
            rows=tuple(tuple(row[place] for place in kept) for row in self.rows),
        )


class State(StrEnum):
    """What became of a claim."""

    HOLDS = "holds"
    PARTLY = "holds in part"
    FAILS = "does not hold"
    OPEN = "not measured"

    @property
    def slug(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Verdict:
    """A claim, what the rows say of it, and the rule by which that was decided."""

    claim: str
    state: State
    detail: str
    rule: str
    whose: str = "ours"  # or "paper": a direction that the paper states


@dataclass(frozen=True)
class Picture:
    """A figure as a data URI: the page loads nothing."""

    name: str
    source: str
    alt: str


@dataclass(frozen=True)
class Content:
    """What the rows of one experiment give."""

    verdicts: tuple[Verdict, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Section:
    """One experiment on the page."""

    name: str
    title: str
    place: str
    sees: str
    content: Content = field(default_factory=Content)
    pictures: tuple[Picture, ...] = ()
    missing: str = ""
    warning: str = ""


@dataclass(frozen=True)
class Chapter:
    """Experiments that answer one question."""

    name: str
    title: str
    lead: str
    sections: tuple[Section, ...]
