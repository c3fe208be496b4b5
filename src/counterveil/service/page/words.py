"""The texts of a page, from its words.toml: sentences and words by language; its templates."""

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.requests import Request

from counterveil.pages import renderer
from counterveil.schema import Category, Schema
from counterveil.search.results.regions import value_text

LANGUAGES = (("en", "English"), ("de", "Deutsch"))
Texts = Mapping[str, Mapping[str, Any]]  # by language and name


def texts_in(folder: Path) -> Texts:
    """The texts of the page in this folder."""
    return tomllib.loads((folder / "words.toml").read_text(encoding="utf-8"))


PAGE = Path(__file__).parent
WORDS, rendered = texts_in(PAGE), renderer(PAGE)


def language_of(request: Request) -> str:
    """The language that is chosen, or else that the browser asks for first."""
    wanted = request.query_params.get("language") or request.headers.get("accept-language", "")
    return "de" if wanted.lower().startswith("de") else "en"


class Words:
    """The texts of one language: `words("way", n=2)` is "Way 2". How it tells of values, too.

    `schema`: the one whose values are told; None where there is none yet.
    """

    def __init__(self, language: str, schema: Schema | None, texts: Texts = WORDS) -> None:
        self.language, self._schema, self._texts = language, schema, texts[language]
        self.card = self._texts.get("card")

    def __call__(self, name: str, /, **values: Any) -> str:
        return str(self._texts[name]).format(**values)

    def number(self, value: float, digits: int = 4) -> str:
        """A number with so many digits, or all before the point."""
        whole = len(str(abs(math.trunc(value))))
        short = float(f"{value:.{max(digits, whole)}g}")
        return value_text(int(short) if short.is_integer() else short, self.language)

    def percent(self, share: float, digits: int = 0) -> str:
        """A share: 0.75 is "75%"; with so many digits, or as a whole number."""
        shown = self.number(100 * share, digits) if digits else f"{100 * share:.0f}"
        return f"{shown}{' ' if self.language == 'de' else ''}%"

    def decision(self, value: Category | None) -> Any:
        """A class as people call it; "" for none."""
        if value is None or self._schema is None:
            return "" if value is None else value
        return self._schema.label.shown_value(value)

    def value(self, column: str, value: Any, *, full: bool = False) -> str:
        """A value as people call it; a number in short, or in full where it has to be reached."""
        shown = value if self._schema is None else self._schema.shown_value(column, value)
        if shown is None:
            return self("missing")
        if isinstance(shown, float) and not full:
            return self.number(shown)
        return value_text(shown, self.language)
