"""The answers to every query: what was found, how often, what changes, and what it is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
import pandas as pd
import torch

from counterveil.encoding import Array, Encoding
from counterveil.errors import RequestError
from counterveil.privacy import Statement
from counterveil.schema import Category, Schema
from counterveil.search.results import wording
from counterveil.search.results.wording import Change, DecidedBy, same
from counterveil.search.results.worth import Worth
from counterveil.signature import Signer

NO_FURTHER = "no further answer that differs"
_ARRAYS = ("status", "predicted", "target", "probability", "distance", "changed")


class Status(StrEnum):
    """How the search for one answer ended; ALREADY: the query is of the target class itself."""

    FOUND = "found"
    NOT_FOUND = "not_found"
    ALREADY = "already"


def is_plain(index: pd.Index[Any] | None) -> bool:
    """Whether an index says no more than positions from 0 do."""
    if index is None:
        return True
    if not isinstance(index, pd.RangeIndex) or index.name is not None:
        return False
    return index.start == 0 and index.step == 1


def index_of_answers(index: pd.Index[Any], k: int) -> pd.Index[Any]:
    """The index of the queries for each of their `k` answers; with k > 1 a level `answer`, from 1.

    A single level without a name is then called `query`.
    """
    if k == 1:
        return index
    again = np.repeat(np.arange(len(index)), k)
    levels = [index.get_level_values(level)[again] for level in range(index.nlevels)]
    names = [name or "query" for name in index.names] if index.nlevels == 1 else index.names
    ranks = np.tile(np.arange(1, k + 1), len(index))
    return pd.MultiIndex.from_arrays([*levels, ranks], names=[*names, "answer"])


def with_index(frame: pd.DataFrame, index: pd.Index[Any] | None, k: int) -> pd.DataFrame:
    """`frame`, which has one row an answer, with the index of the caller's table if it has one."""
    if index is None or is_plain(index):
        return frame
    return frame.set_axis(index_of_answers(index, k), axis=0)


@dataclass(frozen=True)
class _Later:
    make: Callable[[], pd.DataFrame]


def later(make: Callable[[], pd.DataFrame]) -> Any:
    """A frame to be given to `Answers`, which is made when it is first looked at.

    Making the frames of a single answer takes as long as a good part of the search.
    """
    return _Later(make)


class _Frame:
    """A field of `Answers` that may be given as `later`."""

    def __init__(self, name: str) -> None:
        self._name = f"_{name}"

    def __get__(self, answers: Answers, owner: type) -> pd.DataFrame:
        known = answers.__dict__
        if isinstance(known[self._name], _Later):
            known[self._name] = known[self._name].make()
        frame: pd.DataFrame = known[self._name]
        return frame

    def __set__(self, answers: Answers, frame: pd.DataFrame | _Later) -> None:
        answers.__dict__[self._name] = frame


def nothing_known() -> Worth | None:
    """What answers are worth where no population knows."""
    return None


@dataclass(frozen=True, eq=False)
class Answers:
    """What the search found, for each query in the order they came.

    Arguments of methods are positions as everywhere in Python: 0 is the first query, and 0 the
    first of its `k` answers. Whatever is shown or written to a file counts queries and answers
    from 1, as the rows of a spreadsheet. Frames and arrays have one entry for each answer,
    (queries · k) in all: those of the first query, then those of the second, and so on.

    - `queries`: the row asked about, repeated for each of its answers.
    - `rows`: the answer; where none was found, the query's own row.
    - `status`: values of `Status`.
    - `predicted`, `target`: indices of classes.
    - `probability`: of the target class for `rows`.
    - `distance`: L2 distance in the unit cube.
    - `changed`: number of changed features.
    - `reason`: why no answer was found, or an empty text.
    - `fixed`: features held fixed besides those that the schema fixes.
    - `signer`: who signed the veil; None if nobody did.
    - `index`: the index of the caller's table; None where that had none. Where it is more than
      positions from 0, all frames have it, too, `queries` and `rows` included; with k > 1 it has
      one more level, `answer`, from 1.
    - `decided_by`: whose decisions these are.

    `assess` computes what the answers are worth (see `Worth`) when that is first looked at: the
    model may then be asked, and a committee be learnt. `worth`, `effort`, `plausibility`,
    `stability` and `standing` are None where a veil has no population to judge by.
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
    assess: Callable[[], Worth | None] = nothing_known

    def __len__(self) -> int:
        return len(self.status) // self.k

    @cached_property
    def worth(self) -> Worth | None:
        """What each answer is worth; None where no population knows."""
        return self.assess()

    @property
    def effort(self) -> Array | None:
        """Of each answer, see `Worth`."""
        return None if self.worth is None else self.worth.effort

    @property
    def plausibility(self) -> Array | None:
        """Of each answer, see `Worth`."""
        return None if self.worth is None else self.worth.plausibility

    @property
    def stability(self) -> Array | None:
        """Of each answer, see `Worth`."""
        return None if self.worth is None else self.worth.stability

    @property
    def standing(self) -> Array | None:
        """Of each number of an answer, see `Worth`."""
        return None if self.worth is None else self.worth.standing

    @property
    def _measures(self) -> dict[str, Array]:
        """What answers are worth, a number each, by name; empty where no population knows."""
        return {} if self.worth is None else self.worth.measures

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: all is settled that was put off, and the model not taken along."""
        settled = {"_queries": self.queries, "_rows": self.rows}
        return {**self.__dict__, **settled, "assess": partial(_known, self.worth)}

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

    def only(self, queries: Sequence[int]) -> Self:
        """The same for some of the queries, in the given order, numbered anew."""
        at = (np.asarray(queries, dtype=int)[:, None] * self.k + np.arange(self.k)).ravel()
        index = None if self.index is None else self.index[np.asarray(queries, dtype=int)]
        return replace(
            self,
            queries=with_index(self.queries.iloc[at].reset_index(drop=True), index, self.k),
            rows=with_index(self.rows.iloc[at].reset_index(drop=True), index, self.k),
            reason=None if self.reason is None else self.reason[at],
            index=index,
            assess=lambda: None if self.worth is None else self.worth.select(at),
            **{name: getattr(self, name)[at] for name in _ARRAYS},
        )

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


for _name in ("queries", "rows"):
    setattr(Answers, _name, _Frame(_name))


def _known(worth: Worth | None) -> Worth | None:
    return worth
