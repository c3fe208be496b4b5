"""The templates of the page, with those that reports share. Everything is escaped."""

from pathlib import Path
from typing import Any

import jinja2

from counterveil.pages import TEMPLATES

_LOADERS = [
    jinja2.FileSystemLoader(Path(__file__).parent),
    jinja2.PackageLoader("counterveil", "pages"),
]
_templates = TEMPLATES.overlay(loader=jinja2.ChoiceLoader(_LOADERS), undefined=jinja2.Undefined)


def rendered(template: str, **content: Any) -> str:
    """The HTML of a template."""
    return _templates.get_template(template).render(**content)
