"""Explanations: the answers to every query, in the units of the table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from counterveil.encoding import Array, Encoding
from counterveil.errors import RequestError
from counterveil.files import write_whole
from counterveil.privacy import Statement
from counterveil.schema import Category, Schema
from counterveil.search import wording
from counterveil.search.wording import Change, DecidedBy, same
from counterveil.signature import Signer, signer_dict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NO_FURTHER = "no further answer that differs"
_ARRAYS = ("status", "predicted", "target", "probability", "distance", "changed")
_WORTH = ("effort", "plausibility", "stability")  # of an answer, one number each


class Status(StrEnum):
    """How the search for one answer ended; ALREADY: the query is of the target class itself."""

    FOUND = "found"
    NOT_FOUND = "not_found"
    ALREADY = "already"


@dataclass(frozen=True, eq=False)
class Explanations:
    """What the search found, for each query in the order they came.

    Arguments of methods are positions as everywhere in Python: 0 is the first query, and 0 the
    first of its `k` answers. Whatever is shown or written to a file counts queries and answers
    from 1, as the rows of a spreadsheet. Frames and arrays have one entry for each answer,
    (queries · k) in all: those of the first query, then those of the second, and so on.

    `queries`: the row asked about, repeated for each of its answers. `rows`: the answer; where
    none was found, the query's own row. `status`: values of `Status`. `predicted`, `target`:
    indices of classes. `probability`: of the target class for `rows`. `distance`: L2 distance
    in the unit cube. `changed`: number of changed features. `reason`: why no answer was found, or
    an empty text. `fixed`: features held fixed besides those that the schema fixes. `signer`: who
    signed the veil; None if nobody did. `index`: the index of the caller's table, which `frame` has
    too; None where that had none. `decided_by`: whose decisions these are.

    Three numbers say what an answer is worth, as far as the veil's population P~ knows; None where
    a veil has none. `effort`: Σ over the changed features of the difference of percentiles among
    all people, a changed category counting 1. `plausibility`: the share of P~'s rows of the target
    class that are less likely than the answer. `stability`: the share of a committee of models
    learnt from P~ that gives the target class, too. `standing`, (answers, features): the share of
    P~'s people of the target class whose number is below the answer's; NaN for what is no number.
    All follow from the veil, the model and the answer alone.
    """

    schema: Schema
    statement: Statement
    queries: pd.DataFrame
    rows: pd.DataFrame
    status: Array
    predicted: Array
    target: Array
    probability: Array
    distance: Array
    changed: Array
    iterations: int
    k: int = 1
    reason: Array | None = None
    fixed: tuple[str, ...] = ()
    signer: Signer | None = None
    index: pd.Index[Any] | None = None
    decided_by: DecidedBy = DecidedBy.MODEL
    effort: Array | None = None
    plausibility: Array | None = None
    stability: Array | None = None
    standing: Array | None = None

    def __len__(self) -> int:
        return len(self.queries) // self.k

    @property
    def _arrays(self) -> dict[str, Any]:
        """The arrays with a number for each answer, by name."""
        known = {name: getattr(self, name) for name in _ARRAYS} | self._worth
        return known if self.standing is None else {**known, "standing": self.standing}

    @property
    def _worth(self) -> dict[str, Array]:
        """What answers are worth, by name; empty where no population knows."""
        known = {name: getattr(self, name) for name in _WORTH}
        return {name: values for name, values in known.items() if values is not None}

    def __repr__(self) -> str:
        return f"Explanations({self.headline})"

    @property
    def valid(self) -> Array:
        """Which answers are counterfactuals: a mask over all answers."""
        return np.asarray(self.status == Status.FOUND.value)

    @property
    def found(self) -> Array:
        """The positions of the queries that have a counterfactual."""
        return np.flatnonzero(self.valid[:: self.k])

    @property
    def answers(self) -> int:
        """How many counterfactuals were found in all."""
        return int(self.valid.sum())

    @property
    def flip_ratio(self) -> float:
        """Queries with a counterfactual over those that were not of the target class already."""
        asked = self.status[:: self.k] != Status.ALREADY.value
        return len(self.found) / int(asked.sum()) if asked.any() else float("nan")

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

    def count(self, status: Status) -> int:
        """How many queries have a first answer of this status."""
        return int((self.status[:: self.k] == status.value).sum())

    @property
    def headline(self) -> str:
        """How the search went, in one line."""
        more = f" with {self.answers} answers" if self.k > 1 else ""
        parts = [f"{len(self.found)} found{more}", f"{self.count(Status.NOT_FOUND)} not found"]
        if self.count(Status.ALREADY):
            parts.append(f"{self.count(Status.ALREADY)} already of the target class")
        line = f"{len(self)} queries: {', '.join(parts)}"
        return line + (f"; mean distance {self.mean_distance:.2f}" if len(self.found) else "")

    def frame(self) -> pd.DataFrame:
        """The counterfactual rows that were found, with the index of their queries.

        That is the index of the caller's table, or positions from 0. With k > 1 the index has one
        more level, `answer`, from 1.
        """
        index = pd.RangeIndex(len(self)) if self.index is None else self.index
        number, rank = self._numbers
        if self.k > 1:
            levels = [index.get_level_values(level)[number] for level in range(index.nlevels)]
            names = [name or "query" for name in index.names] if index.nlevels == 1 else index.names
            index = pd.MultiIndex.from_arrays([*levels, rank + 1], names=[*names, "answer"])
        return self.rows.set_axis(index, axis=0)[self.valid]

    def only(self, queries: Sequence[int]) -> Explanations:
        """The same for some of the queries, in the given order, numbered anew."""
        at = (np.asarray(queries, dtype=int)[:, None] * self.k + np.arange(self.k)).ravel()
        return replace(
            self,
            queries=self.queries.iloc[at].reset_index(drop=True),
            rows=self.rows.iloc[at].reset_index(drop=True),
            reason=None if self.reason is None else self.reason[at],
            index=None if self.index is None else self.index[np.asarray(queries, dtype=int)],
            **{name: values[at] for name, values in self._arrays.items()},
        )

    def summary(self) -> pd.DataFrame:
        """One row an answer: status, classes, probability, distance, number of changed features.

        `query` counts from 1. With k > 1 also `answer`, its rank from 1, and the `reason` where any
        answer has one.
        """
        names = np.array([str(name) for name in self.schema.label.classes], dtype=object)
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
            name: np.where(self.valid, values, np.nan) for name, values in self._worth.items()
        }
        if self.reason is not None and any(self.reason):
            columns["reason"] = self.reason
        return pd.DataFrame(columns)

    def changes(self) -> pd.DataFrame:
        """One row for each changed column: query, (with k > 1) answer, column, from, to.

        Query and answer count from 1.
        """
        number, rank = (numbers[self.valid].tolist() for numbers in self._numbers)
        records = [
            (query + 1, answer + 1, *change)
            for query, answer in zip(number, rank, strict=True)
            for change in self.changes_of(query, answer)
        ]
        table = pd.DataFrame(records, columns=["query", "answer", "column", "from", "to"])
        return table if self.k > 1 else table.drop(columns="answer")

    def changes_of(self, query: int, answer: int = 0) -> list[Change]:
        """The changed columns of one answer with their values before and after."""
        return [cell for cell in self._cells_of(query, answer) if not same(*cell[1:])]

    def kept_of(self, query: int, answer: int = 0) -> list[tuple[str, Any]]:
        """The columns of one answer that stay as they are, with their values."""
        cells = self._cells_of(query, answer)
        return [(column, before) for column, before, after in cells if same(before, after)]

    def at(self, query: int, answer: int) -> int:
        """The position of an answer in every field."""
        if not 0 <= query < len(self):
            raise RequestError(f"no query at position {query}; positions are 0 to {len(self) - 1}")
        if not 0 <= answer < self.k:
            raise RequestError(f"no answer at position {answer}; positions are 0 to {self.k - 1}")
        return query * self.k + answer

    def classes_of(self, query: int, answer: int = 0) -> tuple[Category, Category]:
        """The class that the model which is asked gives now, and the one that was asked for."""
        at, classes = self.at(query, answer), self.schema.label.classes
        return classes[self.predicted[at]], classes[self.target[at]]

    def shown_classes(self, query: int, answer: int = 0) -> tuple[Category, Category]:
        """The same to be shown: of a model that was not asked nobody knows what it gives now."""
        now, goal = self.classes_of(query, answer)
        return ("not asked" if self.decided_by is DecidedBy.STAND_IN else now), goal

    @property
    def _numbers(self) -> tuple[Array, Array]:
        """The position of the query and of the answer among its own, for every answer."""
        number, rank = np.divmod(np.arange(len(self.status)), self.k)
        return number, rank

    def _cells_of(self, query: int, answer: int) -> list[Change]:
        """All columns of one answer with their plain values before and after."""
        at = self.at(query, answer)
        return [(column, before[at], after[at]) for column, before, after in self._cells]

    @cached_property
    def _cells(self) -> list[tuple[str, list[Any], list[Any]]]:
        """Each column with its values before and after; a row of pandas makes integers floats."""
        cells = []
        for feature in self.schema.features:
            for column in feature.columns:
                before, after = (
                    [wording.plain_value(value, feature.is_whole) for value in frame[column]]
                    for frame in (self.queries, self.rows)
                )
                cells.append((column, before, after))
        return cells

    def text(self, query: int, answer: int = 0) -> str:
        """One answer as a sentence."""
        at = self.at(query, answer)
        now, goal = self.classes_of(query, answer)
        if self.status[at] == Status.ALREADY.value:
            asked = self.decided_by.asked.capitalize()
            return f"{asked} already says {goal}; nothing needs to change."
        if self.status[at] == Status.NOT_FOUND.value:
            way = "other way" if query in self.found else "way"
            reason = "" if self.reason is None else self.reason[at]
            why = f": {reason}" if reason else " within the rules"
            return f"{self.decided_by.says(now)}No {way} to {goal} was found{why}."
        start = wording.opening(now, goal, self.decided_by)
        condition = wording.condition(self.schema, self.changes_of(query, answer))
        sentence = f"{start} ({self.probability[at]:.0%} sure) if {condition}."
        return " ".join([sentence, *self.worth_in_words(query, answer)])

    def measures(self, query: int, answer: int = 0) -> str:
        """The numbers of one answer in a line: probability, distance and what is known besides."""
        at = self.at(query, answer)
        known = {"probability": self.probability, "distance": self.distance, **self._worth}
        return " · ".join(f"{name} {values[at]:.2f}" for name, values in known.items())

    @property
    def meanings(self) -> tuple[str, ...]:
        """What the measures mean, a sentence each."""
        always = (
            "The probability is that of the other decision, with these changes.",
            "The distance is L2, every encoded number between 0 and 1.",
        )
        if not self._worth:
            return always
        return (
            *always,
            "The effort adds up how far the changed numbers move among all people, in shares of "
            "them; any other change counts 1.",
            "The plausibility is the share of people of the class, as the veil knows them, who are "
            "less usual than the answer.",
            "The stability is the share of models that agree, of some that might as well have been "
            "trained.",
        )

    def worth_in_words(self, query: int, answer: int) -> list[str]:
        """How the answer compares with people of the target class, and how stable it is."""
        at, (_, goal) = self.at(query, answer), self.classes_of(query, answer)
        said = []
        if self.standing is not None:
            places = {feature.name: place for place, feature in enumerate(self.schema.features)}
            for change in self.changes_of(query, answer):
                share = float(self.standing[at, places[change[0]]]) if change[0] in places else None
                said += wording.compared(change, share, goal)
        if self.stability is not None:
            said.append(wording.agreement(float(self.stability[at])))
        return said

    def explain(self, query: int | None = None) -> str:
        """The answers to one query in sentences, or those to every query that has any."""
        if query is None:
            numbers = self.found.tolist()
            every = "\n\n".join(f"Query {number + 1}: {self.explain(number)}" for number in numbers)
            return every or f"{self.headline}."
        ranks = [rank for rank in range(self.k) if self.valid[self.at(query, rank)]]
        if len(ranks) < 2:
            return self.text(query)
        lines = [wording.opening(*self.classes_of(query), self.decided_by)]
        for rank in ranks:
            start = "if" if len(lines) == 1 else "Or: if"
            condition = wording.condition(self.schema, self.changes_of(query, rank))
            sure = f"{self.probability[self.at(query, rank)]:.0%} sure"
            worth = " ".join(["", *self.worth_in_words(query, rank)])
            lines.append(f"  ({rank + 1}) {start} {condition} ({sure}).{worth}")
        return "\n".join(lines)

    def plot(self, query: int = 0, answer: int = 0) -> Figure:
        """One answer as a picture: a matplotlib Figure, to show or to `.savefig("cf.png")`."""
        try:
            from counterveil.search.figure import Answer, draw
        except ModuleNotFoundError:
            raise RequestError("plot needs matplotlib: pip install matplotlib") from None
        at = self.at(query, answer)
        drawn = Answer(
            schema=self.schema,
            name=f"query {query + 1}" + (f" · answer {answer + 1}" if self.k > 1 else ""),
            text=self.text(query, answer),
            found=bool(self.valid[at]),
            classes=self.shown_classes(query, answer),
            probability=float(self.probability[at]),
            changes=self.changes_of(query, answer),
            kept=self.kept_of(query, answer),
            fixed=self.fixed,
        )
        return draw(drawn)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values for JSON."""
        records = self.summary().to_dict(orient="records")
        for record, query, answer in zip(records, *self._numbers, strict=True):
            record |= {name: _or_none(record[name]) for name in self._worth}
            record["changes"] = [
                {"column": column, "from": before, "to": after}
                for column, before, after in self.changes_of(query, answer)
            ]
        several = {"answers": self.answers, "diversity": _or_none(self.diversity)}
        return {
            "statement": self.statement.model_dump(mode="json"),
            "signature": signer_dict(self.signer),
            "decided_by": self.decided_by.value,
            "flip_ratio": _or_none(self.flip_ratio),
            "mean_distance": _or_none(self.mean_distance),
            **(several if self.k > 1 else {}),
            "explanations": records,
        }

    def save(self, path: str | os.PathLike[str], *, escape: bool = True) -> None:
        """Write summary and rows side by side as .csv, .parquet or .json.

        In a CSV, texts that a spreadsheet would take for a formula get an apostrophe in front;
        `escape=False` writes them as they are.

        A column of the summary that is called like one of the table's (`status`, `distance`, …) is
        written as `counterveil_status` and so on; the table keeps its names.
        """
        summary = self.summary()
        while clashing := set(summary.columns) & set(self.schema.columns):
            summary = summary.rename(columns={name: f"counterveil_{name}" for name in clashing})
        table = pd.concat([summary, self.rows.reset_index(drop=True)], axis=1)
        write_whole(path, wording.file_content(table, path, escape=escape))


def _or_none(number: float) -> float | None:
    return None if np.isnan(number) else number
