"""`counterveil-lab report`: stored results as one HTML page, as Markdown, and quoted in the docs.

Nothing is measured here. A section whose results file is missing says how to make it.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from counterveil.errors import InputError
from counterveil.files import write_whole
from counterveil.privacy import Level
from counterveil_lab import paper_values
from counterveil_lab.fingerprints import fingerprint, prepare
from counterveil_lab.report import frames
from counterveil_lab.report.claims import State, Verdict, judge
from counterveil_lab.report.frames import SECTIONS, described
from counterveil_lab.report.pivots import Cell, Table, table_of_texts
from counterveil_lab.report.sections import Spec, behind, claims_of, rows_of, tables_of, value_of
from counterveil_lab.results import Row, earlier, read

LARGEST_PICTURE = 1_500_000  # bytes
BEYOND = "beyond the paper"


class Stored:
    """The results files of a folder: each is read once, and its rows are described once.

    `files` has their rows, `broken` a sentence for each that cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, list[Row]] = {}
        self.broken: dict[str, str] = {}
        self._frames: dict[str, pd.DataFrame] = {}
        self._made: dict[tuple[str, str], list[Table]] = {}
        for path in sorted(folder.glob("*.parquet")):
            try:
                self.files[path.stem] = read(path)
            except (OSError, ValueError) as error:
                self.broken[path.stem] = f"{path.name} cannot be read ({type(error).__name__})"

    def rows(self, name: str) -> Sequence[Row]:
        """The rows of an experiment; none where there is no file."""
        return self.files.get(name, [])

    def frame(self, name: str) -> pd.DataFrame:
        if name not in self._frames:
            self._frames[name] = described(self.rows(name))
        return self._frames[name]

    def tables(self, name: str, spec: Spec, frame: pd.DataFrame) -> list[Table]:
        """The tables of an entry; what a function makes of all rows of a file is made once."""
        key = (name, spec.get("made", ""))
        if "made" not in spec or frame is not self.frame(name):
            return tables_of(spec, frame)
        if key not in self._made:
            self._made[key] = tables_of(spec, frame)
        return self._made[key]


@dataclass(frozen=True)
class Section:
    """An experiment of sections.toml with everything that its rows give."""

    spec: Spec
    missing: str = ""
    toy: bool = False
    verdicts: Sequence[Verdict] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Mapping[str, str]] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Report:
    """Everything that the page and its Markdown twin show.

    `first` is the picture that the page begins with, `present` how many of the `rows` the present
    code has measured.
    """

    sections: Sequence[Section]
    first: Mapping[str, str] | None
    data: Table
    levels: Table
    files: Table
    rows: int
    present: int

    def states(self, of_paper: bool) -> Counter[State]:
        """How many of the paper's claims, or of ours, came out how."""
        every = (verdict for section in self.sections for verdict in section.verdicts)
        return Counter(it.state for it in every if it.claim.of_paper == of_paper)

    def of(self, chapter: Spec) -> list[Section]:
        return [section for section in self.sections if section.spec in chapter["section"]]


def write(results: Path, page: Path, docs: Path | None) -> list[str]:
    """Write the page and, unless None, docs/results.md and the tables that documents quote.

    `docs` is the folder of the documentation, or results.md in it. Returns what was written, what
    is missing, and what is of toy size.
    """
    stored = Stored(results)
    report = gather(stored)
    texts = {page: render("page.html", report)}
    if docs is not None:
        twin = docs if docs.suffix == ".md" else docs / "results.md"
        root = twin.resolve().parent.parent
        inside = page.resolve().is_relative_to(root)
        place = page.resolve().relative_to(root).as_posix() if inside else page.name
        texts[twin] = render("page.md", report, place)
        for path in (root / "README.md", *twin.parent.glob("*.md")):
            if path.is_file() and path.resolve() != twin.resolve():
                old = path.read_text("utf-8")
                new = quoted(old, stored)
                texts |= {path: new} if new != old else {}
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
    missing = [f"{it.spec['name']}: {it.missing}" for it in report.sections if it.missing]
    toys = [f"{it.spec['name']}: toy size (--quick)" for it in report.sections if it.toy]
    return [*(f"written: {path}" for path in texts), *(x.replace("`", "") for x in missing), *toys]


def gather(stored: Stored) -> Report:
    """Make everything of stored results that can be made."""
    prepare(stored.files)
    sections = []
    for spec in (section for chapter in SECTIONS["chapter"] for section in chapter["section"]):
        name = spec["name"]
        if rows := stored.rows(name):
            frame = rows_of(spec, stored.frame(name))
            verdicts = [judge(claim, frame) for each in spec["claim"] for claim in claims_of(each)]
            wanted = [each for each in spec["table"] if each.get("shown") != "command"]
            tables = [table for each in wanted for table in stored.tables(name, each, frame)]
            notes = [*fewer_epochs(frame), earlier(rows, name)]
            shown = (verdicts, tables, pictures(stored.folder, spec), [it for it in notes if it])
            toy = any("--quick" in row["command"] for row in rows)
            sections.append(Section(spec, "", toy, *shown))
        else:
            remedy = spec.get("made_by", f"counterveil-lab run {name}")
            reason = stored.broken.get(name, "Not measured yet")
            sections.append(Section(spec, f"{reason}: `{remedy}` makes it."))
    every = (picture for section in sections for picture in section.pictures)
    return Report(
        sections,
        first=next((it for it in every if it["name"] == SECTIONS["first"]["picture"]), None),
        data=data_table(),
        levels=level_table(),
        files=file_table(stored.files),
        rows=sum(map(len, stored.files.values())),
        present=sum(by_present_code(*each) or 0 for each in stored.files.items()),
    )


def pictures(folder: Path, spec: Spec) -> list[Mapping[str, str]]:
    """The figures of a section as data URIs, if they are of a bearable size."""
    only = {spec["name"]: f"{spec['title']}. {spec['sees']}"}
    found: list[Mapping[str, str]] = []
    for stem, alt in spec.get("picture", only).items():
        path = folder / f"{stem}.svg"
        if path.exists() and path.stat().st_size < LARGEST_PICTURE:
            drawn = " ".join(path.read_text("utf-8").split())
            code = drawn.replace("'", "&apos;").replace('"', "'")
            source = "data:image/svg+xml," + quote(code, safe=" /:;,.=()'!?+*@$~[]{}^|-_")
            words = {"alt": alt.replace("`", ""), "title": spec["title"]}
            found.append({"name": stem, "source": source, **words})
    return found


def fewer_epochs(frame: pd.DataFrame) -> list[str]:
    """How long autoencoders were trained: of `paper` if less long than published, and of others."""
    rows = frames.with_values(frames.select(frame, mechanism="paper"), ["dataset", "epochs"])
    full = [paper_values.of(paper_values.EPOCHS, name) for name in rows.dataset]
    said = [f"{epochs:g} instead of {most}" if most and epochs < most else None
            for epochs, most in zip(rows.epochs, full, strict=True)]  # fmt: skip
    others = frames.with_values(frame, ["dataset", "vae_epochs"])
    told = [f"{epochs:g}" for epochs in others.vae_epochs]
    starts = {
        "`paper` was trained for fewer epochs than published": _by_words(rows, said),
        "C-CHVAE and REVISE was trained for so many epochs": _by_words(others, told),
    }
    return [f"The autoencoder of {start}: {words}." for start, words in starts.items() if words]


def _by_words(rows: pd.DataFrame, words: Sequence[str | None]) -> str:
    """Such as "10 on Adult, Hospital; 5 on MNIST"."""
    found: dict[str, dict[str, None]] = {}
    for name, each in zip(rows["dataset name"] if len(rows) else (), words, strict=True):
        if each:
            found.setdefault(each, {})[name] = None
    return "; ".join(f"{how} on {', '.join(names)}" for how, names in found.items())


def data_table() -> Table:
    """Table 1 of the paper beside the tables of the lab."""
    printed = (paper_values.ROWS, paper_values.FEATURES, (), paper_values.CLASSES)
    lines = []
    for name, ours in SECTIONS["data"].items():
        other = name not in paper_values.SAME_DATA
        theirs = [paper_values.of(column, name) or "" for column in printed]
        cells = [Cell(*pair, other_data=other) for pair in zip(ours, [""] * 4, theirs, strict=True)]
        lines.append((Cell(frames.DATASETS[name]), *cells))
    heads = ("dataset", "rows", "features", "encoded columns", "classes")
    note = "The paper does not list its features, nor how it encodes them."
    return Table("Table 1 of the paper: data", heads, tuple(lines), (note,))


def level_table() -> Table:
    """What the levels of guarantee mean."""
    heads = ("level", "what is guaranteed", "how to get it")
    lines = [
        (it.value, f"{it.meaning}.".capitalize(), frames.NAMES["level"][it.value]) for it in Level
    ]
    return table_of_texts("Levels of guarantee", heads, lines)


def by_present_code(name: str, rows: Sequence[Row]) -> int | None:
    """How many rows of a file the present code has measured; None where rows do not tell."""
    present = fingerprint(name)
    return sum(row.get("fingerprint") == present for row in rows) if present else None


def file_table(files: Mapping[str, Sequence[Row]]) -> Table:
    """Which commands at which commits made which file."""
    lines = []
    for name, rows in files.items():
        made = [", ".join(f"`{it}`" for it in dict.fromkeys(str(row[by]) for row in rows))
                for by in ("command", "commit")]  # fmt: skip
        same = by_present_code(name, rows)
        counts = (f"{len(rows):,}", "not told" if same is None else f"{same:,}")
        lines.append((f"`{name}.parquet`", *made, *counts))
    heads = ("file", "command", "commit", "rows", "of them by the present code")
    return table_of_texts("Files", heads, lines)


def quoted(text: str, stored: Stored) -> str:
    """`text` with every table and every number between markers made anew.

    A table stands between `<!-- results:NAME -->` and `<!-- end:NAME -->`, on lines of their own.
    Below it a sentence says where its rows were measured by an earlier version of the code. A
    number in a sentence stands between `<!-- value:NAME -->` and `<!-- end:NAME -->`. What has no
    stored rows stays as it is.
    """

    def entry(kind: str, name: str) -> tuple[Spec, pd.DataFrame]:
        known = SECTIONS[kind]
        if name not in known:
            what = {"quote": "table", "value": "number"}[kind]
            raise InputError(f"no {what} is called {name!r}; there are: {', '.join(known)}")
        return known[name], stored.frame(known[name]["file"])

    def table(found: re.Match[str]) -> str:
        spec, frame = entry("quote", found["name"])
        tables = stored.tables(spec["file"], spec, frame) if len(frame) else []
        if not tables:
            return found[0]
        rows = stored.rows(spec["file"])
        note = earlier([rows[at] for at in behind(spec, frame).index], spec["file"])
        shown = [pipes(tables[0]), *([note] if note else [])]
        return found["start"] + "\n\n".join(shown) + f"\n{found['end']}"

    def value(found: re.Match[str]) -> str:
        number = value_of(*entry("value", found["name"])) or found["old"]
        return found["start"] + number + found["end"]

    marked = r"(?P<start><!-- {} -->{})(?P<old>.*?)(?P<end><!-- end:(?P=name) -->)"
    text = re.sub(marked.format(r"results:(?P<name>[\w-]+)", "\n"), table, text, flags=re.DOTALL)
    return re.sub(marked.format(r"value:(?P<name>[\w-]+)", ""), value, text)


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


def anchor(title: str) -> str:
    """What mkdocs and GitHub call a heading in an address."""
    return re.sub(r"[ -]+", "-", re.sub(r"[^\w\s-]", "", title.lower()))


def show(results: Path, name: str) -> str:
    """All tables of an experiment as Markdown, those that are too long for the report too."""
    stored, parts = Stored(results), []
    specs = [spec for chapter in SECTIONS["chapter"] for spec in chapter["section"]]
    for spec in (spec for spec in specs if spec["name"] == name and stored.rows(name)):
        frame = rows_of(spec, stored.frame(name))
        for table in (table for each in spec["table"] for table in tables_of(each, frame)):
            parts += [f"**{table.title}**", pipes(table), *table.notes]
    if not parts:
        shown = [spec["name"] for spec in specs if stored.rows(spec["name"])]
        raise InputError(f"nothing of {name!r} is stored; there are: {', '.join(shown)}")
    return "\n\n".join(parts)


def render(template: str, report: Report, page: str = "") -> str:
    """The HTML page, or the text of docs/results.md; `page` is where the HTML page lies."""
    loaders: list[jinja2.BaseLoader] = [jinja2.PackageLoader("counterveil_lab", "report")]
    loaders.append(jinja2.PrefixLoader({"product": jinja2.PackageLoader("counterveil", "pages")}))
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders),
        autoescape=template.endswith(".html"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"rich": rich, "pipes": pipes, "anchor": anchor}
    words = {"report": report, "words": SECTIONS, "State": State, "BEYOND": BEYOND}
    text = environment.get_template(template).render({**words, "page": page})
    return re.sub(r"\n{3,}", "\n\n", text) if template.endswith(".md") else text
