"""Explanations: one answer for every query, in original units."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from counterveil.encoding import Array
from counterveil.errors import RequestError
from counterveil.files import write_whole
from counterveil.privacy import Statement
from counterveil.schema import Numeric, Pixels, Schema


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
        self._check_number(query)
        return [
            (column, before[query], after[query])
            for column, (before, after) in self._cells.items()
            if not _same(before[query], after[query])
        ]

    def kept_of(self, query: int) -> list[tuple[str, Any]]:
        """The columns of one query that stay as they are, with their values."""
        self._check_number(query)
        return [
            (column, before[query])
            for column, (before, after) in self._cells.items()
            if _same(before[query], after[query])
        ]

    def _check_number(self, query: int) -> None:
        if not 0 <= query < len(self):
            raise RequestError(f"no query {query}; they are numbered from 0 to {len(self) - 1}")

    @cached_property
    def _cells(self) -> dict[str, tuple[list[Any], list[Any]]]:
        """Values before and after, column by column: a row of pandas makes integers floats."""
        whole = {
            column
            for feature in self.schema.features
            if isinstance(feature, Pixels) or (isinstance(feature, Numeric) and feature.integer)
            for column in feature.columns
        }
        return {
            column: (
                [_plain(value, column in whole) for value in self.queries[column]],
                [_plain(value, column in whole) for value in self.rows[column]],
            )
            for column in self.schema.columns
        }

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
        shown = [(column, *show_both(*values)) for column, *values in changes]
        parts = [
            f"{column} were {after} instead of {before}"
            for column, before, after in shown
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
        """Write summary and rows side by side as .csv, .parquet or .json.

        A column of the summary that is called like one of the table's (`status`, `distance`, …) is
        written as `counterveil_status` and so on; the table keeps its names.
        """
        summary = self.summary()
        names = {name: _free(name, self.schema.columns) for name in summary.columns}
        table = pd.concat([summary.rename(columns=names), self.rows], axis=1)
        kind = Path(path).suffix.lower()
        if kind == ".csv":
            content = table.to_csv(index=False).encode()
        elif kind == ".parquet":
            content = _parquet(table)
        elif kind == ".json":
            records = [
                dict(zip(table.columns, map(_plain, values), strict=True))
                for values in zip(*(table[column] for column in table.columns), strict=True)
            ]
            content = json.dumps(records, ensure_ascii=False, indent=2).encode()
        else:
            raise RequestError(f"{path}: name the file .csv, .parquet or .json")
        write_whole(path, content)


def show(value: Any, digits: int = 4) -> str:
    """A cell as a person reads it, with `digits` digits of what comes in fractions."""
    if value is None:
        return "unknown"
    if isinstance(value, float):
        large = abs(value) >= 10_000
        return f"{value:,.{digits - 4}f}" if large else f"{value:,.{digits}g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def show_both(before: Any, after: Any) -> tuple[str, str]:
    """Two different cells with as many digits as it takes to tell them apart."""
    for digits in range(4, 18):
        texts = show(before, digits), show(after, digits)
        if texts[0] != texts[1]:
            return texts
    return repr(before), repr(after)


def _parquet(table: pd.DataFrame) -> bytes:
    try:
        return table.to_parquet(index=False)
    except pa.ArrowException:
        raise RequestError("a column mixes texts and numbers, which Parquet cannot hold; "
                           "write .csv or .json instead") from None  # fmt: skip


def _free(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name = f"counterveil_{name}"
    return name


def _or_none(number: float) -> float | None:
    return None if np.isnan(number) else number


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def _plain(value: Any, whole: bool = False) -> Any:
    """A cell as a value of Python; None for a missing one, an integer where it is `whole`."""
    if pd.isna(value):
        return None
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, Decimal):
        plain = float(plain)
    return int(plain) if whole and isinstance(plain, float) else plain


def _same(before: Any, after: Any) -> bool:
    return bool(before == after) and isinstance(before, bool) == isinstance(after, bool)
