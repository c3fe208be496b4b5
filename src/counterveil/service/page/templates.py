"""The templates of pages in a browser, with those that reports share. Everything is escaped."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2

from counterveil.pages import TEMPLATES

OWN = Path(__file__).parent


def renderer(*folders: Path) -> Callable[..., str]:
    """What gives the HTML of a template of these folders, or of the page of the service."""
    found = [jinja2.FileSystemLoader(folder) for folder in (*folders, OWN)]
    loader = jinja2.ChoiceLoader([*found, jinja2.PackageLoader("counterveil", "pages")])
    templates = TEMPLATES.overlay(loader=loader, undefined=jinja2.Undefined)

    def rendered(template: str, **content: Any) -> str:
        return templates.get_template(template).render(**content)

    return rendered


rendered = renderer()
