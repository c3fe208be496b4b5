"""The sections of sections.toml as objects, and the rows that their tables are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from counterveil_lab import paper_values
from counterveil_lab.attacks.extraction import ATTACKERS, BASES
from counterveil_lab.report import attacks, claims
from counterveil_lab.report.claims import Claim
from counterveil_lab.report.pivots import (
    SECTIONS,
    Measure,
    Pivot,
    Table,
    place_in,
    select,
    table_of,
    with_values,
)

Rows = Callable[[pd.DataFrame], pd.DataFrame]
MakeTable = Callable[[pd.DataFrame], Table | None]
SETTINGS = {
    "known architecture": {"architecture": "known", "predictions": "probabilities"},
    "unknown architecture": {"architecture": "unknown", "predictions": "probabilities"},
    "known architecture, f names its class alone": {
        "architecture": "known",
        "predictions": "labels",
    },
}


@dataclass(frozen=True)
class Section:
    """One experiment: its place in the paper, what one sees, and what is made of its rows."""

    name: str
    title: str
    place: str
    sees: str
    rows: Rows
    claims: Sequence[Claim]
    tables: Sequence[MakeTable]
    made_by: str


def section_of(spec: Mapping[str, Any]) -> Section:
    """A section as sections.toml has it."""
    deciders = {**claims.DECIDERS, **attacks.DECIDERS}
    found: list[Claim] = []
    for claim in spec["claim"]:
        control = claim.get("control")
        found += [attacks.control_claim(control)] if control else claims.claims_of(claim, deciders)
    return Section(
        *(spec[name] for name in ("name", "title", "place", "sees")),
        rows_of(spec.get("rows", {})),
        found,
        [make for table in spec["table"] for make in tables_of(table)],
        spec.get("made_by", f"counterveil-lab run {spec['name']}"),
    )


def tables_of(spec: Mapping[str, Any]) -> list[MakeTable]:
    """What makes the table of an entry in sections.toml; one table a setting where it says so."""
    if "made" in spec:
        return [attacks.TABLES[spec["made"]]]
    rows = rows_of(spec.get("rows", {}))
    if "by_dataset" in spec:  # a line for each method, a column for each dataset
        index = {"method": "method name", "ε": "ε", "guarantee": "guarantee"}
        columns, sort = ("dataset name", "dataset place"), ("method place",)
        measures = [spec["by_dataset"]]
    else:
        index, measures, sort = spec["index"], spec["measures"], tuple(spec.get("sort", ()))
        columns = tuple(spec["columns"]) if "columns" in spec else None
    made = [Measure(**SECTIONS["measure"][name]) for name in measures]
    pivots = []
    for number, (words, where) in enumerate(SETTINGS.items() if "settings" in spec else [("", {})]):
        title = spec.get("title", "").format(settings=words)
        chosen: Rows = lambda frame, where=where: rows(select(frame, **where))  # noqa: E731
        folded = spec.get("folded", False) or number > 0
        pivots.append(Pivot(title, index, made, columns, chosen, sort, folded=folded))
    return [partial(_table_of, pivot) for pivot in pivots]


def _table_of(pivot: Pivot, frame: pd.DataFrame) -> Table | None:
    return table_of(frame, pivot)


def rows_of(spec: Mapping[str, Any]) -> Rows:
    """What takes rows: those with the values named, or those that a function of this file makes."""
    return ROWS[spec["made"]] if "made" in spec else lambda frame: select(frame, **spec)


def with_training_mean(frame: pd.DataFrame) -> pd.DataFrame:
    """The error of answering the mean of the training rows as a method of its own."""
    lines = with_values(frame, ("mse_of_pooled_mean",))
    names = {"method name": "mean of the training rows", "ε": "–", "guarantee": ""}
    lines = lines.assign(mse=lines.get("mse_of_pooled_mean"), **names)
    return pd.concat([_placed(lines, "method place", (-1,)), frame])


def _placed(frame: pd.DataFrame, column: str, place: tuple[float, ...]) -> pd.DataFrame:
    return frame.assign(**{column: [place] * len(frame)})


def planned_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Releases whose order of marginals was left to the plan."""
    return frame[frame.asked_order.isna()] if "asked_order" in frame else frame


def latest_run(frame: pd.DataFrame) -> pd.DataFrame:
    """Times compare inside one run of the command: the latest of each dataset."""
    rows = with_values(frame, ("dataset", "seconds_for_ten", "run"))
    if rows.empty:
        return rows
    rows = rows[rows.run == rows.groupby("dataset").run.transform("max")]
    return rows.assign(seconds=rows.seconds_for_ten)


def every_attacker(frame: pd.DataFrame) -> pd.DataFrame:
    """What every attacker reaches with the most queries that a defence was attacked with."""
    order = [*BASES, *ATTACKERS]
    rows = select(frame, attacker=order)
    if rows.empty:
        return rows
    rows = rows[rows.queries == rows.groupby(["dataset", "defence name"]).queries.transform("max")]
    return rows.assign(**{"attacker place": rows.attacker.map(partial(place_in, order))})


def believing(frame: pd.DataFrame) -> pd.DataFrame:
    """The naive attacker of each defence, and predictions alone as a defence of their own."""
    base = select(frame, attacker="base-n")
    base = base[base.defence != "dp-model"] if len(base) else base  # there f is another
    told = [
        paper_values.extraction(row["dataset"], "none", None, row["architecture"], row["queries"])
        if row["predictions"] == "probabilities"
        else ""
        for row in base.to_dict("records")
    ]
    base = base.assign(**{"defence name": "`none`", "printed accuracy": told})
    return pd.concat([_placed(base, "defence place", (-1,)), select(frame, attacker="naive")])


def single_values(frame: pd.DataFrame) -> pd.DataFrame:
    """Attribute inference value by value."""
    rows = select(frame, control="none")
    return rows[rows.value != "all"] if "value" in rows else rows


def strongest_finding(frame: pd.DataFrame) -> pd.DataFrame:
    """The game with the largest bound against each claim."""
    rows = with_values(frame, ("mechanism", "claimed_epsilon", "bound", "view"))
    best = rows.groupby(["mechanism", "claimed_epsilon"], sort=False).bound.idxmax()
    rows = rows.loc[best]
    return rows[~rows["view"].str.startswith("tree")]


def largest_call(frame: pd.DataFrame) -> pd.DataFrame:
    """Our search and other methods, all queries in one call."""
    rows = select(frame, part="peers")
    return rows[rows.batch == rows.batch.max()] if "batch" in rows else rows


def timed_once(frame: pd.DataFrame) -> pd.DataFrame:
    """The same; quality is over seeds, time that of the first seed."""
    rows = largest_call(frame)
    guidance = rows.guidance.map({"surrogate": ", guidance `surrogate`"}).fillna("")
    more = {"method and guidance": rows.method + guidance}
    first = rows.where(rows.seed == 0)
    more |= {"first_seconds": first.seconds_per_query, "first_times": first.times_counterveil}
    return rows.assign(**more)


def both_guidances(frame: pd.DataFrame) -> pd.DataFrame:
    """Mechanism `functional` with guidance `model`, and the flip ratio of the other guidance."""
    rows = planned_order(select(frame, mechanism="functional"))
    rows = rows[rows.dataset != "digits"]
    surrogate = rows.guidance == "surrogate"
    rows = rows.assign(surrogate_flip_ratio=rows.flip_ratio.where(surrogate))
    masked = {name: rows[name].mask(surrogate) for name in ("flip_ratio", "distance", "legal")}
    return rows.assign(**masked)


ROWS: dict[str, Rows] = {
    make.__name__: make
    for make in (with_training_mean, planned_order, latest_run, every_attacker, believing,
                 single_values, strongest_finding, largest_call, timed_once, both_guidances)
}  # fmt: skip
