"""The report as data, and that as one HTML page in the look of the product's pages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from counterveil_lab.report import stored, words
from counterveil_lab.report.blocks import Cell, Chapter, Content, Section, State, Table
from counterveil_lab.report.part_noise import data_table
from counterveil_lab.report.tables import anything, some

_TEMPLATES = jinja2.Environment(
    loader=jinja2.ChoiceLoader([
        jinja2.PackageLoader("counterveil_lab", "report"),
        jinja2.PrefixLoader({"product": jinja2.PackageLoader("counterveil", "report")}),
    ]),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)  # fmt: skip
TOY = "Toy size (`--quick`): these numbers mean nothing."
_CODE = re.compile(r"`([^`]+)`")
_STRESS = re.compile(r"\*([^*]+)\*")


@dataclass(frozen=True)
class Report:
    """Everything that both renderings show."""

    chapters: tuple[Chapter, ...]
    sources: Table
    data: Table
    levels: Table
    mechanisms: Table

    @property
    def sections(self) -> list[Section]:
        return [section for chapter in self.chapters for section in chapter.sections]

    @property
    def states(self) -> Mapping[State, int]:
        """How many verdicts of each kind there are."""
        return Counter(v.state for section in self.sections for v in section.content.verdicts)

    def states_of(self, whose: str) -> Mapping[State, int]:
        """The same of the paper's directions or of our own claims."""
        return Counter(
            verdict.state
            for section in self.sections
            for verdict in section.content.verdicts
            if verdict.whose == whose
        )


def gather(folder: Path) -> Report:
    """Read the files of `folder` and make everything of them that can be made."""
    files, broken = stored.load(folder)
    every = {spec.name for part in words.PARTS for spec in part.specs} | set(files)
    alts = words.ALTS | {spec.name: spec.words for part in words.PARTS for spec in part.specs}
    chapters = []
    for part in words.PARTS:
        sections = []
        for spec in part.specs:
            file = files.get(spec.name)
            missing = "" if file and file.rows else broken.get(spec.name, "not measured yet")
            head = (spec.name, spec.title, spec.place, spec.sees)
            if missing or file is None:
                sections.append(Section(*head, missing=f"{missing}: `{spec.remedy}` makes it."))
                continue
            sections.append(Section(
                *head,
                spec.build(file.rows),
                stored.pictures(folder, spec.name, every, alts),
                warning=TOY if file.quick else "",
            ))  # fmt: skip
        chapters.append(Chapter(part.name, part.title, part.lead, tuple(sections)))
    known = {spec.name for part in words.PARTS for spec in part.specs}
    further = [file for name, file in files.items() if name not in known and file.rows]
    if further:
        chapters.append(Chapter("further", *words.FURTHER, tuple(map(as_stored, further))))
    levels, mechanisms = words.promise_tables()
    return Report(tuple(chapters), sources(files), data_table(), levels, mechanisms)


def as_stored(file: stored.Stored) -> Section:
    """A file that no section was written for."""
    table = anything(file.rows, f"Rows of `{file.name}.json`", folded=True)
    name = re.sub(r"[^a-z0-9]+", "-", f"file-{file.name}".lower())
    warning = TOY if file.quick else ""
    return Section(name, file.name, "as stored", f"From `{file.command}`.",
                   Content((), some(table)), warning=warning)  # fmt: skip


def sources(files: Mapping[str, stored.Stored]) -> Table:
    """Which command at which commit made which file."""
    lines = tuple(
        (
            Cell(f"`{name}.json`"),
            Cell(f"`{file.command}`"),
            Cell(", ".join(f"`{commit}`" for commit in file.commits)),
            Cell(f"{len(file.rows):,}"),
        )
        for name, file in files.items()
    )
    note = "A + behind a commit: the working tree had changes that were not committed."
    return Table("Files", ("file", "command", "commit", "rows"), lines, (note,))


def html(report: Report) -> str:
    """The page."""
    return _TEMPLATES.get_template("page.html").render(
        report=report,
        title=words.TITLE,
        lead=words.LEAD,
        reading=words.READING,
        other_data=words.OTHER_DATA,
        State=State,
    )


def rich(text: str) -> Markup:
    """`code` and *emphasis* as HTML; all else escaped."""
    safe = str(escape(text))
    safe = _CODE.sub(r"<code>\1</code>", safe)
    return Markup(_STRESS.sub(r"<i>\1</i>", safe))


_TEMPLATES.filters["rich"] = rich
