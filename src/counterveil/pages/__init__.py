"""HTML for people: the templates of whole pages, and small tables for notebooks.

A page is one file, with no script and nothing loaded from elsewhere. The words and the layout are
in the templates beside this file; whoever shows something fills them. Everything is escaped.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import jinja2

MOST_ROWS = 40  # of a table in a notebook
LETTERS = Path(__file__).parent / "letters"  # templates for persons, to copy and to edit

OWN = jinja2.PackageLoader("counterveil", "pages")
TEMPLATES = jinja2.Environment(
    loader=OWN,
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)


def renderer(*folders: Path) -> Callable[..., str]:
    """What gives the HTML of a template of these folders, or of this one."""
    loader = jinja2.ChoiceLoader([jinja2.FileSystemLoader(folders), OWN])
    templates = TEMPLATES.overlay(loader=loader, undefined=jinja2.Undefined)
    return lambda template, **content: templates.get_template(template).render(**content)


def notebook_table(
    title: str,
    facts: Iterable[tuple[str, object]],
    *,
    headings: Sequence[str] = (),
    rows: Sequence[Sequence[object]] = (),
    warning: str = "",
) -> str:
    """What a notebook shows of an object: a title, facts by name, and a table if there is one.

    Of the table the first `MOST_ROWS` rows are shown, and how many more there are. `warning`: a
    sentence that must not be missed. The styles are inline, and take the colours of the notebook.
    """
    return TEMPLATES.get_template("notebook.html").render(
        title=title,
        facts=[(name, value) for name, value in facts if value not in ("", None)],
        headings=headings,
        rows=rows[:MOST_ROWS],
        more=len(rows[MOST_ROWS:]),
        warning=warning,
    )
