"""`counterveil-lab report`: the page and its Markdown twin from the stored files."""

from __future__ import annotations

from pathlib import Path

from counterveil.files import write_whole
from counterveil_lab.report.markdown import markdown
from counterveil_lab.report.page import gather, html


def write(results: Path, page: Path, docs: Path | None) -> list[str]:
    """Write the page and, unless None, the Markdown file `docs`; what was written and is missing.

    Nothing is measured here; a section whose file is missing says how to make it.
    """
    report = gather(results)
    page.parent.mkdir(parents=True, exist_ok=True)
    write_whole(page, html(report).encode())
    said = [f"written: {page}"]
    if docs is not None:
        docs.parent.mkdir(parents=True, exist_ok=True)
        write_whole(docs, markdown(report, _place(page, docs)).encode())
        said.append(f"written: {docs}")
    said += [f"{it.name}: {it.missing.replace('`', '')}" for it in report.sections if it.missing]
    said += [f"{it.name}: {it.warning.replace('`', '')}" for it in report.sections if it.warning]
    return said


def _place(page: Path, docs: Path) -> str:
    """The page as seen from the project: a path of this machine has no place in a document."""
    root = docs.resolve().parent.parent
    inside = page.resolve().is_relative_to(root)
    return page.resolve().relative_to(root).as_posix() if inside else page.name
