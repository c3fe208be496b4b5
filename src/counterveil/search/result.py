"""Explanations: one answer for every query, in original units."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from counterveil.encoding import Array
from counterveil.errors import RequestError
from counterveil.files import write_whole
from counterveil.privacy import Statement
from counterveil.schema import Pixels, Schema


class Status(StrEnum):
    """How the search for one query ended."""

    FOUND = "found"
    NOT_FOUND = "not_found"
    ALREADY = "already"


@dataclass(frozen=True, eq=False)
class Explanations:
    """What the search found. Queries are numbered from 0 in the order they came.

    A query without an answer keeps its own row, unchanged: no NaN, and no row that was not accepted
    by the model. `already` means that the model gives the target class as things are.
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

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        return f"Explanations({self.headline})"

    @property
    def valid(self) -> Array:
        """Which queries have a counterfactual."""
        return np.asarray(self.status == Status.FOUND.value)

    @property
    def flip_ratio(self) -> float:
        """Found counterfactuals over queries that were not of the target class already."""
        asked = self.status != Status.ALREADY.value
        return float(self.valid[asked].mean()) if asked.any() else float("nan")

    @property
    def mean_distance(self) -> float:
        """Mean L2 distance in the unit cube from query to counterfactual, over those found."""
        return float(self.distance[self.valid].mean()) if self.valid.any() else float("nan")

    @property
    def headline(self) -> str:
        """How the search went, in one line."""
        counts = {status: int((self.status == status.value).sum()) for status in Status}
        parts = [f"{counts[Status.FOUND]} found", f"{counts[Status.NOT_FOUND]} not found"]
        if counts[Status.ALREADY]:
            parts.append(f"{counts[Status.ALREADY]} already of the target class")
        words = f"{len(self)} queries: {', '.join(parts)}"
        return words + (f"; mean distance {self.mean_distance:.2f}" if self.valid.any() else "")

    def frame(self) -> pd.DataFrame:
        """The counterfactual rows that were found; the index is the number of the query."""
        return self.rows[self.valid]

    def only(self, queries: Sequence[int]) -> Explanations:
        """The same for some of the queries, in the given order, numbered anew."""
        numbers = np.asarray(queries, dtype=int)
        arrays = ("status", "predicted", "target", "probability", "distance", "changed")
        return replace(
            self,
            queries=self.queries.iloc[numbers].reset_index(drop=True),
            rows=self.rows.iloc[numbers].reset_index(drop=True),
            **{name: getattr(self, name)[numbers] for name in arrays},
        )

    def summary(self) -> pd.DataFrame:
        """One row a query: status, classes, probability, distance, number of changed features."""
        names = np.array([str(name) for name in self.schema.label.classes], dtype=object)
        return pd.DataFrame(
            {
                "query": np.arange(len(self)),
                "status": self.status,
                "predicted": names[self.predicted],
                "target": names[self.target],
                "probability": self.probability,
                "distance": self.distance,
                "changed_features": self.changed,
            }
        )

    def changes(self) -> pd.DataFrame:
        """One row for each changed column: query, column, from, to."""
        records = [
            {"query": query, "column": column, "from": before, "to": after}
            for query in np.flatnonzero(self.valid)
            for column, before, after in self.changes_of(int(query))
        ]
        return pd.DataFrame(records, columns=["query", "column", "from", "to"])

    def changes_of(self, query: int) -> list[tuple[str, Any, Any]]:
        """The changed columns of one query with their values before and after."""
        if not 0 <= query < len(self):
            raise RequestError(f"no query {query}; they are numbered from 0 to {len(self) - 1}")
        before, after = self.queries.iloc[query], self.rows.iloc[query]
        return [
            (column, _plain(before[column]), _plain(after[column]))
            for column in self.schema.columns
            if not _same(before[column], after[column])
        ]

    def text(self, query: int) -> str:
        """One answer in words."""
        changes = self.changes_of(query)
        now = self.schema.label.classes[self.predicted[query]]
        goal = self.schema.label.classes[self.target[query]]
        status = self.status[query]
        if status == Status.ALREADY.value:
            return f"The model already says {goal}; nothing needs to change."
        if status == Status.NOT_FOUND.value:
            return f"The model says {now}. No way to {goal} was found within the rules."
        images = [feature for feature in self.schema.features if isinstance(feature, Pixels)]
        pixels = {column for feature in images for column in feature.columns}
        parts = [
            f"{column} were {show(after)} instead of {show(before)}"
            for column, before, after in changes
            if column not in pixels
        ]
        painted = sum(column in pixels for column, _, _ in changes)
        if painted:
            parts.append(f"{painted} of {len(pixels)} pixels were different")
        sure = f"{self.probability[query]:.0%}"
        return f"The model says {now}. It would say {goal} ({sure} sure) if {_join(parts)}."

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values for JSON."""
        answers = self.summary().to_dict(orient="records")
        for number, answer in enumerate(answers):
            answer["changes"] = [
                {"column": column, "from": before, "to": after}
                for column, before, after in self.changes_of(number)
            ]
        return {
            "statement": self.statement.model_dump(mode="json"),
            "flip_ratio": _or_none(self.flip_ratio),
            "mean_distance": _or_none(self.mean_distance),
            "explanations": answers,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write summary and rows side by side as .csv, .parquet or .json."""
        table = pd.concat([self.summary(), self.rows], axis=1)
        kind = Path(path).suffix.lower()
        if kind == ".csv":
            content = table.to_csv(index=False).encode()
        elif kind == ".parquet":
            content = table.to_parquet(index=False)
        elif kind == ".json":
            content = table.to_json(orient="records", indent=2).encode()
        else:
            raise RequestError(f"{path}: name the file .csv, .parquet or .json")
        write_whole(path, content)


def show(value: Any) -> str:
    """A cell as a person reads it."""
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _or_none(number: float) -> float | None:
    return None if np.isnan(number) else number


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def _plain(value: Any) -> Any:
    if pd.isna(value):
        return None
    return value.item() if isinstance(value, np.generic) else value


def _same(before: Any, after: Any) -> bool:
    return bool(pd.isna(before) and pd.isna(after)) or bool(
        not pd.isna(before) and not pd.isna(after) and before == after
    )
