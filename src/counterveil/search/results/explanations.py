"""Explanations: the answers to every query, in words, tables, pictures and files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from html import escape as escaped
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from counterveil.encoding import Array
from counterveil.errors import RequestError
from counterveil.files import Place, write_whole
from counterveil.pages import TEMPLATES
from counterveil.search.results import wording
from counterveil.search.results.answer import Refusal, as_records, card, in_sentences
from counterveil.search.results.certificate import Certificate
from counterveil.search.results.letters import Letters, as_html, mail_merge
from counterveil.search.results.outcome import Outcome
from counterveil.search.results.refusals import Status
from counterveil.search.results.regions import value_text
from counterveil.search.results.tables import (
    free_name,
    index_of_answers,
    is_plain,
    of_caller,
    or_none,
    typed_as,
    with_index,
)
from counterveil.signature import SigningKey, signer_dict, signer_line
from counterveil.tables import file_content

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 10  # answers in a notebook
LEFT_OUT = ["asked", "best_probability", "warning"]  # of records in JSON: said elsewhere there


class Explanations(Outcome):
    """The answers to queries, told in words, tables, pictures and files; see `Outcome`."""

    def __repr__(self) -> str:
        return f"Explanations({self.headline})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the promise, and the first answers in sentences."""
        some = self.found[:SHOWN].tolist()
        lines = [f"<li value={query + 1}>{escaped(self.explain(query))}</li>" for query in some]
        left = len(self.found) - len(some)
        more = f"<p>and {left} more: .explain(), .frame(), .summary()</p>" if left else ""
        told = f"{self.headline}; {self.statement.headline}"
        return f"<p><b>{escaped(told)}</b></p><ol>{''.join(lines)}</ol>{more}"

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
        """What has to be different, in one sentence; without an answer why, and the closest row.

        And what the veil cannot tell about the answer, if anything.
        """
        told = self.answer_of(query, answer)
        return " ".join(filter(None, (told.text, told.warning)))

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
        lines, schema = [self.explain(query), ""], self.schema

        def text(column: str, value: Any) -> str:
            return value_text(schema.shown_value(column, value))

        for each in self.answers_of(query):
            if not each.is_found:
                continue
            lines.append(f"{each.name.capitalize()}: {each.measures}")
            for column, region in each.regions.items():
                told = region.values or dict.fromkeys((region.low, region.high))
                works = (", " if region.values else " to ").join(text(column, v) for v in told)
                checked = f"(checked: {region.checked})"
                lines.append(f"  {schema.shown_name(column)} works: {works} {checked}")
        lines += ["", *self.meanings]
        lines.append("A region is about one change, while the others are as said.")
        if reasons := self.reasons_of(query):
            lines += [
                "",
                "Reasons, and by how much each lowers the log-odds of the other decision:",
            ]
            for reason in reasons:
                value = text(reason.feature, reason.value)
                lines.append(f"  {reason.text}: {value} ({reason.gain:.2f})")
        held = dict.fromkeys([*schema.immutable_names, *self.fixed])
        lines += ["", f"Fixed: {', '.join(map(schema.shown_name, held)) or 'nothing'}"]
        for name, said in self.rules_of(query) or ():
            if said:
                shown = sorted(said) if isinstance(said, frozenset) else said
                lines.append(f"Rule {name}: {shown}")
        if self.asked is not None:
            lines.append(f"Rows that the search asked about: {self.asked[query]:,}")
        lines += [self.decided_by.meaning, f"Statement: {self.statement.headline}"]
        return "\n".join(lines)

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

        With k > 1 the index has one more level, `answer`, from 1. Further columns of the caller's
        table come first, as in files, and all have the types that they have there if values fit.
        """
        index = pd.RangeIndex(len(self)) if self.index is None else self.index
        index = index_of_answers(index, self.k)[self.valid]
        found = typed_as(self.rows[self.valid].set_axis(index, axis=0), self.dtypes)
        if self.carried is None:
            return found
        query, _ = self._positions
        carried = self.carried.iloc[query[self.valid]].set_axis(index, axis=0)
        return pd.concat([carried, found], axis=1)

    def summary(self) -> pd.DataFrame:
        """One row an answer: status, classes, probability, distance, number of changed features.

        Classes are called what people call them. `query` counts from 1. With k > 1 also `answer`,
        its rank from 1, and the `reason` where any answer has one. Where any query has no answer,
        also `asked` and `best_probability`; where the veil cannot tell something about answers,
        the `warning`. The index is that of `rows`.
        """
        return with_index(self._summary(self.schema.label.shown_value), self.index, self.k)

    def _summary(self, called: Callable[[Any], Any] = str, *, whole: bool = False) -> pd.DataFrame:
        """The same from position 0; `called`: how classes are named; `whole`: with all columns."""
        names = np.array([str(called(name)) for name in self.schema.label.classes], dtype=object)
        query, rank = self._positions
        columns = {"query": query + 1} | ({"answer": rank + 1} if self.k > 1 else {})
        columns |= {
            "status": self.status,
            "predicted": names[self.predicted],
            "target": names[self.target],
            "probability": self.probability,
            "distance": self.distance,
            "changed_features": self.changed,
        }
        for name, values in self._measures.items():
            columns[name] = np.where(self.valid, values, np.nan)
        if self.reason is not None and (whole or any(self.reason)):
            columns["reason"] = self.reason
        if self.warning:
            columns["warning"] = np.where(self.valid, self.warning, "")
        if self.asked is not None and (whole or len(self.unanswered)):
            columns["asked"] = self.asked[query]
            columns["best_probability"] = np.asarray(self.best_probability)[query]
        return pd.DataFrame(columns)

    @property
    def _positions(self) -> tuple[Array, Array]:
        """The position of the query and of the answer among its own, for every answer."""
        query, rank = np.divmod(np.arange(len(self.status)), self.k)
        return query, rank

    @property
    def _measures(self) -> dict[str, Array]:
        """One number for each answer, by name: NaN if noise; empty without a population."""
        found = {} if self.quality is None else self.quality.measures
        return found if self.veil_knows else dict.fromkeys(found, np.array(np.nan))

    def changes(self) -> pd.DataFrame:
        """One row for each changed column: query, (with k > 1) answer, column, from, to.

        And what works there, while the rest of the answer stays as it is: `low` and `high` of a
        number, `values` of a category. Query and answer count from 1. The index is that of the
        queries, if their table has one.
        """
        rows = []
        for query, rank in (divmod(at, self.k) for at in np.flatnonzero(self.valid).tolist()):
            regions = {each["column"]: each for each in self.region_of(query, rank)}
            for change in self.changes_of(query, rank):
                works = regions.get(change[0], {})
                ends = (works.get(name) for name in ("low", "high", "values"))
                rows.append((query + 1, rank + 1, *change, *ends))
        columns = ["query", "answer", "column", "from", "to", "low", "high", "values"]
        table = pd.DataFrame(rows, columns=columns)
        if self.index is not None and not is_plain(self.index):
            table.index = self.index[table["query"].to_numpy(int) - 1]
        return table if self.k > 1 else table.drop(columns="answer")

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values for JSON, with the names and values of the table.

        What people call them is beside it, under `names`, where the schema says so. The first
        record of a query without an answer has `asked`, `best_probability`, `closest` and `opens`.
        """
        several = {"answers": self.answers, "diversity": or_none(self.diversity)}
        return {
            "statement": self.statement.model_dump(mode="json"),
            "signature": signer_dict(self.signer),
            "decided_by": self.decided_by.value,
            "flip_ratio": or_none(self.flip_ratio),
            "mean_distance": or_none(self.mean_distance),
            "veil_knows": self.veil_knows,
            "knows_pairs": self.knows_pairs,
            **(several if self.k > 1 else {}),
            **({"names": names} if (names := self.schema.names) else {}),
            "explanations": [*self._records()],
        }

    def _records(self) -> Iterator[dict[str, Any]]:
        told = self._summary().drop(columns=LEFT_OUT, errors="ignore")
        found: Any = told.to_dict(orient="records")
        for record, query, rank in zip(found, *self._positions, strict=True):
            record.update({name: or_none(record[name]) for name in self._measures})
            record["changes"] = as_records(self.changes_of(query, rank))
            record["regions"] = self.region_of(query, rank)
            if rank == 0:
                record["reasons"] = [each.record for each in self.reasons_of(query)]
                if carried := self.carried_of(query):
                    record["carried"] = carried
                if refusal := self.refusal_of(query):
                    record.update(refusal.record)
            yield record

    def to_html(self, *, most: int = 100) -> str:
        """A page for people, of one file: a card for each of the first `most` queries.

        Queries that are of the target class already come last, in one line.
        """
        is_already = self.status[:: self.k] == Status.ALREADY.value
        asked, already = (np.flatnonzero(part).tolist() for part in (~is_already, is_already))
        return TEMPLATES.get_template("explanations.html").render(
            title=f"Explanations: {self.schema.name}",
            cards=[card(self.answers_of(query)) for query in asked[:most]],
            asked=len(asked),
            already=[query + 1 for query in already],
            result=self,
            counts={status.value: self.count(status) for status in Status},
            statement=self.statement,
            signed=signer_line(self.signer),
        )

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
        told, own = self._summary(whole=whole), self.schema.columns
        told["query"] += first
        query, _ = self._positions
        if "asked" in told:
            known = [_cells(self.refusal_of(each)) for each in range(len(self))]
            told = told.assign(**pd.DataFrame(known).iloc[query].reset_index(drop=True))
        keys = of_caller(self, told.columns)
        told = told.rename(columns=lambda name: free_name(name, own))
        parts = [keys.iloc[query].reset_index(drop=True), told, self.rows.reset_index(drop=True)]
        return pd.concat(parts, axis=1)


def _cells(refusal: Refusal | None) -> dict[str, Any]:
    """What is known about a query without an answer, as cells of a table; texts are not mixed."""
    record = refusal.record if refusal else {}
    opens, to = record.get("opens") or {}, (record.get("opens") or {}).get("to")
    changed = {change["column"]: change["to"] for change in record.get("closest", ())}
    return {
        "closest": json.dumps(changed, ensure_ascii=False) if refusal else "",
        "opens_rule": opens.get("rule", ""),
        "opens_feature": opens.get("feature") or "",
        "opens_to": "" if to is None else str(to),
        "opens_probability": opens.get("probability", np.nan),
    }
