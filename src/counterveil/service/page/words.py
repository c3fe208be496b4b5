"""The texts of the page, from words.toml: whole sentences and single words by language."""

import math
import tomllib
from pathlib import Path
from typing import Any

from counterveil.schema import Category, Schema
from counterveil.search.results.regions import value_text

WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
LANGUAGES = (("en", "English"), ("de", "Deutsch"))


class Words:
    """The texts of one language: `words("way", n=2)` is "Way 2". How it tells of values, too."""

    def __init__(self, language: str, schema: Schema) -> None:
        self.language, self._schema = language, schema
        self.card = WORDS[language].get("card")

    def __call__(self, name: str, **values: Any) -> str:
        return str(WORDS[self.language][name]).format(**values)

    def number(self, value: float, digits: int = 4) -> str:
        """A number with so many digits, or all before the point."""
        whole = len(str(abs(math.trunc(value))))
        short = float(f"{value:.{max(digits, whole)}g}")
        return value_text(int(short) if short.is_integer() else short, self.language)

    def percent(self, share: float) -> str:
        """A share: 0.75 is "75%"."""
        return f"{100 * share:.0f}{' ' if self.language == 'de' else ''}%"

    def decision(self, value: Category | None) -> Any:
        """A class as people call it; "" for none."""
        return "" if value is None else self._schema.label.shown_value(value)

    def value(self, column: str, value: Any, *, full: bool = False) -> str:
        """A value as people call it; a number in short, or in full where it has to be reached."""
        shown = self._schema.shown_value(column, value)
        if shown is None:
            return self("missing")
        if isinstance(shown, float) and not full:
            return self.number(shown)
        return value_text(shown, self.language)
