"""What a search found for queries: rows, arrays, and all that is known of one answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
import torch

from counterveil.encoding import Array, Encoding
from counterveil.errors import RequestError
from counterveil.privacy import Statement
from counterveil.schema import Category, Schema
from counterveil.search.results import wording
from counterveil.search.results.answer import Answer, Refusal
from counterveil.search.results.put_off import Lazy, PutOff
from counterveil.search.results.reasons import Gain, Reason
from counterveil.search.results.refusals import Opening, Status
from counterveil.search.results.regions import Region
from counterveil.search.results.tables import cells_of, of_caller, with_index
from counterveil.search.results.wording import Change, DecidedBy, same
from counterveil.signature import Signer
from counterveil.tables import plain_values

if TYPE_CHECKING:
    from counterveil.search.constraints.rules import Rules

_MISSING = (Status.NOT_FOUND.value, Status.IMPOSSIBLE.value)
_FRAMES = ("queries", "rows", "closest", "opened")
_BY_QUERY = ("closest", "opened", "asked", "best_probability", "opens", "rules")
_BY_ANSWER = (
    *("queries", "rows", "status", "predicted", "target"),
    *("probability", "distance", "changed", "reason"),
)


def _of_quality(
    name: str, what: str = "Of each answer, see `AnswerQuality`; None where no population is known."
) -> property:
    """A property of Explanations: what `AnswerQuality` has under a name, or None."""
    return property(lambda result: result.quality and getattr(result.quality, name), doc=what)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Outcome:
    """What a search found for queries, in the order in which these came.

    Arguments of methods are positions from 0: of a query, and of one of its `k` answers. Whatever
    is shown or written to a file counts from 1, as the rows of a spreadsheet.

    Frames and arrays with one entry for each answer, (queries · k), those of the first query first:

    - `queries`: the row asked about, repeated for each of its answers.
    - `rows`: the answer; where none was found, the query's own row.
    - `status`: values of `Status`.
    - `predicted`, `target`: indices of classes.
    - `probability`: of the target class for `rows`.
    - `distance`: L2 distance in the unit cube.
    - `changed`: number of changed features.
    - `reason`: why no answer was found, or an empty text.

    About queries without an answer, one entry a query; empty or None where the search does not
    tell:

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
    - `carried`: further columns of the caller's table, such as a key, one row a query; None where
      there are none.
    - `dtypes`: of the schema's columns in the caller's table, if it is of pandas.
    - `decided_by`: whose decisions these are.
    - `rules`: what every answer to a query keeps, one entry a query.
    - `regions`: of each answer, which values of its changes work; found when first looked at.
    - `gains`: of each query, which features count against the person, and how much; the same.
    - `origin`: the digest of the veil, and how a certificate names the model.
    - `quality`: of each answer; when it is first looked at the model may be asked, and a committee
      be learnt. None where a veil has no population.
    """

    schema: Schema
    statement: Statement
    queries: Lazy = Lazy()  # noqa: RUF009
    rows: Lazy = Lazy()  # noqa: RUF009
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
    closest: Lazy = Lazy(default=pd.DataFrame)  # noqa: RUF009
    opens: Sequence[Opening | None] = ()
    opened: Lazy = Lazy(default=pd.DataFrame)  # noqa: RUF009
    fixed: tuple[str, ...] = ()
    signer: Signer | None = None
    index: pd.Index[Any] | None = None
    carried: pd.DataFrame | None = None
    dtypes: Mapping[str, Any] = field(default_factory=dict)
    decided_by: DecidedBy = DecidedBy.MODEL
    rules: Sequence[Rules] = ()
    regions: PutOff[Region] = PutOff()  # noqa: RUF009
    gains: PutOff[Gain] = PutOff()  # noqa: RUF009
    origin: Lazy = Lazy(default=None)  # noqa: RUF009
    quality: Lazy = Lazy(default=None)  # noqa: RUF009

    def __len__(self) -> int:
        return len(self.status) // self.k

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: all that was put off is computed, and the model is left out."""
        lazy = (*_FRAMES, "origin", "quality")
        return {**self.__dict__, **{f"_{name}": getattr(self, name) for name in lazy}}

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
        return len(self.found) / asked if asked else math.nan

    @property
    def mean_distance(self) -> float:
        """Mean L2 distance in the unit cube from query to first answer, over those found."""
        distance = self.distance[:: self.k][self.found]
        return float(distance.mean()) if len(distance) else math.nan

    @property
    def diversity(self) -> float:
        """Mean L2 distance in the unit cube between the answers of a query; NaN without pairs."""
        if self.k == 1 or not self.answers:
            return math.nan
        points = torch.from_numpy(Encoding(self.schema).encode(self.rows)).split(self.k)
        valid = torch.from_numpy(self.valid).split(self.k)
        several = [rows[ok] for rows, ok in zip(points, valid, strict=True) if ok.sum() > 1]
        distances = [torch.pdist(rows).mean().item() for rows in several]
        return float(np.mean(distances)) if distances else math.nan

    @property
    def headline(self) -> str:
        """How the search went, in one line."""
        more = f" with {self.answers} answers" if self.k > 1 else ""
        parts = [f"{len(self.found)} found{more}", f"{self.count(Status.NOT_FOUND)} not found"]
        others = {Status.IMPOSSIBLE: "impossible", Status.ALREADY: "already of the target class"}
        counted = ((self.count(status), words) for status, words in others.items())
        parts += [f"{count} {words}" for count, words in counted if count]
        line = f"{len(self)} {'query' if len(self) == 1 else 'queries'}: {', '.join(parts)}"
        return line + (f"; mean distance {self.mean_distance:.2f}" if len(self.found) else "")

    def only(self, queries: Sequence[int]) -> Self:
        """The same for some of the queries, in the given order, numbered anew."""
        some = np.asarray(queries, dtype=int)
        at = (some[:, None] * self.k + np.arange(self.k)).ravel()
        index = None if self.index is None else self.index[some]

        def part(name: str, at: Array, k: int) -> Any:
            whole = getattr(self, name)
            if whole is None or not len(whole):
                return whole
            if isinstance(whole, pd.DataFrame):
                some_rows = whole.iloc[at].reset_index(drop=True)
                return with_index(some_rows, index, k) if k else some_rows
            return whole[at] if isinstance(whole, np.ndarray) else [whole[each] for each in at]

        return replace(
            self,
            index=index,
            carried=part("carried", some, 0),
            regions=self.regions.select(at),
            gains=self.gains.select(some),
            quality=lambda: self.quality and self.quality.select(at),
            **{name: part(name, at, self.k) for name in _BY_ANSWER},
            **{name: part(name, some, 1) for name in _BY_QUERY},
        )

    effort = _of_quality("effort")
    plausibility = _of_quality("plausibility")
    stability = _of_quality("stability")
    beyond = _of_quality("beyond")
    veil_knows = _of_quality(
        "veil_knows",
        "Whether the veil is clear enough to compare answers with people; None without a P~.",
    )
    knows_pairs = _of_quality(
        "knows_pairs", "Whether the veil knows which values go together; None without a P~."
    )

    @property
    def warning(self) -> str:
        """What the veil cannot tell about answers; "" where there is nothing to say."""
        return wording.warning(self.veil_knows, self.knows_pairs)

    def at(self, query: int, answer: int) -> int:
        """The position of an answer in every field."""
        for what, place, count in (("query", query, len(self)), ("answer", answer, self.k)):
            if not isinstance(place, (int, np.integer)) or not 0 <= place < count:
                raise RequestError(
                    f"no {what} at position {place!r}; positions are 0 to {count - 1}"
                )
        return query * self.k + answer

    def changes_of(self, query: int, answer: int = 0) -> list[Change]:
        """The changed columns of one answer with their values before and after."""
        at = self.at(query, answer)
        return self._differences(at, "rows", at)

    def region_of(self, query: int, answer: int = 0) -> list[dict[str, Any]]:
        """Which values of each change work, while the rest of the answer stays as it is.

        A record for each changed column: `low` and `high` of a number, both included, or the
        `values` of a category without the person's own; and how that was `checked`.
        """
        return [region.record for region in self.regions[self.at(query, answer)]]

    def reasons_of(self, query: int) -> list[Reason]:
        """What counts most against the person, for the decision as it is now.

        At most four, the weightiest first; see `counterveil.search.results.reasons`. None where the
        veil has no population of a mixed table, or the calls of the model are counted.
        """
        at, found = self.at(query, 0), self.gains[query]
        own = self._cells["queries"]
        return [Reason.of(self.schema.feature(name), own[name][at], gain) for name, gain in found]

    def query_of(self, query: int) -> dict[str, Any]:
        """The row that was asked about, as plain values by column."""
        at = self.at(query, 0)
        return {column: values[at] for column, values in self._cells["queries"].items()}

    def kept_of(self, query: int, answer: int = 0) -> list[tuple[str, Any]]:
        """The columns of one answer that stay as they are, with their values."""
        return self.answer_of(query, answer).kept

    def carried_of(self, query: int) -> dict[str, Any]:
        """What else the caller's table says of a query, as plain values: its key, for example.

        That is its index, if this has a name, and the columns that were carried along.
        """
        if self.carried is None and (self.index is None or self.index.names == [None]):
            return {}
        row = self._keys.iloc[[query]]
        return {name: plain_values(row[name])[0] for name in row.columns}

    @cached_property
    def _keys(self) -> pd.DataFrame:
        return of_caller(self, ())

    def classes_of(self, query: int, answer: int = 0) -> tuple[Category, Category]:
        """The class that the model which is asked gives now, and the one that was asked for."""
        at, classes = self.at(query, answer), self.schema.label.classes
        return classes[self.predicted[at]], classes[self.target[at]]

    def refusal_of(self, query: int) -> Refusal | None:
        """What is known about a query without an answer; None about any other one."""
        at = self.at(query, 0)
        lacks = all(each in _MISSING for each in self.status[at : at + self.k])
        if self.asked is None or self.best_probability is None or not lacks:
            return None
        opening = self.opens[query] if self.opens else None
        return Refusal(
            int(self.asked[query]),
            float(self.best_probability[query]),
            self._differences(at, "closest", query),
            opening,
            [] if opening is None else self._differences(at, "opened", query),
        )

    def answer_of(self, query: int, answer: int = 0) -> Answer:
        """All that is shown of one answer."""
        at, features = self.at(query, answer), [each.name for each in self.schema.features]
        changes, own = self.changes_of(query, answer), self._cells["queries"]
        changed = {column for column, *_ in changes}
        now, goal = map(self.schema.label.shown_value, self.classes_of(query, answer))
        status = Status(str(self.status[at]))
        quality = self.quality if status is Status.FOUND else None
        numbers = {"probability": self.probability, "distance": self.distance}
        beyond, places = {}, {}
        if quality and quality.veil_knows:
            numbers |= quality.measures
            beyond = dict(zip(features, quality.beyond[at].tolist(), strict=False))
            both = zip(features, quality.places[at].tolist(), strict=False)
            places = {name: (was, is_) for name, (was, is_) in both if not math.isnan(was + is_)}
        return Answer(
            schema=self.schema,
            decided_by=self.decided_by,
            query=query,
            carried=self.carried_of(query),
            rank=answer,
            several=self.k > 1,
            has_others=bool(self.status[query * self.k] == Status.FOUND.value),
            status=status,
            classes=("not asked" if self.decided_by is DecidedBy.STAND_IN else now, goal),
            changes=changes,
            kept=[(column, own[column][at]) for column in own if column not in changed],
            fixed=self.fixed,
            numbers={name: float(values[at]) for name, values in numbers.items()},
            beyond=beyond,
            places=places,
            reason="" if self.reason is None else str(self.reason[at]),
            find_regions=partial(self.regions.__getitem__, at),
            refusal=None if answer else self.refusal_of(query),
            veil_knows=quality and quality.veil_knows,
            knows_pairs=quality and quality.knows_pairs,
        )

    def answers_of(self, query: int) -> list[Answer]:
        """All that is shown of the answers to one query."""
        return [self.answer_of(query, answer) for answer in range(self.k)]

    def rules_of(self, query: int) -> Rules | None:
        """The rules of one query; None where they are not known."""
        return self.rules[query] if self.rules else None

    def _differences(self, at: int, frame: str, then: int) -> list[Change]:
        """The columns in which row `at` of the queries differs from row `then` of a frame."""
        before, after = self._cells["queries"], self._cells[frame]
        pairs = ((column, before[column][at], after[column][then]) for column in before)
        return [pair for pair in pairs if not same(*pair[1:])]

    @cached_property
    def _cells(self) -> dict[str, dict[str, list[Any]]]:
        """The columns of each frame as plain values; a row of pandas makes integers floats."""
        frames = {name: getattr(self, name) for name in _FRAMES}
        return {name: cells_of(frame, self.schema) for name, frame in frames.items() if len(frame)}
