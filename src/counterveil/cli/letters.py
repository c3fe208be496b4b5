"""Letters of `explain`: a file for each person, and one table for a mail merge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from counterveil.errors import RequestError
from counterveil.files import write_whole

if TYPE_CHECKING:
    from counterveil.search import Explanations


def write_letters(
    result: Explanations,
    folder: Path | None,
    merged: Path | None,
    language: str,
    template: Path | None,
    *,
    escape: bool,
) -> list[Path]:
    """Write letter-N.txt and letter-N.html of every query, and the table of a mail merge.

    Returns what was written; `folder` and `merged` are None where they were not asked for.
    """
    if folder is None and merged is None:
        return []
    from counterveil.search.results.letters import Letters, as_html, mail_merge
    from counterveil.tables import file_content

    if merged is not None and merged.suffix.lower() != ".csv":
        raise RequestError(f"--mail-merge {merged}: name the file .csv")
    letters, digits = Letters(result, language, template), len(str(len(result)))
    if merged is not None:
        table = mail_merge(result, letters)
        write_whole(merged, file_content(table, merged, escape=escape))
    for query in range(len(result)) if folder is not None else ():
        text = letters.text(query)
        name = f"letter-{query + 1:0{digits}}"
        for ending, content in ((".txt", text), (".html", as_html(text, language))):
            write_whole(Path(folder or "") / f"{name}{ending}", content.encode())
    return [path for path in (merged, folder) if path is not None]
