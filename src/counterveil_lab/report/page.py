"""`counterveil-lab report`: stored results as one HTML page, as Markdown, and quoted in the docs.

Nothing is measured here. A section whose results file is missing says how to make it.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from counterveil.errors import InputError
from counterveil.files import write_whole
from counterveil.privacy import Level
from counterveil_lab import paper_values
from counterveil_lab.experiments.tables import markdown as methods_by_dataset
from counterveil_lab.report.attacks import TABLES
from counterveil_lab.report.claims import State, Verdict, judge
from counterveil_lab.report.pivots import (
    DATASETS,
    NAMES,
    SECTIONS,
    Cell,
    Measure,
    Pivot,
    Table,
    described,
    select,
    table_of,
    table_of_texts,
    with_values,
)
from counterveil_lab.report.sections import section_of, tables_of
from counterveil_lab.results import Row, stored_rows

TOY = "Toy size (`--quick`): these numbers mean nothing."
LARGEST_PICTURE = 1_500_000  # bytes
PICTURES = {".svg": "image/svg+xml", ".png": "image/png"}
QUOTED_BY_ATTACKS = {
    "extraction": "table-extraction",
    "tradeoff": "fig-tradeoff",
    "membership": "fig-membership",
    "attributes": "fig-attribute",
}


@dataclass(frozen=True)
class Stored:
    """One results file."""

    command: str
    commits: Sequence[str]
    rows: Sequence[Row]


@dataclass(frozen=True)
class Picture:
    """A figure as a data URI: the page loads nothing."""

    name: str
    source: str
    alt: str


@dataclass(frozen=True)
class Shown:
    """A section with everything that its rows give."""

    name: str
    title: str
    place: str
    sees: str
    verdicts: Sequence[Verdict] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    notes: Sequence[str] = ()
    missing: str = ""
    warning: str = ""


@dataclass(frozen=True)
class Chapter:
    """Sections that answer one question."""

    name: str
    title: str
    lead: str
    sections: Sequence[Shown]


@dataclass(frozen=True)
class Report:
    """Everything that the page and its Markdown twin show."""

    chapters: Sequence[Chapter]
    data: Table
    levels: Table
    sources: Table

    @property
    def sections(self) -> list[Shown]:
        return [section for chapter in self.chapters for section in chapter.sections]

    def states(self, of_paper: bool) -> Mapping[State, int]:
        """How many of the paper's claims, or of ours, came out how."""
        every = [verdict for section in self.sections for verdict in section.verdicts]
        return Counter(it.state for it in every if it.claim.of_paper == of_paper)


def write(results: Path, page: Path, docs: Path | None) -> list[str]:
    """Write the page and, unless None, docs/results.md and the tables that documents quote.

    `docs` is the folder of the documentation or the file in it. Returns what was written, what is
    missing, and what is of toy size.
    """
    report = gather(results)
    texts = {page: html(report)}
    if docs is not None:
        twin = docs if docs.suffix == ".md" else docs / "results.md"
        root = twin.resolve().parent.parent
        inside = page.resolve().is_relative_to(root)
        place = page.resolve().relative_to(root).as_posix() if inside else page.name
        texts[twin] = markdown(report, place)
        for path in (root / "README.md", *sorted(twin.parent.glob("*.md"))):
            if path.is_file() and path.resolve() != twin.resolve():
                old = path.read_text("utf-8")
                new = quoted(old, results)
                texts |= {path: new} if new != old else {}
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
    said = [f"written: {path}" for path in texts]
    for section in report.sections:
        told = section.missing or section.warning
        said += [f"{section.name}: {told.replace('`', '')}"] if told else []
    return said


def gather(folder: Path) -> Report:
    """Read the results files of a folder and make everything of them that can be made."""
    files, broken = load(folder)
    specs = [section for chapter in SECTIONS["chapter"] for section in chapter["section"]]
    known = {spec["name"] for spec in specs}
    chapters = [
        Chapter(*(chapter[key] for key in ("name", "title", "lead")),
                [shown(spec, files, broken, folder) for spec in chapter["section"]])
        for chapter in SECTIONS["chapter"]
    ]  # fmt: skip
    further = [as_stored(name, it) for name, it in files.items() if name not in known and it.rows]
    if further:
        lead = "Stored rows that have no section of their own."
        chapters.append(Chapter("further", "Further files", lead, further))
    return Report(chapters, data_table(), level_table(), source_table(files))


def load(folder: Path) -> tuple[dict[str, Stored], dict[str, str]]:
    """Every results file of a folder by name, and why some could not be read."""
    found, broken = {}, {}
    for path in sorted(folder.glob("*.json")):
        try:
            content = json.loads(path.read_text("utf-8"))
            rows = [row for row in content["rows"] if isinstance(row, dict)]
            command, commit = (str(content.get(key) or "unknown") for key in ("command", "commit"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            broken[path.stem] = f"{path.name} cannot be read ({type(error).__name__})"
            continue
        own = dict.fromkeys(str(row["commit"]) for row in rows if row.get("commit"))
        found[path.stem] = Stored(command, tuple(own) or (commit,), rows)
    return found, broken


def shown(
    spec: Mapping[str, Any], files: Mapping[str, Stored], broken: Mapping[str, str], folder: Path
) -> Shown:
    """A section with what its file gives, or with the way to make that file."""
    section = section_of(spec)
    head = (section.name, section.title, section.place, section.sees)
    file = files.get(section.name)
    if file is None or not file.rows:
        reason = broken.get(section.name, "Not measured yet")
        return Shown(*head, missing=f"{reason}: `{section.made_by}` makes it.")
    frame = section.rows(described(file.rows))
    return Shown(
        *head,
        [judge(claim, frame) for claim in section.claims],
        [table for make in section.tables if (table := make(frame)) and table.rows],
        pictures(folder, section.name, f"{section.title}: {section.sees}".replace("`", "")),
        fewer_epochs(frame),
        warning=TOY if "--quick" in file.command else "",
    )


def as_stored(name: str, file: Stored) -> Shown:
    """A file that no section was written for: words name a line, numbers are averaged."""
    frame = pd.DataFrame(file.rows).drop(columns=["seed", "run", "commit"], errors="ignore")
    numbers = frame.select_dtypes("number").columns
    index = {column: column for column in frame.columns if column not in numbers}
    pivot = Pivot(
        f"Rows of `{name}.json`",
        index,
        [Measure(it, it.replace("_", " "), style=",.4g") for it in numbers],
    )
    table = table_of(frame, pivot)
    slug = re.sub(r"[^a-z0-9]+", "-", f"file-{name}".lower())
    warning = TOY if "--quick" in file.command else ""
    tables = [table] if table else []
    return Shown(slug, name, "as stored", f"From `{file.command}`.", (), tables, warning=warning)


def pictures(folder: Path, name: str, alt: str) -> list[Picture]:
    """The figures of an experiment: SVG where there is one of a bearable size, else PNG."""
    own = re.compile(rf"{name}(-(peers|batch|features|floor|boosted|objective))?")
    found = []
    for stem in sorted({path.stem for kind in PICTURES for path in folder.glob(f"*{kind}")}):
        paths = (folder / f"{stem}{kind}" for kind in PICTURES if own.fullmatch(stem))
        fitting = [it for it in paths if it.exists() and it.stat().st_size < LARGEST_PICTURE]
        for path in fitting[:1]:
            code = base64.b64encode(path.read_bytes()).decode("ascii")
            source = f"data:{PICTURES[path.suffix]};base64,{code}"
            found.append(Picture(stem, source, NAMES["picture"].get(stem, alt)))
    return found


def fewer_epochs(frame: pd.DataFrame) -> list[str]:
    """Where the autoencoder of `paper` was trained for less long than published."""
    found: dict[str, dict[str, None]] = {}
    rows = with_values(select(frame, mechanism="paper"), ("dataset", "epochs"))
    for row in rows.to_dict("records"):
        full = paper_values.of(paper_values.EPOCHS, row["dataset"])
        if full and row["epochs"] < full:
            how = f"{row['epochs']:g} instead of {full}"
            found.setdefault(how, {})[row["dataset name"]] = None
    words = "; ".join(f"{how} on {', '.join(names)}" for how, names in found.items())
    start = "The autoencoder of `paper` was trained for fewer epochs than published: "
    return [f"{start}{words}."] if words else []


def data_table() -> Table:
    """Table 1 of the paper beside the tables of the lab."""
    lines = []
    printed = (paper_values.ROWS, paper_values.FEATURES, (), paper_values.CLASSES)
    for name, ours in SECTIONS["data"].items():
        other = name not in paper_values.SAME_DATA
        cells = (
            Cell(text, printed=paper_values.of(theirs, name) or "", other_data=other)
            for text, theirs in zip(ours, printed, strict=True)
        )
        lines.append((Cell(DATASETS[name]), *cells))
    heads = ("dataset", "rows", "features", "encoded columns", "classes")
    note = "The paper does not list its features, nor how it encodes them."
    return Table("Table 1 of the paper: data", heads, tuple(lines), (note,))


def level_table() -> Table:
    """What the levels of guarantee mean."""
    lines = [
        (
            level.value,
            f"{level.meaning[0].upper()}{level.meaning[1:]}.",
            NAMES["level"][level.value],
        )
        for level in Level
    ]
    heads = ("level", "what is guaranteed", "how to get it")
    return table_of_texts("Levels of guarantee", heads, lines)


def source_table(files: Mapping[str, Stored]) -> Table:
    """Which command at which commit made which file."""
    lines = [
        (f"`{name}.json`", f"`{file.command}`", ", ".join(f"`{it}`" for it in file.commits),
         f"{len(file.rows):,}")
        for name, file in files.items()
    ]  # fmt: skip
    return table_of_texts("Files", ("file", "command", "commit", "rows"), lines)


def rich(text: str) -> Markup:
    """`code` and *emphasis* as HTML; all else escaped."""
    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(re.sub(r"\*([^*]+)\*", r"<i>\1</i>", safe))


def pipes(table: Table) -> str:
    """A table in Markdown; ours, then the paper's number in brackets."""
    lines = [table.columns, *([_cell(cell) for cell in row] for row in table.rows)]
    texts = ["| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines]
    return "\n".join([texts[0], "|---" * len(table.columns) + "|", *texts[1:]])


def _cell(it: Cell) -> str:
    value = f"**{it.text}**" if it.best else it.text
    printed = f"(paper{'†' if it.other_data else ''} {it.printed})" if it.printed else ""
    return " ".join(filter(None, (value + it.mark, it.spread, printed)))


def verdict_table(section: Shown) -> Table:
    """Claims of a section in Markdown."""
    lines = [
        (f"**{it.state}**", it.claim.text + (" (the paper's claim)" if it.claim.of_paper else ""),
         it.detail, it.claim.rule)
        for it in section.verdicts
    ]  # fmt: skip
    return table_of_texts("Claims", ("", "claim", "holds on", "rule"), lines)


def html(report: Report) -> str:
    """The page."""
    template = _TEMPLATES.get_template("page.html")
    return template.render(report=report, words=SECTIONS, State=State)


def markdown(report: Report, page: str) -> str:
    """The text of docs/results.md; `page` is where the HTML page with the figures lies."""
    template = _TEMPLATES.get_template("page.md")
    return template.render(report=report, words=SECTIONS, State=State, page=page)


def quoted(text: str, results: Path) -> str:
    """`text` with every table between markers made anew.

    A table stands between `<!-- results:NAME -->` and `<!-- end:NAME -->`. One whose results file
    is missing stays as it is.
    """

    def anew(found: re.Match[str]) -> str:
        table = quote(found["name"], results)
        return f"{found['start']}{table}\n{found['end']}" if table else found[0]

    marked = r"(?P<start><!-- results:(?P<name>[\w-]+) -->\n).*?(?P<end><!-- end:(?P=name) -->)"
    return re.sub(marked, anew, text, flags=re.DOTALL)


def quote(name: str, results: Path) -> str:
    """The table that documents call `name`, in Markdown; "" where its results file is missing."""
    if name == "table-fr":
        rows = stored_rows(results, name)
        columns = ("flip_ratio", "flip_ratio_specified")
        text = methods_by_dataset(rows, columns, paper_values.FLIP_RATIO) if rows else ""
        return "\n".join(line for line in text.splitlines() if line.startswith("|"))
    spec = SECTIONS["quote"].get(name)
    if spec is None and name not in QUOTED_BY_ATTACKS:
        known = ", ".join([*SECTIONS["quote"], *QUOTED_BY_ATTACKS, "table-fr"])
        raise InputError(f"no table is called {name!r}; there are: {known}")
    rows = stored_rows(results, spec["file"] if spec else QUOTED_BY_ATTACKS[name])
    (make,) = tables_of(spec) if spec else (TABLES[name],)
    table = make(described(rows)) if rows else None
    return pipes(table) if table else ""


_TEMPLATES = jinja2.Environment(
    loader=jinja2.ChoiceLoader([
        jinja2.PackageLoader("counterveil_lab", "report"),
        jinja2.PrefixLoader({"product": jinja2.PackageLoader("counterveil", "report")}),
    ]),
    autoescape=lambda name: name is not None and name.endswith(".html"),
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
    keep_trailing_newline=True,
)  # fmt: skip
_TEMPLATES.filters |= {"rich": rich, "pipes": pipes, "verdict_table": verdict_table}
