"""Explanations: the answers to every query, in words, tables, pictures and files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
import torch

from counterveil.encoding import Array, Encoding
from counterveil.errors import RequestError
from counterveil.files import write_whole
from counterveil.pages import TEMPLATES
from counterveil.privacy import Statement
from counterveil.schema import Category, Schema
from counterveil.search.results import wording
from counterveil.search.results.answer import Answer, Refusal
from counterveil.search.results.frames import LazyFrame, index_of_answers, is_plain, with_index
from counterveil.search.results.page import card
from counterveil.search.results.quality import AnswerQuality
from counterveil.search.results.refusals import Opening, Status
from counterveil.search.results.wording import Change, DecidedBy, same
from counterveil.signature import Signer, signer_dict, signer_line
from counterveil.tables import file_content, plain_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 10  # answers in a notebook
_BY_ANSWER = ("status", "predicted", "target", "probability", "distance", "changed")
_MISSING = (Status.NOT_FOUND.value, Status.IMPOSSIBLE.value)
_FRAMES = ("queries", "rows", "closest", "opened")


def _unknown() -> None:
    """The quality of answers where no population is known."""


def _of_quality(name: str) -> property:
    """A property of Explanations: one of the arrays of `AnswerQuality`, or None."""
    return property(
        lambda result: result.quality and getattr(result.quality, name),
        doc="Of each answer, see `AnswerQuality`; None where no population is known.",
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Explanations:
    """The answers to queries, in the order in which these came.

    Arguments of methods are positions as everywhere in Python: 0 is the first query, and 0 the
    first of its `k` answers. Whatever is shown or written to a file counts queries and answers
    from 1, as the rows of a spreadsheet.

    Frames and arrays with one entry for each answer, (queries · k), those of the first query first:

    - `queries`: the row asked about, repeated for each of its answers.
    - `rows`: the answer; where none was found, the query's own row.
    - `status`: values of `Status`.
    - `predicted`, `target`: indices of classes.
    - `probability`: of the target class for `rows`.
    - `distance`: L2 distance in the unit cube.
    - `changed`: number of changed features.
    - `reason`: why no answer was found, or an empty text.

    About queries without an answer, one entry for each query; empty or None where the search does
    not tell:

    - `asked`: how many rows the model was asked about, (queries,).
    - `closest`: the allowed row for which the model is surest of the target class.
    - `best_probability`: of the target class for `closest`, (queries,); NaN for other queries.
    - `opens`: the one rule whose lifting opens a way (`Opening`), or None.
    - `opened`: the row that is then accepted.

    About all:

    - `fixed`: features held fixed besides those that the schema fixes.
    - `signer`: who signed the veil; None if it is not signed.
    - `index`: the index of the caller's table; None where that had none. Where it is more than
      positions from 0, all frames have it, too; with k > 1 those of answers have one more level,
      `answer`, from 1.
    - `decided_by`: whose decisions these are.
    - `assess`: computes the `quality` of the answers when that is first looked at: the model may
      then be asked, and a committee be learnt. It gives None where a veil has no population.
    """

    schema: Schema
    statement: Statement
    queries: LazyFrame = LazyFrame()  # noqa: RUF009
    rows: LazyFrame = LazyFrame()  # noqa: RUF009
    status: Array
    predicted: Array
    target: Array
    probability: Array
    distance: Array
    changed: Array
    iterations: int
    k: int = 1
    reason: Array | None = None
    asked: Array | None = None
    best_probability: Array | None = None
    closest: LazyFrame = LazyFrame(default=pd.DataFrame)  # noqa: RUF009
    opens: Sequence[Opening | None] = ()
    opened: LazyFrame = LazyFrame(default=pd.DataFrame)  # noqa: RUF009
    fixed: tuple[str, ...] = ()
    signer: Signer | None = None
    index: pd.Index[Any] | None = None
    decided_by: DecidedBy = DecidedBy.MODEL
    assess: Callable[[], AnswerQuality | None] = _unknown

    def __len__(self) -> int:
        return len(self.status) // self.k

    def __repr__(self) -> str:
        return f"Explanations({self.headline})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the promise, and the first answers in sentences."""
        some = self.found[:SHOWN].tolist()
        lines = [f"<li value={query + 1}>{escape(self.explain(query))}</li>" for query in some]
        left = len(self.found) - len(some)
        more = f"<p>and {left} more: .explain(), .frame(), .summary()</p>" if left else ""
        told = f"{self.headline}; {self.statement.headline}"
        return f"<p><b>{escape(told)}</b></p><ol>{''.join(lines)}</ol>{more}"

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: all that was put off is computed, and the model is left out."""
        frames = {f"_{name}": getattr(self, name) for name in _FRAMES}
        return {**self.__dict__, **frames, "assess": partial(_known, self.quality)}

    @property
    def valid(self) -> Array:
        """Which answers are counterfactuals: a mask over all answers."""
        return np.asarray(self.status == Status.FOUND.value)

    @property
    def found(self) -> Array:
        """The positions of the queries that have a counterfactual."""
        return np.flatnonzero(self.valid[:: self.k])

    @property
    def unanswered(self) -> Array:
        """The positions of the queries that need an answer and have none."""
        missing = np.isin(self.status.astype(str), _MISSING)
        return np.flatnonzero(missing.reshape(-1, self.k).all(axis=1))

    @property
    def answers(self) -> int:
        """How many counterfactuals were found in all."""
        return int(self.valid.sum())

    def count(self, status: Status) -> int:
        """How many queries have a first answer of this status."""
        return int((self.status[:: self.k] == status.value).sum())

    @property
    def flip_ratio(self) -> float:
        """Queries with a counterfactual over those that were not of the target class already."""
        asked = len(self) - self.count(Status.ALREADY)
        return len(self.found) / asked if asked else float("nan")

    @property
    def mean_distance(self) -> float:
        """Mean L2 distance in the unit cube from query to first answer, over those found."""
        distance = self.distance[:: self.k][self.found]
        return float(distance.mean()) if len(distance) else float("nan")

    @property
    def diversity(self) -> float:
        """Mean L2 distance in the unit cube between the answers of a query; NaN without pairs."""
        if self.k == 1 or not self.answers:
            return float("nan")
        points = torch.from_numpy(Encoding(self.schema).encode(self.rows)).split(self.k)
        valid = torch.from_numpy(self.valid).split(self.k)
        several = [rows[ok] for rows, ok in zip(points, valid, strict=True) if ok.sum() > 1]
        distances = [torch.pdist(rows).mean().item() for rows in several]
        return float(np.mean(distances)) if distances else float("nan")

    @property
    def headline(self) -> str:
        """How the search went, in one line."""
        more = f" with {self.answers} answers" if self.k > 1 else ""
        parts = [f"{len(self.found)} found{more}", f"{self.count(Status.NOT_FOUND)} not found"]
        if self.count(Status.IMPOSSIBLE):
            parts.append(f"{self.count(Status.IMPOSSIBLE)} impossible")
        if self.count(Status.ALREADY):
            parts.append(f"{self.count(Status.ALREADY)} already of the target class")
        line = f"{len(self)} {'query' if len(self) == 1 else 'queries'}: {', '.join(parts)}"
        return line + (f"; mean distance {self.mean_distance:.2f}" if len(self.found) else "")

    def only(self, queries: Sequence[int]) -> Self:
        """The same for some of the queries, in the given order, numbered anew."""
        some = np.asarray(queries, dtype=int)
        at = (some[:, None] * self.k + np.arange(self.k)).ravel()
        index = None if self.index is None else self.index[some]

        def part(name: str, at: Array, k: int) -> pd.DataFrame:
            frame: pd.DataFrame = getattr(self, name)
            return (
                with_index(frame.iloc[at].reset_index(drop=True), index, k) if len(frame) else frame
            )

        asked, best = self.asked, self.best_probability
        return replace(
            self,
            queries=part("queries", at, self.k),
            rows=part("rows", at, self.k),
            closest=part("closest", some, 1),
            opened=part("opened", some, 1),
            reason=None if self.reason is None else self.reason[at],
            asked=None if asked is None else asked[some],
            best_probability=None if best is None else best[some],
            opens=[self.opens[query] for query in some] if self.opens else (),
            index=index,
            assess=lambda: None if self.quality is None else self.quality.select(at),
            **{name: getattr(self, name)[at] for name in _BY_ANSWER},
        )

    @cached_property
    def quality(self) -> AnswerQuality | None:
        """The quality of each answer; None where no population is known."""
        return self.assess()

    worth = property(lambda self: self.quality, doc="The same as `quality`.")
    effort = _of_quality("effort")
    plausibility = _of_quality("plausibility")
    stability = _of_quality("stability")
    standing = _of_quality("standing")

    @property
    def _measures(self) -> dict[str, Array]:
        """One number for each answer, by name; empty where no population is known."""
        return {} if self.quality is None else self.quality.measures

    @property
    def meanings(self) -> tuple[str, ...]:
        """What the measures mean, a sentence each."""
        return wording.meanings(self.schema, with_quality=self.quality is not None)

    def at(self, query: int, answer: int) -> int:
        """The position of an answer in every field."""
        if not 0 <= query < len(self):
            raise RequestError(f"no query at position {query}; positions are 0 to {len(self) - 1}")
        if not 0 <= answer < self.k:
            raise RequestError(f"no answer at position {answer}; positions are 0 to {self.k - 1}")
        return query * self.k + answer

    def changes_of(self, query: int, answer: int = 0) -> list[Change]:
        """The changed columns of one answer with their values before and after."""
        at = self.at(query, answer)
        return _changes(self._cells["queries"], at, self._cells["rows"], at)

    def kept_of(self, query: int, answer: int = 0) -> list[tuple[str, Any]]:
        """The columns of one answer that stay as they are, with their values."""
        at, changed = self.at(query, answer), {name for name, *_ in self.changes_of(query, answer)}
        cells = self._cells["queries"].items()
        return [(column, values[at]) for column, values in cells if column not in changed]

    def classes_of(self, query: int, answer: int = 0) -> tuple[Category, Category]:
        """The class that the model which is asked gives now, and the one that was asked for."""
        at, classes = self.at(query, answer), self.schema.label.classes
        return classes[self.predicted[at]], classes[self.target[at]]

    def shown_classes(self, query: int, answer: int = 0) -> tuple[Category, Category]:
        """What people call `classes_of`; the first is "not asked" where f is not consulted."""
        now, goal = map(self.schema.label.shown_value, self.classes_of(query, answer))
        return ("not asked" if self.decided_by is DecidedBy.STAND_IN else now), goal

    def places_of(self, query: int, answer: int) -> dict[str, tuple[float, float]]:
        """Of each number the share of people below it, before and after; empty where unknown."""
        if self.quality is None:
            return {}
        places = self.quality.places[self.at(query, answer)]
        known = zip(self.schema.features, places, strict=True)
        return {each.name: tuple(two) for each, two in known if not np.isnan(two).any()}

    def refusal_of(self, query: int) -> Refusal | None:
        """What is known about a query without an answer; None about any other one."""
        at = self.at(query, 0)
        lacks = np.isin(self.status[at : at + self.k].astype(str), _MISSING).all()
        if self.asked is None or self.best_probability is None or not lacks:
            return None
        own, opening = self._cells["queries"], self.opens[query] if self.opens else None
        return Refusal(
            int(self.asked[query]),
            float(self.best_probability[query]),
            _changes(own, at, self._cells["closest"], query),
            opening,
            [] if opening is None else _changes(own, at, self._cells["opened"], query),
        )

    def answer_of(self, query: int, answer: int = 0) -> Answer:
        """All that is shown of one answer."""
        at = self.at(query, answer)
        status = Status(str(self.status[at]))
        numbers = {"probability": self.probability, "distance": self.distance}
        standing: dict[str, float] = {}
        if status is Status.FOUND and self.quality is not None:
            numbers |= self.quality.measures
            names = (feature.name for feature in self.schema.features)
            standing = dict(zip(names, self.quality.standing[at].tolist(), strict=False))
        return Answer(
            schema=self.schema,
            decided_by=self.decided_by,
            query=query,
            rank=answer,
            several=self.k > 1,
            has_others=bool(self.status[query * self.k] == Status.FOUND.value),
            status=status,
            classes=self.shown_classes(query, answer),
            changes=self.changes_of(query, answer),
            kept=self.kept_of(query, answer),
            fixed=self.fixed,
            numbers={name: float(values[at]) for name, values in numbers.items()},
            standing=standing,
            places=self.places_of(query, answer) if status is Status.FOUND else {},
            reason="" if self.reason is None else str(self.reason[at]),
            refusal=None if answer else self.refusal_of(query),
        )

    def answers_of(self, query: int) -> list[Answer]:
        """All that is shown of the answers to one query."""
        return [self.answer_of(query, answer) for answer in range(self.k)]

    def text(self, query: int, answer: int = 0) -> str:
        """One answer in sentences; where there is none, why, and what comes closest."""
        return self.answer_of(query, answer).text

    def measures(self, query: int, answer: int = 0) -> str:
        """The numbers of one answer in a line: probability, distance and what is known besides."""
        return self.answer_of(query, answer).measures

    def explain(self, query: int | None = None) -> str:
        """The answers to one query in sentences, or those to every query that has any."""
        if query is None:
            numbers = self.found.tolist()
            every = "\n\n".join(f"Query {number + 1}: {self.explain(number)}" for number in numbers)
            return every or f"{self.headline}."
        first, *_ = answers = self.answers_of(query)
        found = [each for each in answers if each.is_found]
        if len(found) < 2:
            return first.text
        lines = [wording.opening(*first.classes, self.decided_by)]
        for each in found:
            start = "if" if len(lines) == 1 else "Or: if"
            line = f"  ({each.rank + 1}) {start} {each.condition} ({each.sure})."
            lines.append(" ".join([line, *each.quality_in_words]))
        return "\n".join(lines)

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

        That is the index of the caller's table, or positions from 0. With k > 1 the index has one
        more level, `answer`, from 1.
        """
        index = pd.RangeIndex(len(self)) if self.index is None else self.index
        return self.rows.set_axis(index_of_answers(index, self.k), axis=0)[self.valid]

    def summary(self) -> pd.DataFrame:
        """One row an answer: status, classes, probability, distance, number of changed features.

        Classes are called what people call them. `query` counts from 1. With k > 1 also `answer`,
        its rank from 1, and the `reason` where any answer has one. Where any query has no answer,
        also `asked` and `best_probability`. The index is that of the caller's table, as that of
        `rows`.
        """
        label = self.schema.label
        summary = self._summary([label.shown_value(name) for name in label.classes])
        return with_index(summary, self.index, self.k)

    def _summary(self, classes: Sequence[Category], *, whole: bool = False) -> pd.DataFrame:
        """The summary with these names for the classes; `whole`: with every column it may have."""
        names = np.array([str(name) for name in classes], dtype=object)
        number, rank = self._numbers
        columns = {"query": number + 1} | ({"answer": rank + 1} if self.k > 1 else {})
        columns |= {
            "status": self.status,
            "predicted": names[self.predicted],
            "target": names[self.target],
            "probability": self.probability,
            "distance": self.distance,
            "changed_features": self.changed,
        }
        columns |= {
            name: np.where(self.valid, values, np.nan) for name, values in self._measures.items()
        }
        if self.reason is not None and (whole or any(self.reason)):
            columns["reason"] = self.reason
        if self.asked is not None and (whole or len(self.unanswered)):
            columns["asked"] = self.asked[number]
            columns["best_probability"] = np.asarray(self.best_probability)[number]
        return pd.DataFrame(columns)

    def changes(self) -> pd.DataFrame:
        """One row for each changed column: query, (with k > 1) answer, column, from, to.

        Query and answer count from 1. Where the caller's table has an index, the rows have that of
        their queries.
        """
        number, rank = (numbers[self.valid].tolist() for numbers in self._numbers)
        records = [
            (query + 1, answer + 1, *change)
            for query, answer in zip(number, rank, strict=True)
            for change in self.changes_of(query, answer)
        ]
        table = pd.DataFrame(records, columns=["query", "answer", "column", "from", "to"])
        if self.index is not None and not is_plain(self.index):
            table.index = self.index[table["query"].to_numpy(int) - 1]
        return table if self.k > 1 else table.drop(columns="answer")

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values for JSON, with the names and values of the table.

        What people call them is beside it, under `names`, where the schema says so. The first
        record of a query without an answer has `asked`, `best_probability`, `closest` and `opens`.
        """
        records = self._summary(self.schema.label.classes).to_dict(orient="records")
        for record, query, answer in zip(records, *self._numbers, strict=True):
            for name in ("asked", "best_probability"):
                record.pop(name, None)
            record.update({name: _or_none(record[name]) for name in self._measures})
            record["changes"] = as_records(self.changes_of(query, answer))
            record.update({} if answer else self.refusal_dict(query))
        several = {"answers": self.answers, "diversity": _or_none(self.diversity)}
        return {
            "statement": self.statement.model_dump(mode="json"),
            "signature": signer_dict(self.signer),
            "decided_by": self.decided_by.value,
            "flip_ratio": _or_none(self.flip_ratio),
            "mean_distance": _or_none(self.mean_distance),
            **(several if self.k > 1 else {}),
            **({"names": names} if (names := self.schema.names) else {}),
            "explanations": records,
        }

    def refusal_dict(self, query: int) -> dict[str, Any]:
        """What is known about a query without an answer, as plain values; empty for any other."""
        refusal = self.refusal_of(query)
        if refusal is None:
            return {}
        after = {column: value for column, _, value in refusal.opened}
        opening = refusal.opening
        return {
            "asked": refusal.asked,
            "best_probability": refusal.probability,
            "closest": as_records(refusal.changes),
            "opens": opening
            and {
                "rule": opening.rule,
                "feature": opening.feature,
                "to": after.get(opening.feature or ""),
                "probability": float(opening.probability),
                "changes": as_records(refusal.opened),
            },
        }

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
        """Write summary and rows side by side as .csv, .parquet or .json, or `to_html` as .html.

        All names and values are those of the table, whatever people call them.

        In a CSV, texts that a spreadsheet would take for a formula get an apostrophe in front;
        `escape=False` writes them as they are.

        An index of the caller's table comes first, unless it is positions from 0. A column of it or
        of the summary that is called like one of the table's (`status`, `distance`, …) is written
        as `counterveil_status` and so on; the table keeps its names.
        """
        if Path(path).suffix.lower() == ".html":
            write_whole(path, self.to_html().encode("utf-8", "replace"))
            return
        write_whole(path, file_content(self.table(), path, escape=escape))

    def table(self, first: int = 0, *, whole: bool = False) -> pd.DataFrame:
        """Summary and rows side by side, as `save` writes them; queries count from `first` + 1.

        Where any query has no answer, also columns of what is known about it: `closest`, the
        changed values of that row as JSON, and `opens_rule`, `opens_feature`, `opens_to` and
        `opens_probability`. `whole`: with all of these columns in any case.
        """
        summary = self._summary(self.schema.label.classes, whole=whole)
        summary["query"] += first
        number, _ = self._numbers
        if "asked" in summary:
            known = [_as_cells(self.refusal_dict(query)) for query in range(len(self))]
            summary = summary.assign(**pd.DataFrame(known).iloc[number].reset_index(drop=True))
        if self.index is not None and not is_plain(self.index):
            levels = pd.DataFrame(index=self.index).reset_index(allow_duplicates=True)
            for place, name in enumerate(levels):
                values = levels.iloc[number, place].to_numpy()
                summary.insert(place, free_name(str(name), summary.columns), values)
        own = self.schema.columns
        summary = summary.rename(columns=lambda name: free_name(name, own))
        return pd.concat([summary, self.rows.reset_index(drop=True)], axis=1)

    @property
    def _numbers(self) -> tuple[Array, Array]:
        """The position of the query and of the answer among its own, for every answer."""
        number, rank = np.divmod(np.arange(len(self.status)), self.k)
        return number, rank

    @cached_property
    def _cells(self) -> dict[str, dict[str, list[Any]]]:
        """The columns of each frame as plain values; a row of pandas makes integers floats."""
        return {
            name: {
                column: [plain_value(value, feature.is_whole) for value in frame[column]]
                for feature in self.schema.features
                for column in feature.columns
            }
            for name in _FRAMES
            if len(frame := getattr(self, name))
        }


def free_name(name: str, taken: Collection[str]) -> str:
    """What a column is called beside columns with other names."""
    while name in taken:
        name = f"counterveil_{name}"
    return name


def as_records(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """Changes as plain values for JSON."""
    return [{"column": name, "from": before, "to": after} for name, before, after in changes]


def _changes(
    before: dict[str, list[Any]], at: int, after: dict[str, list[Any]], then: int
) -> list[Change]:
    """The columns in which row `at` of one table differs from row `then` of another."""
    cells = ((column, before[column][at], after[column][then]) for column in before)
    return [cell for cell in cells if not same(*cell[1:])]


def _as_cells(refusal: dict[str, Any]) -> dict[str, Any]:
    """What is known about a query without an answer, as cells of a table; texts are not mixed."""
    opens = refusal.get("opens") or {}
    to = opens.get("to")
    changes = {change["column"]: change["to"] for change in refusal.get("closest", ())}
    return {
        "closest": json.dumps(changes, ensure_ascii=False) if refusal else "",
        "opens_rule": opens.get("rule", ""),
        "opens_feature": opens.get("feature") or "",
        "opens_to": "" if to is None else str(to),
        "opens_probability": opens.get("probability", np.nan),
    }


def _or_none(number: float) -> float | None:
    return None if np.isnan(number) else number


def _known(quality: AnswerQuality | None) -> AnswerQuality | None:
    return quality
