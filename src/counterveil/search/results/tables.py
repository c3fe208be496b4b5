"""Frames, tables, records and pages of Explanations: a row, record or card for each answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from counterveil.encoding import Array
from counterveil.pages import TEMPLATES
from counterveil.schema import Schema
from counterveil.search.results.answer import Refusal, as_records, card
from counterveil.search.results.refusals import Status
from counterveil.signature import signer_dict, signer_line
from counterveil.tables import plain_values

if TYPE_CHECKING:
    from counterveil.search.results.explanations import Explanations
    from counterveil.search.results.outcome import Outcome

Frame = pd.DataFrame | Callable[[], pd.DataFrame]
SHOWN = 10  # answers in a notebook


class LazyFrame:
    """A field of a dataclass: a frame, or a function that makes it when it is first looked at.

    Making the frames of a single answer takes as long as a good part of the search. `default`: for
    a field that may be left out.
    """

    def __init__(self, default: Frame | None = None) -> None:
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    def __get__(self, holder: Any, owner: type) -> pd.DataFrame:
        if holder is None:  # a dataclass looks for the default
            if self._default is None:
                raise AttributeError(self._name)
            return self._default  # type: ignore[return-value]
        known = holder.__dict__
        if callable(known[self._name]):
            known[self._name] = known[self._name]()
        frame: pd.DataFrame = known[self._name]
        return frame

    def __set__(self, holder: Any, frame: Frame) -> None:
        holder.__dict__[self._name] = frame


def is_plain(index: pd.Index[Any] | None) -> bool:
    """Whether an index says no more than positions from 0 do."""
    if not isinstance(index, pd.RangeIndex):
        return index is None
    return index.name is None and index.start == 0 and index.step == 1


def index_of_answers(index: pd.Index[Any], k: int) -> pd.Index[Any]:
    """The index of the queries for each of their `k` answers; with k > 1 a level `answer`, from 1.

    A single level without a name is then called `query`.
    """
    if k == 1:
        return index
    ranks = pd.Index(np.tile(np.arange(1, k + 1), len(index)), name="answer")
    named = index.rename(index.name or "query") if index.nlevels == 1 else index
    return pd.DataFrame(index=named.repeat(k)).set_index(ranks, append=True).index


def with_index(frame: pd.DataFrame, index: pd.Index[Any] | None, k: int) -> pd.DataFrame:
    """`frame`, which has `k` rows a query, with the index of the caller's table if it has one."""
    if index is None or is_plain(index):
        return frame
    return frame.set_axis(index_of_answers(index, k), axis=0)


def cells_of(frame: pd.DataFrame, schema: Schema) -> dict[str, list[Any]]:
    """The columns of a frame as plain values; a row of pandas makes integers floats."""
    return {
        column: plain_values(frame[column], feature.is_whole)
        for feature in schema.features
        for column in feature.columns
    }


def as_dict(result: Explanations) -> dict[str, Any]:
    """Everything as plain values for JSON."""
    several = {"answers": result.answers, "diversity": or_none(result.diversity)}
    return {
        "statement": result.statement.model_dump(mode="json"),
        "signature": signer_dict(result.signer),
        "decided_by": result.decided_by.value,
        "flip_ratio": or_none(result.flip_ratio),
        "mean_distance": or_none(result.mean_distance),
        "veil_knows": result.veil_knows,
        "knows_pairs": result.knows_pairs,
        **(several if result.k > 1 else {}),
        **({"names": names} if (names := result.schema.names) else {}),
        "explanations": records(result),
    }


def in_notebook(result: Explanations) -> str:
    """What a notebook shows: the promise, and the first answers in sentences."""
    some = result.found[:SHOWN].tolist()
    lines = [f"<li value={query + 1}>{escape(result.explain(query))}</li>" for query in some]
    left = len(result.found) - len(some)
    more = f"<p>and {left} more: .explain(), .frame(), .summary()</p>" if left else ""
    told = f"{result.headline}; {result.statement.headline}"
    return f"<p><b>{escape(told)}</b></p><ol>{''.join(lines)}</ol>{more}"


def page(result: Explanations, most: int) -> str:
    """A page of one file: a card for each of the first `most` queries."""
    is_already = result.status[:: result.k] == Status.ALREADY.value
    asked, already = (np.flatnonzero(part).tolist() for part in (~is_already, is_already))
    return TEMPLATES.get_template("explanations.html").render(
        title=f"Explanations: {result.schema.name}",
        cards=[card(result.answers_of(query)) for query in asked[:most]],
        asked=len(asked),
        already=[query + 1 for query in already],
        result=result,
        counts={status.value: result.count(status) for status in Status},
        statement=result.statement,
        signed=signer_line(result.signer),
    )


def summary(
    result: Explanations, called: Callable[[Any], Any] = str, *, whole: bool = False
) -> pd.DataFrame:
    """One row an answer; `called`: how classes are named; `whole`: with every column there is."""
    classes = result.schema.label.classes
    names = np.array([str(called(name)) for name in classes], dtype=object)
    query, rank = _positions(result)
    columns = {"query": query + 1} | ({"answer": rank + 1} if result.k > 1 else {})
    columns |= {
        "status": result.status,
        "predicted": names[result.predicted],
        "target": names[result.target],
        "probability": result.probability,
        "distance": result.distance,
        "changed_features": result.changed,
    }
    for name, values in _measures(result).items():
        columns[name] = np.where(result.valid, values, np.nan)
    if result.reason is not None and (whole or any(result.reason)):
        columns["reason"] = result.reason
    if result.asked is not None and (whole or len(result.unanswered)):
        columns["asked"] = result.asked[query]
        columns["best_probability"] = np.asarray(result.best_probability)[query]
    return pd.DataFrame(columns)


def changes(result: Explanations) -> pd.DataFrame:
    """One row for each changed column of every answer that was found."""
    rows = [
        (query + 1, rank + 1, *change, region.get("low"), region.get("high"), region.get("values"))
        for query, rank in (divmod(at, result.k) for at in np.flatnonzero(result.valid).tolist())
        for regions in [{each["column"]: each for each in result.region_of(query, rank)}]
        for change in result.changes_of(query, rank)
        for region in [regions.get(change[0], {})]
    ]
    columns = ["query", "answer", "column", "from", "to", "low", "high", "values"]
    table = pd.DataFrame(rows, columns=columns)
    if result.index is not None and not is_plain(result.index):
        table.index = result.index[table["query"].to_numpy(int) - 1]
    return table if result.k > 1 else table.drop(columns="answer")


def records(result: Explanations) -> list[dict[str, Any]]:
    """Plain values for JSON: a record for each answer."""
    told = summary(result).drop(columns=["asked", "best_probability"], errors="ignore")
    found: list[Any] = told.to_dict(orient="records")
    for record, query, rank in zip(found, *_positions(result), strict=True):
        record.update({name: or_none(record[name]) for name in _measures(result)})
        record["changes"] = as_records(result.changes_of(query, rank))
        record["regions"] = result.region_of(query, rank)
        if rank == 0:
            record["reasons"] = [each.record for each in result.reasons_of(query)]
        if rank == 0 and (carried := result.carried_of(query)):
            record["carried"] = carried
        if rank == 0 and (refusal := result.refusal_of(query)):
            record.update(refusal.record)
    return found


def table(result: Explanations, first: int, *, whole: bool) -> pd.DataFrame:
    """Summary and rows side by side, with the caller's index first; see `Explanations.table`."""
    told, own = summary(result, whole=whole), result.schema.columns
    told["query"] += first
    query, _ = _positions(result)
    if "asked" in told:
        known = [_cells(result.refusal_of(each)) for each in range(len(result))]
        told = told.assign(**pd.DataFrame(known).iloc[query].reset_index(drop=True))
    keys = of_caller(result, told.columns)
    told = told.rename(columns=lambda name: free_name(name, own))
    parts = [keys.iloc[query].reset_index(drop=True), told, result.rows.reset_index(drop=True)]
    return pd.concat(parts, axis=1)


def of_caller(result: Outcome, taken: Collection[str]) -> pd.DataFrame:
    """The index of the caller's table, if it says more than positions, and the carried columns.

    One row a query; no column is called like one of the table's or of `taken`.
    """
    found = pd.DataFrame(index=pd.RangeIndex(len(result)))
    if result.index is not None and not is_plain(result.index):
        found = pd.DataFrame(index=result.index).reset_index(allow_duplicates=True)
    if result.carried is not None:
        found = pd.concat([found, result.carried], axis=1)
    names = [str(name) for name in found.columns]
    found = found.loc[:, [name not in names[:place] for place, name in enumerate(names)]]
    others = {*result.schema.columns, *taken}
    return found.rename(columns=lambda name: free_name(str(name), others))


def free_name(name: str, taken: Collection[str]) -> str:
    """What a column is called beside columns with other names."""
    while name in taken:
        name = f"counterveil_{name}"
    return name


def or_none(number: float) -> float | None:
    """A number as JSON has it: None for NaN."""
    return None if np.isnan(number) else number


def _positions(result: Explanations) -> tuple[Array, Array]:
    """The position of the query and of the answer among its own, for every answer."""
    query, rank = np.divmod(np.arange(len(result.status)), result.k)
    return query, rank


def _measures(result: Explanations) -> dict[str, Array]:
    """One number for each answer, by name; empty where no population is known."""
    return {} if result.quality is None else result.quality.measures


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
