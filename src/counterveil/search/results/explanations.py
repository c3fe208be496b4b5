"""Explanations: the answers to every query, in the units of the table."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from counterveil.errors import RequestError
from counterveil.files import write_whole
from counterveil.schema import Category
from counterveil.search.results import wording
from counterveil.search.results.answers import (
    Answers,
    Status,
    index_of_answers,
    is_plain,
    with_index,
)
from counterveil.search.results.wording import DecidedBy
from counterveil.signature import signer_dict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 10  # answers in a notebook


@dataclass(frozen=True, eq=False, repr=False)
class Explanations(Answers):
    """The answers as people and machines read them: in words, tables, pictures and files.

    The fields are those of `Answers`.
    """

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

    @property
    def headline(self) -> str:
        """How the search went, in one line."""
        more = f" with {self.answers} answers" if self.k > 1 else ""
        parts = [f"{len(self.found)} found{more}", f"{self.count(Status.NOT_FOUND)} not found"]
        if self.count(Status.ALREADY):
            parts.append(f"{self.count(Status.ALREADY)} already of the target class")
        line = f"{len(self)} {'query' if len(self) == 1 else 'queries'}: {', '.join(parts)}"
        return line + (f"; mean distance {self.mean_distance:.2f}" if len(self.found) else "")

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
        its rank from 1, and the `reason` where any answer has one. The index is that of the
        caller's table, as that of `rows`.
        """
        label = self.schema.label
        summary = self._summary([label.shown_value(name) for name in label.classes])
        return with_index(summary, self.index, self.k)

    def _summary(self, classes: Sequence[Category]) -> pd.DataFrame:
        """The summary with these names for the classes."""
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
        if self.reason is not None and any(self.reason):
            columns["reason"] = self.reason
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

    def shown_classes(self, query: int, answer: int = 0) -> tuple[Category, Category]:
        """What people call `classes_of`; nobody knows what a model gives now that was not asked."""
        now, goal = self._called_classes(query, answer)
        return ("not asked" if self.decided_by is DecidedBy.STAND_IN else now), goal

    def _called_classes(self, query: int, answer: int = 0) -> tuple[Category, Category]:
        """What people call `classes_of`."""
        now, goal = map(self.schema.label.shown_value, self.classes_of(query, answer))
        return now, goal

    def text(self, query: int, answer: int = 0) -> str:
        """One answer as a sentence."""
        at = self.at(query, answer)
        now, goal = self._called_classes(query, answer)
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
        known = {"probability": self.probability, "distance": self.distance, **self._measures}
        return " · ".join(f"{name} {values[at]:.2f}" for name, values in known.items())

    @property
    def meanings(self) -> tuple[str, ...]:
        """What the measures mean, a sentence each."""
        always = (
            "The probability is that of the other decision, with these changes.",
            "The distance is L2, every encoded number between 0 and 1.",
        )
        if self.worth is None:
            return always
        return *always, *wording.meanings_of_worth(self.schema)

    def worth_in_words(self, query: int, answer: int) -> list[str]:
        """How the answer compares with people of the target class, and how stable it is."""
        at, (_, goal) = self.at(query, answer), self._called_classes(query, answer)
        if self.worth is None:
            return []
        share = float(self.worth.stability[at])
        if self.schema.family == "image":
            return [wording.steadiness(share, goal)]
        said = []
        places = {feature.name: place for place, feature in enumerate(self.schema.features)}
        for change in self.changes_of(query, answer):
            below = None
            if change[0] in places:
                below = float(self.worth.standing[at, places[change[0]]])
            said += wording.compared(self.schema, change, below, goal)
        return [*said, wording.agreement(share)]

    def explain(self, query: int | None = None) -> str:
        """The answers to one query in sentences, or those to every query that has any."""
        if query is None:
            numbers = self.found.tolist()
            every = "\n\n".join(f"Query {number + 1}: {self.explain(number)}" for number in numbers)
            return every or f"{self.headline}."
        ranks = [rank for rank in range(self.k) if self.valid[self.at(query, rank)]]
        if len(ranks) < 2:
            return self.text(query)
        lines = [wording.opening(*self._called_classes(query), self.decided_by)]
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
            from counterveil.search.results.figure import Answer, draw
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
            places=self.places_of(query, answer),
        )
        return draw(drawn)

    def places_of(self, query: int, answer: int) -> dict[str, tuple[float, float]]:
        """Of each number the share of people below it, before and after; empty where unknown."""
        if self.worth is None:
            return {}
        places = self.worth.places[self.at(query, answer)]
        known = zip(self.schema.features, places, strict=True)
        return {each.name: tuple(two) for each, two in known if not np.isnan(two).any()}

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values for JSON, with the names and values of the table.

        What people call them is beside it, under `names`, where the schema says so.
        """
        records = self._summary(self.schema.label.classes).to_dict(orient="records")
        for record, query, answer in zip(records, *self._numbers, strict=True):
            record |= {name: _or_none(record[name]) for name in self._measures}
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
            **({"names": names} if (names := self.schema.names) else {}),
            "explanations": records,
        }

    def to_html(self, *, most: int = 100) -> str:
        """A page for people, of one file: a card for each of the first `most` queries."""
        from counterveil.search.results.page import explanations_page

        return explanations_page(self, most=most)

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
        write_whole(path, wording.file_content(self.table(), path, escape=escape))

    def table(self, first: int = 0) -> pd.DataFrame:
        """Summary and rows side by side, as `save` writes them; queries count from `first` + 1."""
        summary = self._summary(self.schema.label.classes)
        summary["query"] += first
        for name, values in reversed(self._index_columns()):
            summary.insert(0, free_name(name, summary.columns), values)
        own = self.schema.columns
        summary = summary.rename(columns=lambda name: free_name(name, own))
        return pd.concat([summary, self.rows.reset_index(drop=True)], axis=1)

    def _index_columns(self) -> list[tuple[str, Any]]:
        """The levels of the caller's index by name, one value an answer; none if it is plain."""
        index = self.index
        if index is None or is_plain(index):
            return []
        usual = ["index"] if index.nlevels == 1 else [f"level_{i}" for i in range(index.nlevels)]
        names = [
            own if name is None else str(name) for own, name in zip(usual, index.names, strict=True)
        ]
        number, _ = self._numbers
        levels = (index.get_level_values(level)[number] for level in range(index.nlevels))
        return list(zip(names, levels, strict=True))


def free_name(name: str, taken: Collection[str]) -> str:
    """What a column is called beside columns with other names."""
    while name in taken:
        name = f"counterveil_{name}"
    return name


def _or_none(number: float) -> float | None:
    return None if np.isnan(number) else number
