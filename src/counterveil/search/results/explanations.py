"""Explanations: the answers to every query, in words, tables, pictures and files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from counterveil.errors import RequestError
from counterveil.files import Place, write_whole
from counterveil.search.results import tables, wording
from counterveil.search.results.answer import in_sentences
from counterveil.search.results.certificate import Certificate
from counterveil.search.results.details import details
from counterveil.search.results.letters import Letters, as_html, mail_merge
from counterveil.search.results.outcome import Outcome
from counterveil.search.results.tables import index_of_answers, with_index
from counterveil.signature import SigningKey
from counterveil.tables import file_content

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Explanations(Outcome):
    """The answers to queries, told in words, tables, pictures and files; see `Outcome`."""

    def __repr__(self) -> str:
        return f"Explanations({self.headline})"

    _repr_html_ = tables.in_notebook

    @property
    def meanings(self) -> tuple[str, ...]:
        """What the measures mean, a sentence each."""
        return wording.meanings(self.schema, with_quality=bool(self.veil_knows))

    def certificate(
        self, query: int, answer: int = 0, key: SigningKey | None = None
    ) -> Certificate:
        """What proves one answer later, signed where a `key` is given: `Explainer.verify`."""
        return Certificate.of(self, query, answer, key)

    def text(self, query: int, answer: int = 0) -> str:
        """What has to be different, in one sentence; without an answer why, and the closest row."""
        return self.answer_of(query, answer).text

    def measures(self, query: int, answer: int = 0) -> str:
        """The numbers of one answer in a line: probability, distance and what is known besides."""
        return self.answer_of(query, answer).measures

    def explain(self, query: int | None = None) -> str:
        """The answers to one query, and how they compare with other people, for a case worker.

        Without `query`, those to every query that has any.
        """
        if query is None:
            numbers = self.found.tolist()
            every = "\n\n".join(f"Query {number + 1}: {self.explain(number)}" for number in numbers)
            return every or f"{self.headline}."
        return in_sentences(self.answers_of(query))

    def letter(
        self, query: int, language: str = "en", template: Place | None = None, *, html: bool = False
    ) -> str:
        """What to tell the person: the decision, its main reasons, and what would change it.

        Short, and without measures: see docs/letters.md. `language`: "en" or "de". `template`: the
        path of a template of your own. `html`: as a page of one file.
        """
        text = Letters(self, language, template).text(query)
        return as_html(text, language) if html else text

    def details(self, query: int) -> str:
        """Everything that is known about the answers to one query, for whoever looks into it."""
        return details(self, query)

    def mail_merge(self, language: str = "en", template: Place | None = None) -> pd.DataFrame:
        """One row a person: the caller's index, decision, reasons, changes in words, letter."""
        return mail_merge(self, Letters(self, language, template))

    def plot(self, query: int = 0, answer: int = 0) -> Figure:
        """One answer as a picture: a matplotlib Figure, to show or to `.savefig("cf.png")`.

        A query without an answer shows the closest allowed row.
        """
        try:
            from counterveil.search.results.figure import draw
        except ModuleNotFoundError:
            raise RequestError("plot needs matplotlib: pip install matplotlib") from None
        return draw(self.answer_of(query, answer))

    def frame(self) -> pd.DataFrame:
        """The counterfactual rows that were found, with the index of their queries.

        With k > 1 the index has one more level, `answer`, from 1.
        """
        index = pd.RangeIndex(len(self)) if self.index is None else self.index
        return self.rows.set_axis(index_of_answers(index, self.k), axis=0)[self.valid]

    def summary(self) -> pd.DataFrame:
        """One row an answer: status, classes, probability, distance, number of changed features.

        Classes are called what people call them. `query` counts from 1. With k > 1 also `answer`,
        its rank from 1, and the `reason` where any answer has one. Where any query has no answer,
        also `asked` and `best_probability`. The index is that of `rows`.
        """
        return with_index(tables.summary(self, self.schema.label.shown_value), self.index, self.k)

    def changes(self) -> pd.DataFrame:
        """One row for each changed column: query, (with k > 1) answer, column, from, to.

        And what works there, while the rest of the answer stays as it is: `low` and `high` of a
        number, `values` of a category. Query and answer count from 1. The index is that of the
        queries, if their table has one.
        """
        return tables.changes(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values for JSON, with the names and values of the table.

        What people call them is beside it, under `names`, where the schema says so. The first
        record of a query without an answer has `asked`, `best_probability`, `closest` and `opens`.
        """
        return tables.as_dict(self)

    def to_html(self, *, most: int = 100) -> str:
        """A page for people, of one file: a card for each of the first `most` queries.

        Queries that are of the target class already come last, in one line.
        """
        return tables.page(self, most)

    def save(self, path: str | os.PathLike[str], *, escape: bool = True) -> None:
        """Write summary and rows side by side: .csv, .xlsx, .parquet, .json; `to_html` as .html.

        All names and values are those of the table, whatever people call them.

        In a CSV, texts that a spreadsheet would take for a formula get an apostrophe in front;
        `escape=False` writes them as they are.

        An index of the caller's table comes first, unless it is positions from 0. A column of it or
        of the summary that is called like one of the table's (`status`, `distance`, …) is written
        as `counterveil_status` and so on; the table keeps its names.
        """
        if Path(path).suffix.lower() == ".html":
            content = self.to_html().encode("utf-8", "replace")
        else:
            content = file_content(self.table(), path, escape=escape)
        write_whole(path, content)

    def table(self, first: int = 0, *, whole: bool = False) -> pd.DataFrame:
        """Summary and rows side by side, as `save` writes them; queries count from `first` + 1.

        Where any query has no answer, also columns of what is known about it: `closest`, the
        changed values of that row as JSON, and `opens_rule`, `opens_feature`, `opens_to` and
        `opens_probability`. `whole`: with all of these columns in any case.
        """
        return tables.table(self, first, whole=whole)
