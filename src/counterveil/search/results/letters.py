"""Letters: what a person is told of a decision, in plain text, HTML, or cells for a mail merge.

A letter says what was decided, the main reasons, what would have led to the other decision, and
what was taken as it is. It names no model, no probability and no claim about other people. Its
numbers are the person's own, those of the answer, and those of regions, which the model bears out.

The words are in templates, pages/letters/letter.LANGUAGE.txt, to copy and to edit. A template has:

| name | what |
|---|---|
| `label`, `decision`, `goal` | what people call the label, the class that was decided, the other |
| `status` | found, not_found, impossible or already |
| `reasons` | each with `text`, `code` and the person's own `value`, the weightiest first |
| `ways` | each a list of changes: `name`, `before`, `after`, `works` (the region), `text` (all) |
| `kept` | the features that the rules hold |
| `warning` | what the veil cannot tell, or ""; it ends a letter whose template does not name it |
| `language` | the language of numbers |
"""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import pandas as pd
from jinja2.sandbox import ImmutableSandboxedEnvironment

from counterveil.errors import RequestError
from counterveil.files import Place, read_bytes
from counterveil.hints import named
from counterveil.pages import LETTERS, TEMPLATES
from counterveil.search.results.answer import Answer
from counterveil.search.results.reasons import MOST_REASONS
from counterveil.search.results.refusals import Status
from counterveil.search.results.regions import value_text
from counterveil.search.results.tables import of_caller
from counterveil.search.results.wording import Change, DecidedBy

if TYPE_CHECKING:
    from counterveil.search.results.explanations import Explanations

WARNINGS = {  # where the veil is too noisy, and where it does not know which values go together
    "en": (
        "What we know of others is too uncertain to name the main reasons.",
        "Please look whether these changes fit what else is true of you: that is not known here.",
    ),
    "de": (
        "Was wir über andere wissen, ist zu ungenau, um die wichtigsten Gründe zu nennen.",
        "Bitte prüfen Sie, ob diese Änderungen zu Ihren übrigen Angaben passen: das ist hier nicht "
        "bekannt.",
    ),
}
LINES = {"en": "{name}: {value} instead of {before}", "de": "{name}: {value} statt {before}"}
_LETTERS = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
)


def as_html(text: str, language: str) -> str:
    """A letter as a page of one file."""
    return TEMPLATES.get_template("letters/letter.html").render(text=text, language=language)


class Letters:
    """The letters about the queries of a result, by one template.

    `template`: the path of a file; by default that of the language.
    """

    def __init__(
        self, result: Explanations, language: str = "en", template: Place | None = None
    ) -> None:
        if language not in LINES:
            raise RequestError(f"no letters in {language!r}; there are: {named(LINES)}")
        if result.decided_by is DecidedBy.STAND_IN:
            raise RequestError(
                "a letter says what was decided and why, and the model that decides was not asked; "
                "explain with guidance 'model'"
            )
        if result.schema.images:
            raise RequestError("letters are about tables; an image has no reasons in words")
        self._result, self._language = result, language
        self._path = Path(template or LETTERS / f"letter.{language}.txt")
        content = read_bytes(self._path, "template of letters", RequestError)
        try:
            code = _LETTERS.compile(content.decode(), filename=str(self._path))
        except UnicodeDecodeError:
            raise RequestError(f"{self._path}: a template of letters is text in UTF-8") from None
        except jinja2.TemplateSyntaxError as error:
            raise self._mistake(error, error.lineno) from None
        globals_ = _LETTERS.make_globals(None)
        self._template = _LETTERS.template_class.from_code(_LETTERS, code, globals_)

    def text(self, query: int) -> str:
        content = self.content(query)
        try:
            text = self._template.render(content)
        except RequestError:
            raise
        except Exception as error:  # whatever a template does
            steps = reversed(traceback.extract_tb(error.__traceback__))
            lines = (each.lineno for each in steps if each.filename == str(self._path))
            raise self._mistake(error, next(lines, None)) from None
        warning = content["warning"]
        if warning not in text:
            text = f"{text.rstrip()}\n{warning}"
        return re.sub(r"\n{3,}", "\n\n", text.strip()) + "\n"

    def _mistake(self, error: Exception, line: int | None) -> RequestError:
        where = f"{self._path}, line {line}" if line else str(self._path)
        said = str(error) if isinstance(error, jinja2.TemplateError) else type(error).__name__
        return RequestError(f"{where}: {said}; docs/letters.md says what a template may name")

    def content(self, query: int) -> dict[str, Any]:
        result, schema = self._result, self._result.schema
        answers = result.answers_of(query)
        first, found = answers[0], [each for each in answers if each.is_found]
        is_already = first.status is Status.ALREADY
        return {
            "label": schema.label.shown_name,
            "decision": value_text(first.classes[0], self._language),
            "goal": value_text(first.classes[1], self._language),
            "status": first.status.value,
            "reasons": [] if is_already else self._reasons(query),
            "ways": [self._way(each) for each in found],
            "kept": [schema.shown_name(name) for name in _held(result, query)],
            "warning": "" if is_already else self._warning(has_ways=bool(found)),
            "language": self._language,
        }

    def _warning(self, *, has_ways: bool) -> str:
        noisy, no_pairs = WARNINGS[self._language]
        if self._result.veil_knows is False:
            return noisy
        return no_pairs if self._result.knows_pairs is False and has_ways else ""

    def _reasons(self, query: int) -> list[dict[str, str]]:
        found = []
        for each in self._result.reasons_of(query):
            value = self._value(each.feature, _short(each.value))
            found.append({"text": _capital(each.text), "code": each.code, "value": value})
        return found

    def _value(self, column: str, value: Any) -> str:
        return value_text(self._result.schema.shown_value(column, value), self._language)

    def _way(self, answer: Answer) -> list[dict[str, str]]:
        """The changes of an answer, without what only follows from another change."""
        derived = {link.derived for link in answer.schema.links}
        changes = [each for each in answer.changes if each[0] not in derived]
        return [self._change(answer, each, is_one=len(changes) == 1) for each in changes]

    def _change(self, answer: Answer, change: Change, *, is_one: bool) -> dict[str, str]:
        column, before, after = change
        told = {
            "name": _capital(answer.schema.shown_name(column)),
            "before": self._value(column, before if _short(before) == after else _short(before)),
            "after": self._value(column, after),
            "works": answer.works(change, self._language),
        }
        value = (is_one and told["works"]) or told["after"]
        return {**told, "text": LINES[self._language].format(value=value, **told)}


def mail_merge(result: Explanations, letters: Letters) -> pd.DataFrame:
    """One row a person: the caller's index, decision, reasons, changes of the first way, letter."""
    told = [letters.content(query) for query in range(len(result))]
    ways = [each["ways"][0] if each["ways"] else [] for each in told]
    columns: dict[str, list[Any]] = {"query": [query + 1 for query in range(len(result))]}
    for name in ("label", "decision", "goal", "status"):
        columns[name] = [each[name] for each in told]
    reasons, most = [each["reasons"] for each in told], max(map(len, ways), default=0)
    for name, count, lists in (("reason", MOST_REASONS, reasons), ("change", most, ways)):
        for place in range(count):
            column = [each[place]["text"] if place < len(each) else "" for each in lists]
            columns[f"{name}_{place + 1}"] = column
    if result.warning:
        columns["warning"] = [each["warning"] for each in told]
    columns["letter"] = [letters.text(query) for query in range(len(result))]
    table = pd.DataFrame(columns)
    return pd.concat([of_caller(result, table.columns), table], axis=1)


def _held(result: Explanations, query: int) -> list[str]:
    """The features that schema and rules hold for a query, in the order of the schema."""
    rules, schema = result.rules_of(query), result.schema
    held = {*schema.immutable_names, *result.fixed, *(rules.held(schema) if rules else ())}
    return [each.name for each in schema.features if each.name in held]


def _short(own: Any) -> Any:
    """The person's own value with four digits at least; nobody has to reach it in full."""
    if not isinstance(own, float):
        return own
    return float(round(own)) if abs(own) >= 10_000 else float(f"{own:.4g}")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
